"""Sampling by draft and verify keeps the distribution of plain sampling, whatever is drafted."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.speculation.decode import TokenRecord, decode_plain, decode_speculative
from mtplab.speculation.sampling import Greedy, Sampled

_spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("toy.py"))
assert _spec is not None and _spec.loader is not None
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)

TEMPERATURE = 0.7
# The chance that a right sampler fails one of the tests below: its statistic beyond all of this share of draws from
# the true distribution. Seeds are fixed, so a test that passes once passes always.
ERROR_RATE = 1e-3


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    expected = counts.sum() * p
    return float((((counts - expected) ** 2)[p > 0] / expected[p > 0]).sum())


def plausible(counts: np.ndarray, p: np.ndarray) -> bool:
    """Whether the counts could be draws from p: against the statistic's own distribution, simulated."""
    assert not counts[p == 0].any()
    draws = np.random.default_rng(5).multinomial(counts.sum(), p, size=20_000)
    simulated = (((draws - counts.sum() * p) ** 2)[:, p > 0] / (counts.sum() * p)[p > 0]).sum(axis=1)
    return chi_square(counts, p) <= float(np.quantile(simulated, 1 - ERROR_RATE))


@pytest.mark.parametrize("draft", range(4))
def test_one_verified_position_has_the_backbones_distribution(draft: int) -> None:
    logits = np.array([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]], dtype=np.float32)
    sampled = Sampled(TEMPERATURE, seed=7)
    first = Counter(sampled.verify([draft], logits)[1][0] for _ in range(20_000))
    p = Sampled(TEMPERATURE, 0).probabilities(logits[0])
    assert plausible(np.array([first[t] for t in range(4)]), p)


def test_a_sampler_that_forgets_to_leave_the_rejected_draft_out_would_be_caught() -> None:
    p = Sampled(TEMPERATURE, 0).probabilities(np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32))
    wrong = p * (1 - p[1])
    wrong[1] += p[1]  # rejection that samples from the whole of p again
    counts = np.random.default_rng(3).multinomial(20_000, wrong / wrong.sum())
    assert not plausible(counts, p)


@pytest.mark.parametrize("make", [toy.perfect, toy.useless, toy.half_right], ids=["perfect", "useless", "half right"])
def test_whole_outputs_have_plain_samplings_distribution(make) -> None:  # type: ignore[no-untyped-def]
    """All 27 outputs of three tokens from a vocabulary of three, against their exact probabilities."""
    exact = np.array([probability(output) for output in outputs()])
    assert exact.sum() == pytest.approx(1)
    index = {output: i for i, output in enumerate(outputs())}
    counts = np.zeros(27, dtype=np.int64)
    for seed in range(4000):
        model = toy.ToyBackbone(vocab=3, gamma=2, seed=11)
        records = decode_speculative(model, make(model), [1], limit=3, chooser=Sampled(TEMPERATURE, seed))
        counts[index[tuple(r.id for r in records if isinstance(r, TokenRecord))]] += 1
    assert plausible(counts, exact)


def outputs() -> list[tuple[int, int, int]]:
    return [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]


def probability(output: tuple[int, ...]) -> float:
    model, chooser, product = toy.ToyBackbone(vocab=3, seed=11), Sampled(TEMPERATURE, 0), 1.0
    for i, token in enumerate(output):
        product *= float(chooser.probabilities(model.logits_after([1, *output[:i]]))[token])
    return product


def test_the_same_seed_gives_the_same_output_and_another_another() -> None:
    def output(seed: int) -> list[int]:
        model = toy.ToyBackbone(context_limit=64)
        records = decode_plain(model, [1], limit=30, chooser=Sampled(TEMPERATURE, seed))
        return [r.id for r in records if isinstance(r, TokenRecord)]

    assert output(1) == output(1) != output(2)


def test_top_k_leaves_exactly_k_tokens_and_one_is_greedy() -> None:
    logits = np.array([0.5, 3.0, 2.0, 2.5, -1.0], dtype=np.float32)
    assert (Sampled(1.0, 0, top_k=3).probabilities(logits) > 0).tolist() == [False, True, True, True, False]
    assert {Sampled(1.0, seed, top_k=1).choose(logits) for seed in range(20)} == {1}


@given(st.floats(0.01, 0.05), st.integers(0, 1000))
def test_a_low_temperature_approaches_greedy(temperature: float, seed: int) -> None:
    logits = np.array([1.0, 3.0, 2.0], dtype=np.float32)
    assert Sampled(temperature, seed).choose(logits) == Greedy().choose(logits)


@pytest.mark.parametrize(
    ("temperature", "top_k", "says"),
    [(0.0, None, "above 0"), (float("nan"), None, "above 0"), (1.0, 0, "at least one")],
)
def test_settings_that_sample_nothing_are_refused(temperature: float, top_k: int | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Sampled(temperature, 0, top_k)


def test_logits_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ArithmeticError, match="not numbers"):
        Sampled(1.0, 0).choose(np.array([1.0, np.nan]))
