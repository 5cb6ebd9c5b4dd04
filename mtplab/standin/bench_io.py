"""benchmark_model's surroundings: its two output streams, the runtime's own noise, and the phone's clocks."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CLOCK_FILE = "MTPLAB_STANDIN_CLOCK"
CLOCK_EVERY_S = 0.1
TOOL, RUNTIME = 1, 2


def say(stream: int, severity: str, text: str) -> None:
    """One line at once: a reader sees the log grow."""
    os.write(stream, f"{severity}: {text}\n".encode())


class Failure(Exception):
    """The benchmark cannot go on; the lines that say why were printed already."""


class Fatal(Exception):
    """The tool aborts with this text."""


def fail(text: str) -> Failure:
    """Print an error of the tool."""
    say(RUNTIME, "ERROR", text)
    return Failure(text)


class Throttle:
    """The phone's clocks slow the work down: the same run takes 1/clock as long."""

    def __init__(self, die: str) -> None:
        self._path, self._die = os.environ.get(CLOCK_FILE), die
        self._share, self._read_at = 1.0, float("-inf")

    def stretch(self, seconds: float) -> float:
        """How much longer work of `seconds` takes on the phone as it is now."""
        now = time.monotonic()
        if self._path and now - self._read_at > CLOCK_EVERY_S:
            self._read_at = now
            with contextlib.suppress(OSError, ValueError):
                rows = (line.split() for line in Path(self._path).read_text(encoding="ascii").splitlines())
                self._share = float(dict(rows).get(self._die, "1"))
        return seconds * (1.0 / max(self._share, 0.05) - 1.0)


class _Noise:
    def __init__(self, path: str, real: int) -> None:
        self._path, self._real = path, real

    def show(self) -> None:
        os.write(self._real, Path(self._path).read_bytes())


@contextlib.contextmanager
def native_noise_held() -> Iterator[_Noise]:
    """What the runtime itself prints is held: this tool prints those lines where the phone's would stand."""
    real = os.dup(RUNTIME)
    with tempfile.NamedTemporaryFile(prefix="mtplab-noise-") as held:
        os.dup2(held.fileno(), RUNTIME)
        try:
            yield _Noise(held.name, real)
        finally:
            os.dup2(real, RUNTIME)
            os.close(real)
