"""Expansions: parameters, command substitution, arithmetic, field splitting and patterns."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from mtplab.standin.minish.arithmetic import evaluate
from mtplab.standin.minish.syntax import Arithmetic, Literal, Parameter, Substitution, Word

if TYPE_CHECKING:
    from mtplab.standin.minish.shell import Shell

Piece = tuple[str, bool]  # text, and whether it was quoted (then no character of it is special)
_CLASSES = {"digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "space": r"\s", "upper": "A-Z", "lower": "a-z",
            "xdigit": "0-9A-Fa-f", "punct": r"!-/:-@\[-`{-~"}  # fmt: skip


class ExpansionError(Exception):
    """`${name:?text}`, or an unset name under `set -u`."""


def fields(shell: Shell, words: list[Word]) -> list[str]:
    """The arguments a list of words becomes."""
    found: list[str] = []
    for word in words:
        if len(word) == 1 and isinstance(word[0], Literal) and (word[0].quoted or not _has_magic(word[0].text)):
            found.append(word[0].text)  # the common case, without machinery
            continue
        for pieces in _split(shell, word):
            if shell.options["f"] or not any(not quoted and _has_magic(text) for text, quoted in pieces):
                found.append("".join(text for text, _ in pieces))
            else:
                found += glob(shell, pieces)
    return found


def text_of(shell: Shell, word: Word) -> str:
    """A word as one string: no splitting, no file names (assignments, redirections, `case`)."""
    return "".join(text for text, _ in pieces_of(shell, word))


def pieces_of(shell: Shell, word: Word) -> list[Piece]:
    """A word expanded but kept whole, with its quoting."""
    found: list[Piece] = []
    for part in word:
        if isinstance(part, Literal):
            found.append((part.text, part.quoted))
        elif isinstance(part, Parameter) and part.name in "@*" and not part.operator:
            found.append((" ".join(shell.arguments), part.quoted))
        else:
            found += [(text, quoted or part.quoted) for text, quoted in _value(shell, part)]
    return found


def _split(shell: Shell, word: Word) -> list[list[Piece]]:
    """A word's fields."""
    done: list[list[Piece]] = []
    current: list[Piece] | None = None
    for part in word:
        if isinstance(part, Literal):
            current = [*(current or []), (part.text, part.quoted)]
        elif isinstance(part, Parameter) and part.name in ("@", "*") and not part.operator:
            current = _split_arguments(shell, part, done, current)
        else:
            for text, quoted in _value(shell, part):
                if part.quoted or quoted:
                    current = [*(current or []), (text, True)]
                else:
                    current = _split_text(shell, text, done, current)
    if current is not None:
        done.append(current)
    return done


def _split_arguments(
    shell: Shell, part: Parameter, done: list[list[Piece]], current: list[Piece] | None
) -> list[Piece] | None:
    if part.quoted and part.name == "*":
        separator = shell.variables.get("IFS", " ")[:1]
        return [*(current or []), (separator.join(shell.arguments), True)]
    for number, argument in enumerate(shell.arguments):
        if number and current is not None:
            done.append(current)
            current = None
        whole = [*(current or []), (argument, True)]
        current = whole if part.quoted else _split_text(shell, argument, done, current)
    return current


def _split_text(
    shell: Shell, text: str, done: list[list[Piece]], current: list[Piece] | None
) -> list[Piece] | None:
    """Cut the result of an unquoted expansion at IFS; what precedes the first cut joins `current`."""
    separators = shell.variables.get("IFS", " \t\n")
    if not separators:
        return [*(current or []), (text, False)] if text else current
    space = "".join(char for char in separators if char in " \t\n")
    word, after_cut = "", False
    for char in text:
        if char not in separators:
            word += char
            after_cut = False
            continue
        if word or current is not None:
            done.append([*(current or []), (word, False)])
            word, current = "", None
        elif char not in space and not after_cut:
            done.append([("", False)])
        after_cut = char in space
    return [*(current or []), (word, False)] if word else current


def _value(shell: Shell, part: Parameter | Substitution | Arithmetic) -> list[Piece]:
    if isinstance(part, Substitution):
        return [(shell.capture(part.body), False)]
    if isinstance(part, Arithmetic):
        return [(str(evaluate(text_of(shell, part.word), shell.variables)), False)]
    return _parameter(shell, part)


