"""Answer one calculator question: what is known of acceptance, what a round costs, and what follows from both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mtplab.speculation.given import ClassPart, Given, from_ratio
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.speedup import (
    Best,
    Cost,
    best_of_lengths,
    break_even_accepted,
    break_even_alpha,
    end_to_end_speedup,
    memory_factor,
    scale,
)

Verdict = Literal["pays", "breaks even", "costs", "undecided"]
SEARCH_LIMIT = 16
RATIO_PRINTERS = "LiteRT-LM, llama.cpp and vLLM"


class Reading(msgspec.Struct, frozen=True):
    """One way to understand a number, and what it leads to."""

    alpha: float
    ratio: float
    expected_tokens: float
    speedup: float
    verdict: Verdict
    best_gamma: int
    best_speedup: float


class CurvePoint(msgspec.Struct, frozen=True):
    """The speedup at one draft length; not `seen` means that drafts so long were never recorded."""

    gamma: int
    speedup: float
    low: float | None
    high: float | None
    seen: bool


class ClassAnswer(msgspec.Struct, frozen=True):
    """What one prompt class of the recorded load gets, and which draft length would be its best."""

    name: str
    expected_tokens: float
    speedup: float
    best_gamma: int
    best_speedup: float


class Answer(msgspec.Struct, frozen=True):
    """The calculator's answer; its fields are the JSON contract of `mtplab calc`."""

    gamma: int
    source: str
    expected_tokens: float
    accepted_per_round: float
    round_cost: float
    speedup: float
    speedup_interval: Estimate
    verdict: Verdict
    best_gamma: int
    best_speedup: float
    break_even_alpha: float | None
    break_even_accepted: float
    break_even_ratio: float | None
    head_share: float
    operations_factor: float
    memory_factor: float
    end_to_end_speedup: float | None
    alpha: Estimate
    cost: Cost
    warnings: list[str]
    notes: list[str]
    curve: list[CurvePoint] = []
    classes: list[ClassAnswer] = []
    readings: dict[str, Reading] | None = None
    acceptance: dict[str, Any] | None = None
    simulated: bool | None = None


def curve(given: Given, cost: Cost, gammas: Sequence[int]) -> list[CurvePoint]:
    """Speedup at each draft length whose verification was measured, with its interval where there is one."""
    return [_point(given, cost, gamma) for gamma in gammas if cost.covers(gamma)]


def _point(given: Given, cost: Cost, gamma: int) -> CurvePoint:
    round_cost = cost.round_cost(gamma)
    low, high = given.interval(gamma) or (None, None)
    return CurvePoint(
        gamma=gamma,
        speedup=given.length(gamma) / round_cost,
        low=None if low is None else low / round_cost,
        high=None if high is None else high / round_cost,
        seen=given.source not in ("counts", "totals") or gamma <= given.gamma,
    )


def verdict_of(speedup: Estimate) -> Verdict:
    """Whether drafting pays: by the interval where there is one, else by the figure as it is shown."""
    if speedup.value is None:
        return "undecided"
    if speedup.low is not None and speedup.high is not None:
        return "pays" if speedup.low > 1 else "costs" if speedup.high < 1 else "undecided"
    shown = round(speedup.value, 2)
    return "pays" if shown > 1 else "costs" if shown < 1 else "breaks even"


def calculate(
    given: Given,
    cost: Cost,
    gammas: Sequence[int] | None = None,
    *,
    at: int | None = None,
    head_share: float = 0.0,
    prefill_share: float | None = None,
) -> Answer:
    """Everything that follows from `given` at `cost`; `gammas` are the lengths that could be had (exported).

    `at` asks about another draft length than the recorded one. `head_share` is what a draft step computes and reads
    as a share of a decode step, `prefill_share` what prefill takes of a plain request's time. Lengths whose
    verification was not measured are not searched.
    """
    gamma = given.gamma if at is None else at
    wanted = sorted(set(gammas)) if gammas is not None else list(range(1, max(SEARCH_LIMIT, gamma) + 1))
    searched = [g for g in wanted if cost.covers(g)]
    round_cost = cost.round_cost(gamma)
    tau = given.length(gamma)
    interval = _gained(given, gamma, round_cost)
    best = best_of_lengths([(g, given.length(g)) for g in searched], cost)
    break_even = break_even_alpha(gamma, cost)
    readings = _readings(given, cost, searched) if given.source == "alpha" else None
    warnings, notes = _remarks(
        given, cost, gamma, best, readings, wanted, searched, among=gammas is not None, hopeless=break_even is None
    )
    accepted = break_even_accepted(gamma, cost)
    return Answer(
        gamma=gamma,
        source=given.source,
        expected_tokens=tau,
        accepted_per_round=tau - 1,
        round_cost=round_cost,
        speedup=tau / round_cost,
        speedup_interval=interval,
        verdict=verdict_of(interval),
        best_gamma=best.gamma,
        best_speedup=best.speedup,
        break_even_alpha=break_even,
        break_even_accepted=accepted,
        break_even_ratio=accepted / gamma if accepted <= gamma else None,
        head_share=head_share,
        operations_factor=(gamma * head_share + gamma + 1) / tau,
        memory_factor=memory_factor(tau, gamma, head_share),
        end_to_end_speedup=None if prefill_share is None else end_to_end_speedup(tau / round_cost, prefill_share),
        alpha=given.alpha,
        cost=cost,
        warnings=warnings,
        notes=notes,
        curve=curve(given, cost, searched),
        classes=[_of_class(part, cost, gamma, searched) for part in given.parts],
        readings=readings,
        acceptance=given.acceptance,
    )


