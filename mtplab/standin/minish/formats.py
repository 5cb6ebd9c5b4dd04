"""`echo` and `printf`."""

from __future__ import annotations

import re

from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Shell

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "e": "\033"}
_DIRECTIVE = re.compile(r"%([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d+))?([sdiuxXocbfeg%])")


def unescape(text: str, octal_needs_zero: bool = False) -> tuple[str, bool]:
    """Backslash escapes replaced; True when `\\c` asks to stop there."""
    out, place = "", 0
    while place < len(text):
        if text[place] != "\\" or place + 1 >= len(text):
            out += text[place]
            place += 1
            continue
        char = text[place + 1]
        place += 2
        octal = re.compile(r"0[0-7]{0,3}" if octal_needs_zero else r"[0-7]{1,3}").match(text, place - 1)
        if char == "c":
            return out, True
        if char in _ESCAPES:
            out += _ESCAPES[char]
        elif octal is not None:
            out += chr(int(octal.group(), 8) & 255)
            place = octal.end()
        elif char == "x" and (found := re.compile(r"[0-9a-fA-F]{1,2}").match(text, place)) is not None:
            out += chr(int(found.group(), 16))
            place = found.end()
        else:
            out += "\\" + char
    return out, False


def echo(shell: Shell, words: list[str]) -> int:
    """As mksh: escapes are interpreted unless `-E` is given."""
    end, escapes = "\n", True
    while words and re.fullmatch(r"-[neE]+", words[0]):
        end = "" if "n" in words[0] else end
        escapes = "E" not in words[0]
        words = words[1:]
    text, stop = unescape(" ".join(words), octal_needs_zero=True) if escapes else (" ".join(words), False)
    write(1, text if stop else text + end)
    return 0


def printf(shell: Shell, words: list[str]) -> int:
    """The format is used again while arguments are left."""
    if not words:
        shell.complain("printf: usage: printf FORMAT [ARGUMENT...]")
        return 1
    form, left, status = words[0], list(words[1:]), 0
    out = ""
    while True:
        before = len(left)
        piece, stop, good = _format_once(form, left)
        out += piece
        status = status if good else 1
        if stop or not left or len(left) == before:
            break
    write(1, out.encode("utf-8", "surrogateescape") if not _is_bytes(out) else out.encode("latin-1"))
    return status


def _is_bytes(text: str) -> bool:
    """True when escapes made single bytes of what is not text (such as \\0 or \\377)."""
    return any(127 < ord(char) < 256 for char in text) and all(ord(char) < 256 for char in text)


def _format_once(form: str, left: list[str]) -> tuple[str, bool, bool]:
    out, place, good = "", 0, True
    for found in _DIRECTIVE.finditer(form):
        literal, stop = unescape(form[place : found.start()])
        out += literal
        if stop:
            return out, True, good
        place = found.end()
        flags, width, precision, kind = found.groups()
        if kind == "%":
            out += "%"
            continue
        width = _next(left) if width == "*" else width or ""
        precision = _next(left) if precision == "*" else precision
        argument = _next(left)
        if kind == "b":
            argument, stop = unescape(argument, octal_needs_zero=True)
            kind = "s"
        text, fine = _convert(flags, width, precision, kind, argument)
        good = good and fine
        out += text
        if stop:
            return out, True, good
    literal, stop = unescape(form[place:])
    return out + literal, stop, good


def _next(left: list[str]) -> str:
    return left.pop(0) if left else ""


def _convert(flags: str, width: str, precision: str | None, kind: str, argument: str) -> tuple[str, bool]:
    shape = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
    if kind == "s":
        return (shape + "s") % argument, True
    if kind == "c":
        return (shape + "s") % argument[:1], True
    if kind in "feg":
        try:
            return (shape + kind) % float(argument or "0"), True
        except ValueError:
            return (shape + kind) % 0.0, False
    try:
        if argument[:1] in ("'", '"'):
            value = ord(argument[1:2] or "\0")
        else:
            value = int(argument or "0", 0) if not re.fullmatch(r"-?0\d+", argument) else int(argument, 8)
        fine = True
    except ValueError:
        value, fine = 0, False
    if value < 0 and kind in "uxXo":
        value += 1 << 64
    return (shape + {"i": "d", "u": "d"}.get(kind, kind)) % value, fine
