"""What the calculator pane calculates: the numbers of a session or of the user, and the answer to them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from mtplab.session.events import Figure
from mtplab.session.record import DEPLOYED
from mtplab.session.state import ConfigurationView, LabState

if TYPE_CHECKING:
    from mtplab.speculation.acceptance import AcceptCounts
    from mtplab.speculation.calculator import Answer, Given
    from mtplab.speculation.speedup import Cost

GAMMAS = range(1, 9)


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What is calculated with. `alpha` None means: from the session's accept counts."""

    alpha: float | None = 0.6
    gamma: int = 3
    draft_cost: float = 0.05
    verify_cost: float = 1.2
    overhead: float = 0.0
    counts: tuple[int, ...] | None = None
    prompts: tuple[tuple[int, ...], ...] = ()
    costs_measured: bool = False


class Reckoned(msgspec.Struct, frozen=True):
    """The answer and the speedup at each γ."""

    answer: Answer
    curve: list[tuple[int, float]]


def numbers_of(state: LabState) -> Numbers | None:
    """The accept counts and costs that a session recorded, None where it drafted nothing."""
    measured = state.configurations.get(DEPLOYED)
    if measured is None:
        return None
    counts, prompts = _counts(measured)
    if len(counts) < 2 or not sum(counts):
        return None
    predicted = state.conclusion.predicted if state.conclusion is not None else {}
    draft, verify, overhead = (_number(predicted.get(n)) for n in ("draft_cost", "verify_cost", "overhead"))
    return Numbers(
        alpha=None,
        gamma=len(counts) - 1,
        counts=counts,
        prompts=prompts,
        draft_cost=draft if draft is not None else 0.0,
        verify_cost=verify if verify is not None else 1.0,
        overhead=overhead or 0.0,
        costs_measured=draft is not None and verify is not None,
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


def _counts(measured: ConfigurationView) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Pooled counts and counts of each prompt; repeats of a prompt are one prompt, not more evidence."""
    by_prompt: dict[str, list[int]] = {}
    for one in measured.rounds:
        for prompt in one.prompts:
            gamma, accepts = prompt.get("gamma"), prompt.get("accepts")
            if not isinstance(gamma, int) or not isinstance(accepts, list) or gamma + 1 != len(measured.counts):
                continue
            row = by_prompt.setdefault(str(prompt.get("prompt")), [0] * (gamma + 1))
            for accepted in accepts:
                if isinstance(accepted, int) and 0 <= accepted <= gamma:
                    row[accepted] += 1
    return tuple(measured.counts), tuple(tuple(row) for row in by_prompt.values())


def cost_of(numbers: Numbers) -> Cost:
    """Its round costs."""
    from mtplab.speculation.speedup import Cost

    return Cost(draft=numbers.draft_cost, verify=numbers.verify_cost, overhead=numbers.overhead)


def given_of(numbers: Numbers) -> Given:
    """What is known of acceptance."""
    from mtplab.speculation import calculator
    from mtplab.speculation.acceptance import AcceptCounts

    if numbers.alpha is not None or numbers.counts is None:
        return calculator.from_alpha(numbers.gamma, numbers.alpha if numbers.alpha is not None else 0.0)
    pooled = AcceptCounts(numbers.counts)
    prompts = [AcceptCounts(row) for row in numbers.prompts]
    return calculator.from_counts(pooled, prompts if _whole(pooled, prompts) else ())


def _whole(pooled: AcceptCounts, prompts: list[AcceptCounts]) -> bool:
    """Whether the prompts make up the pooled counts; else their interval would be of something else."""
    return bool(prompts) and sum(p.rounds for p in prompts) == pooled.rounds


def reckon(numbers: Numbers) -> Reckoned:
    """Answer the numbers; ValueError with a sentence where they cannot be.

    Of accept counts the best γ is looked for only among positions that were observed: behind them α is a guess.
    """
    from mtplab.speculation import calculator

    given, cost = given_of(numbers), cost_of(numbers)
    observed = range(1, given.gamma + 1) if given.source == "counts" else None
    return Reckoned(calculator.calculate(given, cost, observed), calculator.curve(given, cost, list(GAMMAS)))
