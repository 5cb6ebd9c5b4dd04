"""Read acceptance from accept counts, every quantity under its own name, so that a ratio is never taken for α."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from mtplab.speculation.intervals import (
    DEFAULT_RESAMPLES,
    DEFAULT_SEED,
    Estimate,
    bootstrap_statistic,
    percentile_interval,
    resample_weights,
    unknown,
    wilson,
)

__all__ = [
    "AcceptCounts",
    "Acceptance",
    "Estimate",
    "alpha_bounds_from_totals",
    "alpha_from_totals",
    "alpha_mle",
    "alpha_moment",
    "bootstrap_by_prompt",
    "bootstrap_by_round",
    "conditional",
    "length_bounds",
    "marginal",
    "mean_acceptance_length",
    "merge",
    "mixed_length_bounds",
    "ratio",
    "rounds_from_totals",
    "summarise",
]

GAMMA_LIMIT = 64  # far above any draft length that has paid; keeps searches and typing errors finite
COUNT_LIMIT = 10**12  # more rounds than a phone decodes in its life; sums of them stay whole numbers of 64 bits
NO_ROUNDS = "no draft round was recorded"


def _check_length(gamma: int) -> None:
    if gamma > GAMMA_LIMIT:
        raise ValueError(f"a draft length γ lies in 1..{GAMMA_LIMIT}, not {gamma}")


class AcceptCounts(msgspec.Struct, frozen=True):
    """`counts[j]` rounds accepted exactly j of γ drafted tokens, j = 0..γ, so γ = len(counts) − 1."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2:
            raise ValueError("accept counts need at least n_0 and n_1, which is a draft of one token")
        if any(n < 0 for n in self.counts):
            raise ValueError("an accept count is a number of rounds and cannot be negative")
        if any(n > COUNT_LIMIT for n in self.counts):
            raise ValueError(f"an accept count above {COUNT_LIMIT:.0e} is more rounds than anyone can have measured")
        _check_length(self.gamma)

    @property
    def gamma(self) -> int:
        return len(self.counts) - 1

    @property
    def rounds(self) -> int:
        return sum(self.counts)

    @property
    def drafted(self) -> int:
        return self.gamma * self.rounds

    @property
    def accepted(self) -> int:
        return sum(j * n for j, n in enumerate(self.counts))

    @property
    def rejected(self) -> int:
        """Rounds that met a rejection; a round whose every draft was accepted met none."""
        return self.rounds - self.counts[-1]

    def truncated(self, gamma: int) -> AcceptCounts:
        """The counts had drafts been cut to `gamma`, a shorter length.

        Approximate: a shorter draft moves the places where later rounds begin, which counts cannot show.
        """
        if not 1 <= gamma <= self.gamma:
            raise ValueError(f"drafts of {self.gamma} can be cut to 1..{self.gamma}, not to {gamma}")
        return AcceptCounts((*self.counts[:gamma], sum(self.counts[gamma:])))

    @classmethod
    def from_accepts(cls, gamma: int, accepts: Iterable[int]) -> AcceptCounts:
        """Count per-round accept numbers, each in 0..gamma."""
        if gamma < 1:
            raise ValueError(f"a draft length of {gamma} drafts nothing")
        _check_length(gamma)  # before the list is made
        counts = [0] * (gamma + 1)
        for accepted in accepts:
            if not 0 <= accepted <= gamma:
                raise ValueError(f"a round of {gamma} drafts cannot have accepted {accepted}")
            counts[accepted] += 1
        return cls(tuple(counts))


class Acceptance(msgspec.Struct, frozen=True):
    """All acceptance quantities of one set of rounds, each under its own name; undefined ones are None."""

    gamma: int
    rounds: int
    drafted: int
    accepted: int
    ratio: float | None
    mean_acceptance_length: float | None
    marginal: tuple[float, ...] | None
    conditional: tuple[float | None, ...] | None
    alpha_mle: Estimate
    alpha_moment: float | None


def merge(many: Sequence[AcceptCounts]) -> AcceptCounts:
    """Add up counts of the same γ; different draft lengths are different policies and are never merged."""
    gammas = {one.gamma for one in many}
    if len(gammas) != 1:
        raise ValueError(f"rounds of draft lengths {sorted(gammas)} cannot be merged into one figure")
    return AcceptCounts(tuple(sum(column) for column in zip(*(one.counts for one in many), strict=True)))


def ratio(counts: AcceptCounts) -> float | None:
    """Accepted ÷ drafted, A/(γN). Runtimes print this as "acceptance rate"; it is NOT α and falls with γ."""
    return counts.accepted / counts.drafted if counts.rounds else None


def mean_acceptance_length(counts: AcceptCounts) -> float | None:
    """τ = 1 + A/N: tokens a round, including the correction or bonus token, 1..γ+1."""
    return 1 + counts.accepted / counts.rounds if counts.rounds else None


