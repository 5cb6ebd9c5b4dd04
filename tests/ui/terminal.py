"""A real pseudo terminal with a terminal emulator behind it: what a person would see, and the raw bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType

import pexpect
import pyte


class Terminal:
    """A program in a pty of `columns` × `rows`; the emulator's screen is read after `settle` or `until`."""

    def __init__(self, command: list[str], columns: int, rows: int, env: dict[str, str] | None = None) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        # COLUMNS and LINES of whoever runs the tests would win over the pty's own size.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        environment = {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})}
        self.child = pexpect.spawn(command[0], command[1:], dimensions=(rows, columns), env=environment, timeout=5)
        self.child.delaybeforesend = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.child.close(force=True)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(self.screen.display)

    def read(self, seconds: float = 0.05) -> None:
        """Take in what the program writes within `seconds`."""
        try:
            data = self.child.read_nonblocking(1 << 16, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += data
        self._stream.feed(data)

    def until(self, true: Callable[[str], bool], timeout_s: float = 20.0) -> str:
        """Read until the screen satisfies `true`; returns the screen."""
        deadline = time.monotonic() + timeout_s
        while not true(self.text):
            assert time.monotonic() < deadline, f"it never stood on the screen:\n{self.text}"
            self.read()
        return self.text

    def press(self, keys: str) -> None:
        """Type."""
        self.child.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the terminal's size, as dragging a window does."""
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def wait(self, timeout_s: float = 15.0) -> int | None:
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + timeout_s
        while self.child.isalive() and time.monotonic() < deadline:
            self.read()
        assert not self.child.isalive(), f"it did not end:\n{self.text}"
        return self.child.exitstatus
