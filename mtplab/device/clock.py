"""How the phone's clock stands to the host's, so that heat, log lines and tokens share one time axis."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence

import msgspec

from mtplab.device.errors import CommandFailed, DeviceGone
from mtplab.device.link import Link
from mtplab.device.shell import Line, Stream

PINGS = 12
# /proc/uptime is cut off after hundredths: the true time lies up to this much later.
_TICK_S = 0.01
# Not a divisor of the tick: pings then meet it in different phases, and together narrow the offset below it.
_PAUSE_S = 0.0037
_PATIENCE_S = 5.0
_SCRIPT = 'while read -r x; do u=; read -r u _ </proc/uptime; echo "T $x ${u:-NA}"; done'
_ANSWER = re.compile(r"T (\d{1,4}) (\d{1,10}\.\d{1,9})")


class Ping(msgspec.Struct, frozen=True):
    """One question: host times of sending and receiving, and the uptime that the phone read in between."""

    sent_s: float
    received_s: float
    uptime_s: float


class ClockOffset(msgspec.Struct, frozen=True):
    """Host monotonic time minus the phone's uptime, in seconds, and how far it may be off.

    `t` is the host's monotonic time of the last ping and `uptime_s` the phone's; `round_trip_s` is the shortest.
    """

    offset_s: float
    uncertainty_s: float
    uptime_s: float
    round_trip_s: float
    t: float

    def to_host(self, uptime_s: float) -> float:
        """The host's monotonic time at this uptime of the phone."""
        return uptime_s + self.offset_s


def offset_of(pings: Sequence[Ping]) -> ClockOffset:
    """The offset that all pings allow: each bounds it by half its round trip and by the tick of the phone's clock.

    Where they contradict each other (a clock coarser than its tick) the bounds are taken the other way round, so
    that the uncertainty covers the contradiction.
    """
    low, high = sorted(
        (max(p.sent_s - p.uptime_s - _TICK_S for p in pings), min(p.received_s - p.uptime_s for p in pings))
    )
    return ClockOffset(
        offset_s=(low + high) / 2,
        uncertainty_s=(high - low) / 2,
        uptime_s=pings[-1].uptime_s,
        round_trip_s=min(p.received_s - p.sent_s for p in pings),
        t=pings[-1].received_s,
    )


def measure_clock(link: Link) -> ClockOffset:
    """The offset by some pings over one open shell.

    CommandFailed where the phone tells no uptime, DeviceGone where it is gone or does not answer.
    """
    pings = []
    with link.stream(_SCRIPT) as stream:
        for number in range(PINGS):
            time.sleep(_PAUSE_S)
            sent = time.monotonic()
            stream.send(f"{number}\n".encode())
            line = _answer(link, stream)
            match = _ANSWER.fullmatch(line.text) if line is not None else None
            if line is None or match is None or int(match.group(1)) != number:
                said = "" if line is None else f" (it said {line.text[:60]!r})"
                raise CommandFailed(f"{link.serial} tells no uptime{said}: its clock offset is not known.")
            pings.append(Ping(sent, line.t, float(match.group(2))))
        stream.close_stdin()
        with contextlib.suppress(TimeoutError):  # the answers are here; leaving the block ends what still runs
            stream.wait(_PATIENCE_S)
    return offset_of(pings)


def _answer(link: Link, stream: Stream) -> Line | None:
    try:
        line = stream.line(_PATIENCE_S)
    except TimeoutError:
        raise DeviceGone(
            f"{link.serial} did not answer in time (reading its clock): check the cable, and whether the phone hangs."
        ) from None
    if line is None and stream.problem is not None:
        raise stream.problem
    return line


class Drift(msgspec.Struct, frozen=True):
    """What became of the offset between two measurements. `restarted`: the phone's uptime began anew."""

    seconds: float
    change_s: float
    uncertainty_s: float
    restarted: bool

    @property
    def seen(self) -> bool:
        """Whether the change is larger than what the two measurements may be off."""
        return abs(self.change_s) > self.uncertainty_s


def drift_between(first: ClockOffset, second: ClockOffset) -> Drift:
    """Compare two measurements of one phone."""
    return Drift(
        seconds=second.t - first.t,
        change_s=second.offset_s - first.offset_s,
        uncertainty_s=first.uncertainty_s + second.uncertainty_s,
        restarted=second.uptime_s < first.uptime_s,
    )
