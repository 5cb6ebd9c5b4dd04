"""The change in acceptance: what it is, and an interval that grows as prompts get few."""

from __future__ import annotations

import numpy as np
import pytest

from mtplab.speculation.acceptance import AcceptCounts
from mtplab.speculation.intervals import bootstrap_statistic
from mtplab.speculation.paired import delta_alpha, delta_given_text


def sides(prompts: int, drop: float, seed: int) -> list[tuple[AcceptCounts, AcceptCounts]]:
    """Rounds of one draft token, thirty a prompt, which the other side accepts more rarely by `drop`."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(prompts):
        alpha = random.uniform(0.5, 0.8)
        accepted = [int(random.binomial(30, a)) for a in (alpha, alpha - drop)]
        found.append(tuple(AcceptCounts((30 - one, one)) for one in accepted))
    return found


def test_a_change_is_the_difference_of_both_sides_on_both_texts() -> None:
    one, other = AcceptCounts((10, 20)), AcceptCounts((20, 10))
    change = delta_alpha([(one, other, one, one), (one, other, one, one)])
    assert change.value == pytest.approx((1 / 3 - 2 / 3 + 0) / 2)
    assert change.n == 2 and "equal_text" in change.kind


def test_few_prompts_widen_the_interval_of_the_gate() -> None:
    for prompts, factor in ((5, 1.58), (20, 1.1)):
        both = sides(prompts, 0.02, 1)
        found = delta_given_text([a for a, _ in both], [b for _, b in both])
        rows = [[*a.counts, *b.counts] for a, b in both]
        plain = bootstrap_statistic(rows, lambda s: (s[..., 3] - s[..., 1]) / (s[..., 0] + s[..., 1]), "plain")
        assert found.value == pytest.approx(plain.value)
        for mine, bare in ((found.low, plain.low), (found.high, plain.high)):
            assert (mine - found.value) / (bare - found.value) == pytest.approx(factor, abs=0.01)


def test_an_interval_of_eight_prompts_misses_a_true_change_about_as_rarely_as_it_says() -> None:
    missed, widths = 0, []
    for seed in range(400):
        both = sides(8, 0.1, seed)
        found = delta_given_text([a for a, _ in both], [b for _, b in both])
        missed += not found.low <= -0.1 <= found.high
        widths.append(found.high - found.low)
    # 5 % is promised; of 400 draws of one that keeps its promise fewer than 9 % miss with probability 0.999.
    assert missed / 400 < 0.09
    # Binomial noise of 240 rounds a side alone gives ±1.96·√(2·.65·.35/240) = 0.16 in all.
    assert 0.1 < float(np.median(widths)) < 0.3


def test_an_interval_of_a_share_never_leaves_what_it_can_be() -> None:
    extreme = [(AcceptCounts((0, 30)), AcceptCounts((30, 0))), (AcceptCounts((30, 0)), AcceptCounts((29, 1)))]
    found = delta_given_text([a for a, _ in extreme], [b for _, b in extreme])
    assert -1 <= found.low <= found.value <= found.high <= 1
