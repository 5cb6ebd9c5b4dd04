"""Commands on lines of text."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from mtplab.standin.minish.file_commands import chunks, content, report
from mtplab.standin.minish.options import read_options
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Command, Shell

FOLLOW_S = 0.1


def lines(shell: Shell, path: str) -> Iterator[bytes]:
    """A file's lines as they come, each with its newline if it has one."""
    held = b""
    for data in chunks(shell, path):
        *whole, held = (held + data).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if held:
        yield held


def _head(shell: Shell, words: list[str]) -> int:
    words = [f"-n{word[1:]}" if re.fullmatch(r"-\d+", word) else word for word in words]
    options, status = read_options(words, "n:c:q"), 0
    for path in options.rest or ["-"]:
        try:
            if "c" in options.given:
                write(1, content(shell, path)[: int(options.given["c"])])
                continue
            left = int(options.given.get("n", "10"))
            for line in lines(shell, path) if left > 0 else ():
                write(1, line)
                left -= 1
                if left == 0:
                    break
        except OSError as error:
            status = report("head", path, error)
    return status


def _tail(shell: Shell, words: list[str]) -> int:
    words = [f"-n{word[1:]}" if re.fullmatch(r"-\d+", word) else word for word in words]
    options = read_options(words, "n:c:f")
    path = options.rest[0] if options.rest else "-"
    if "c" in options.given:
        write(1, content(shell, path)[-int(options.given["c"]) :])
    else:
        count = options.given.get("n", "10")
        found = list(lines(shell, path))
        first = int(count) - 1 if count.startswith("+") else len(found) - min(len(found), int(count))
        chosen = found[first:]
        write(1, b"".join(chosen))
    if "f" in options.given and path != "-":
        _follow(shell, path)
    return 0


def _follow(shell: Shell, path: str) -> None:
    handle = shell.open(path, os.O_RDONLY)
    os.lseek(handle, 0, os.SEEK_END)
    while True:
        if data := os.read(handle, 65536):
            write(1, data)
        elif os.fstat(handle).st_size < os.lseek(handle, 0, os.SEEK_CUR):
            os.lseek(handle, 0, os.SEEK_SET)  # the file was emptied
        else:
            time.sleep(FOLLOW_S)


def _wc(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "lwcm")
    for path in options.rest or ["-"]:
        data = content(shell, path)
        characters = len(data.decode(errors="replace"))
        counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data), "m": characters}
        shown = [str(counts[letter]) for letter in "lwcm" if letter in (options.given or "lwc")]
        write(1, " ".join([*shown, *([path] if path != "-" else [])]) + "\n")
    return 0


def _grep(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "EFqvcinoe:lhHsw")
    rest = list(options.rest)
    pattern = options.given.get("e") or rest.pop(0)
    given = options.given
    expression = re.escape(pattern) if "F" in given else _regular(pattern, extended="E" in given)
    expression = rf"\b(?:{expression})\b" if "w" in given else expression
    matcher = re.compile(expression.encode(), re.IGNORECASE if "i" in given else 0)
    found, failed = False, False
    for path in rest or ["-"]:
        try:
            found = _grep_file(shell, path, matcher, given, len(rest) > 1 and "h" not in given) or found
        except OSError as error:
            failed = "s" in given or bool(report("grep", path, error))
    return 0 if found else 2 if failed else 1


def _grep_file(shell: Shell, path: str, matcher: re.Pattern[bytes], given: dict[str, str], named: bool) -> bool:
    count = 0
    label = f"{path}:".encode() if named else b""
    for number, line in enumerate(lines(shell, path), 1):
        text = line.rstrip(b"\n")
        if (matcher.search(text) is None) != ("v" in given):
            continue
        count += 1
        if "q" in given:
            return True
        if "l" in given:
            write(1, path + "\n")
            return True
        if "c" in given:
            continue
        prefix = label + (b"%d:" % number if "n" in given else b"")
        for piece in matcher.findall(text) if "o" in given else [text]:
            write(1, prefix + piece + b"\n")
    if "c" in given:
        write(1, label + b"%d\n" % count)
    return count > 0


