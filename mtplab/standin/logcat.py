"""The phone's log: who writes what, and the `logcat` command over it.

Lines are kept in one file of the device in the form `threadtime`; shells may append there too (`log`).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from mtplab.standin.files import DeviceFiles

PLACE = "/dev/.sim/logcat"
MOST_BYTES = 1 << 20
POLL_S = 0.1
PRIORITIES = "VDIWEFS"
BUFFERS = ("main", "system", "crash", "radio", "events", "kernel")
SYSTEM_TAGS, CRASH_TAGS = ("ThermalManagerService", "PowerManagerService"), ("DEBUG", "AndroidRuntime", "libc")
_LINE = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d\.\d+)\s+(\d+)\s+(\d+) ([VDIWEFS]) (.*?)\s*: (.*)", re.DOTALL)
# How the programs' own prefixes map to priorities; what LiteRT logs has its own tag.
_SEVERITY = re.compile(r"(VERBOSE|INFO|WARN|WARNING|ERROR|FATAL): (.*)", re.DOTALL)
_FORMATS: dict[str, Callable[[re.Match[str]], str]] = {
    "brief": lambda m: f"{m[4]}/{m[5]:<8}({int(m[2]):5d}): {m[6]}",
    "tag": lambda m: f"{m[4]}/{m[5]:<8}: {m[6]}",
    "process": lambda m: f"{m[4]}({int(m[2]):5d}) {m[6]}  ({m[5]})",
    "time": lambda m: f"{m[1]} {m[4]}/{m[5]:<8}({int(m[2]):5d}): {m[6]}",
    "raw": lambda m: m[6],
    "long": lambda m: f"[ {m[1]} {int(m[2]):5d}:{int(m[3]):5d} {m[4]}/{m[5]:<8} ]\n{m[6]}\n",
    "threadtime": lambda m: m[0],
}
_MODIFIERS = ("color", "descriptive", "epoch", "monotonic", "printable", "uid", "usec", "UTC", "year", "zone")


class LogBook:
    """Writes lines for the phone itself and for its programs."""

    def __init__(self, files: DeviceFiles) -> None:
        self._path = files.root + PLACE

    def write(self, priority: str, tag: str, text: str, pid: int) -> None:
        """One entry; a text of several lines becomes several."""
        now = time.time()
        stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"
        head = f"{stamp} {pid:5d} {pid:5d} {priority} {tag:<8}: "
        data = "".join(f"{head}{line}\n" for line in text.splitlines() or [""]).encode("utf-8", "replace")
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

    def said_by_program(self, line: str, pid: int) -> None:
        """What a benchmark prints it logs too: without its prefix, under the tag of the library that speaks."""
        found = _SEVERITY.fullmatch(line)
        if found is not None:
            priority = found[1][0]
            self.write(priority, "litert" if found[2].startswith("[") else "tflite", found[2], pid)

    def trim(self) -> None:
        """Forget the older half when the log has grown too long, as a ring buffer would."""
        path = Path(self._path)
        if path.stat().st_size > MOST_BYTES:
            kept = path.read_bytes()[-MOST_BYTES // 2 :].partition(b"\n")[2]
            with path.open("r+b") as file:  # in place: readers and writers have it open
                file.write(kept)
                file.truncate()

    def restart(self) -> None:
        """A new boot begins an empty log."""
        Path(self._path).write_bytes(b"--------- beginning of main\n")


@dataclass
class Wish:
    """A `logcat` command line."""

    dump: bool = False
    clear: bool = False
    sizes: bool = False
    last: int | None = None
    form: str = "threadtime"
    buffers: set[str] = field(default_factory=lambda: {"main", "system", "crash"})
    filters: dict[str, str] = field(default_factory=dict)
    pid: str | None = None
    pattern: re.Pattern[str] | None = None
    most: int | None = None


class WishError(Exception):
    """What logcat would say of its arguments."""


def read_wish(words: list[str]) -> Wish:
    """The command line; WishError for what logcat does not know."""
    wish, rest = Wish(), list(words)
    named: set[str] = set()
    while rest:
        word = rest.pop(0)
        name, value = word, None
        if word.startswith("--") and "=" in word:
            name, _, value = word.partition("=")
        elif re.fullmatch(r"-[bvtTme].+", word):  # the value may stand without a blank
            name, value = word[:2], word[2:]
        if name in ("-b", "--buffer", "-v", "--format", "-t", "-T", "-m", "--max-count", "-e", "--regex", "--pid"):
            if value is None:
                if not rest:
                    raise WishError(f"option requires an argument -- '{name.lstrip('-')}'")
                value = rest.pop(0)
            _take_option(wish, name, value, named)
        elif word in ("-d", "--dump"):
            wish.dump = True
        elif word in ("-c", "--clear"):
            wish.clear = True
        elif word in ("-g", "--buffer-size"):
            wish.sizes = True
        elif word == "-s":
            wish.filters.setdefault("*", "S")
        elif word.startswith("-"):
            raise WishError(f"unknown option {word}")
        else:
            tag, _, priority = word.partition(":")
            wish.filters[tag] = priority.upper()[:1] if priority[:1].upper() in tuple(PRIORITIES) else "V"
    wish.buffers = named or wish.buffers
    return wish


def _take_option(wish: Wish, name: str, value: str, named: set[str]) -> None:
    if name in ("-b", "--buffer"):
        for buffer in value.split(","):
            if buffer not in (*BUFFERS, "all", "default"):
                raise WishError(f"Unknown -b buffer '{buffer}'.")
            named.update({"all": BUFFERS, "default": ("main", "system", "crash")}.get(buffer, (buffer,)))
    elif name in ("-v", "--format"):
        for form in value.split(","):
            if form in _FORMATS:
                wish.form = form
            elif form not in _MODIFIERS:
                raise WishError(f"Invalid parameter '{value}' to -v")
    elif name in ("-t", "-T"):
        wish.dump = wish.dump or name == "-t"
        wish.last = int(value) if value.isdecimal() else None
    elif name in ("-m", "--max-count"):
        wish.most = int(value) if value.isdecimal() else None
    elif name in ("-e", "--regex"):
        try:
            wish.pattern = re.compile(value)
        except re.error as error:
            raise WishError(f"bad regex: {error}") from None
    else:
        wish.pid = value


def shown(line: str, wish: Wish) -> str | None:
    """The line as asked for, or None when it is not wanted; what is no entry passes as it is."""
    found = _LINE.fullmatch(line)
    if found is None:
        return line if not wish.filters and wish.pid is None and "main" in wish.buffers else None
    tag, priority = found[5], found[4]
    buffer = "system" if tag in SYSTEM_TAGS else "crash" if tag in CRASH_TAGS else "main"
    least = wish.filters.get(tag, wish.filters.get("*", "V"))
    if buffer not in wish.buffers or PRIORITIES.index(priority) < PRIORITIES.index(least) or least == "S":
        return None
    if wish.pid is not None and found[2] != wish.pid:
        return None
    if wish.pattern is not None and not wish.pattern.search(found[6]):
        return None
    return _FORMATS[wish.form](found)


async def logcat(root: str, words: list[str], out: Callable[[str], Awaitable[None]]) -> int:
    """The command: dump, clear, tell sizes, or follow until the reader goes. WishError for a wrong command line."""
    wish, path = read_wish(words), Path(root + PLACE)
    if wish.clear:
        path.write_bytes(b"")
        return 0
    if wish.sizes:
        for buffer in sorted(wish.buffers, key=BUFFERS.index):
            used = path.stat().st_size // 1024 if buffer == "main" else 0
            most = "max entry is 5120 B, max payload is 4068 B"
            await out(f"{buffer}: ring buffer is 1 MiB ({used} KiB consumed), {most}\n")
        return 0
    position, given = 0, 0
    while True:
        position, lines = _new_lines(path, position)
        wanted = [text for line in lines if (text := shown(line, wish)) is not None]
        if wish.last is not None:
            wanted, wish.last = wanted[-wish.last :], None
        if wish.most is not None:
            wanted = wanted[: wish.most - given]
        given += len(wanted)
        if wanted:
            await out("".join(f"{text}\n" for text in wanted))
        if wish.dump or (wish.most is not None and given >= wish.most):
            return 0
        await asyncio.sleep(POLL_S)


def _new_lines(path: Path, position: int) -> tuple[int, list[str]]:
    """Whole lines after `position`, and where the next begin; a log that was cleared begins anew."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < position:
            position = 0
        file.seek(position)
        whole, newline, _half = file.read(size - position).rpartition(b"\n")
    text = whole.decode("utf-8", "replace")
    return position + len(whole) + len(newline), text.split("\n") if newline else []