def _gained(given: Given, gamma: int, round_cost: float) -> Estimate:
    """The speedup at `gamma` with the interval of τ carried through; the cost is taken as exact."""
    if gamma == given.gamma:
        return scale(given.tau, 1 / round_cost)
    tau, kind = given.length(gamma), f"{given.tau.kind}_at_{gamma}"
    low, high = given.interval(gamma) or (None, None)
    why = None if low is not None else f"drafts of {gamma} tokens were never recorded"
    if low is None and given.source == "counts" and gamma < given.gamma:
        why = "which prompt is of which class is not known, so another length of a mixed load has no interval"
    return scale(Estimate(tau, low, high, given.tau.n, kind, why), 1 / round_cost)


def _of_class(part: ClassPart, cost: Cost, gamma: int, searched: Sequence[int]) -> ClassAnswer:
    best = best_of_lengths([(g, part.length(g)) for g in searched], cost)
    tau = part.length(gamma)
    return ClassAnswer(part.name, tau, tau / cost.round_cost(gamma), best.gamma, best.speedup)


def _remarks(
    given: Given,
    cost: Cost,
    gamma: int,
    best: Best,
    readings: dict[str, Reading] | None,
    wanted: Sequence[int],
    searched: Sequence[int],
    *,
    among: bool,
    hopeless: bool,
) -> tuple[list[str], list[str]]:
    """Warnings and notes: where the answer stops holding, and what it rests on. `among`: lengths were named.

    `hopeless`: not even α = 1 breaks even.
    """
    warnings = _reading_warning(given, readings) if readings is not None else []
    notes: list[str] = []
    if len(searched) < len(wanted):
        notes.append(f"Lengths whose verification was not measured were not searched: {_listed(searched)} were.")
    if best.gamma == 0:
        read = "Read as α, no" if readings is not None else "No"
        warnings.append(f"{read} draft length among {_listed(searched)} pays at this cost: do not draft.")
    if hopeless:
        warnings.append(
            f"A round costs {cost.round_cost(gamma):.2f} plain steps, more than the {gamma + 1} tokens it can give: "
            "even a perfect draft loses."
        )
    if best.at_search_limit and among:
        notes.append(f"γ = {best.gamma} is the longest that was exported; a longer one may gain more.")
    elif best.at_search_limit:
        notes.append(f"Longer drafts keep gaining at this cost; γ = {best.gamma} is only where the search ends.")
    if given.marginal is not None:
        warnings += _beyond(given.gamma, gamma, best.gamma)
        if gamma < given.gamma:
            notes.append(
                f"Recorded at γ = {given.gamma} and cut to {gamma}: approximate, shorter drafts begin elsewhere."
            )
    if best.gamma not in (0, gamma) and isinstance(cost.verify, (int, float)):
        notes.append("One verify cost was taken for every γ; a real one grows with the γ+1 positions verified.")
    if given.source == "totals":
        notes.append("The range of α is what totals leave open, without sampling error; per-round counts give both.")
    return warnings, notes


def _beyond(recorded: int, asked: int, best: int) -> list[str]:
    """What must be said of draft lengths that nobody recorded."""
    if asked > recorded:
        return [f"Nothing was recorded behind position {recorded}; γ = {asked} is extrapolated from α."]
    if best > recorded:
        return [f"Nothing was recorded behind position {recorded}; the best γ = {best} is extrapolated from α."]
    return []


def _listed(gammas: Sequence[int]) -> str:
    """Lengths in words: a whole span as its ends."""
    if len(gammas) > 2 and list(gammas) == list(range(gammas[0], gammas[-1] + 1)):
        return f"{gammas[0]} to {gammas[-1]}"
    return ", ".join(map(str, gammas)) or "none"


def _readings(given: Given, cost: Cost, gammas: Sequence[int]) -> dict[str, Reading]:
    entered = given.alpha.value
    assert entered is not None  # a Given made from an entered number always holds it
    read = {}
    for name, one in (("as_alpha", given), ("as_ratio", from_ratio(given.gamma, entered))):
        tau = one.length(given.gamma)
        gained = tau / cost.round_cost(given.gamma)
        best = best_of_lengths([(g, one.length(g)) for g in gammas], cost)
        read[name] = Reading(
            alpha=one.alpha.value if one.alpha.value is not None else math.nan,
            ratio=(tau - 1) / given.gamma,
            expected_tokens=tau,
            speedup=gained,
            verdict=verdict_of(Estimate(gained, None, None, 0, "given")),
            best_gamma=best.gamma,
            best_speedup=best.speedup,
        )
    return read


def _reading_warning(given: Given, readings: dict[str, Reading]) -> list[str]:
    """Ask which of both was meant wherever the answer, as shown, depends on it."""
    alpha, share = readings["as_alpha"], readings["as_ratio"]
    if f"{alpha.speedup:.2f}" == f"{share.speedup:.2f}":
        return []
    verdict = (
        "" if alpha.verdict == share.verdict else f", and drafting {share.verdict} where α says it {alpha.verdict}"
    )
    return [
        f"{given.alpha.value:g} was taken as α. If it is accepted ÷ drafted, the ratio that {RATIO_PRINTERS} print, "
        f"the speedup is {share.speedup:.2f}×, not {alpha.speedup:.2f}×{verdict}; "
        "then give --drafted and --accepted instead."
    ]
