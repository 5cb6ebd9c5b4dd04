"""Answer one calculator question: what is known of acceptance, what a round costs, and what follows from both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mtplab.speculation.acceptance import (
    AcceptCounts,
    alpha_from_totals,
    alpha_mle,
    alpha_moment,
    bootstrap_by_prompt,
    bootstrap_by_round,
    marginal,
    merge,
    summarise,
)
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.speedup import (
    Cost,
    best_of_lengths,
    break_even_accepted,
    break_even_alpha,
    end_to_end_speedup,
    expected_tokens,
    memory_factor,
    scale,
)

Verdict = Literal["pays", "breaks even", "costs", "undecided"]
SEARCH_LIMIT = 16
RATIO_PRINTERS = "LiteRT-LM, llama.cpp and vLLM"


class Given(msgspec.Struct, frozen=True):
    """What is known of acceptance: α, τ at `gamma` and, from counts, the marginals P_k."""

    gamma: int
    source: Literal["alpha", "ratio", "length", "counts", "totals"]
    alpha: Estimate
    tau: Estimate
    marginal: tuple[float, ...] | None = None
    acceptance: dict[str, Any] | None = None

    def length(self, gamma: int) -> float:
        """τ at any draft length: the measured one where measured, else what α makes of it.

        Up to the recorded length P_k is used, which holds for unequal positions and mixed load; behind it the
        last P_γ is carried on by the i.i.d. α.
        """
        if gamma == self.gamma and self.tau.value is not None:
            return self.tau.value
        alpha = self.alpha.value if self.alpha.value is not None else 0.0
        if self.marginal is None:
            return expected_tokens(alpha, gamma)
        known = 1 + math.fsum(self.marginal[:gamma])
        return known + self.marginal[-1] * math.fsum(alpha**i for i in range(1, gamma - self.gamma + 1))


class Reading(msgspec.Struct, frozen=True):
    """One way to understand a number, and what it leads to."""

    alpha: float
    ratio: float
    expected_tokens: float
    speedup: float
    verdict: Verdict
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
    readings: dict[str, Reading] | None = None
    acceptance: dict[str, Any] | None = None
    simulated: bool | None = None


def from_alpha(gamma: int, alpha: float) -> Given:
    """A number entered as α."""
    tau = expected_tokens(alpha, gamma)
    bare = "entered by hand, without an interval"
    return Given(
        gamma,
        "alpha",
        Estimate(alpha, None, None, 0, "given", bare),
        Estimate(tau, None, None, 0, "from_alpha", bare),
    )


def from_ratio(gamma: int, share: float) -> Given:
    """The same number understood as accepted ÷ drafted: τ = 1 + γ·ratio needs no model of α."""
    if not 0 <= share <= 1:
        raise ValueError(f"accepted ÷ drafted lies in 0..1, not {share}")
    return _from_mean(gamma, 1 + gamma * share, "ratio")


def from_length(gamma: int, tau: float) -> Given:
    """A mean acceptance length τ, the bonus token included, as vLLM and SGLang print it."""
    if not 1 <= tau <= gamma + 1:
        raise ValueError(f"a round of γ = {gamma} drafts gives 1..{gamma + 1} tokens, not {tau:g}")
    return _from_mean(gamma, tau, "length")


def _from_mean(gamma: int, tau: float, source: Literal["ratio", "length"]) -> Given:
    bare = "a bare mean, without an interval"
    return Given(
        gamma,
        source,
        Estimate(alpha_moment(tau, gamma), None, None, 0, "moment", bare),
        Estimate(tau, None, None, 0, f"from_{source}", bare),
    )


def from_totals(gamma: int, drafted: int, accepted: int) -> Given:
    """Totals: τ is known exactly, α only within bounds."""
    alpha = alpha_from_totals(gamma, drafted, accepted)
    rounds = drafted // gamma
    tau = Estimate(
        1 + accepted / rounds,
        None,
        None,
        rounds,
        "totals",
        "totals do not tell how accepts spread over rounds, so there is no interval",
    )
    return Given(gamma, "totals", alpha, tau, None, {"ratio": accepted / drafted, "rounds": rounds})


def from_counts(counts: AcceptCounts, prompts: Sequence[AcceptCounts] = ()) -> Given:
    """Accept counts; with the counts of each prompt the intervals are bootstrapped over prompts."""
    if not counts.rounds:
        raise ValueError("the accept counts hold no round, so there is nothing to calculate from")
    alpha, tau = alpha_mle(counts), bootstrap_by_round(counts)
    if len([one for one in prompts if one.rounds]) > 1:
        alpha = bootstrap_by_prompt(prompts, "alpha_mle")
        tau = bootstrap_by_prompt(prompts, "mean_acceptance_length")
    acceptance = msgspec.to_builtins(summarise(counts))
    return Given(counts.gamma, "counts", alpha, tau, marginal(counts), acceptance)


def from_prompts(prompts: Sequence[AcceptCounts]) -> Given:
    """Accept counts of each prompt, pooled for the value and kept apart for the interval."""
    return from_counts(merge(prompts), prompts)


def curve(given: Given, cost: Cost, gammas: Sequence[int]) -> list[tuple[int, float]]:
    """Speedup at each draft length."""
    return [(g, given.length(g) / cost.round_cost(g)) for g in gammas]


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
    head_share: float = 0.0,
    prefill_share: float | None = None,
) -> Answer:
    """Everything that follows from `given` at `cost`; `gammas` are the lengths that could be had (exported).

    `head_share` is what a draft step computes and reads as a share of a decode step, `prefill_share` what prefill
    takes of a plain request's time. Lengths whose verification was not measured are not searched.
    """
    gamma = given.gamma
    wanted = sorted(set(gammas)) if gammas is not None else list(range(1, max(SEARCH_LIMIT, gamma) + 1))
    searched = [g for g in wanted if cost.covers(g)]
    round_cost = cost.round_cost(gamma)
    tau = given.length(gamma)
    interval = scale(given.tau, 1 / round_cost)
    best = best_of_lengths([(g, given.length(g)) for g in searched], cost)
    break_even = break_even_alpha(gamma, cost)
    readings = _readings(given, cost, searched) if given.source == "alpha" else None
    warnings: list[str] = []
    notes: list[str] = []
    if readings is not None:
        warnings += _reading_warning(given, readings)
    if len(searched) < len(wanted):
        notes.append(f"Lengths whose verification was not measured were not searched: {_listed(searched)} were.")
    if best.gamma == 0:
        read = "Read as α, no" if readings is not None else "No"
        warnings.append(f"{read} draft length of {_listed(searched)} pays at this cost: do not draft.")
    if break_even is None:
        warnings.append(
            f"A round costs {round_cost:.2f} plain steps, more than the {gamma + 1} tokens it can give: "
            "even a perfect draft loses."
        )
    if best.at_search_limit and gammas is not None:
        notes.append(f"γ = {best.gamma} is the longest that was exported; a longer one may gain more.")
    elif best.at_search_limit:
        notes.append(f"Longer drafts keep gaining at this cost; γ = {best.gamma} is only where the search ends.")
    if given.marginal is not None and best.gamma > gamma:
        warnings.append(
            f"Nothing was recorded behind position {gamma}; the best γ = {best.gamma} is extrapolated from α."
        )
    if best.gamma not in (0, gamma) and isinstance(cost.verify, (int, float)):
        notes.append("One verify cost was taken for every γ; a real one grows with the γ+1 positions verified.")
    if given.source == "totals":
        notes.append("The range of α is what totals leave open, without sampling error; per-round counts give both.")
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
        readings=readings,
        acceptance=given.acceptance,
    )


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
