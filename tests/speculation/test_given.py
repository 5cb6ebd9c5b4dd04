"""What counts, totals, a ratio or an α say of every draft length: identities, limits, agreement with simulation."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.speculation.acceptance import AcceptCounts, marginal, mean_acceptance_length, merge, ratio
from mtplab.speculation.calculator import calculate, curve
from mtplab.speculation.given import from_alpha, from_counts, from_prompts, from_ratio, from_totals
from mtplab.speculation.speedup import Cost, expected_tokens

rows = st.integers(1, 6).flatmap(lambda g: st.lists(st.integers(0, 60), min_size=g + 1, max_size=g + 1)).filter(any)


@given(rows)
def test_length_ratio_and_marginals_are_one_quantity(row: list[int]) -> None:
    counts = AcceptCounts(tuple(row))
    told = from_counts(counts)
    al, ar, reached = mean_acceptance_length(counts), ratio(counts), marginal(counts)
    assert al is not None and ar is not None and reached is not None
    assert told.length(counts.gamma) == pytest.approx(1 + counts.gamma * ar) == pytest.approx(1 + sum(reached))
    assert from_ratio(counts.gamma, ar).length(counts.gamma) == pytest.approx(al)
    if counts.drafted:
        assert from_totals(counts.gamma, counts.drafted, counts.accepted).length(counts.gamma) == pytest.approx(al)


@given(rows)
def test_a_longer_draft_never_gives_fewer_tokens_and_an_interval_holds_its_value(row: list[int]) -> None:
    told = from_counts(AcceptCounts(tuple(row)))
    lengths = [told.length(g) for g in range(1, told.gamma + 4)]
    assert all(a <= b + 1e-12 for a, b in pairwise(lengths))
    assert told.interval(told.gamma) == pytest.approx(told.bounds[-1])
    for gamma, (low, high) in enumerate(told.bounds, 1):
        assert low - 1e-9 <= told.length(gamma) <= high + 1e-9 <= gamma + 1 + 2e-9
    assert told.interval(told.gamma + 1) is None


@given(st.floats(0, 1), st.integers(1, 8), st.integers(1, 12))
def test_counts_of_an_iid_alpha_say_what_alpha_says_at_every_length(alpha: float, gamma: int, asked: int) -> None:
    rounds = 10**9
    row = [round(rounds * alpha**j * (1 - alpha)) for j in range(gamma)] + [round(rounds * alpha**gamma)]
    if sum(row) and (alpha == 0 or min(row) > 1000 or alpha == 1):
        told = from_counts(AcceptCounts(tuple(row)))
        assert told.length(asked) == pytest.approx(expected_tokens(alpha, asked), rel=1e-3)


@pytest.mark.parametrize(("alpha", "tau"), [(0.0, 1.0), (1.0, 6.0)])
def test_nothing_accepted_gives_one_token_and_everything_gives_all(alpha: float, tau: float) -> None:
    assert from_alpha(5, alpha).length(5) == tau
    counts = AcceptCounts((9, 0, 0, 0, 0, 0) if alpha == 0 else (0, 0, 0, 0, 0, 9))
    assert from_counts(counts).length(5) == tau
    assert from_counts(counts).length(7) == (1.0 if alpha == 0 else 8.0)


@given(rows, st.floats(0, 0.5), st.floats(0.5, 3), st.floats(0.01, 1))
def test_a_dearer_round_never_pays_more(row: list[int], draft: float, verify: float, more: float) -> None:
    told = from_counts(AcceptCounts(tuple(row)))
    cheap, dear = (calculate(told, Cost(draft + x, verify + x)) for x in (0.0, more))
    assert dear.speedup < cheap.speedup
    assert dear.best_speedup <= cheap.best_speedup
    assert (dear.break_even_alpha if dear.break_even_alpha is not None else 2.0) >= (cheap.break_even_alpha or 0.0)


def enumerated(alphas: list[float]) -> float:
    """Tokens a round by going through every outcome of every draft."""
    total = 0.0
    for outcome in product((True, False), repeat=len(alphas)):
        chance = math.prod(a if hit else 1 - a for a, hit in zip(alphas, outcome, strict=True))
        total += chance * (1 + next((i for i, hit in enumerate(outcome) if not hit), len(outcome)))
    return total


def test_formula_enumeration_and_simulation_agree_on_a_mixed_load() -> None:
    classes = {"templated": [0.9, 0.8, 0.85], "chat": [0.3, 0.4, 0.2]}
    rng, counts = np.random.default_rng(5), {}
    tokens_each = 40_000
    for name, alphas in classes.items():
        accepts: list[int] = []
        made = 0
        while made < tokens_each:  # each class has its text to write, whatever a round gives
            hits = rng.random(3) < alphas
            accepts.append(int(np.cumprod(hits).sum()))
            made += accepts[-1] + 1
        counts[name] = AcceptCounts.from_accepts(3, accepts)
    told = from_counts(merge(list(counts.values())), (), counts)
    for gamma in (1, 2, 3):
        exact = 2 / sum(1 / enumerated(alphas[:gamma]) for alphas in classes.values())
        assert told.length(gamma) == pytest.approx(exact, rel=0.01)
    pooled = from_counts(merge(list(counts.values()))).length(5)
    assert told.length(5) < pooled  # carrying one α on overstates what a mixed load can give


def test_the_interval_is_of_prompts_where_there_are_several() -> None:
    prompts = [AcceptCounts((9, 1, 0, 0)), AcceptCounts((0, 0, 1, 9)), AcceptCounts((5, 2, 2, 1))]
    by_prompt, pooled = from_prompts(prompts), from_counts(merge(prompts))
    wide, narrow = by_prompt.bounds[1], pooled.bounds[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]
    points = curve(by_prompt, Cost(0.1, 1.2), [1, 2, 3, 4])
    assert [p.low is not None for p in points] == [True, True, True, False]
    assert [p.seen for p in points] == [True, True, True, False]


def test_another_length_of_a_mixed_load_has_an_interval_of_its_own_mix() -> None:
    # As many tokens of either class; the one that drafts badly takes most of the rounds.
    good, bad = AcceptCounts((10, 5, 5, 80)), AcceptCounts((300, 15, 5, 0))
    prompts, of = [good] * 4 + [bad] * 4, ["form"] * 4 + ["chat"] * 4
    classes = {"form": merge(prompts[:4]), "chat": merge(prompts[4:])}
    told = from_counts(merge(prompts), prompts, classes, of)
    for gamma in (1, 2):
        interval = told.interval(gamma)
        assert interval is not None
        assert interval[0] - 1e-9 <= told.length(gamma) <= interval[1] + 1e-9
    untold = from_counts(merge(prompts), prompts, classes)
    assert untold.interval(1) is None
    answer = calculate(untold, Cost(0.1, 1.2), [1, 2, 3], at=1).speedup_interval
    assert answer.low is None and answer.reason is not None and "class is not known" in answer.reason
