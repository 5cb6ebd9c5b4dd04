"""What follows from a session's heat samples: a bounded history, trend, the next threshold, dead zones."""

from __future__ import annotations

import functools
import math
import re
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from mtplab.session.events import Fact, Heat

MAX_POINTS = 1200
STATUS_NAMES = ("NONE", "LIGHT", "MODERATE", "SEVERE", "CRITICAL", "EMERGENCY", "SHUTDOWN")

# A trend is taken over the last minute; less than this is not told from noise, or called flat.
TREND_S, TREND_LEAST_S, FLAT_C_PER_MIN = 60.0, 10.0, 0.3
# After a longer silence the samples before it say nothing about now.
GAP_S = 10.0

# A sensor on a die that stands still this long while the dies moved is none. Others, a battery's above all, may.
CONSTANT_DIE_S, CONSTANT_OTHER_S, MOVED_C = 30.0, 300.0, 3.0
LOOK_S = 0.5
# What hardware limits and trip points read, exactly and always.
LIMITS_C = (105.0, 125.0)

# Zones that are dies, in the order in which people name them; everything else on a phone follows slower.
DIE_ZONES = ("BIG", "MID", "LITTLE", "G3D", "TPU", "cpu", "gpu")
_DIE = re.compile(
    r"^(?!.*-(?:minus|trip)-)"
    r"(big|mid|little|g3d|tpu|aur|isp|ap|soc_therm|(cpu|cpuss|gpu|gpuss|npu|nsp|tpu)[-_]?\d[\w-]*|[cg]pu|npu)$",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=1024)
def is_die(zone: str) -> bool:
    """Whether a kernel zone of this name sits on the chip's compute dies."""
    return bool(_DIE.match(zone))


def hottest_die(
    zones: Mapping[str, float | None], silent: Mapping[str, str] | None = None
) -> tuple[str, float] | None:
    """The hottest readable die zone that is not `silent` as (name, °C), or None where there is none."""
    dies = [
        (name, value)
        for name, value in zones.items()
        if value is not None and is_die(name) and (silent is None or name not in silent)
    ]
    return max(dies, key=lambda item: item[1]) if dies else None


# --- trend and the next threshold -------------------------------------------------------------------------------


class Trend(msgspec.Struct, frozen=True):
    """Slope over the last minute in °C per minute, or None with the reason."""

    c_per_min: float | None
    reason: str | None = None

    @property
    def rising(self) -> bool:
        """Whether it warms faster than what is called flat."""
        return self.c_per_min is not None and self.c_per_min >= FLAT_C_PER_MIN


class NextThreshold(msgspec.Struct, frozen=True):
    """The next throttling limit above the skin. What is None is so for `reason`."""

    name: str | None = None
    limit_c: float | None = None
    distance_c: float | None = None
    seconds: float | None = None
    reason: str | None = None


def slope_c_per_min(points: Sequence[tuple[float, float]]) -> float | None:
    """Least-squares slope of (seconds, °C) points; None for fewer than three, no extent in time, or absurd values."""
    if len(points) < 3:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_c = sum(c for _, c in points) / len(points)
    spread = sum((t - mean_t) * (t - mean_t) for t, _ in points)
    if spread <= 0.0:
        return None
    slope = 60.0 * sum((t - mean_t) * (c - mean_c) for t, c in points) / spread
    return slope if math.isfinite(slope) else None


def trend_of(points: Sequence[tuple[float, float]]) -> Trend:
    """The trend of (seconds, °C) points, oldest first."""
    if not points:
        return Trend(None, "there is no temperature yet")
    if points[-1][0] - points[0][0] < TREND_LEAST_S:
        return Trend(None, f"fewer than {TREND_LEAST_S:.0f} s of samples")
    slope = slope_c_per_min(points)
    return Trend(slope) if slope is not None else Trend(None, "too few samples")


class HeatTrend:
    """Skin and hottest die of the last minute; a gap in the samples begins anew."""

    def __init__(self) -> None:
        self._skin: deque[tuple[float, float]] = deque()
        self._die: deque[tuple[float, float]] = deque()
        self._last_skin: tuple[float | None, str | None] = (None, None)

    def add(self, sample: Heat, die_c: float | None) -> None:
        """Take one sample in, with the temperature of its hottest die."""
        if sample.skin_source != self._last_skin[1]:
            self._skin.clear()  # two sensors differ by more than a minute's warming
        self._last_skin = (sample.skin_c, sample.skin_source)
        for points, value in ((self._skin, sample.skin_c), (self._die, die_c)):
            if points and sample.t - points[-1][0] > GAP_S:
                points.clear()
            if value is not None:
                points.append((sample.t, value))
            while points and sample.t - points[0][0] > TREND_S:
                points.popleft()

    @property
    def skin(self) -> Trend:
        """The skin's trend."""
        return trend_of(self._skin)

    @property
    def die(self) -> Trend:
        """The hottest die's trend."""
        return trend_of(self._die)

    def next_threshold(self, limits_c: Sequence[float | None]) -> NextThreshold:
        """The first limit above the skin; `limits_c` by status 0 … 6, None where a status has none."""
        skin_c = self._last_skin[0]
        if skin_c is None:
            return NextThreshold(reason="the skin's temperature is not known")
        if not limits_c:
            return NextThreshold(reason="the skin's limits are not known")
        named = list(zip(limits_c, STATUS_NAMES, strict=False))[1:]  # NONE begins nowhere
        above = [(limit, name) for limit, name in named if limit is not None and limit > skin_c]
        if not above:
            return NextThreshold(reason="there is no limit above the skin's temperature")
        limit_c, name = min(above)
        distance_c, trend = limit_c - skin_c, self.skin
        if trend.c_per_min is None:
            return NextThreshold(name, limit_c, distance_c, None, trend.reason)
        if not trend.rising:
            return NextThreshold(name, limit_c, distance_c, None, "the skin is not warming")
        return NextThreshold(name, limit_c, distance_c, 60.0 * distance_c / trend.c_per_min)


