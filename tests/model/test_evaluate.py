"""Counting acceptance and repetition: against a real draft–verify loop, and on texts made by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mtplab.model.backbone import Backbone, cache_names, empty_cache  # noqa: E402
from mtplab.model.evaluate import (  # noqa: E402
    Round,
    Text,
    acceptance,
    repetition,
    rounds_of,
    seen_ngrams,
    share,
)
from mtplab.model.generate import greedy  # noqa: E402
from mtplab.model.heads import Head, build_head  # noqa: E402
from mtplab.model.loops import ends_in_loop  # noqa: E402

pytestmark = pytest.mark.pipeline


@torch.no_grad()
def decode_by_rounds(backbone: Backbone, head: Head, prompt: list[int], until: int) -> tuple[list[int], list[int]]:
    """Draft–verify decoding through the cache, step by step: tokens and accepted drafts per round."""

    def run(tokens: list[int], start: int, cache):  # type: ignore[no-untyped-def]
        given = torch.tensor([tokens], dtype=torch.int32)
        out = backbone(given, torch.arange(start, start + len(tokens), dtype=torch.int32), **cache)
        return out, {name: out[name] for name in cache_names(backbone.config)}

    out, cache = run(prompt, 0, empty_cache(backbone.config))
    tokens, hidden, accepted = [*prompt, int(out["logits"][0, -1].argmax())], out["hidden"][:, -1:], []
    while len(tokens) < until:
        drafts = head(hidden, torch.tensor([[tokens[-1]]], dtype=torch.int32))["logits"].argmax(-1)[0].tolist()
        out, cache = run([tokens[-1], *drafts], len(tokens) - 1, cache)
        chosen = out["logits"][0].argmax(-1).tolist()
        count = 0
        while count < head.gamma and drafts[count] == chosen[count]:
            count += 1
        accepted.append(count)
        tokens += chosen[: count + 1]
        hidden = out["hidden"][:, count : count + 1]
    return tokens, accepted


def half_right_head(backbone: Backbone) -> Head:
    """A token head trained for a moment on one text, so that it accepts some drafts and misses others."""
    from mtplab.model.optim import MuonAdam

    torch.manual_seed(1)
    head = build_head("token_conditioned", backbone)
    backbone.requires_grad_(False)
    text = greedy(backbone, torch.tensor([[0, 9, 4]]), 28)
    hidden = backbone.hidden_sequence(text)[0]
    optimiser = MuonAdam(head.own_parameters(), muon_rate=0.03, adam_rate=0.01)
    for _ in range(12):
        fed = torch.stack([text[0, 1 + k : 15 + k] for k in range(3)], dim=-1)
        loss = sum(
            torch.nn.functional.cross_entropy(logits, text[0, 2 + k : 16 + k])
            for k, logits in enumerate(head.drafts_given(hidden[:14], fed))
        )
        loss.backward()
        optimiser.step(1.0)
    return head.eval()


def test_rounds_counted_from_whole_texts_equal_a_real_draft_verify_loop(backbone: Backbone) -> None:
    head = half_right_head(backbone)
    accepted_somewhere = set()
    for prompt in ([0, 9, 4], [0, 1, 2], [0, 33, 7]):
        text = greedy(backbone, torch.tensor([prompt]), 26)[0]
        rounds = rounds_of(backbone, head, Text(prompt_class="c", tokens=text, prompt_length=3, spare=4))
        tokens, accepted = decode_by_rounds(backbone, head, prompt, until=25)
        assert tokens[:25] == text[:25].tolist()
        assert [one.accepted for one in rounds] == accepted
        accepted_somewhere.update(accepted)
    assert len(accepted_somewhere) > 1, "the test needs hits and misses"


def test_alpha_is_conditional_and_the_mean_is_per_round() -> None:
    figures = acceptance([Round(n, False, 0) for n in (0, 1, 1, 3)], gamma=3)
    assert [(one.hits, one.trials) for one in figures.alpha] == [(3, 4), (1, 3), (1, 1)]
    assert figures.mean_accepted == 1.25


def test_nothing_tried_is_unknown_and_not_zero() -> None:
    figures = acceptance([Round(0, False, 0)], gamma=2)
    assert figures.alpha[1].value is None and figures.alpha[1].reason
    assert acceptance([], gamma=1).mean_accepted is None


def test_wilsons_interval_reproduces_a_known_value() -> None:
    figure = share(538, 598)
    assert (figure.value, figure.low, figure.high) == (0.8997, 0.8730, 0.9213)


def test_a_repeated_4_gram_is_marked_where_it_ends() -> None:
    assert seen_ngrams([1, 2, 3, 4, 9, 1, 2, 3, 4, 5]) == [False] * 8 + [True, False]


def test_loops_are_three_turns_over_twelve_tokens() -> None:
    assert ends_in_loop([7, *[1, 2, 3, 4] * 3])
    assert ends_in_loop([7, 8, *[5] * 12])
    assert not ends_in_loop([7, 8, *[5] * 11])
    assert not ends_in_loop([*[1, 2, 3, 4] * 3, 9])


def test_distinct_4_grams_fall_when_a_text_repeats() -> None:
    figures = repetition([list(range(20)), [1, 2] * 10])
    assert figures.distinct_4 == round((1 + 2 / 17) / 2, 4)
    assert (figures.looping.hits, figures.looping.trials) == (1, 2)
