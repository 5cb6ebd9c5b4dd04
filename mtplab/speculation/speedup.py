"""Turn acceptance and costs into speedup: tokens a round over round cost, break-even and the best draft length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal

import msgspec

from mtplab.speculation.acceptance import GAMMA_LIMIT
from mtplab.speculation.intervals import Estimate

Head = Literal["recursive", "parallel"]
# Verifying for a millionth of a plain step, or drafting for a million of them, is a typing error and not a cost.
COST_FLOOR, COST_CEILING = 1e-6, 1e6


class Cost(msgspec.Struct, frozen=True):
    """What a round costs, in plain decode steps.

    `draft` is c: one draft step ÷ one plain decode step. `head` says how drafts are made: "recursive" (also a
    separate drafter) pays c for each of γ drafts, "parallel" (all positions from one fused pass) pays it once.
    `verify` is r(m): the time to verify m = γ+1 positions ÷ a plain step, one number for every m or measured
    points (m, r). `overhead` is o: sampling, cache rollback and hand-over between backends, a round. `drafts` are
    measured points (γ, D(γ)) of the whole draft of a round; where they reach, they are taken instead of c.
    """

    draft: float = 0.0
    verify: float | tuple[tuple[int, float], ...] = 1.0
    head: Head = "recursive"
    overhead: float = 0.0
    drafts: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        points = [self.verify] if isinstance(self.verify, (int, float)) else [r for _, r in self.verify]
        drafts = [self.draft, *(d for _, d in self.drafts)]
        for named in ([] if isinstance(self.verify, (int, float)) else self.verify, self.drafts):
            if min((at for at, _ in named), default=1) < 1 or len({at for at, _ in named}) < len(named):
                raise ValueError("measured costs stand at 1 position or more, and each but once")
        if not points or not all(math.isfinite(r) and r > 0 for r in points):
            raise ValueError("a verify cost is a positive number of decode steps")
        if not all(math.isfinite(x) and x >= 0 for x in (*drafts, self.overhead)):
            raise ValueError("draft cost and overhead are finite numbers of decode steps, 0 or more")
        if min(points) < COST_FLOOR:
            raise ValueError(f"a verify cost below {COST_FLOOR:g} decode steps is too small to mean anything")
        if max(*drafts, self.overhead, *points) > COST_CEILING:
            raise ValueError(f"a cost above {COST_CEILING:g} decode steps is too large to mean anything")
        if self.head not in ("recursive", "parallel"):
            raise ValueError(f"a head is recursive or parallel, not {self.head}")

    def verify_cost(self, positions: int) -> float:
        """r(positions), linear between measured points; refuses to guess outside them."""
        if isinstance(self.verify, (int, float)):
            return float(self.verify)
        found = _between(self.verify, positions)
        if found is None:
            points = sorted(self.verify)
            raise ValueError(
                f"verifying {positions} positions was not measured (only {points[0][0]} to {points[-1][0]})"
            )
        return found

    def covers(self, gamma: int) -> bool:
        """Whether verifying γ+1 positions lies within what was measured."""
        return isinstance(self.verify, (int, float)) or _between(self.verify, gamma + 1) is not None

    def draft_cost(self, gamma: int) -> float:
        """D(γ): measured where it was, else γ·c for a recursive head and c once for a parallel one."""
        measured = _between(self.drafts, gamma)
        if measured is not None:
            return measured
        return gamma * self.draft if self.head == "recursive" else self.draft

    def round_cost(self, gamma: int) -> float:
        """K(γ) = D(γ) + r(γ+1) + o, in plain decode steps."""
        _check_gamma(gamma)
        return self.draft_cost(gamma) + self.verify_cost(gamma + 1) + self.overhead


def _between(points: Iterable[tuple[int, float]], at: int) -> float | None:
    """The value of points (x, y) at `at`, linear between neighbours; None outside them."""
    points = sorted(points)
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return points[0][1] if points and at == points[0][0] else None


class Best(msgspec.Struct, frozen=True):
    """The draft length with the greatest speedup; `gamma` 0 with speedup 1 means: do not draft."""

    gamma: int
    speedup: float
    at_search_limit: bool


class MeasuredCosts(msgspec.Struct, frozen=True):
    """Costs and length of a round read from a runtime's counters, in plain decode steps."""

    draft: float
    verify: float
    round: float
    tau: float

    @property
    def speedup(self) -> float:
        return self.tau / self.round


