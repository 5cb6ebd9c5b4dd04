"""A command's answer, and the fact that is made of it: a value, or None with the reason why it is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

Value = str | int | float | bool


class Unknown(Exception):
    """A parser's answer where the output does not tell; the text is the reason."""


class Fact(msgspec.Struct, frozen=True):
    """One thing about a phone. `value` is None exactly when `reason` says why; never "" or 0 for unknown."""

    name: str
    value: Value | None
    source: str
    reason: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """One command's output in the batch."""

    text: str
    exit_code: int


Parser = Callable[[str], Value]


def fact_of(name: str, source: str, answer: Answer | None, parse: Parser, whatever_code: bool = False) -> Fact:
    """The fact that `parse` finds in an answer. A failed command tells nothing, unless `whatever_code`."""
    if answer is None:
        return Fact(name, None, source, "the command gave no answer")
    if answer.exit_code != 0 and not whatever_code:
        return Fact(name, None, source, f"exit code {answer.exit_code}: {said(answer.text)}".rstrip(": "))
    try:
        return Fact(name, parse(answer.text), source)
    except Unknown as why:
        return Fact(name, None, source, str(why))


def said(text: str, longest: int = 120) -> str:
    """A foreign text as part of one of our sentences."""
    return " ".join("".join(c if " " <= c <= "~" else " " for c in text).split())[:longest]


def word(text: str, what: str = "nothing") -> str:
    """One line of printable text."""
    line = text.strip()
    if not line:
        raise Unknown(f"the command printed {what}")
    if len(line) > 200 or not all(" " <= c <= "~" for c in line):
        raise Unknown("the command printed something that is no plain text")
    return line


def one_word(text: str) -> str:
    """One word of the letters that names, versions and fingerprints are made of."""
    line = word(text)
    if not re.fullmatch(r"[\w.+:/@,-]+", line, re.ASCII):
        raise Unknown("the command printed something of another form")
    return line


def int_in(low: int, high: int) -> Callable[[str], int]:
    """A parser of a whole number that lies between two limits."""

    def parse(text: str) -> int:
        line = word(text)
        if not re.fullmatch(r"\d{1,12}", line, re.ASCII) or not low <= int(line) <= high:
            raise Unknown("the command printed no number that can be true")
        return int(line)

    return parse


def files_of(text: str) -> Mapping[str, str]:
    """The first line of each file in what `grep . FILE…` printed, by path; complaints are skipped."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = re.match(r"(/[\w./,@-]{1,200}):([ -~]{1,400})\r?$", line, re.ASCII)
        if match is not None:
            found.setdefault(match.group(1), match.group(2).strip())
    return found


def why_no_file(text: str, what: str) -> str:
    """Why a batch of files told nothing: denied is another reason than missing."""
    denied = "Permission denied" in text
    return f"this build denies {what} to the shell" if denied else f"this phone shows no {what}"