def marginal(counts: AcceptCounts) -> tuple[float, ...] | None:
    """P_k for k = 1..γ: the share of all rounds that accepted at least k."""
    if not counts.rounds:
        return None
    reached = np.cumsum(counts.counts[::-1])[::-1][1:]
    return tuple(float(n) / counts.rounds for n in reached)


def conditional(counts: AcceptCounts) -> tuple[float | None, ...] | None:
    """α_k = P_k/P_{k−1} for k = 1..γ; None where no round came as far as position k."""
    if not counts.rounds:
        return None
    reached = [int(n) for n in np.cumsum(counts.counts[::-1])[::-1]]
    return tuple(now / before if before else None for before, now in pairwise(reached))


def alpha_mle(counts: AcceptCounts) -> Estimate:
    """The i.i.d. maximum-likelihood α = A/(A+R) with Wilson's interval on A of A+R trials.

    A round is a run of trials that ends at the first rejection or after γ successes: A successes, R failures.
    Wilson takes trials as independent; with several prompts prefer `bootstrap_by_prompt`.
    """
    trials = counts.accepted + counts.rejected
    if trials == 0:
        return unknown("mle_wilson", NO_ROUNDS)
    low, high = wilson(counts.accepted, trials)
    return Estimate(counts.accepted / trials, low, high, trials, "mle_wilson")


def alpha_moment(tau: float, gamma: int) -> float:
    """The α whose expected length (Leviathan et al. 2023, eq. 1) equals τ: solve τ = Σ_{k=0..γ} α^k."""
    if gamma < 1 or not 1 <= tau <= gamma + 1:
        raise ValueError(f"{tau} tokens a round is outside 1..γ+1 for γ = {gamma}")
    if tau in (1, gamma + 1):
        return 0.0 if tau == 1 else 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-14:  # the sum grows strictly with α, so bisection cannot miss
        middle = (low + high) / 2
        if math.fsum(middle**k for k in range(gamma + 1)) < tau:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def rounds_from_totals(gamma: int, drafted: int, accepted: int) -> int:
    """Check totals against each other and give the number of rounds, drafted ÷ γ."""
    if gamma < 1:
        raise ValueError(f"a draft length of {gamma} drafts nothing")
    if drafted < 1 or accepted < 0:
        raise ValueError("totals need at least one drafted token and no negative count")
    if accepted > drafted:
        raise ValueError(f"{accepted} accepted of {drafted} drafted is more than was drafted")
    if drafted % gamma:
        raise ValueError(f"{drafted} drafted is not a whole number of rounds of γ = {gamma}")
    if drafted // gamma > COUNT_LIMIT:
        raise ValueError(f"more than {COUNT_LIMIT:.0e} rounds are more than anyone can have measured")
    return drafted // gamma


def alpha_bounds_from_totals(gamma: int, drafted: int, accepted: int) -> tuple[float, float]:
    """The least and greatest A/(A+R) that any accept counts with these totals can have.

    Totals leave open how many rounds accepted everything: n_γ lies in [max(0, A−(γ−1)N), ⌊A/γ⌋].
    """
    rounds = rounds_from_totals(gamma, drafted, accepted)
    fewest_full = max(0, accepted - (gamma - 1) * rounds)
    most_full = accepted // gamma
    return (
        accepted / (accepted + rounds - fewest_full),
        accepted / (accepted + rounds - most_full),
    )


def alpha_from_totals(gamma: int, drafted: int, accepted: int) -> Estimate:
    """α from totals alone: the moment value within what the totals leave open (no sampling error in it)."""
    rounds = rounds_from_totals(gamma, drafted, accepted)
    low, high = alpha_bounds_from_totals(gamma, drafted, accepted)
    value = alpha_moment(1 + accepted / rounds, gamma)
    # With very few rounds whole counts cannot realise the moment value: the interval must still hold it.
    return Estimate(value, min(low, value), max(high, value), rounds, "moment_within_totals")


def summarise(counts: AcceptCounts) -> Acceptance:
    """Every quantity of one set of rounds at once."""
    tau = mean_acceptance_length(counts)
    return Acceptance(
        gamma=counts.gamma,
        rounds=counts.rounds,
        drafted=counts.drafted,
        accepted=counts.accepted,
        ratio=ratio(counts),
        mean_acceptance_length=tau,
        marginal=marginal(counts),
        conditional=conditional(counts),
        alpha_mle=alpha_mle(counts),
        alpha_moment=None if tau is None else alpha_moment(tau, counts.gamma),
    )


def _ratio_of(sums: np.ndarray) -> np.ndarray:
    gamma = sums.shape[-1] - 1
    return (sums @ np.arange(gamma + 1)) / (gamma * sums.sum(axis=-1))


def _tau_of(sums: np.ndarray) -> np.ndarray:
    return 1 + (sums @ np.arange(sums.shape[-1])) / sums.sum(axis=-1)


