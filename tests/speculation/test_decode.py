"""Draft–verify decoding gives plain decoding's tokens, whatever the draft, and records what happened."""

from __future__ import annotations

import importlib.util
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.speculation.adaptive import make_policy
from mtplab.speculation.decode import (
    RoundRecord,
    TokenRecord,
    decode_plain,
    decode_speculative,
    margin,
    rank,
)
from mtplab.speculation.sampling import accepted_prefix, greedy

_spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("toy.py"))
assert _spec is not None and _spec.loader is not None
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)

DRAFTERS = {"perfect": toy.perfect, "useless": toy.useless, "half right": toy.half_right}


def tokens_of(records):
    return [r.id for r in records if isinstance(r, TokenRecord)]


def rounds_of(records):
    return [r for r in records if isinstance(r, RoundRecord)]


@given(
    drafter=st.sampled_from(sorted(DRAFTERS)),
    seed=st.integers(0, 10_000),
    gamma=st.integers(1, 5),
    vocab=st.integers(1, 9),
    prompt=st.integers(1, 16),
    context=st.integers(16, 40),
    limit=st.integers(1, 50),
    stop=st.sets(st.integers(0, 8), max_size=2),
)
@settings(max_examples=300, deadline=None)
def test_speculative_output_is_plain_output(drafter, seed, gamma, vocab, prompt, context, limit, stop):
    def backbone():
        return toy.ToyBackbone(vocab, context, gamma, seed)

    tokens = [t % vocab for t in range(prompt)]
    plain = list(decode_plain(backbone(), tokens, limit=limit, stop=frozenset(stop)))
    model = backbone()
    drafted = list(decode_speculative(model, DRAFTERS[drafter](model), tokens, limit=limit, stop=frozenset(stop)))
    assert tokens_of(drafted) == tokens_of(plain)
    assert drafted[-1].reason == plain[-1].reason
    assert drafted[-1].output_tokens == len(tokens_of(drafted))
    # Every token is accounted for: the prefill's, the rounds' and the single steps'.
    assert 1 + sum(r.emitted for r in rounds_of(drafted)) + drafted[-1].plain_steps == len(tokens_of(drafted))


@given(
    drafter=st.sampled_from(sorted(DRAFTERS)),
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["fixed:1", "fixed:4", "adaptive:additive", "adaptive:tiers"]),
    cost=st.floats(0.5, 4),
    limit=st.integers(1, 60),
)
@settings(max_examples=200, deadline=None)
def test_greedy_output_is_the_same_under_every_policy_and_tier(drafter, seed, name, cost, limit):
    ladder = (1, 2, 4)
    plain = tokens_of(decode_plain(toy.ToyBackbone(7, 80, seed=seed), [1, 2], limit=limit))
    model = toy.ToyBackbone(7, 80, seed=seed, ladder=ladder)
    policy = make_policy(name, ladder, {g: cost + 0.05 * g for g in ladder})
    records = list(decode_speculative(model, DRAFTERS[drafter](model), [1, 2], limit=limit, policy=policy))
    assert tokens_of(records) == plain
    assert {r.gamma for r in rounds_of(records)} <= set(ladder)


def test_a_policy_that_gives_up_decodes_by_plain_steps_and_says_so():
    model = toy.ToyBackbone(context_limit=200, ladder=(1, 3))
    policy = make_policy("adaptive:tiers", (1, 3), {1: 1.5, 3: 1.7})
    records = list(decode_speculative(model, toy.useless(model), [1], limit=100, policy=policy))
    assert records[-1].plain_steps > 70
    assert model.calls.count("decode") == records[-1].plain_steps


def test_a_perfect_draft_is_accepted_whole_and_a_useless_one_never():
    for make, expected in ((toy.perfect, 3), (toy.useless, 0)):
        model = toy.ToyBackbone(context_limit=64)
        rounds = rounds_of(decode_speculative(model, make(model), [1, 2], limit=17))
        assert {r.accepted for r in rounds} == {expected}
        assert len(rounds) == {3: 4, 0: 16}[expected]


def test_ranks_name_the_backbones_token_up_to_the_first_rejection():
    model = toy.ToyBackbone(vocab=5, context_limit=64)
    perfect_ranks = [r.ranks for r in rounds_of(decode_speculative(model, toy.perfect(model), [1], limit=9))]
    assert set(perfect_ranks) == {(0, 0, 0)}
    useless_ranks = [r.ranks for r in rounds_of(decode_speculative(model, toy.useless(model), [1], limit=9))]
    assert set(useless_ranks) == {(4, None, None)}  # the spoilt logits put the right token last of five
    for record in rounds_of(decode_speculative(model, toy.half_right(model), [1], limit=40)):
        known = [r for r in record.ranks if r is not None]
        assert known[: record.accepted] == [0] * record.accepted
        assert len(known) == min(record.accepted + 1, record.gamma)
        assert all(r > 0 for r in known[record.accepted :])


