"""Speedup: the published rows, the limits, and the formula against enumeration and simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mtplab.speculation.acceptance import AcceptCounts, alpha_mle
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.speedup import (
    Cost,
    best_gamma,
    break_even_accepted,
    break_even_alpha,
    costs_from_counters,
    expected_tokens,
    expected_tokens_conditional,
    expected_tokens_mixture,
    implied_round_cost,
    leviathan_speedup,
    operations_factor,
    scale,
    speedup,
    speedup_estimate,
)

TABLE_1 = [  # alpha, gamma, operations, speed
    (0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86),
]  # fmt: skip
TABLE_4 = [  # alpha, gamma, c, speedup
    (0.75, 7, 0.02, 3.2), (0.80, 7, 0.04, 3.3), (0.82, 7, 0.11, 2.5), (0.62, 7, 0.02, 2.3),
    (0.65, 5, 0.02, 2.4), (0.73, 5, 0.04, 2.6), (0.74, 3, 0.11, 2.0), (0.53, 5, 0.02, 1.9),
    (0.55, 3, 0.04, 1.8), (0.68, 5, 0.04, 2.4), (0.71, 3, 0.11, 2.0), (0.56, 3, 0.11, 1.6),
]  # fmt: skip
TABLE_4_EXACT = [(0.68, 5, 0.04, 2.347), (0.71, 3, 0.11, 1.934), (0.56, 3, 0.11, 1.541)]


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), TABLE_1)
def test_leviathan_table_1(alpha, gamma, operations, speed):
    assert leviathan_speedup(alpha, gamma, 0) == pytest.approx(speed, abs=0.006)
    assert operations_factor(alpha, gamma) == pytest.approx(operations, abs=0.006)


@pytest.mark.parametrize(("alpha", "gamma", "c", "speed"), TABLE_4)
def test_leviathan_table_4(alpha, gamma, c, speed):
    # The paper rounded α and c before printing them; 0.07 covers what that moves.
    assert leviathan_speedup(alpha, gamma, c) == pytest.approx(speed, abs=0.07)


@pytest.mark.parametrize(("alpha", "gamma", "c", "speed"), TABLE_4_EXACT)
def test_rows_of_table_4_that_the_rounding_moved(alpha, gamma, c, speed):
    assert leviathan_speedup(alpha, gamma, c) == pytest.approx(speed, abs=0.0006)


def test_bigram_and_tutorial_rows():
    assert leviathan_speedup(0.2, 3, 0) == pytest.approx(1.25, abs=0.005)
    assert expected_tokens(0.7, 3) == pytest.approx(2.53, abs=0.005)
    assert expected_tokens(0.5, 3) == pytest.approx(1.88, abs=0.006)


def test_the_published_mistake_and_its_right_reading():
    cost = Cost(verify=1.45)
    assert speedup(expected_tokens(0.263, 3), cost.round_cost(3)) == pytest.approx(0.93, abs=0.005)
    tau = 1 + 56 / 71
    assert tau == pytest.approx(1.789, abs=0.0005)
    assert speedup(tau, cost.round_cost(3)) == pytest.approx(1.23, abs=0.005)


def test_a_single_alpha_fails_on_a_mixed_load():
    classes = (0.4, 0.95)
    true = expected_tokens_mixture((0.5, expected_tokens(a, 4)) for a in classes)
    assert true == pytest.approx(3.09, abs=0.005)
    assert expected_tokens(sum(classes) / 2, 4) == pytest.approx(2.65, abs=0.005)
    rounds = 10**8
    halves = [[round(rounds * a**j * (1 - a)) for j in range(4)] + [round(rounds * a**4)] for a in classes]
    pooled = AcceptCounts(tuple(a + b for a, b in zip(*halves, strict=True)))
    assert expected_tokens(alpha_mle(pooled).value, 4) == pytest.approx(3.25, abs=0.005)


def test_a_rising_verify_cost_shortens_the_best_draft():
    flat = best_gamma(0.7, Cost(draft=0.05))
    rising = best_gamma(0.7, Cost(draft=0.05, verify=tuple((m, 1 + 0.1 * (m - 1)) for m in range(2, 18))))
    assert (flat.gamma, round(flat.speedup, 2)) == (6, 2.35)
    assert (rising.gamma, round(rising.speedup, 2)) == (3, 1.75)
    assert not flat.at_search_limit


@pytest.mark.parametrize(
    ("lengths", "measured", "cost"),
    [((1.88, 2.57, 3.12), 2.74, 1.14), ((1.87, 2.56, 3.09), 2.67, 1.16), ((1.94, 2.78, 3.50), 3.05, 1.15)],
)
def test_gloeckle_table_s2_implies_its_round_costs(lengths, measured, cost):
    reached = np.diff([1.0, *lengths])
    alphas = [reached[0], *(reached[1:] / reached[:-1])]
    assert expected_tokens_conditional(alphas) == pytest.approx(lengths[-1])
    assert implied_round_cost(lengths[-1], measured) == pytest.approx(cost, abs=0.006)


probability = st.floats(0, 1)
gammas = st.integers(1, 12)


@given(probability, gammas)
def test_expected_tokens_stays_in_its_limits_and_equals_the_closed_form(alpha, gamma):
    e = expected_tokens(alpha, gamma)
    assert 1 <= e <= gamma + 1
    if alpha < 0.999:
        assert e == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha), rel=1e-9)
    assert expected_tokens(0, gamma) == 1
    assert expected_tokens(1, gamma) == gamma + 1
    assert expected_tokens(1 - 1e-12, gamma) == pytest.approx(gamma + 1)
    assert expected_tokens_conditional([alpha] * gamma) == pytest.approx(e)


@given(probability, probability, gammas)
def test_more_acceptance_or_more_drafts_never_give_fewer_tokens(a, b, gamma):
    low, high = sorted((a, b))
    assert expected_tokens(low, gamma) <= expected_tokens(high, gamma)
    assert expected_tokens(a, gamma) <= expected_tokens(a, gamma + 1)


@given(st.lists(probability, min_size=1, max_size=6))
def test_the_formula_equals_enumeration_of_every_outcome(alphas):
    total = 0.0
    for outcome in product((True, False), repeat=len(alphas)):
        chance = float(np.prod([a if hit else 1 - a for a, hit in zip(alphas, outcome, strict=True)]))
        accepted = next((i for i, hit in enumerate(outcome) if not hit), len(outcome))
        total += chance * (accepted + 1)
    assert expected_tokens_conditional(alphas) == pytest.approx(total)


def test_the_formula_equals_simulation():
    rng = np.random.default_rng(11)
    hits = rng.random((200_000, 4)) < 0.6
    accepted = np.cumprod(hits, axis=1).sum(axis=1)
    assert 1 + accepted.mean() == pytest.approx(expected_tokens(0.6, 4), abs=0.01)


@given(st.floats(0.001, 0.999), st.floats(0, 1))
def test_a_gain_exists_exactly_when_alpha_exceeds_c(alpha, c):
    assume(abs(alpha - c) > 1e-6)
    best = best_gamma(alpha, Cost(draft=c))
    assert (best.gamma > 0) == (alpha > c)
    if alpha > c:
        assert best.speedup >= (1 + alpha) / (1 + c) - 1e-12
    else:
        assert best.speedup == 1


@given(gammas, st.floats(0, 1), st.floats(0.1, 5), st.sampled_from(["recursive", "parallel"]))
def test_at_break_even_drafting_neither_gains_nor_costs(gamma, draft, verify, head):
    cost = Cost(draft=draft, verify=verify, head=head)
    alpha = break_even_alpha(gamma, cost)
    if alpha is None:
        assert cost.round_cost(gamma) > gamma + 1
    elif alpha == 0:
        assert cost.round_cost(gamma) <= 1 + 1e-9
    else:
        assert expected_tokens(alpha, gamma) == pytest.approx(cost.round_cost(gamma), abs=1e-9)
        assert 1 + break_even_accepted(gamma, cost) == pytest.approx(cost.round_cost(gamma))


def test_a_parallel_head_pays_its_draft_once():
    assert Cost(draft=0.2, verify=1.1, overhead=0.05).round_cost(3) == pytest.approx(1.75)
    assert Cost(draft=0.2, verify=1.1, overhead=0.05, head="parallel").round_cost(3) == pytest.approx(1.35)


def test_measured_verify_costs_are_read_between_points_and_never_beyond():
    cost = Cost(verify=((2, 1.5), (4, 1.6), (8, 2.6)))
    assert [cost.verify_cost(m) for m in (2, 3, 4, 6, 8)] == pytest.approx([1.5, 1.55, 1.6, 2.1, 2.6])
    with pytest.raises(ValueError, match="was not measured"):
        cost.verify_cost(9)
    assert Cost(verify=((4, 1.6),)).round_cost(3) == 1.6


def test_the_interval_is_carried_through():
    carried = speedup_estimate(Estimate(0.7, 0.6, 0.8, 50, "mle_wilson"), 3, Cost(verify=1.2))
    assert carried.value == pytest.approx(expected_tokens(0.7, 3) / 1.2)
    assert carried.low == pytest.approx(expected_tokens(0.6, 3) / 1.2)
    assert carried.high == pytest.approx(expected_tokens(0.8, 3) / 1.2)
    assert (carried.n, carried.kind) == (50, "mle_wilson")
    assert scale(Estimate(2.0, None, None, 1, "k"), 0.5).value == 1.0
    assert speedup_estimate(Estimate(None, None, None, 0, "k", "why"), 3, Cost()).reason == "why"


def test_costs_from_runtime_counters_predict_the_speedup_they_came_from():
    # 100 rounds of γ = 3, a plain step of 10 ms: 3 drafts of 1 ms, a verify of 14 ms, 2 ms of hand-over.
    costs = costs_from_counters(
        gamma=3, mtp_rounds=100, mtp_emitted_tokens=250, mtp_drafting_time=0.3, mtp_verify_time=1.4,
        mtp_round_time=1.9, plain_steps=50, plain_step_time=0.5,
    )  # fmt: skip
    assert (costs.draft, costs.verify, costs.round) == pytest.approx((0.1, 1.4, 1.9))
    assert costs.speedup == pytest.approx(2.5 / 1.9)
    with pytest.raises(ValueError, match="at least one"):
        costs_from_counters(
            gamma=3, mtp_rounds=0, mtp_emitted_tokens=0, mtp_drafting_time=0, mtp_verify_time=0,
            mtp_round_time=0, plain_steps=1, plain_step_time=1,
        )  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [{"draft": -1.0}, {"verify": 0.0}, {"verify": ()}, {"overhead": float("nan")}, {"head": "sideways"}],
)
def test_costs_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError):
        Cost(**bad)


@pytest.mark.parametrize(("alpha", "gamma"), [(1.1, 3), (-0.1, 3), (0.5, 0), (0.5, 65), (float("nan"), 3)])
def test_alpha_and_gamma_outside_their_range_are_refused(alpha, gamma):
    with pytest.raises(ValueError):
        expected_tokens(alpha, gamma)
