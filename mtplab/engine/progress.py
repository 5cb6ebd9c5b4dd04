"""How far an experiment is: rounds done and left, and when it will end, judged by the rounds of this very run."""

from __future__ import annotations

import statistics
import time


class Progress:
    """Counts rounds; their seconds include cooling down and waiting for the phone, as those to come will."""

    def __init__(self, left: int) -> None:
        self.left = self.total = left
        self._last = time.monotonic()
        self._seconds: list[float] = []

    def round_done(self) -> None:
        """Take note of one more round."""
        now = time.monotonic()
        self._seconds.append(now - self._last)
        self._last = now
        self.left = max(0, self.left - 1)

    def begins(self) -> None:
        """Take note that the rounds of a session begin: what came before were stages."""
        self._last = time.monotonic()

    def given_up(self, rounds: int) -> None:
        """Take note that so many rounds will not be measured."""
        self.left = max(0, self.left - rounds)
        self.total = max(self.left, self.total - rounds)

    @property
    def eta_s(self) -> float | None:
        """Seconds of measuring left; None before any round of this run was timed."""
        if not self.left:
            return 0.0
        return statistics.fmean(self._seconds[-50:]) * self.left if self._seconds else None

    def text(self) -> str:
        """`7 of 40 rounds · about 12 min left`."""
        eta_s = self.eta_s
        when = "time left unknown yet" if eta_s is None else f"about {duration(eta_s)} of measuring left"
        return f"{self.total - self.left} of {self.total} rounds · {when}"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
