"""What the phone counts: the cores' busy time, clocks of CPU and GPU, inferences of the NPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

# A clock in kHz lies in the first span, one in Hz in the second: they do not meet, so the unit is never guessed.
_KHZ, _HZ = range(10_000, 10_000_000), range(10_000_000, 10_000_000_000)
# Less than this between two readings is not told apart from the tick in which it was counted.
_LEAST_TICKS = 10


def khz(word: str) -> int | None:
    """A clock in kHz from a kernel file, which gives kHz or Hz; None for anything that is no clock of a phone."""
    if not re.fullmatch(r"[1-9]\d{0,9}", word, re.ASCII):
        return None
    value = int(word)
    return value if value in _KHZ else value // 1000 if value in _HZ else None


class CoreTimes(msgspec.Struct, frozen=True):
    """A core's ticks since boot by /proc/stat: at work, and in all."""

    busy: int
    total: int

    @classmethod
    def parse(cls, words: Sequence[str]) -> CoreTimes | None:
        """From the numbers after `cpuN` (user, nice, system, idle, iowait, irq, softirq …), or None."""
        if len(words) < 7 or not all(re.fullmatch(r"\d{1,18}", word, re.ASCII) for word in words[:7]):
            return None
        user, nice, system, idle, iowait, irq, softirq = map(int, words[:7])
        busy = user + nice + system + irq + softirq
        return cls(busy, busy + idle + iowait)


class LoadMeter:
    """Busy shares from successive readings of the cores' times."""

    def __init__(self) -> None:
        self._before: dict[str, CoreTimes] = {}

    def feed(self, times: Mapping[str, CoreTimes], owners: Mapping[str, str]) -> dict[str, float]:
        """The busiest core's share (0..1) by owner since the reading before; only what can be told.

        Cores that came or went, and counters that ran backwards (idle time may), are left out.
        """
        found: dict[str, float] = {}
        for core, now in times.items():
            before = self._before.get(core)
            if before is None or core not in owners:
                continue
            busy, total = now.busy - before.busy, now.total - before.total
            if total >= _LEAST_TICKS and 0 <= busy <= total:
                owner = owners[core]
                found[owner] = max(found.get(owner, 0.0), round(busy / total, 3))
        if times:
            self._before = dict(times)
        return found


def npu_inferences(text: str) -> int | None:
    """Inferences since boot by the NPU's `inference_count` (numbers separated by blanks: their sum); else None."""
    words = text.split()
    if not words or len(words) > 16 or not all(re.fullmatch(r"\d{1,15}", word, re.ASCII) for word in words):
        return None
    return sum(map(int, words))
