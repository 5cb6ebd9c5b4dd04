"""The shell's open files: device paths opened under the phone's rules, redirections applied and undone."""

from __future__ import annotations

import fcntl
import os
import time
from abc import ABC, abstractmethod

from mtplab.standin.files import DeviceFiles
from mtplab.standin.minish.syntax import Redirection, Word

SAVED_FROM = 10  # handles set aside during a redirection live from here on
SPECIAL_FILES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/tty")
OWN_HANDLES = ("/dev/stdin", "/dev/stdout", "/dev/stderr")


def write(handle: int, data: bytes | str) -> None:
    """All of it to a handle; the shell itself buffers nothing."""
    view = memoryview(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    while view:
        view = view[os.write(handle, view) :]


class Redirector(ABC):
    """What a shell needs to know of files."""

    def __init__(self, files: DeviceFiles) -> None:
        self.files = files
        self.cwd = "/"
        self.name = "sh"

    @abstractmethod
    def expand(self, word: Word) -> str:
        """A word as one string."""

    def complain(self, text: str) -> None:
        """One line on stderr."""
        write(2, f"{self.name}: {text}\n")

    def open(self, path: str, flags: int) -> int:
        """Open a device path; the few special files are the host's own."""
        canonical = self.files.resolve(path, self.cwd)
        if canonical in SPECIAL_FILES:
            return os.open(canonical, flags & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL))
        if canonical in OWN_HANDLES:
            return os.dup(OWN_HANDLES.index(canonical))
        if canonical == "/proc/uptime" and flags == os.O_RDONLY:
            return _uptime()
        return self.files.open(canonical, flags, 0o666)

    def redirect(self, redirections: list[Redirection]) -> list[tuple[int, int]] | None:
        """Apply redirections; what is needed to undo them, or None (and a message) if one failed."""
        saved: list[tuple[int, int]] = []
        for redirection in redirections:
            try:
                self._redirect_one(redirection, saved)
            except (OSError, ValueError) as error:
                self.restore(saved)
                what = self.expand(redirection.word)
                verb = "open" if redirection.operator in ("<", "<>") else "create"
                self.complain(f"can't {verb} {what}: {getattr(error, 'strerror', None) or error}")
                return None
        return saved

    def _redirect_one(self, redirection: Redirection, saved: list[tuple[int, int]]) -> None:
        handle, sign = redirection.handle, redirection.operator
        text = self.expand(redirection.word)
        if sign in ("<&", ">&"):
            source = -1 if text == "-" else int(text)
            new = os.dup(source) if source >= 0 else -1
        elif sign in ("<<", "<<-"):
            new = _here_document(text)
        else:
            flags = {
                "<": os.O_RDONLY, "<>": os.O_RDWR | os.O_CREAT, ">>": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            }.get(sign, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # fmt: skip
            new = self.open(text, flags)
        try:
            copy = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, SAVED_FROM)
        except OSError:
            copy = -1
        saved.append((handle, copy))
        if new < 0:
            if copy >= 0:
                os.close(handle)
        elif new != handle:
            os.dup2(new, handle)
            os.close(new)
        else:
            os.set_inheritable(handle, True)

    @staticmethod
    def restore(saved: list[tuple[int, int]]) -> None:
        """Undo redirections, last first."""
        for handle, copy in reversed(saved):
            if copy >= 0:
                os.dup2(copy, handle)
                os.close(copy)
            else:
                try:
                    os.close(handle)
                except OSError:
                    continue


def _here_document(text: str) -> int:
    """A handle from which the text can be read: a pipe filled by a process of its own if it is long."""
    data = text.encode("utf-8", "surrogateescape")
    reader, writer = os.pipe()
    if len(data) > 4096 and os.fork() == 0:
        os.close(reader)
        write(writer, data)
        os._exit(0)
    if len(data) <= 4096:
        write(writer, data)
    os.close(writer)
    return reader


def _uptime() -> int:
    now = time.monotonic()
    return _here_document(f"{now:.2f} {now * 6:.2f}\n")