def test_the_last_round_is_cut_to_the_limit_but_its_acceptance_is_kept():
    model = toy.ToyBackbone(context_limit=64)
    records = list(decode_speculative(model, toy.perfect(model), [1, 2], limit=7))
    assert [(r.accepted, r.emitted) for r in rounds_of(records)] == [(3, 4), (3, 2)]
    assert records[-1].reason == "limit" and len(tokens_of(records)) == 7


def test_a_stop_token_is_the_last_output_token():
    model = toy.ToyBackbone(context_limit=64)
    free = tokens_of(decode_plain(model, [1, 2], limit=30))
    stop = free[5]
    records = list(decode_speculative(model, toy.perfect(model), [1, 2], limit=30, stop=frozenset({stop})))
    assert tokens_of(records) == free[: free.index(stop) + 1]
    assert records[-1].reason == "stop"


def test_near_the_end_of_the_context_single_steps_take_over():
    model = toy.ToyBackbone(context_limit=12, gamma=3)
    records = list(decode_speculative(model, toy.perfect(model), [1] * 5, limit=99))
    # One round from position 5 leaves positions 9, 10, 11: room for single steps only.
    assert model.calls == ["prefill", "verify", "decode", "decode", "decode"]
    assert (records[-1].reason, records[-1].rounds, records[-1].plain_steps) == ("context", 1, 3)
    assert [t.round for t in records if isinstance(t, TokenRecord)] == [None, 0, 0, 0, 0, None, None, None]


def test_a_prompt_that_fills_the_context_still_gives_one_token():
    records = list(decode_plain(toy.ToyBackbone(context_limit=12), [1] * 12, limit=9))
    assert len(tokens_of(records)) == 1 and records[-1].reason == "context"


def test_tokens_of_a_round_share_the_stamp_at_which_they_became_known():
    ticks = count(100, 10)
    model = toy.ToyBackbone(context_limit=64)
    records = list(decode_speculative(model, toy.perfect(model), [1], limit=5, clock=lambda: next(ticks)))
    first, record, *rest = records
    assert (first.t_ns, first.round) == (100, None)
    assert (record.draft_ns, record.verify_ns) == (10, 10)
    assert {(t.t_ns, t.round) for t in rest[:-1]} == {(record.t_ns, 0)}
    assert record.t_ns == 130


def test_plain_decoding_records_the_margin_and_no_round():
    model = toy.ToyBackbone(vocab=6)
    for record in decode_plain(model, [1, 2], limit=5):
        if isinstance(record, TokenRecord):
            assert record.round is None and record.margin is not None and record.margin >= 0
    assert margin(np.array([1.0, 4.0, 3.5])) == 0.5
    assert margin(np.array([1.0])) is None


def test_rank_and_greedy_order_equals_alike():
    logits = np.array([1.0, 3.0, 3.0, -np.inf])
    assert greedy(logits) == 1
    assert [rank(logits, t) for t in range(4)] == [2, 0, 1, 3]
    assert accepted_prefix([1, 2, 3], [1, 2, 9, 4]) == 2


@pytest.mark.parametrize("where", ["prefill", "draft"])
def test_logits_that_are_not_numbers_are_refused(where):
    class Broken(toy.ToyBackbone):
        def prefill(self, tokens):
            logits, hidden = super().prefill(tokens)
            return (logits * np.nan if where == "prefill" else logits), hidden

    model = Broken(context_limit=64)
    drafter = toy.perfect(model)
    drafter.draft = lambda hidden, token, gamma, pos: np.full((3, 7), np.nan)
    with pytest.raises(ArithmeticError, match="not numbers"):
        list(decode_speculative(model, drafter, [1], limit=9))


@pytest.mark.parametrize(
    ("prompt", "limit", "says"),
    [([], 5, "empty prompt"), ([1], 0, "at least one"), ([1] * 40, 5, "cache holds 32")],
)
def test_impossible_requests_are_refused_with_a_sentence(prompt, limit, says):
    with pytest.raises(ValueError, match=says):
        list(decode_plain(toy.ToyBackbone(), prompt, limit=limit))


def test_head_and_backbone_of_different_gamma_are_refused():
    with pytest.raises(ValueError, match="same gamma"):
        list(decode_speculative(toy.ToyBackbone(), toy.perfect(toy.ToyBackbone(gamma=2)), [1], limit=3))
