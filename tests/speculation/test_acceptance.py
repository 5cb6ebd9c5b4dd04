"""Acceptance: every quantity of real runs under its own name, the identities between them, and their intervals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.speculation.acceptance import (
    AcceptCounts,
    alpha_bounds_from_totals,
    alpha_from_totals,
    alpha_mle,
    alpha_moment,
    bootstrap_by_prompt,
    bootstrap_by_round,
    conditional,
    marginal,
    mean_acceptance_length,
    merge,
    ratio,
    summarise,
)
from mtplab.speculation.intervals import bootstrap_median, trials_needed, wilson
from mtplab.speculation.speedup import expected_tokens, expected_tokens_conditional

counts_of_rounds = st.lists(st.integers(0, 400), min_size=2, max_size=9).filter(any).map(tuple).map(AcceptCounts)


def counts_from_marginals(rounds: int, marginals: list[float]) -> AcceptCounts:
    reached = [rounds, *(round(p * rounds) for p in marginals), 0]
    return AcceptCounts(tuple(a - b for a, b in pairwise(reached)))


def test_the_long_run_with_eight_drafts():
    published = [0.7568, 0.6011, 0.4976, 0.4113, 0.3538, 0.2980, 0.2608, 0.2229]
    counts = counts_from_marginals(104_880, published)
    assert counts.drafted == 839_040
    assert counts.accepted == pytest.approx(356_839, abs=25)  # the P_k are published to four places
    assert mean_acceptance_length(counts) == pytest.approx(4.40, abs=0.005)
    assert ratio(counts) == pytest.approx(0.4253, abs=0.0001)
    assert marginal(counts) == pytest.approx(published, abs=1e-5)
    assert pytest.approx(4.40, abs=0.005) == 1 + 356_839 / 104_880


def test_the_short_run_with_three_drafts_and_its_wilson_interval():
    counts = counts_from_marginals(220, [0.905, 0.805, 0.736])
    assert (counts.accepted, counts.drafted) == (538, 660)
    assert mean_acceptance_length(counts) == pytest.approx(3.45, abs=0.005)
    alpha = alpha_mle(counts)
    assert alpha.value == pytest.approx(0.903, abs=0.0005)
    assert alpha.low == pytest.approx(0.876, abs=0.0006)
    assert alpha.high == pytest.approx(0.924, abs=0.0006)
    assert (alpha.n, alpha.kind) == (538 + 58, "mle_wilson")


def test_totals_of_the_published_mistake_bound_alpha_but_do_not_give_it():
    estimate = alpha_from_totals(gamma=3, drafted=213, accepted=56)
    assert estimate.value == pytest.approx(0.468, abs=0.0005)
    assert estimate.low == pytest.approx(0.441, abs=0.0005)
    assert estimate.high == pytest.approx(0.514, abs=0.0005)
    assert (estimate.n, estimate.kind) == (71, "moment_within_totals")
    assert pytest.approx(0.263, abs=0.0005) == 56 / 213


def test_how_many_trials_a_width_needs():
    assert trials_needed(0.7, 0.05) == pytest.approx(323, abs=1)
    assert trials_needed(0.7, 0.02) == pytest.approx(2017, abs=1)


@given(counts_of_rounds)
def test_identities_between_the_quantities(counts):
    tau, share = mean_acceptance_length(counts), ratio(counts)
    reached, given_before = marginal(counts), conditional(counts)
    assert tau == pytest.approx(1 + counts.gamma * share)
    assert tau == pytest.approx(1 + sum(reached))
    assert tau == pytest.approx(expected_tokens_conditional([a or 0.0 for a in given_before]))
    assert 1 <= tau <= counts.gamma + 1
    trials = counts.accepted + counts.rejected
    # α̂ is the trials-weighted mean of the conditional α_k, so it lies between them.
    known = [a for a in given_before if a is not None]
    assert min(known) - 1e-12 <= alpha_mle(counts).value <= max(known) + 1e-12
    assert alpha_mle(counts).n == trials


@given(counts_of_rounds)
def test_totals_never_exclude_the_alpha_of_the_counts(counts):
    low, high = alpha_bounds_from_totals(counts.gamma, counts.drafted, counts.accepted)
    assert low - 1e-12 <= alpha_mle(counts).value <= high + 1e-12
    estimate = alpha_from_totals(counts.gamma, counts.drafted, counts.accepted)
    assert estimate.low <= estimate.value <= estimate.high


@given(st.floats(0, 1), st.integers(1, 12))
def test_the_moment_inverts_the_expected_length(alpha, gamma):
    assert expected_tokens(alpha_moment(expected_tokens(alpha, gamma), gamma), gamma) == pytest.approx(
        expected_tokens(alpha, gamma), abs=1e-9
    )


@given(st.floats(0.01, 0.99), st.integers(1, 8))
def test_all_estimators_agree_on_independent_rounds(alpha, gamma):
    """Counts in exactly the i.i.d. proportions: only there are ML and moment both α, and the ratio is not."""
    rounds = 10**9
    shares = [alpha**j * (1 - alpha) for j in range(gamma)] + [alpha**gamma]
    counts = AcceptCounts(tuple(round(s * rounds) for s in shares))
    assert alpha_mle(counts).value == pytest.approx(alpha, abs=1e-6)
    assert alpha_moment(mean_acceptance_length(counts), gamma) == pytest.approx(alpha, abs=1e-6)
    assert ratio(counts) == pytest.approx((expected_tokens(alpha, gamma) - 1) / gamma, abs=1e-6)
    if gamma > 1:
        assert ratio(counts) < alpha


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_observed_share_and_stays_a_probability(pair):
    successes, trials = pair
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert low < high


def test_wilson_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    hits = sum(low <= 0.7 <= high for low, high in (wilson(int(k), 60) for k in rng.binomial(60, 0.7, size=2000)))
    assert 0.93 <= hits / 2000 <= 0.98


def test_bootstrap_by_prompt_is_wider_than_wilson_when_prompts_differ():
    prompts = [AcceptCounts((1, 2, 2, 45))] * 5 + [AcceptCounts((40, 8, 1, 1))] * 5
    by_prompt = bootstrap_by_prompt(prompts)
    pooled = alpha_mle(merge(prompts))
    assert by_prompt.value == pytest.approx(pooled.value)
    assert by_prompt.high - by_prompt.low > 2 * (pooled.high - pooled.low)
    assert by_prompt == bootstrap_by_prompt(prompts), "the same records give the same interval"


def test_bootstraps_hold_the_value_of_every_quantity():
    prompts = [AcceptCounts((5, 3, 1, 4)), AcceptCounts((2, 2, 2, 2)), AcceptCounts((9, 1, 0, 1))]
    pooled = summarise(merge(prompts))
    for quantity in ("ratio", "mean_acceptance_length"):
        estimate = bootstrap_by_prompt(prompts, quantity)
        assert estimate.value == pytest.approx(getattr(pooled, quantity))
        assert estimate.low <= estimate.value <= estimate.high and estimate.n == 3
    by_round = bootstrap_by_round(merge(prompts))
    assert by_round.value == pytest.approx(pooled.mean_acceptance_length)
    assert by_round.low < by_round.value < by_round.high


def test_what_cannot_be_known_is_none_with_a_reason():
    nothing = AcceptCounts((0, 0, 0))
    assert ratio(nothing) is mean_acceptance_length(nothing) is marginal(nothing) is None
    assert alpha_mle(nothing).value is None and "no draft round" in alpha_mle(nothing).reason
    assert summarise(nothing).alpha_moment is None
    assert bootstrap_by_prompt([nothing]).value is None
    alone = bootstrap_by_prompt([AcceptCounts((1, 1)), AcceptCounts((0, 0))])
    assert (alone.value, alone.low, alone.n) == (0.5, None, 1) and "one prompt" in alone.reason
    assert conditional(AcceptCounts((4, 0, 0))) == (0.0, None)
    assert bootstrap_median([], "x").value is None
    assert bootstrap_median([3.0], "x").low is None


@pytest.mark.parametrize(
    ("drafted", "accepted", "says"),
    [
        (10, 11, "more than was drafted"),
        (10, 3, "whole number of rounds"),
        (0, 0, "at least one"),
        (9, -1, "negative"),
    ],
)
def test_totals_that_contradict_each_other_are_refused(drafted, accepted, says):
    with pytest.raises(ValueError, match=says):
        alpha_from_totals(3, drafted, accepted)


def test_draft_lengths_are_never_mixed():
    with pytest.raises(ValueError, match="cannot be merged"):
        merge([AcceptCounts((1, 2)), AcceptCounts((1, 2, 3))])
    with pytest.raises(ValueError, match="cannot have accepted 4"):
        AcceptCounts.from_accepts(3, [1, 4])
    with pytest.raises(ValueError, match="cannot be negative"):
        AcceptCounts((1, -1))
    assert AcceptCounts.from_accepts(3, [0, 3, 3, 1]).counts == (1, 1, 0, 2)
    assert math.isclose(AcceptCounts.from_accepts(3, [0, 3, 3, 1]).accepted, 7)