def _parameter(shell: Shell, part: Parameter) -> list[Piece]:
    value, operator = shell.lookup(part.name), part.operator
    if operator == "length":
        return [(str(len(value or "")), False)]
    if operator == "":
        if value is None and shell.options["u"] and part.name not in "@*":
            raise ExpansionError(f"{part.name}: parameter not set")
        return [(value or "", False)]
    word = part.word or ()
    if operator in ("%", "%%", "#", "##"):
        return [(_cut(value or "", operator, pieces_of(shell, word)), False)]
    missing = value is None or (operator.startswith(":") and value == "")
    kind = operator[-1]
    if kind == "+":
        return [] if missing else pieces_of(shell, word)
    if not missing:
        return [(value or "", False)]
    if kind == "?":
        raise ExpansionError(f"{part.name}: {text_of(shell, word) or 'parameter null or not set'}")
    if kind == "=":
        shell.variables[part.name] = text_of(shell, word)
        return [(shell.variables[part.name], False)]
    return pieces_of(shell, word)


def _cut(value: str, operator: str, pattern: list[Piece]) -> str:
    matcher = matcher_for(pattern)
    size = len(value)
    lengths = range(size + 1) if operator in ("%", "#") else range(size, -1, -1)
    for length in lengths:
        piece = value[size - length :] if operator.startswith("%") else value[:length]
        if matcher.fullmatch(piece):
            return value[: size - length] if operator.startswith("%") else value[length:]
    return value


def _has_magic(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def matcher_for(pieces: list[Piece]) -> re.Pattern[str]:
    """The regular expression of a shell pattern."""
    return _compiled(tuple(pieces))


@lru_cache(maxsize=256)
def _compiled(pieces: tuple[Piece, ...]) -> re.Pattern[str]:
    out = "".join(re.escape(text) if quoted else _translate(text) for text, quoted in pieces)
    return re.compile(out, re.DOTALL)


def _translate(text: str) -> str:
    out, place = "", 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == "*":
            out += ".*"
        elif char == "?":
            out += "."
        elif char == "\\" and place < len(text):
            out += re.escape(text[place])
            place += 1
        elif char == "[" and (end := _bracket_end(text, place)) > 0:
            out += _bracket(text[place:end])
            place = end + 1
        else:
            out += re.escape(char)
    return out


def _bracket_end(text: str, start: int) -> int:
    place = start + (text[start : start + 1] in ("!", "^"))
    place += text[place : place + 1] == "]"
    while place < len(text) and text[place] != "]":
        if text.startswith("[:", place):
            place = text.find(":]", place) + 1
            if place == 0:
                return -1
        place += 1
    return place if place < len(text) else -1


def _bracket(body: str) -> str:
    negated = body[:1] in ("!", "^")
    body = body[1:] if negated else body
    out, place = "", 0
    while place < len(body):
        named = re.compile(r"\[:(\w+):\]").match(body, place)
        if named is not None:
            out += _CLASSES.get(named.group(1), "")
            place = named.end()
        else:
            out += body[place] if body[place] == "-" else re.escape(body[place])
            place += 1
    return f"[{'^' if negated else ''}{out}]"


def glob(shell: Shell, pieces: list[Piece]) -> list[str]:
    """The device's files that match; the word itself when none does."""
    parts: list[list[Piece]] = [[]]
    for text, quoted in pieces:
        first, *rest = text.split("/")
        parts[-1].append((first, quoted))
        parts += [[(piece, quoted)] for piece in rest]
    found = [""]
    for number, part in enumerate(parts):
        found = [match for base in found for match in _step(shell, base, part, number == len(parts) - 1)]
    return sorted(found) or ["".join(text for text, _ in pieces)]


def _step(shell: Shell, base: str, part: list[Piece], last: bool) -> list[str]:
    name = "".join(text for text, _ in part)
    tail = "" if last else "/"
    if not any(not quoted and _has_magic(text) for text, quoted in part):
        whole = base + name
        exists = not name or os.path.lexists(shell.files.host(whole or "/", shell.cwd, follow=False))
        return [whole + tail] if exists else []
    try:
        names = os.listdir(shell.files.host(base or ".", shell.cwd))  # noqa: PTH208
    except OSError:
        return []
    matcher = matcher_for(part)
    hidden = name.startswith(".")
    return [base + entry + tail for entry in names if matcher.fullmatch(entry) and entry.startswith(".") <= hidden]
