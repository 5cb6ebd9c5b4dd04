"""Measured round costs of a session, by draft length and thread count, and the exported lengths, trusting nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from mtplab.speculation.acceptance import GAMMA_LIMIT
from mtplab.speculation.speedup import COST_CEILING, COST_FLOOR, Cost, Head

CostSource = Literal["rounds", "bench"]
_GRAPH = re.compile(r"(backbone|head)/(verify|draft)(?:_(\d{1,3}))?")


class CostPoint(msgspec.Struct, frozen=True):
    """What a round of `gamma` drafts costs on `threads` threads, in plain decode steps on as many.

    `draft` is the whole draft of a round, `verify` the verification of γ+1 positions. `source` says how it was
    measured: inside the interleaved rounds, or by the benchmark of single graphs, which is another run.
    """

    gamma: int
    threads: int | None
    draft: float
    verify: float
    overhead: float = 0.0
    plain_step_ms: float | None = None
    source: CostSource = "rounds"

    @property
    def round_cost(self) -> float:
        """K(γ)."""
        return self.draft + self.verify + self.overhead


class _Judged(Protocol):
    @property
    def graph(self) -> str: ...
    @property
    def requested(self) -> str: ...
    @property
    def figures(self) -> Mapping[str, Any]: ...


def cost_points(
    predicted: Mapping[str, Any], verdicts: Iterable[_Judged], exported_gamma: int | None, threads: int | None
) -> tuple[CostPoint, ...]:
    """Points out of a session's prediction and its CPU benchmarks; of the same length and threads the rounds' count.

    `exported_gamma` is the length of a signature that carries none in its name.
    """
    found = {(p.gamma, p.threads): p for p in _bench_points(verdicts, exported_gamma, threads)}
    single = _point({**predicted, "gamma": _gamma_of(predicted, exported_gamma), "threads": threads})
    listed = predicted.get("points")
    told = [_point(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    found |= {(p.gamma, p.threads): p for p in (single, *told) if p is not None}
    return tuple(found[key] for key in sorted(found, key=lambda k: (k[1] or 0, k[0])))


def measured_cost(
    points: Sequence[CostPoint], threads: int | None, gamma: int, head: Head = "recursive"
) -> tuple[Cost, list[str]] | None:
    """The costs on `threads` threads for a question about `gamma`, and what has to be said of them.

    Between measured lengths they are linear. A single measured length, or the one nearest to a `gamma` outside the
    measured ones, gives one r and one c for every length. None where nothing was measured on so many threads.
    """
    own = [p for p in points if p.threads == threads]
    if not own:
        return None
    nearest = min(own, key=lambda p: (abs(p.gamma - gamma), p.gamma))
    notes = []
    if bench := [p.gamma for p in own if p.source == "bench"]:
        lengths = ", ".join(map(str, bench))
        notes.append(f"Costs at γ = {lengths} are the benchmark's, of another run, and may be a tenth off or more.")
    step = nearest.draft / (nearest.gamma if head == "recursive" else 1)
    cost = Cost(
        draft=step,
        verify=tuple((p.gamma + 1, p.verify) for p in own),
        head=head,
        overhead=nearest.overhead,
        drafts=tuple((p.gamma, p.draft) for p in own),
    )
    if len(own) > 1 and cost.covers(gamma):
        return cost, notes
    if gamma != nearest.gamma:
        notes.append(f"Costs were taken as measured at γ = {nearest.gamma} for γ = {gamma} too; r grows with γ.")
    return Cost(step, nearest.verify, head, nearest.overhead), notes


def thread_counts(points: Iterable[CostPoint]) -> list[int]:
    """The thread counts that costs were measured on."""
    return sorted({p.threads for p in points if p.threads is not None})


def exported_lengths_of(export_figures: Mapping[str, Any], points: Iterable[CostPoint] = ()) -> tuple[int, ...]:
    """The draft lengths that the session exported: what its export stage says, and what was measured at all."""
    told = export_figures.get("gammas")
    lengths = {g for g in told if _is_gamma(g)} if isinstance(told, list) else set()
    if not lengths and _is_gamma(export_figures.get("gamma")):
        lengths = {export_figures["gamma"]}
    return tuple(sorted(lengths | {p.gamma for p in points}))


def _gamma_of(predicted: Mapping[str, Any], exported_gamma: int | None) -> int | None:
    conditional = predicted.get("conditional")
    return len(conditional) if isinstance(conditional, list) else exported_gamma


def _point(told: Mapping[str, Any]) -> CostPoint | None:
    """A point as a record tells it; None where a part is missing or cannot be."""
    gamma, threads = told.get("gamma"), told.get("threads")
    verify, overhead = _cost(told.get("verify_cost"), COST_FLOOR), _cost(told.get("overhead")) or 0.0
    draft = _cost(told.get("draft_round_cost"))
    if not isinstance(gamma, int) or not _is_gamma(gamma):
        return None
    if draft is None and (step := _cost(told.get("draft_cost"))) is not None:
        draft = step * gamma
    if draft is None or verify is None:
        return None
    known = threads if isinstance(threads, int) and not isinstance(threads, bool) and threads > 0 else None
    return CostPoint(gamma, known, draft, verify, overhead, _cost(told.get("plain_step_ms"), COST_FLOOR))


def _bench_points(
    verdicts: Iterable[_Judged], exported_gamma: int | None, threads: int | None
) -> Iterable[CostPoint]:
    """r and D as the CPU benchmark timed single graphs: what can be had before anything is decoded."""
    times: dict[tuple[str, int], float] = {}
    step_us: float | None = None
    for one in verdicts:
        taken = _cost(one.figures.get("inference_median_us") or one.figures.get("inference_avg_us"), COST_FLOOR)
        if one.requested != "cpu" or taken is None:
            continue
        if one.graph == "backbone/decode":
            step_us = taken
        elif match := _GRAPH.fullmatch(one.graph):
            gamma = int(match[3]) if match[3] else exported_gamma
            if gamma is not None and _is_gamma(gamma):
                times[match[2], gamma] = taken
    if step_us is None:
        return
    for (name, gamma), taken in times.items():
        draft = times.get(("draft", gamma))
        if name == "verify" and draft is not None and max(draft, taken) < COST_CEILING * step_us:
            yield CostPoint(gamma, threads, draft / step_us, taken / step_us, 0.0, step_us / 1000, "bench")


def _is_gamma(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= GAMMA_LIMIT


def _cost(value: Any, least: float = 0.0) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value) if least <= value <= COST_CEILING else None
