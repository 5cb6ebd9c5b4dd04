"""`test` and `[`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from mtplab.standin.minish.shell import Shell

Compare = Callable[[str, str], bool]
_BINARY: dict[str, Compare] = {
    "=": lambda a, b: a == b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    ">": lambda a, b: a > b, "-eq": lambda a, b: int(a) == int(b), "-ne": lambda a, b: int(a) != int(b),
    "-lt": lambda a, b: int(a) < int(b), "-le": lambda a, b: int(a) <= int(b),
    "-gt": lambda a, b: int(a) > int(b), "-ge": lambda a, b: int(a) >= int(b),
}  # fmt: skip
_FILE_TIMES = ("-nt", "-ot", "-ef")
_KINDS = {"-f": stat.S_ISREG, "-d": stat.S_ISDIR, "-p": stat.S_ISFIFO, "-S": stat.S_ISSOCK, "-c": stat.S_ISCHR,
          "-b": stat.S_ISBLK}  # fmt: skip
_UNARY = (*_KINDS, "-e", "-s", "-L", "-h", "-r", "-w", "-x", "-n", "-z", "-t")


class _BadTest(Exception):
    pass


def test(shell: Shell, words: list[str]) -> int:
    """0 true, 1 false, 2 not understood."""
    if words and words[-1] == "]":
        words = words[:-1]
    try:
        reader = _Reader(shell, words)
        value = reader.either() if words else False
        if reader.place < len(words):
            raise _BadTest(f"{words[reader.place]}: unexpected operator")
    except (_BadTest, ValueError) as problem:
        shell.complain(f"test: {problem}")
        return 2
    return 0 if value else 1


class _Reader:
    def __init__(self, shell: Shell, words: list[str]) -> None:
        self._shell, self._words, self.place = shell, words, 0

    def _peek(self, ahead: int = 0) -> str | None:
        place = self.place + ahead
        return self._words[place] if place < len(self._words) else None

    def either(self) -> bool:
        value = self._both()
        while self._peek() == "-o":
            self.place += 1
            right = self._both()
            value = value or right
        return value

    def _both(self) -> bool:
        value = self._single()
        while self._peek() == "-a":
            self.place += 1
            right = self._single()
            value = value and right
        return value

    def _single(self) -> bool:
        first, second, third = self._peek(), self._peek(1), self._peek(2)
        if first is None:
            raise _BadTest("an argument is missing")
        if third is not None and (second in _BINARY or second in _FILE_TIMES):
            self.place += 3
            assert second is not None
            return self._times(first, second, third) if second in _FILE_TIMES else _BINARY[second](first, third)
        if first == "!" and second is not None:
            self.place += 1
            return not self._single()
        if first == "(" and second is not None:
            self.place += 1
            value = self.either()
            if self._peek() != ")":
                raise _BadTest("')' is missing")
            self.place += 1
            return value
        if first in _UNARY and second is not None:
            self.place += 2
            return self._file_or_text(first, second)
        self.place += 1
        return first != ""

    def _file_or_text(self, sign: str, text: str) -> bool:
        if sign in ("-n", "-z"):
            return (text != "") == (sign == "-n")
        if sign == "-t":
            return os.isatty(int(text))
        try:
            path = self._shell.files.host(text, self._shell.cwd, follow=sign not in ("-L", "-h"))
            found = os.lstat(path)
        except OSError:
            return False
        if not text:
            return False
        if sign in _KINDS:
            return _KINDS[sign](found.st_mode)
        if sign in ("-L", "-h"):
            return stat.S_ISLNK(found.st_mode)
        if sign == "-w":
            return self._writable(text)
        needed = {"-r": 0o444, "-x": 0o111, "-e": 0, "-s": 0}[sign]
        return found.st_size > 0 if sign == "-s" else not needed or bool(found.st_mode & needed)

    def _writable(self, text: str) -> bool:
        try:
            self._shell.files.check_writable(text.rstrip("/") + "/.", self._shell.cwd)
        except OSError:
            try:
                self._shell.files.check_writable(text, self._shell.cwd)
            except OSError:
                return False
        return True

    def _times(self, left: str, sign: str, right: str) -> bool:
        try:
            a, b = (os.stat(self._shell.files.host(p, self._shell.cwd)) for p in (left, right))  # noqa: PTH116
        except OSError:
            return False
        if sign == "-ef":
            return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
        return a.st_mtime > b.st_mtime if sign == "-nt" else a.st_mtime < b.st_mtime
