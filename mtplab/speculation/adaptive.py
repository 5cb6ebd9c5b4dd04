"""Choose the draft length round by round (R23): fixed, the +2/−1 rule, or tiers with hysteresis and an off switch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from mtplab.session.configuration import POLICIES
from mtplab.speculation.speedup import expected_tokens

OFF = 0  # the draft length of a plain decode step


class DraftPolicy(Protocol):
    """Says how many tokens the next round drafts; only ever one of the exported lengths, or OFF for a plain step."""

    def next_gamma(self) -> int:
        """The next draft length."""

    def observe(self, gamma: int, accepted: int) -> None:
        """Take note of a round's outcome; a plain step is observed as (OFF, 0)."""


class Fixed:
    """The same draft length always."""

    def __init__(self, gamma: int) -> None:
        self._gamma = gamma

    def next_gamma(self) -> int:
        return self._gamma

    def observe(self, gamma: int, accepted: int) -> None:
        """Nothing changes its mind."""


class Additive:
    """All accepted: two more; else one fewer, never below one (the heuristic schedule of Hugging Face transformers).

    The wanted length moves freely between 1 and the longest exported one; drafted is the longest exported one that
    does not exceed it.
    """

    def __init__(self, gammas: Sequence[int], start: int | None = None) -> None:
        self._gammas = _exported(gammas)
        self._wanted = self._gammas[-1] if start is None else start

    def next_gamma(self) -> int:
        return max((g for g in self._gammas if g <= self._wanted), default=self._gammas[0])

    def observe(self, gamma: int, accepted: int) -> None:
        if gamma == OFF:
            return
        # Judged by what was drafted: with few exported lengths the wanted one may lie between two of them.
        step = 2 if accepted == gamma else -1
        self._wanted = min(self._gammas[-1], max(1, self._wanted + step))


class TierSettings(msgspec.Struct, frozen=True):
    """How `Tiers` weighs the past.

    `memory_rounds` is the number of rounds after which an observation counts 1/e; `hysteresis` the gain another
    length must promise before it is taken; `doubt` how many standard errors α is lowered by before drafting at all
    is judged; `rest_steps` the plain steps between two probes while drafting is off, doubled after each probe that
    accepted nothing, up to `longest_rest_steps`; a probe that accepted something is followed by another at once.
    Going off keeps only the share `kept_when_off` of what was counted, so that a few good probes weigh more than
    the past that they contradict.
    """

    memory_rounds: float = 16.0
    warmup_rounds: int = 6
    hysteresis: float = 0.03
    doubt: float = 1.0
    rest_steps: int = 16
    longest_rest_steps: int = 64
    kept_when_off: float = 0.2


class Tiers:
    """The exported length with the greatest expected speedup at a fading estimate of α, or none where none pays.

    α is A/(A+R) over exponentially fading counts, so that it follows the text; the expected speedup of a length is
    E(α,γ)/K(γ). `round_cost` gives K(γ) in plain decode steps for every exported length.
    """

    def __init__(
        self, round_cost: Mapping[int, float], start: int | None = None, settings: TierSettings | None = None
    ) -> None:
        self._cost = {g: round_cost[g] for g in _exported(list(round_cost))}
        if not all(math.isfinite(k) and k > 0 for k in self._cost.values()):
            raise ValueError("a round cost is a positive number of decode steps")
        self._settings = settings or TierSettings()
        self._gamma = start if start is not None else max(self._cost)
        if self._gamma not in self._cost:
            raise ValueError(f"a start at γ = {self._gamma} needs that length exported: {sorted(self._cost)} are")
        self._accepted = self._rejected = 0.0
        self._rounds = 0
        self._resting = 0
        self._rest = self._settings.rest_steps
        self._off = False

    def next_gamma(self) -> int:
        if self._off and self._resting > 0:
            return OFF
        return min(self._cost) if self._off else self._gamma

    def observe(self, gamma: int, accepted: int) -> None:
        if gamma == OFF:
            self._resting -= 1
            return
        fade = math.exp(-1 / self._settings.memory_rounds)
        self._accepted = self._accepted * fade + accepted
        self._rejected = self._rejected * fade + (accepted < gamma)
        self._rounds += 1
        if self._off or self._rounds >= self._settings.warmup_rounds:
            self._choose(accepted)

    @property
    def alpha(self) -> float | None:
        """The fading estimate; None before the first round."""
        trials = self._accepted + self._rejected
        return self._accepted / trials if trials else None

    def _choose(self, accepted: int) -> None:
        alpha = self.alpha
        assert alpha is not None  # a round was observed
        error = math.sqrt(alpha * (1 - alpha) / (self._accepted + self._rejected))
        # While off, the last probes must show a gain outright; while on, doubt alone is enough to stop.
        judged = alpha if self._off else max(0.0, alpha - self._settings.doubt * error)
        if max(self._gain(judged, g) for g in self._cost) < 1:
            self._stop(accepted)
            return
        best = max(self._cost, key=lambda g: self._gain(alpha, g))
        if self._off or self._gain(alpha, best) > self._gain(alpha, self._gamma) * (1 + self._settings.hysteresis):
            self._gamma = best
        if self._off:
            self._rounds = 0  # a few probes are too few to be doubted by at once
        self._off, self._rest = False, self._settings.rest_steps

    def _stop(self, accepted: int) -> None:
        if not self._off:
            self._accepted *= self._settings.kept_when_off
            self._rejected *= self._settings.kept_when_off
            self._off, self._resting = True, self._rest
        elif accepted:
            self._resting = 0
        else:
            self._rest = min(self._settings.longest_rest_steps, self._rest * 2)
            self._resting = self._rest

    def _gain(self, alpha: float, gamma: int) -> float:
        return expected_tokens(alpha, gamma) / self._cost[gamma]


def make_policy(name: str, gammas: Sequence[int], round_cost: Mapping[int, float] | None = None) -> DraftPolicy:
    """The policy that a `draft_length` of R4 names: `fixed:3`, `adaptive:additive` or `adaptive:tiers`.

    Raises ValueError with a sentence for other names, lengths that were not exported, and tiers without costs.
    """
    kind, _, rest = name.partition(":")
    exported = _exported(gammas)
    if kind == "fixed" and rest.isdecimal():
        if int(rest) not in exported:
            raise ValueError(f"γ = {rest} was not exported, only {', '.join(map(str, exported))}; export it too")
        return Fixed(int(rest))
    if name == "adaptive:additive":
        return Additive(exported)
    if name == "adaptive:tiers":
        if round_cost is None or not set(exported) <= set(round_cost):
            raise ValueError("adaptive:tiers needs the measured cost of a round at every exported draft length")
        return Tiers({g: round_cost[g] for g in exported})
    adaptive = ", ".join(f"adaptive:{policy}" for policy in POLICIES)
    raise ValueError(f"there is no drafting policy {name!r}: fixed:N, {adaptive}")


def _exported(gammas: Sequence[int]) -> list[int]:
    exported = sorted(set(gammas))
    if not exported or exported[0] < 1:
        raise ValueError("a policy chooses among exported draft lengths of 1 or more")
    return exported