def skin_limits_c(facts: Mapping[str, Fact]) -> tuple[float | None, ...]:
    """The skin's throttling limits (°C) by status 0 … 6 from the fact of that name; empty where unknown."""
    fact = facts.get("skin_thresholds_c")
    if fact is None or not isinstance(fact.value, str):
        return ()
    found: list[float | None] = []
    for word in fact.value.split(","):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        found.append(value if math.isfinite(value) else None)
    return tuple(found)


# --- zones that tell nothing ------------------------------------------------------------------------------------


class _Seen(msgspec.Struct):
    """A zone's present value, since when it stands, and the range of the dies' mean since then."""

    value: float | None
    since_t: float
    low_c: float
    high_c: float
    moved: bool = False


class ZoneWatch:
    """Finds zones that give no temperature: what the phone's side said of them, constants, and limits.

    A zone is called constant only when it has stood still for long while the dies' mean moved: a phone at rest has
    still sensors, and a battery's is slow.
    """

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        self.hottest_die: tuple[str, float] | None = None
        self._told: dict[str, str] = {}
        self._looked_t = -math.inf
        self._seen: dict[str, _Seen] = {}
        self._dies: tuple[str, ...] = ()

    def add(self, sample: Heat) -> None:
        """Take one sample in."""
        # Twice a second is enough to find what stands still for half a minute; a replay goes through hours of this.
        if sample.silent is not None or sample.t - self._looked_t >= LOOK_S or sample.t < self._looked_t:
            self._told = self._told if sample.silent is None else sample.silent
            self._looked_t = sample.t
            self._look(sample)
        self.hottest_die = hottest_die(sample.zones, self.silent)

    def _look(self, sample: Heat) -> None:
        readable = [(name, value) for name, value in sample.zones.items() if value is not None]
        dies = [(name, value) for name, value in readable if is_die(name)]
        names = tuple(name for name, _ in dies)
        if names != self._dies:
            # A mean over other sensors is another figure: its move would not be the chip's.
            self._dies = names
            for seen in self._seen.values():
                seen.since_t, seen.low_c, seen.high_c = sample.t, math.inf, -math.inf
        mean_c = sum(value for _, value in dies) / len(dies) if dies else math.nan
        silent: dict[str, str] = {}
        for name, value in sample.zones.items():
            told = self._told.get(name, "not readable")
            why = told if value is None else self._judge(name, value, sample.t, mean_c)
            if why is not None:
                silent[name] = why
        self.silent = silent

    def _judge(self, name: str, value: float, t: float, mean_c: float) -> str | None:
        seen = self._seen.get(name)
        if seen is None or seen.value != value:
            self._seen[name] = seen = _Seen(value, t, mean_c, mean_c, seen is not None)
        elif not math.isnan(mean_c):
            seen.low_c, seen.high_c = min(seen.low_c, mean_c), max(seen.high_c, mean_c)
        if value in LIMITS_C and not seen.moved:
            return f"reads exactly {value:g} °C since the first sample, as limits do"
        lasted_s, moved_c = t - seen.since_t, seen.high_c - seen.low_c
        if moved_c >= MOVED_C and lasted_s >= (CONSTANT_DIE_S if is_die(name) else CONSTANT_OTHER_S):
            return f"constant at {value:g} °C for {lasted_s:.0f} s while the dies moved by {moved_c:.0f} °C"
        return None


# --- a plot's worth ---------------------------------------------------------------------------------------------


class HeatPoint(msgspec.Struct, frozen=True):
    """Extremes of one span of time: skin (°C, min and max), the hottest die (°C) and the worst status."""

    t: float
    skin_low_c: float | None
    skin_high_c: float | None
    die_high_c: float | None
    status: int | None


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

    def add(self, sample: Heat, die_c: float | None) -> None:
        """Take one sample in, with the temperature of its hottest die."""
        point = HeatPoint(sample.t, sample.skin_c, sample.skin_c, die_c, sample.status)
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
