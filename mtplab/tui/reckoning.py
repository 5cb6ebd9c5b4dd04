"""What the calculator pane calculates: the numbers of a session or of the user, and the answer to them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mtplab.session.events import Figure
from mtplab.session.record import DEPLOYED
from mtplab.session.state import ConfigurationView, LabState

if TYPE_CHECKING:
    from mtplab.speculation.acceptance import AcceptCounts
    from mtplab.speculation.calculator import Answer, CurvePoint
    from mtplab.speculation.given import Given
    from mtplab.speculation.measured import CostPoint
    from mtplab.speculation.speedup import Cost

GAMMAS = range(1, 9)
Origin = Literal["example", "session", "hand"]
Row = tuple[int, ...]


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What is calculated with. `alpha` None means: from accept counts, or from `totals` (accepted, drafted).

    `draft_cost` and `verify_cost` None mean: from the measured `points` on `threads` threads. `exported` are the
    draft lengths that can be had, nothing where that is not known.
    """

    alpha: float | None = 0.6
    totals: tuple[int, int] | None = None
    gamma: int = 3
    draft_cost: float | None = 0.05
    verify_cost: float | None = 1.2
    overhead: float = 0.0
    counts: Row | None = None
    prompts: tuple[Row, ...] = ()
    classes: tuple[tuple[str, Row], ...] = ()
    prompt_classes: tuple[str, ...] = ()
    points: tuple[CostPoint, ...] = ()
    threads: int | None = None
    exported: Row = ()

    @property
    def costs_measured(self) -> bool:
        """Whether c and r are measured ones."""
        return bool(self.points) and self.draft_cost is None and self.verify_cost is None


class WhatIf(msgspec.Struct, frozen=True):
    """The speedups at every measured length on one thread count, with the plain speed there where it is known."""

    threads: int
    plain_step_ms: float | None
    speedups: list[tuple[int, float]]


class Reckoned(msgspec.Struct, frozen=True):
    """The answer, the speedup at each γ, what was said of the costs, and other thread counts where measured."""

    answer: Answer
    curve: list[CurvePoint]
    cost_notes: list[str] = []
    what_if: list[WhatIf] = []


def numbers_of(state: LabState) -> Numbers | None:
    """The accept counts and costs that a session recorded, None where it drafted nothing."""
    measured = state.configurations.get(DEPLOYED)
    if measured is None:
        return None
    counts, prompts, prompt_classes = _counts(measured)
    if len(counts) < 2 or not sum(counts):
        return None
    from mtplab.speculation.measured import cost_points, exported_lengths_of

    export = state.stages["export"].figures if "export" in state.stages else {}
    only, threads = export.get("gamma"), state.policy.threads if state.policy is not None else None
    predicted = state.conclusion.predicted if state.conclusion is not None else {}
    own = only if isinstance(only, int) and not isinstance(only, bool) else len(counts) - 1
    points = cost_points(predicted, state.verdicts, own, threads)
    there = any(p.threads == threads for p in points)
    return Numbers(
        alpha=None,
        gamma=len(counts) - 1,
        counts=counts,
        prompts=prompts,
        classes=_classes(measured, len(counts)),
        prompt_classes=prompt_classes,
        draft_cost=None if there else 0.0,
        verify_cost=None if there else 1.0,
        points=points,
        threads=threads,
        exported=exported_lengths_of(export, points),
    )


def measured_speedup(state: LabState) -> Figure | None:
    """The decode speedup that the session timed, MTP on against off, with its interval; None where it has none."""
    told = state.conclusion.predicted.get("measured") if state.conclusion is not None else None
    if not isinstance(told, dict):
        return None
    value, low, high = (_number(told.get(name)) for name in ("value", "low", "high"))
    return Figure(value=value, low=low, high=high) if value is not None else None


