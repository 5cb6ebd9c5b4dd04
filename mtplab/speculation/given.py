"""What is known of acceptance, by whichever figure it came, and what that makes of any draft length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from mtplab.speculation.acceptance import (
    AcceptCounts,
    alpha_from_totals,
    alpha_mle,
    alpha_moment,
    bootstrap_by_prompt,
    bootstrap_by_round,
    length_bounds,
    marginal,
    mean_acceptance_length,
    merge,
    mixed_length_bounds,
    summarise,
)
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.speedup import expected_tokens

Source = Literal["alpha", "ratio", "length", "counts", "totals"]


class ClassPart(msgspec.Struct, frozen=True):
    """One prompt class of a mixed load: its output tokens, its own P_k, and the α that carries the last P_k on."""

    name: str
    tokens: float
    marginal: tuple[float, ...]
    alpha: float

    def length(self, gamma: int) -> float:
        """τ of this class at any draft length."""
        return carried_length(self.marginal, self.alpha, gamma)


class Given(msgspec.Struct, frozen=True):
    """What is known of acceptance: α, τ at `gamma` and, from counts, the marginals P_k.

    `parts` are the classes of a mixed load and `bounds` the 95 % interval of τ at each of the lengths 1..γ.
    """

    gamma: int
    source: Source
    alpha: Estimate
    tau: Estimate
    marginal: tuple[float, ...] | None = None
    acceptance: dict[str, Any] | None = None
    parts: tuple[ClassPart, ...] = ()
    bounds: tuple[tuple[float, float], ...] = ()

    def length(self, gamma: int) -> float:
        """τ at any draft length: the measured one where measured, else what P_k and α make of it.

        Up to the recorded length P_k is used, which holds for unequal positions; behind it the last P_γ is carried
        on by the i.i.d. α. A mixed load is mixed from the lengths of its classes, never from a pooled α: each
        class has its tokens to give, and takes tokens ÷ τ rounds for them.
        """
        if gamma == self.gamma and self.tau.value is not None:
            return self.tau.value
        if len(self.parts) > 1:
            tokens = math.fsum(part.tokens for part in self.parts)
            return tokens / math.fsum(part.tokens / part.length(gamma) for part in self.parts)
        alpha = self.alpha.value if self.alpha.value is not None else 0.0
        if self.marginal is None:
            return expected_tokens(alpha, gamma)
        return carried_length(self.marginal, alpha, gamma)

    def interval(self, gamma: int) -> tuple[float, float] | None:
        """The interval of τ at `gamma`; None where there is none, as behind the recorded length."""
        if gamma == self.gamma:
            low, high = self.tau.low, self.tau.high
            return None if low is None or high is None else (low, high)
        if 1 <= gamma <= len(self.bounds):
            return self.bounds[gamma - 1]
        if self.source == "totals" and self.alpha.low is not None and self.alpha.high is not None:
            return expected_tokens(self.alpha.low, gamma), expected_tokens(self.alpha.high, gamma)
        return None


def carried_length(reached: Sequence[float], alpha: float, gamma: int) -> float:
    """τ = 1 + Σ_{k≤γ} P_k; behind the last known P_k each further one is α times the one before."""
    known = 1 + math.fsum(reached[:gamma])
    return known + reached[-1] * math.fsum(alpha**i for i in range(1, gamma - len(reached) + 1))


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


def from_counts(
    counts: AcceptCounts,
    prompts: Sequence[AcceptCounts] = (),
    classes: Mapping[str, AcceptCounts] | None = None,
    prompt_classes: Sequence[str] = (),
) -> Given:
    """Accept counts; with the counts of each prompt the intervals are bootstrapped over prompts.

    `classes` are the counts of each prompt class, which together make up `counts`: with them another draft length
    is answered class by class, and has an interval where `prompt_classes` names the class of each prompt.
    """
    if not counts.rounds:
        raise ValueError("the accept counts hold no round, so there is nothing to calculate from")
    several = [one for one in prompts if one.rounds]
    alpha, tau = alpha_mle(counts), bootstrap_by_round(counts)
    if len(several) > 1:
        alpha = bootstrap_by_prompt(several, "alpha_mle")
        tau = bootstrap_by_prompt(several, "mean_acceptance_length")
    of_class = {name: one for name, one in (classes or {}).items() if one.rounds}
    return Given(
        counts.gamma,
        "counts",
        alpha,
        tau,
        marginal(counts),
        msgspec.to_builtins(summarise(counts)),
        tuple(_part(name, one) for name, one in of_class.items()),
        mixed_length_bounds(of_class, prompts, prompt_classes)
        if len(of_class) > 1
        else length_bounds(counts, several),
    )


def _part(name: str, counts: AcceptCounts) -> ClassPart:
    reached, alpha = marginal(counts), alpha_mle(counts).value
    assert reached is not None and alpha is not None  # a class without rounds was left out
    return ClassPart(name, counts.rounds * (mean_acceptance_length(counts) or 0.0), reached, alpha)


def from_prompts(prompts: Sequence[AcceptCounts]) -> Given:
    """Accept counts of each prompt, pooled for the value and kept apart for the interval."""
    return from_counts(merge(prompts), prompts)
