"""How tokens are chosen from logits: greedily, or by sampling with the rejection rule that keeps the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Chooser(Protocol):
    """Chooses tokens; one object serves one output, because sampling has a state."""

    def choose(self, logits: np.ndarray) -> int:
        """A token by logits[V]."""

    def draft(self, logits: np.ndarray) -> list[int]:
        """The drafted tokens by logits[γ,V]."""

    def verify(self, drafts: Sequence[int], logits: np.ndarray) -> tuple[int, list[int]]:
        """Judge γ drafts by the backbone's logits[γ+1,V].

        Returns how many were accepted, and those drafts with the one token that follows them.
        """


class Greedy:
    """The most likely token always; a draft is accepted where it is that token."""

    def choose(self, logits: np.ndarray) -> int:
        return greedy(logits)

    def draft(self, logits: np.ndarray) -> list[int]:
        return [greedy(row) for row in logits]

    def verify(self, drafts: Sequence[int], logits: np.ndarray) -> tuple[int, list[int]]:
        choices = [greedy(row) for row in logits]
        accepted = accepted_prefix(drafts, choices)
        return accepted, choices[: accepted + 1]


class Sampled:
    """Samples at a temperature, among the `top_k` most likely where given; output has plain sampling's distribution.

    Drafts are the head's most likely tokens, because a token-conditioned graph feeds exactly those back. Such a
    draft d is a distribution with all its mass on d, for which the rejection rule (Leviathan et al. 2023, appendix
    A.1; Chen et al. 2023, algorithm 2) reads: accept d with probability p(d), else sample from p without d. Then
    P(x = d) = p(d), and P(x ≠ d) = (1 − p(d)) · p(x)/(1 − p(d)) = p(x).
    """

    def __init__(self, temperature: float, seed: int, top_k: int | None = None) -> None:
        if not (temperature > 0 and np.isfinite(temperature)):
            raise ValueError(f"sampling needs a temperature above 0, not {temperature:g}; greedy decoding needs none")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top-k takes at least one token, not {top_k}")
        self._temperature, self._top_k = temperature, top_k
        self._random = np.random.default_rng(seed)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """p[V] in double precision; refuses logits that are not numbers."""
        greedy(logits)
        scaled = logits.astype(np.float64) / self._temperature
        if self._top_k is not None and self._top_k < scaled.size:
            scaled[np.argpartition(-scaled, self._top_k - 1)[self._top_k :]] = -np.inf
        weights = np.exp(scaled - scaled.max())
        return np.asarray(weights / weights.sum())

    def choose(self, logits: np.ndarray) -> int:
        return self._sample(self.probabilities(logits))

    def draft(self, logits: np.ndarray) -> list[int]:
        return [greedy(row) for row in logits]

    def verify(self, drafts: Sequence[int], logits: np.ndarray) -> tuple[int, list[int]]:
        kept: list[int] = []
        for draft, row in zip(drafts, logits, strict=False):
            p = self.probabilities(row)
            if self._random.random() < p[draft]:
                kept.append(draft)
                continue
            p[draft] = 0.0
            return len(kept), [*kept, self._sample(p)]
        return len(kept), [*kept, self.choose(logits[len(drafts)])]

    def _sample(self, weights: np.ndarray) -> int:
        cumulative = np.cumsum(weights)
        # side="right" never lands on a token of weight 0; the product may round up to the total.
        at = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))
        return at if at < len(weights) else int(np.flatnonzero(weights)[-1])


def accepted_prefix(drafts: Sequence[int], choices: Sequence[int]) -> int:
    """Length of the longest prefix of `drafts` that equals the backbone's own choices."""
    accepted = 0
    for drafted, chosen in zip(drafts, choices, strict=False):
        if drafted != chosen:
            break
        accepted += 1
    return accepted


def greedy(logits: np.ndarray) -> int:
    """The index of the greatest of logits[V], the first of equals; refuses logits that are not numbers."""
    token = int(np.argmax(logits))
    # argmax answers the first NaN if there is one, so looking at the winner is enough.
    if np.isnan(logits[token]):
        raise ArithmeticError(
            "the model gave logits that are not numbers; check the graph's alignment and quantisation"
        )
    return token