def _number(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _counts(measured: ConfigurationView) -> tuple[Row, tuple[Row, ...], tuple[str, ...]]:
    """Pooled counts, counts and class of each prompt; repeats of a prompt are one prompt, not more evidence."""
    by_prompt: dict[str, list[int]] = {}
    classes: dict[str, str] = {}
    for one in measured.rounds:
        for prompt in one.prompts:
            gamma, accepts = prompt.get("gamma"), prompt.get("accepts")
            if not isinstance(gamma, int) or not isinstance(accepts, list) or gamma + 1 != len(measured.counts):
                continue
            row = by_prompt.setdefault(str(prompt.get("prompt")), [0] * (gamma + 1))
            classes.setdefault(str(prompt.get("prompt")), str(prompt.get("class")))
            for accepted in accepts:
                if isinstance(accepted, int) and 0 <= accepted <= gamma:
                    row[accepted] += 1
    rows = tuple(tuple(row) for row in by_prompt.values())
    return tuple(measured.counts), rows, tuple(classes.values())


def _classes(measured: ConfigurationView, width: int) -> tuple[tuple[str, Row], ...]:
    """The counts of each prompt class where there are several and all are of the pooled length."""
    found = tuple((name, tuple(row)) for name, row in measured.counts_per_class.items() if len(row) == width)
    return found if len(found) == len(measured.counts_per_class) > 1 else ()


def cost_of(numbers: Numbers, threads: int | None = None) -> tuple[Cost, list[str]]:
    """Its round costs, on other `threads` if asked, and what has to be said of them; what was typed counts first."""
    from mtplab.speculation.measured import measured_cost, thread_counts
    from mtplab.speculation.speedup import Cost

    wanted = numbers.threads if threads is None else threads
    draft, verify = numbers.draft_cost, numbers.verify_cost
    if draft is not None and verify is not None:
        return Cost(draft=draft, verify=verify, overhead=numbers.overhead), []
    found = measured_cost(numbers.points, wanted, numbers.gamma)
    if found is None:
        had = ", ".join(map(str, thread_counts(numbers.points))) or "none"
        raise ValueError(f"No round cost was measured on {wanted} threads, only on {had}.")
    cost, notes = found
    if draft is not None:
        cost = msgspec.structs.replace(cost, draft=draft, drafts=())
    if verify is not None:
        cost = msgspec.structs.replace(cost, verify=verify)
    return cost, notes


def given_of(numbers: Numbers) -> Given:
    """What is known of acceptance."""
    counted = numbers.counts if numbers.alpha is None and numbers.totals is None else None
    if counted is not None:
        return _given_counts(counted, numbers.prompts, numbers.classes, numbers.prompt_classes)
    from mtplab.speculation import given

    if numbers.totals is not None:
        accepted, drafted = numbers.totals
        return given.from_totals(numbers.gamma, drafted, accepted)
    return given.from_alpha(numbers.gamma, numbers.alpha if numbers.alpha is not None else 0.0)


@functools.lru_cache(maxsize=8)
def _given_counts(
    counts: Row, prompts: tuple[Row, ...], classes: tuple[tuple[str, Row], ...], prompt_classes: tuple[str, ...]
) -> Given:
    """Kept, because its bootstraps cost more than all the rest and do not change while γ, c and r are tried."""
    from mtplab.speculation import given
    from mtplab.speculation.acceptance import AcceptCounts

    pooled, rows = AcceptCounts(counts), [AcceptCounts(row) for row in prompts]
    named = {name: AcceptCounts(row) for name, row in classes}
    return given.from_counts(
        pooled,
        rows if _whole(pooled, rows) else (),
        named if _whole(pooled, named.values()) else None,
        prompt_classes if _whole(pooled, rows) else (),
    )


def _whole(pooled: AcceptCounts, parts: Iterable[AcceptCounts]) -> bool:
    """Whether the parts make up the pooled counts; else what follows would be of something else."""
    return sum(p.rounds for p in parts) == pooled.rounds


def reckon(numbers: Numbers) -> Reckoned:
    """Answer the numbers; ValueError with a sentence where they cannot be.

    The best γ is looked for among the exported ones; where those are not known, among the positions that accept
    counts observed, because behind them α is a guess.
    """
    from mtplab.speculation import calculator

    given, (cost, notes) = given_of(numbers), cost_of(numbers)
    observed = range(1, given.gamma + 1) if given.source == "counts" else None
    answer = calculator.calculate(given, cost, numbers.exported or observed, at=numbers.gamma)
    return Reckoned(answer, calculator.curve(given, cost, list(GAMMAS)), notes, _what_if(numbers, given))


def _what_if(numbers: Numbers, given: Given) -> list[WhatIf]:
    """One row for each thread count, where costs were measured on several and none was typed."""
    from mtplab.speculation import calculator
    from mtplab.speculation.measured import thread_counts

    counts = thread_counts(numbers.points)
    if len(counts) < 2 or not numbers.costs_measured:
        return []
    rows = []
    for threads in counts:
        own = [p for p in numbers.points if p.threads == threads]
        curve = calculator.curve(given, cost_of(numbers, threads)[0], [p.gamma for p in own])
        step: Any = next((p.plain_step_ms for p in own if p.plain_step_ms is not None), None)
        rows.append(WhatIf(threads, step, [(p.gamma, p.speedup) for p in curve]))
    return rows