def _check_gamma(gamma: int) -> None:
    if not 1 <= gamma <= GAMMA_LIMIT:
        raise ValueError(f"a draft length γ lies in 1..{GAMMA_LIMIT}, not {gamma}")


def _check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"α is a probability in 0..1, not {alpha}")


def expected_tokens(alpha: float, gamma: int) -> float:
    """E(α,γ) = (1−α^{γ+1})/(1−α): tokens a round, the correction or bonus token included.

    Leviathan et al. 2023 (arXiv 2211.17192), eq. 1; computed as Σ_{k=0..γ} α^k, which is the same number and is
    exact at α → 1 (γ+1) and α = 0 (1). Accepted drafts alone are E − 1.
    """
    _check_gamma(gamma)
    _check_alpha(alpha)
    return math.fsum(alpha**k for k in range(gamma + 1))


def expected_tokens_conditional(alphas: Sequence[float]) -> float:
    """τ = 1 + Σ_k Π_{i≤k} α_i for conditional acceptances α_1..α_γ, which need not be equal."""
    for alpha in alphas:
        _check_alpha(alpha)
    return 1 + math.fsum(accumulate(alphas, mul))


def expected_tokens_mixture(parts: Iterable[tuple[float, float]]) -> float:
    """τ of a mixed load from (share of rounds, τ) of each class.

    E is convex in α, so the E of a mean or pooled α is not the mean E: mix lengths, never α.
    """
    parts = list(parts)
    total = math.fsum(share for share, _ in parts)
    if total <= 0 or any(share < 0 for share, _ in parts):
        raise ValueError("shares of a mixture are 0 or more and not all 0")
    return math.fsum(share * tau for share, tau in parts) / total


def speedup(tau: float, round_cost: float) -> float:
    """S = τ/K: tokens a round ÷ the round's cost in plain steps; drafting pays iff τ > K. Decode only."""
    if not (round_cost > 0 and math.isfinite(round_cost)):
        raise ValueError("a round cost is a positive number of decode steps")
    return tau / round_cost


def leviathan_speedup(alpha: float, gamma: int, c: float) -> float:
    """S = E(α,γ)/(γc+1): theorem 3.8 of Leviathan et al. 2023; verification costs one step, no overhead.

    A gain exists for some γ iff α > c, and is then at least (1+α)/(1+c) (their corollary 3.9).
    """
    return speedup(expected_tokens(alpha, gamma), Cost(draft=c).round_cost(gamma))


def operations_factor(alpha: float, gamma: int, c_ops: float = 0.0) -> float:
    """(γĉ+γ+1)/E: arithmetic done ÷ arithmetic of plain decoding (Leviathan et al. 2023, theorem 3.11)."""
    return (gamma * c_ops + gamma + 1) / expected_tokens(alpha, gamma)


def memory_factor(tau: float, gamma: int, c_bytes: float = 0.0) -> float:
    """(γĉ+1)/τ: weights read a token ÷ those of plain decoding, where a draft step reads ĉ of the backbone's bytes.

    Verifying reads the weights once whatever γ is (Leviathan et al. 2023, section 3.4); caches are left out.
    """
    _check_gamma(gamma)
    return (gamma * c_bytes + 1) / tau


def end_to_end_speedup(decode_speedup: float, prefill_share: float) -> float:
    """1/(f + (1−f)/S): the request's speedup where plain prefill takes the share f of its time (Amdahl's law)."""
    if not 0 <= prefill_share <= 1:
        raise ValueError(f"the prefill's share of a request lies in 0..1, not {prefill_share}")
    return 1 / (prefill_share + (1 - prefill_share) / decode_speedup)


