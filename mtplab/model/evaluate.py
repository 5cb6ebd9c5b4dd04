"""Measures the shipped model: loss, acceptance of each head, and how much of it repetition explains.

Acceptance is counted from true greedy draft–verify rounds: a draft is accepted exactly when it equals the
backbone's own greedy choice. Intervals are Wilson's at 95 %; rounds of one prompt correlate, so they are
narrower than an interval by prompt would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
import torch.nn.functional as F

from mtplab.model.backbone import Backbone
from mtplab.model.generate import greedy
from mtplab.model.heads import Head, attend_for
from mtplab.model.loops import NGRAM, ends_in_loop
from mtplab.model.prompts import Prompt

_Z95 = 1.959963984540054


class Share(msgspec.Struct, frozen=True):
    """Hits of trials with Wilson's 95 % interval; all None with a reason when nothing was tried."""

    hits: int
    trials: int
    value: float | None
    low: float | None
    high: float | None
    reason: str | None = None


def share(hits: int, trials: int) -> Share:
    """Wilson's score interval for a binomial share."""
    if trials == 0:
        return Share(0, 0, None, None, None, "no trial reached this position")
    p, z2 = hits / trials, _Z95**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return Share(hits, trials, round(p, 4), round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4))


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with the backbone's greedy continuation, which has `spare` tokens beyond the judged length."""

    prompt_class: str
    tokens: torch.Tensor
    prompt_length: int
    spare: int

    @property
    def end(self) -> int:
        """First position that is not judged."""
        return len(self.tokens) - self.spare


@torch.no_grad()
def text_drafts(backbone: Backbone, head: Head, tokens: torch.Tensor) -> torch.Tensor:
    """Drafts [n-1,γ] from every position of tokens[n] but the last, each chained by argmax."""
    hidden, k, v = backbone.sequence_with_cache(tokens[None])
    attend = attend_for(head, (k[:, :, :-1], v[:, :, :-1]))
    return head.chain(hidden[0, :-1], tokens[1:], attend)


class Round(msgspec.Struct, frozen=True):
    """One draft–verify round; `repeats` says that the first drafted position completes a 4-gram seen before."""

    accepted: int
    repeats: bool
    accepted_repeating: int


def greedy_texts(
    backbone: Backbone, tokenizer: Any, prompts: Sequence[Prompt], new_tokens: int, gamma: int
) -> list[Text]:
    """The backbone's own text for every prompt, γ + 1 tokens longer than judged so that no round is cut."""
    texts = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt.text).ids])
        tokens = greedy(backbone, ids, new_tokens + gamma + 1)[0]
        length = ids.shape[1]
        texts.append(Text(prompt_class=prompt.prompt_class, tokens=tokens, prompt_length=length, spare=gamma + 1))
    return texts


def seen_ngrams(tokens: Sequence[int], n: int = NGRAM) -> list[bool]:
    """For every position, whether the n-gram that ends there occurred before in the same text."""
    seen: set[tuple[int, ...]] = set()
    marks = []
    for end in range(len(tokens)):
        gram = tuple(tokens[end - n + 1 : end + 1]) if end + 1 >= n else None
        marks.append(gram in seen if gram else False)
        if gram:
            seen.add(gram)
    return marks


@torch.no_grad()
def rounds_of(backbone: Backbone, head: Head, text: Text) -> list[Round]:
    """The rounds that draft–verify decoding goes through on this text (greedy, so the text is its output)."""
    drafts = text_drafts(backbone, head, text.tokens).tolist()
    return count_rounds(text.tokens.tolist(), drafts, text.prompt_length, text.end)


def count_rounds(tokens: list[int], drafts: list[list[int]], prompt_length: int, end: int) -> list[Round]:
    """Rounds over a greedy text whose draft positions stand before `end`; drafts[p] are those made at position p."""
    repeats = seen_ngrams(tokens)
    rounds, position = [], prompt_length - 1
    # Position p+1 holds the token chosen by the round before; drafts stand at p+2 … p+1+γ.
    while position + 2 < end:
        here = drafts[position]
        accepted = 0
        while accepted < len(here) and here[accepted] == tokens[position + 2 + accepted]:
            accepted += 1
        span = range(position + 2, position + 2 + accepted)
        rounds.append(Round(accepted, repeats[position + 2], sum(repeats[i] for i in span)))
        position += accepted + 1
    return rounds


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance over rounds: α_k is conditional on the drafts before k being accepted."""

    rounds: int
    mean_accepted: float | None
    alpha: list[Share]


def acceptance(rounds: Sequence[Round], gamma: int) -> Acceptance:
    """Conditional α per position and accepted drafts per round."""
    reached = [sum(r.accepted >= k for r in rounds) for k in range(gamma + 1)]
    mean = round(sum(r.accepted for r in rounds) / len(rounds), 4) if rounds else None
    alpha = [share(reached[k], reached[k - 1]) for k in range(1, gamma + 1)]
    return Acceptance(rounds=len(rounds), mean_accepted=mean, alpha=alpha)


class OwnText(msgspec.Struct, frozen=True, kw_only=True):
    """A head on the backbone's own greedy text, whole, per class, and split by repetition."""

    overall: Acceptance
    by_class: dict[str, Acceptance]
    repeating_rounds: Acceptance
    fresh_rounds: Acceptance
    accepted_that_repeat: Share