def _mle_of(sums: np.ndarray) -> np.ndarray:
    accepted = sums @ np.arange(sums.shape[-1])
    return accepted / (accepted + sums.sum(axis=-1) - sums[..., -1])


_STATISTICS = {"ratio": _ratio_of, "mean_acceptance_length": _tau_of, "alpha_mle": _mle_of}


def bootstrap_by_prompt(
    prompts: Sequence[AcceptCounts],
    quantity: str = "alpha_mle",
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> Estimate:
    """`quantity` (ratio, mean_acceptance_length, alpha_mle) of all rounds, bootstrapped over whole prompts.

    The headline interval: rounds of one prompt correlate. Prompts without a round are left out and not counted.
    """
    kind = f"{quantity}_bootstrap_by_prompt"
    drafted = [one for one in prompts if one.rounds]
    if not drafted:
        return unknown(kind, NO_ROUNDS)
    merge(drafted)  # refuses mixed draft lengths
    rows = [one.counts for one in drafted]
    return bootstrap_statistic(rows, _STATISTICS[quantity], kind, resamples=resamples, seed=seed)


def bootstrap_by_round(
    counts: AcceptCounts,
    quantity: str = "mean_acceptance_length",
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> Estimate:
    """`quantity` bootstrapped over single rounds: all that can be done when prompts are not told apart."""
    kind = f"{quantity}_bootstrap_by_round"
    if not counts.rounds:
        return unknown(kind, NO_ROUNDS)
    observed = np.asarray(counts.counts, dtype=np.float64)
    statistic = _STATISTICS[quantity]
    draws = np.random.default_rng(seed).multinomial(counts.rounds, observed / counts.rounds, size=resamples)
    low, high = percentile_interval(statistic(draws))
    return Estimate(float(statistic(observed)), low, high, counts.rounds, kind)


def length_bounds(
    counts: AcceptCounts,
    prompts: Sequence[AcceptCounts] = (),
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> tuple[tuple[float, float], ...]:
    """The 95 % interval of τ at each draft length 1..γ, had the recorded rounds been cut to it.

    Bootstrapped over prompts where there are several, else over rounds, with the draws of the other intervals, so
    that the last one is the interval of τ itself.
    """
    drafted = [one.counts for one in prompts if one.rounds]
    if len(drafted) > 1:
        sums = resample_weights(len(drafted), resamples, seed) @ np.asarray(drafted, dtype=np.float64)
    else:
        observed = np.asarray(counts.counts, dtype=np.float64)
        sums = np.random.default_rng(seed).multinomial(counts.rounds, observed / counts.rounds, size=resamples)
    rounds = sums.sum(axis=-1)
    kept = np.arange(counts.gamma + 1)
    return tuple(
        percentile_interval(1 + (sums @ np.minimum(kept, gamma)) / rounds) for gamma in range(1, counts.gamma + 1)
    )


def mixed_length_bounds(
    classes: Mapping[str, AcceptCounts],
    prompts: Sequence[AcceptCounts] = (),
    prompt_classes: Sequence[str] = (),
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
) -> tuple[tuple[float, float], ...]:
    """The same for a load of several classes: τ is Σ tokens ÷ Σ rounds, where each class keeps its tokens.

    Drawn within classes: over prompts where there are any, each of a class named in `prompt_classes`, else over
    rounds. An interval of the pooled rounds would be one of another quantity: a class that drafts badly made more of
    them than it has tokens. None at all where it is not known which prompt is of which class.
    """
    if len(prompts) != len(prompt_classes):
        return ()
    sums: list[np.ndarray]
    if prompts:
        drawn, table = resample_weights(len(prompts), resamples, seed, prompt_classes), [p.counts for p in prompts]
        of = {name: [i for i, one in enumerate(prompt_classes) if one == name] for name in prompt_classes}
        sums = [drawn[:, own] @ np.asarray(table, dtype=np.float64)[own] for own in of.values()]
    else:
        random = np.random.default_rng(seed)
        seen = [np.asarray(one.counts, dtype=np.float64) for one in classes.values()]
        sums = [random.multinomial(int(row.sum()), row / row.sum(), size=resamples) for row in seen]
    gamma = sums[0].shape[1] - 1
    cut = np.minimum(np.arange(gamma + 1)[:, None], np.arange(1, gamma + 1))  # [accepted 0..γ, cut to 1..γ]
    tokens, rounds = np.zeros(resamples), np.zeros((resamples, gamma))
    for one in sums:
        made = one.sum(axis=-1)
        given = made + one @ np.arange(gamma + 1)
        lengths = 1 + (one @ cut) / np.maximum(made, 1)[:, None]  # a class that was not drawn has no tokens
        tokens, rounds = tokens + given, rounds + given[:, None] / lengths
    return tuple(percentile_interval(tokens / column) for column in rounds.T)