def speedup_estimate(alpha: Estimate, gamma: int, cost: Cost) -> Estimate:
    """Carry an estimate of α through S = E/K; S grows with α, so the ends of the interval map to ends."""
    round_cost = cost.round_cost(gamma)

    def carried(a: float | None) -> float | None:
        return None if a is None else expected_tokens(a, gamma) / round_cost

    return Estimate(carried(alpha.value), carried(alpha.low), carried(alpha.high), alpha.n, alpha.kind, alpha.reason)


def scale(estimate: Estimate, factor: float) -> Estimate:
    """The estimate times a known positive factor (for instance τ ÷ K)."""
    if factor <= 0:
        raise ValueError("an interval is carried through a positive factor only")
    value, low, high = (None if x is None else x * factor for x in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, estimate.n, estimate.kind, estimate.reason)


def break_even_alpha(gamma: int, cost: Cost) -> float | None:
    """The α at which E(α,γ) = K(γ): 0 if drafting can only win, None if even α = 1 loses."""
    target = cost.round_cost(gamma)
    if target <= 1:
        return 0.0
    if target > gamma + 1:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-13:
        middle = (low + high) / 2
        if expected_tokens(middle, gamma) < target:
            low = middle
        else:
            high = middle
    return high


def break_even_accepted(gamma: int, cost: Cost) -> float:
    """Mean accepted drafts a round at which drafting breaks even: K(γ) − 1. Needs no model of α."""
    return max(0.0, cost.round_cost(gamma) - 1)


def best_of_lengths(lengths: Iterable[tuple[int, float]], cost: Cost) -> Best:
    """The best of (γ, τ) pairs by τ/K, not drafting (γ = 0, speedup 1) among them; ties go to the shorter."""
    best_gamma, best_speedup, longest = 0, 1.0, 0
    for gamma, tau in sorted(lengths):
        longest = gamma
        gained = speedup(tau, cost.round_cost(gamma))
        if gained > best_speedup * (1 + 1e-12):
            best_gamma, best_speedup = gamma, gained
    return Best(best_gamma, best_speedup, best_gamma == longest and best_gamma > 0)


def best_gamma(alpha: float, cost: Cost, gammas: Iterable[int] = range(1, 17)) -> Best:
    """γ* by search over `gammas` (give the exported ones) at one i.i.d. α."""
    return best_of_lengths([(g, expected_tokens(alpha, g)) for g in gammas], cost)


def costs_from_counters(
    *,
    gamma: int,
    mtp_rounds: int,
    mtp_emitted_tokens: int,
    mtp_drafting_time: float,
    mtp_verify_time: float,
    mtp_round_time: float,
    plain_steps: int,
    plain_step_time: float,
) -> MeasuredCosts:
    """c, r, K and τ from LiteRT-LM's `ExecutorStats` totals; the plain pair comes from the run without MTP.

    Times in one unit, all totals: t1 = plain_step_time/plain_steps, c = drafting/(rounds·γ·t1),
    r = verify/(rounds·t1), K = round/(rounds·t1), τ = emitted/rounds.
    """
    _check_gamma(gamma)
    if mtp_rounds < 1 or plain_steps < 1 or plain_step_time <= 0:
        raise ValueError("costs need at least one MTP round and one plain step that took time")
    step = plain_step_time / plain_steps
    return MeasuredCosts(
        draft=mtp_drafting_time / (mtp_rounds * gamma * step),
        verify=mtp_verify_time / (mtp_rounds * step),
        round=mtp_round_time / (mtp_rounds * step),
        tau=mtp_emitted_tokens / mtp_rounds,
    )


def implied_round_cost(tau: float, measured_speedup: float) -> float:
    """K = τ/S: the round cost that a measured speedup at a known length implies."""
    return speedup(tau, measured_speedup)