def _regular(pattern: str, extended: bool) -> str:
    """A POSIX expression in Python's syntax."""
    for name, body in (("digit", "0-9"), ("alpha", "A-Za-z"), ("space", r"\s"), ("alnum", "A-Za-z0-9")):
        pattern = pattern.replace(f"[:{name}:]", body)
    if extended:
        return pattern
    swapped = re.sub(r"\\([(){}|+?])|([(){}|+?])", lambda m: m.group(1) or "\\" + m.group(2), pattern)
    return re.sub(r"^\*", r"\\*", swapped)


def _sed(shell: Shell, words: list[str]) -> int:
    """`s/…/…/gI`, `p`, `d`, `q`, with a line number, `$` or a /pattern/ before it."""
    options = read_options(words, "nEre:")
    rest = list(options.rest)
    script = options.given.get("e") or rest.pop(0)
    extended = bool({"E", "r"} & set(options.given))
    steps = [_sed_step(text.strip(), extended) for text in re.split(r";|\n", script) if text.strip()]
    quiet = "n" in options.given
    for path in rest or ["-"]:
        every = list(lines(shell, path))
        for number, raw in enumerate(every, 1):
            text, end = raw.rstrip(b"\n"), b"\n" if raw.endswith(b"\n") else b""
            show, stop = not quiet, False
            for chosen, kind, pattern, replacement, flags in steps:
                if not chosen(number, text, number == len(every)):
                    continue
                if kind == "s":
                    changed, times = pattern.subn(replacement, text, 0 if "g" in flags else 1)
                    text = changed
                    if times and "p" in flags:
                        write(1, text + end)
                elif kind == "p":
                    write(1, text + end)
                elif kind == "d":
                    show = False
                    break
                else:
                    stop = True
            if show:
                write(1, text + end)
            if stop:
                return 0
    return 0


def _sed_step(text: str, extended: bool) -> tuple[Any, ...]:
    address = re.match(r"(\d+|\$|/((?:[^/\\]|\\.)*)/)?\s*([spdq])(.*)$", text, re.DOTALL)
    if address is None:
        raise OSError(22, f"the stand-in's sed does not know '{text}'")
    where, expression, kind, rest = address.groups()

    def chosen(number: int, line: bytes, last: bool) -> bool:
        if where is None:
            return True
        if expression is not None:
            return re.search(_regular(expression, extended).encode(), line) is not None
        return last if where == "$" else number == int(where)

    if kind != "s":
        return chosen, kind, None, None, ""
    mark = re.escape(rest[0])
    found = re.match(rf"{mark}((?:[^{mark}\\]|\\.)*){mark}((?:[^{mark}\\]|\\.)*){mark}(\w*)$", rest, re.DOTALL)
    if found is None:
        raise OSError(22, f"the stand-in's sed does not know '{text}'")
    pattern, replacement, flags = found.groups()
    python = re.sub(r"\\([&/])|(&)", lambda m: m.group(1) or r"\g<0>", replacement)
    compiled = re.compile(_regular(pattern, extended).encode(), re.IGNORECASE if "I" in flags else 0)
    return chosen, kind, compiled, python.encode(), flags


def _tr(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "ds")
    sets = [_characters(word) for word in options.rest]
    data = b"".join(chunks(shell, "-")).decode("latin-1")
    if "d" in options.given:
        data = data.translate({ord(char): None for char in sets[0]})
    elif len(sets) > 1:
        target = sets[1].ljust(len(sets[0]), sets[1][-1])
        data = data.translate({ord(a): b for a, b in zip(sets[0], target, strict=False)})
    if "s" in options.given:
        data = re.sub(f"([{re.escape(sets[-1])}])\\1+", r"\1", data)
    write(1, data.encode("latin-1"))
    return 0


