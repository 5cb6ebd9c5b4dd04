"""A session's heat kept to a plot's worth: bounded, extremes preserved, the same live and in replay."""

from __future__ import annotations

import msgspec

from mtplab.session.events import Heat

MAX_POINTS = 1200


class HeatPoint(msgspec.Struct, frozen=True):
    """Extremes of one span of time: skin (°C, min and max), the hottest die (°C) and the worst status."""

    t: float
    skin_low_c: float | None
    skin_high_c: float | None
    die_high_c: float | None
    status: int | None


# Zones that are dies; everything else on a phone follows slower and is not "the hottest die".
DIE_ZONES = ("BIG", "MID", "LITTLE", "G3D", "TPU", "cpu", "gpu")


def hottest_die(zones: dict[str, float | None]) -> tuple[str, float] | None:
    """The hottest readable die zone as (name, °C), or None where no die zone is readable."""
    dies = [
        (name, value)
        for name, value in zones.items()
        if value is not None and any(name == d or name.lower().startswith(d) for d in DIE_ZONES)
    ]
    return max(dies, key=lambda item: item[1]) if dies else None


def _low(a: float | None, b: float | None) -> float | None:
    known = [x for x in (a, b) if x is not None]
    return min(known) if known else None


def _high(a: float | None, b: float | None) -> float | None:
    known = [x for x in (a, b) if x is not None]
    return max(known) if known else None


def _merge(a: HeatPoint, b: HeatPoint) -> HeatPoint:
    status = _high(a.status, b.status)
    return HeatPoint(
        a.t,
        _low(a.skin_low_c, b.skin_low_c),
        _high(a.skin_high_c, b.skin_high_c),
        _high(a.die_high_c, b.die_high_c),
        None if status is None else int(status),
    )


class HeatHistory:
    """Heat points, merged pairwise into spans of twice the length whenever they grow past MAX_POINTS."""

    def __init__(self) -> None:
        self.points: list[HeatPoint] = []
        self._stride = 1
        self._in_last = 0

    def add(self, sample: Heat) -> None:
        """Take one sample in."""
        die = hottest_die(sample.zones)
        point = HeatPoint(sample.t, sample.skin_c, sample.skin_c, die[1] if die else None, sample.status)
        if self.points and self._in_last < self._stride:
            self.points[-1] = _merge(self.points[-1], point)
            self._in_last += 1
            return
        if len(self.points) >= MAX_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [_merge(a, b) for a, b in pairs]
            self._stride *= 2
        self.points.append(point)
        self._in_last = 1
