"""How acceptance changed between two pairs, paired by prompt: bootstrapped over prompts, never over rounds.

Every interval is widened for how few prompts there are, because a gate hangs on it, and ends at −1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mtplab.speculation.acceptance import AcceptCounts
from mtplab.speculation.intervals import Estimate, bootstrap_statistic


def delta_alpha(crossed: Sequence[tuple[AcceptCounts, ...]]) -> Estimate:
    """Change in α (maximum likelihood) by quantisation, on equal text; bootstrapped over prompts.

    Quantisation also changes which text is written, and one text drafts better than another by chance: that noise
    drowns a change of a few hundredths. So both pairs are judged on both texts and the two changes averaged; a
    pair's advantage on its own text cancels. A prompt's row: the first and the other pair on the first pair's text,
    then the first and the other pair on the other's.
    """
    rows = [[n for one in four for n in one.counts] for four in crossed if all(one.rounds for one in four)]
    kind = "delta_alpha_equal_text_paired_bootstrap_by_prompt"
    return bootstrap_statistic(rows, _crossed_change, kind, widened_within=(-1.0, 1.0))


def delta_own_text(before: Sequence[AcceptCounts], after: Sequence[AcceptCounts]) -> Estimate:
    """Difference of the true rounds' α, each pair on its own text; bootstrapped over prompts, paired."""
    return _delta(before, after, "delta_alpha_own_text_paired_bootstrap_by_prompt")


def delta_given_text(before: Sequence[AcceptCounts], after: Sequence[AcceptCounts]) -> Estimate:
    """Difference of α over one text that both pairs were judged on; bootstrapped over prompts, paired."""
    return _delta(before, after, "delta_alpha_given_text_paired_bootstrap_by_prompt")


def _delta(before: Sequence[AcceptCounts], after: Sequence[AcceptCounts], kind: str) -> Estimate:
    rows = [[*a.counts, *b.counts] for a, b in zip(before, after, strict=True) if a.rounds and b.rounds]
    return bootstrap_statistic(rows, _change, kind, widened_within=(-1.0, 1.0))


def _crossed_change(sums: np.ndarray) -> np.ndarray:
    half = sums.shape[-1] // 2
    return np.asarray((_change(sums[..., :half]) + _change(sums[..., half:])) / 2)


def _change(sums: np.ndarray) -> np.ndarray:
    width = sums.shape[-1] // 2
    return _alpha(sums[..., width:]) - _alpha(sums[..., :width])


def _alpha(sums: np.ndarray) -> np.ndarray:
    """A/(A+R) of accept counts in the last axis."""
    accepted = sums @ np.arange(sums.shape[-1])
    rejected = sums[..., :-1].sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(accepted / (accepted + rejected))