def _characters(text: str) -> str:
    from mtplab.standin.minish.formats import unescape

    def between(found: re.Match[str]) -> str:
        return "".join(chr(code) for code in range(ord(found.group(1)), ord(found.group(2)) + 1))

    return re.sub(r"(.)-(.)", between, unescape(text)[0], flags=re.DOTALL)


def _cut(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "d:f:c:s")
    separator = options.given.get("d", "\t").encode()
    wanted = _ranges(options.given.get("f") or options.given.get("c", "1-"))
    for path in options.rest or ["-"]:
        for line in lines(shell, path):
            text = line.rstrip(b"\n")
            if "c" in options.given:
                pieces = [text[i : i + 1] for i in range(len(text))]
                write(1, b"".join(piece for i, piece in enumerate(pieces, 1) if wanted(i)) + b"\n")
            elif separator in text:
                chosen = [piece for i, piece in enumerate(text.split(separator), 1) if wanted(i)]
                write(1, separator.join(chosen) + b"\n")
            elif "s" not in options.given:
                write(1, text + b"\n")
    return 0


def _ranges(text: str) -> Callable[[int], bool]:
    spans = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        spans.append((int(first or "1"), int(last) if last else (10**9 if dash else int(first))))
    return lambda number: any(low <= number <= high for low, high in spans)


def _sort(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "nruk:t:")
    found = [line.rstrip(b"\n") for path in options.rest or ["-"] for line in lines(shell, path)]
    column = int(options.given.get("k", "0").split(",")[0] or "0")

    def key(line: bytes) -> tuple[float, bytes]:
        text = line.split(options.given["t"].encode() if "t" in options.given else None) if column else [line]
        field = text[column - 1] if 0 < column <= len(text) else (line if not column else b"")
        number = re.match(rb"\s*-?\d+(\.\d+)?", field) if "n" in options.given else None
        return (float(number.group()) if number else 0.0, field)

    found.sort(key=key, reverse="r" in options.given)
    if "u" in options.given:
        found = list(dict.fromkeys(found))
    write(1, b"".join(line + b"\n" for line in found))
    return 0


def _uniq(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "cd")
    groups: list[tuple[bytes, int]] = []
    for line in lines(shell, options.rest[0] if options.rest else "-"):
        text = line.rstrip(b"\n")
        if groups and groups[-1][0] == text:
            groups[-1] = (text, groups[-1][1] + 1)
        else:
            groups.append((text, 1))
    for text, count in groups:
        if "d" not in options.given or count > 1:
            write(1, (b"%7d " % count if "c" in options.given else b"") + text + b"\n")
    return 0


def _seq(shell: Shell, words: list[str]) -> int:
    numbers = [int(word) for word in words]
    first, step, last = {1: (1, 1, numbers[0])}.get(len(numbers)) or (
        numbers[0], numbers[1] if len(numbers) == 3 else 1, numbers[-1]
    )  # fmt: skip
    write(1, "".join(f"{number}\n" for number in range(first, last + (1 if step > 0 else -1), step)))
    return 0


def _tee(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "a")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if "a" in options.given else os.O_TRUNC)
    handles = [1, *(shell.open(path, flags) for path in options.rest)]
    for data in chunks(shell, "-"):
        for handle in handles:
            write(handle, data)
    return 0


def _xargs(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "0rn:", stop_early=True)
    data = b"".join(chunks(shell, "-")).decode("utf-8", "surrogateescape")
    items = [item for item in (data.split("\0") if "0" in options.given else data.split()) if item]
    size = int(options.given.get("n", "0")) or max(1, len(items))
    command, status = options.rest or ["echo"], 0
    for start in range(0, len(items) or ("r" not in options.given), size):
        status = shell.command([*command, *items[start : start + size]]) or status
    return status


COMMANDS: dict[str, Command] = {
    "head": _head, "tail": _tail, "wc": _wc, "grep": _grep, "sed": _sed, "tr": _tr, "cut": _cut, "sort": _sort,
    "uniq": _uniq, "seq": _seq, "tee": _tee, "xargs": _xargs,
}  # fmt: skip
