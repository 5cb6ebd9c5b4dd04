"""Plan measurement rounds, mark those that heat or a lost cable spoilt, and say how many more are needed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from mtplab.speculation.intervals import t_95

MIN_ROUNDS = 5
SKIN_LIMIT_C = 37.0
STATUS_LIGHT = 1

BEGAN_HOT = "began-hot"
THROTTLED = "throttled"
HEAT_UNKNOWN = "heat-unknown"
CABLE_LOST = "cable-lost"
MARKS = (BEGAN_HOT, THROTTLED, HEAT_UNKNOWN, CABLE_LOST)


class Slot(msgspec.Struct, frozen=True):
    """One run of one configuration: the `order`-th of all, the `index`-th round of its configuration."""

    order: int
    index: int
    configuration: str


class HeatSample(msgspec.Struct, frozen=True):
    """Skin temperature and thermal status at one moment; None is unknown (a pinned status is unknown too)."""

    skin_c: float | None
    status: int | None


class HeatLimits(msgspec.Struct, frozen=True):
    """From where on a phone counts as hot: skin at or above the limit, or status at or above LIGHT."""

    skin_c: float = SKIN_LIMIT_C
    status: int = STATUS_LIGHT


class RoundHeat(msgspec.Struct, frozen=True):
    """Heat around one round and the marks it earned."""

    skin_before_c: float | None
    skin_max_c: float | None
    skin_after_c: float | None
    status_max: int | None
    marks: tuple[str, ...]

    @property
    def cold(self) -> bool:
        """Whether its figures may stand among the cold ones."""
        return not self.marks


class Advice(msgspec.Struct, frozen=True):
    """How many further rounds a figure needs for the wanted precision; None if that cannot be told yet."""

    further: int | None
    relative_half_width: float | None
    text: str


def schedule(configurations: Sequence[str], rounds: int = MIN_ROUNDS) -> list[Slot]:
    """Interleave configurations ABBA: odd rounds run in reverse, so that drift hits all of them alike."""
    names = list(configurations)
    if not names or len(set(names)) != len(names):
        raise ValueError("a schedule needs at least one configuration and no name twice")
    if rounds < 1:
        raise ValueError("a schedule needs at least one round")
    slots: list[Slot] = []
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            slots.append(Slot(len(slots), index, name))
    return slots


def hot(sample: HeatSample, limits: HeatLimits | None = None) -> bool | None:
    """Whether the phone is hot; None if neither skin nor status is known."""
    limits = limits or HeatLimits()
    if sample.skin_c is None and sample.status is None:
        return None
    return (sample.skin_c is not None and sample.skin_c >= limits.skin_c) or (
        sample.status is not None and sample.status >= limits.status
    )


def gate(sample: HeatSample, limits: HeatLimits | None = None) -> str | None:
    """Why a round must not begin yet, as a sentence; None if it may."""
    limits = limits or HeatLimits()
    answer = hot(sample, limits)
    if answer is None:
        return "Neither skin temperature nor thermal status can be read, so nobody can say that the phone is cool."
    if not answer:
        return None
    if sample.skin_c is not None and sample.skin_c >= limits.skin_c:
        return f"The skin is at {sample.skin_c:.1f} °C; rounds begin below {limits.skin_c:.1f} °C."
    return f"The thermal status is {sample.status}; rounds begin at 0 (NONE)."


def judge(
    before: HeatSample,
    during: Iterable[HeatSample],
    after: HeatSample,
    *,
    throttled: bool = False,
    cable_lost: bool = False,
    limits: HeatLimits | None = None,
) -> RoundHeat:
    """Heat before, during (maximum) and after a round, with its marks.

    `throttled` says that throttling was seen by other means (clocks cut, an event). A marked round is kept, but
    never stands among cold figures; a round whose beginning nobody could measure is not known to be cold.
    """
    limits = limits or HeatLimits()
    samples = [before, *during, after]
    skins = [s.skin_c for s in samples if s.skin_c is not None]
    statuses = [s.status for s in samples if s.status is not None]
    began = hot(before, limits)
    marks = []
    if began:
        marks.append(BEGAN_HOT)
    if began is None:
        marks.append(HEAT_UNKNOWN)
    # A round that began at LIGHT and stayed there is hot; it throttled as well, whoever caused it.
    if throttled or any(status >= limits.status for status in statuses):
        marks.append(THROTTLED)
    if cable_lost:
        marks.append(CABLE_LOST)
    return RoundHeat(
        skin_before_c=before.skin_c,
        skin_max_c=max(skins, default=None),
        skin_after_c=after.skin_c,
        status_max=max(statuses, default=None),
        marks=tuple(marks),
    )


T = TypeVar("T")


def cold_rounds(rounds: Iterable[tuple[Sequence[str], T]]) -> tuple[list[T], str | None]:
    """The rounds that figures are made of, from (marks, round) pairs, and what to say of them.

    Cold rounds if there are any. Otherwise all rounds, with a sentence that says so: figures from hot rounds are
    better than none, but never unnamed.
    """
    pairs = list(rounds)
    cold = [one for marks, one in pairs if not marks]
    if cold or not pairs:
        left_out = len(pairs) - len(cold)
        return cold, f"{left_out} of {len(pairs)} rounds were marked and kept apart." if left_out else None
    pairs = [pair for pair in pairs if CABLE_LOST not in pair[0]] or pairs  # one cut off was measured again
    seen = sorted({mark for marks, _ in pairs for mark in marks})
    return [one for _, one in pairs], f"Only marked rounds exist ({', '.join(seen)}), so these are no cold figures."


def advise(values: Sequence[float], target: float = 0.05) -> Advice:
    """Further rounds until the mean of per-round `values` is known to ± `target` (relative, 95 %, Student's t)."""
    if len(values) < 2:
        return Advice(None, None, "One round alone does not tell how much rounds differ; run at least two.")
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if mean <= 0 or not all(math.isfinite(v) for v in values):
        return Advice(None, None, "The rounds' values are no positive numbers, so no precision can be told.")
    now = t_95(len(values) - 1) * deviation / math.sqrt(len(values)) / mean
    needed = len(values)
    while needed < 10_000 and t_95(needed - 1) * deviation / math.sqrt(needed) / mean > target:
        needed += 1
    further = max(needed, MIN_ROUNDS) - len(values)
    state = f"known to ±{100 * now:.1f} % after {len(values)} rounds"
    wanted = f"±{100 * target:g} %"
    if further == 0:
        return Advice(0, now, f"The figure is {state}; that is within {wanted}.")
    return Advice(
        further, now, f"The figure is {state}; about {further} more for {wanted} and at least {MIN_ROUNDS}."
    )