def own_text(backbone: Backbone, head: Head, texts: Sequence[Text]) -> OwnText:
    """Judge a head on greedy texts by true rounds."""
    by_class: dict[str, list[Round]] = {}
    for text in texts:
        by_class.setdefault(text.prompt_class, []).extend(rounds_of(backbone, head, text))
    rounds = [r for group in by_class.values() for r in group]
    return OwnText(
        overall=acceptance(rounds, head.gamma),
        by_class={name: acceptance(group, head.gamma) for name, group in by_class.items()},
        repeating_rounds=acceptance([r for r in rounds if r.repeats], head.gamma),
        fresh_rounds=acceptance([r for r in rounds if not r.repeats], head.gamma),
        accepted_that_repeat=share(sum(r.accepted_repeating for r in rounds), sum(r.accepted for r in rounds)),
    )


@torch.no_grad()
def real_text(backbone: Backbone, head: Head, tokenizer: Any, prompts: Sequence[Prompt]) -> dict[str, list[Share]]:
    """Teacher-forced hit rate per draft position on real text, per class and "overall".

    States and fed tokens come from the real text; draft k hits when its top-1 is the backbone's top-1 there.
    This is not what decoding reaches: no round restarts after a miss.
    """
    counts: dict[str, list[list[int]]] = {}
    for prompt in prompts:
        if prompt.continuation is None:
            continue
        start = len(tokenizer.encode(prompt.text).ids)
        tokens = torch.tensor(tokenizer.encode(prompt.text + prompt.continuation).ids)[: backbone.config.context]
        hidden, *kv = backbone.sequence_with_cache(tokens[None])
        chosen, count = backbone.logits(hidden)[0].argmax(-1), len(tokens) - head.gamma - 1
        attend = attend_for(head, [one[:, :, :count] for one in kv])
        fed = torch.stack([tokens[1 + k : 1 + k + count] for k in range(head.gamma)], dim=1)
        drafts = [out.argmax(-1) for out in head.drafts_given(hidden[0, :count], fed, attend)]
        for k, draft in enumerate(drafts):
            hits = (draft == chosen[1 + k : 1 + k + count])[start - 1 :]
            for name in ("overall", prompt.prompt_class):
                totals = counts.setdefault(name, [[0, 0] for _ in range(head.gamma)])
                totals[k][0] += int(hits.sum())
                totals[k][1] += len(hits)
    return {name: [share(*pair) for pair in totals] for name, totals in counts.items()}


@torch.no_grad()
def prompt_loss(backbone: Backbone, tokenizer: Any, prompts: Sequence[Prompt]) -> float:
    """Mean nats per token of prompts with their real continuations."""
    total, count = 0.0, 0
    for prompt in prompts:
        ids = tokenizer.encode(prompt.text + (prompt.continuation or "")).ids[: backbone.config.context]
        tokens = torch.tensor([ids])
        logits, _ = backbone.forward_sequence(tokens[:, :-1])
        total += F.cross_entropy(logits[0], tokens[0, 1:], reduction="sum").item()
        count += len(ids) - 1
    return total / count


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """How repetitive texts are: distinct 4-grams ÷ 4-grams within a text (mean), and texts that end in a cycle."""

    texts: int
    distinct_4: float
    looping: Share


def repetition(texts: Sequence[Sequence[int]]) -> Repetition:
    """Repetition of continuations, each looked at alone."""
    ratios = []
    for text in texts:
        grams = [tuple(text[i : i + NGRAM]) for i in range(len(text) - NGRAM + 1)]
        if grams:
            ratios.append(len(set(grams)) / len(grams))
    loops = sum(ends_in_loop(text) for text in texts)
    return Repetition(
        texts=len(texts), distinct_4=round(sum(ratios) / len(ratios), 4), looping=share(loops, len(texts))
    )


def own_repetition(texts: Sequence[Text]) -> Repetition:
    """Repetition of greedy continuations, over the judged part."""
    return repetition([text.tokens[text.prompt_length : text.end].tolist() for text in texts])


def real_repetition(tokenizer: Any, prompts: Sequence[Prompt], new_tokens: int) -> Repetition:
    """The same figure for the real continuations: what natural text looks like."""
    texts = []
    for prompt in prompts:
        if prompt.continuation is not None:
            start = len(tokenizer.encode(prompt.text).ids)
            ids = tokenizer.encode(prompt.text + prompt.continuation).ids[start : start + new_tokens]
            texts.append(ids)
    return repetition(texts)
