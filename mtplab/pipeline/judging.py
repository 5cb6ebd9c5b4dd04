"""Judge a pair of graphs on texts: true rounds, teacher-forced hits, change against another pair, perplexity, times.

Two kinds of acceptance, never mixed: *true rounds* are what draft–verify decoding went through, each pair on the
greedy text that its own backbone wrote; *teacher-forced* hits count every position of a given text, many a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from mtplab.litert.evaluate import HeadEvaluator, Judged, SteppedHead, TextHead, judge
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.measure.exactness import NEAR_TIE
from mtplab.model.loops import ends_in_loop
from mtplab.model.reading import Reading
from mtplab.pipeline.job import Emitter, Job
from mtplab.pipeline.stages.loading import Text, read_texts
from mtplab.speculation.acceptance import (
    AcceptCounts,
    bootstrap_by_prompt,
    conditional,
    mean_acceptance_length,
    merge,
)
from mtplab.speculation.adaptive import Fixed
from mtplab.speculation.decode import RoundRecord, TokenRecord, decode_plain, decode_speculative
from mtplab.speculation.forced import Hits, hits, rounds_on
from mtplab.speculation.intervals import wilson

OUTPUT_TOKENS = 48  # a prompt; enough for some 25 rounds
THREADS = 1  # what is accepted does not depend on it, and a small model is fastest so

# which prompt is being judged
Told = Callable[[str], None]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How texts are written: draft length, output tokens a prompt, and the tokens that end a text."""

    gamma: int
    output_tokens: int
    stop: frozenset[int]


def limits_for(job: Job, gamma: int) -> Limits:
    """The limits under which every pair is judged."""
    return Limits(gamma=gamma, output_tokens=OUTPUT_TOKENS, stop=frozenset(_reading(job).end_tokens))


def judged_texts(job: Job, prompts: Mapping[str, str], context: int, gamma: int) -> list[Text]:
    """The prompts that leave room for at least one round in a context."""
    texts = read_texts(prompts["path"], job.input("tokenizer.json"), context, _reading(job))
    return [text for text in texts if text.split + gamma + 1 < context]


def _reading(job: Job) -> Reading:
    return Reading.load(job.input("model.json"))


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a pair; without `evaluation`, the head's evaluation graph, it is asked position by position."""

    backbone: Path
    head: Path
    evaluation: Path | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of backbone and head."""
        return self.backbone.stat().st_size, self.head.stat().st_size


class Pair(msgspec.Struct, frozen=True):
    """A backbone, the head that drafts for it, and the same head for whole texts."""

    backbone: LiteRtBackbone
    head: LiteRtHead
    text_head: TextHead

    @classmethod
    def load(cls, graphs: Graphs, threads: int, backbone: LiteRtBackbone | None = None) -> Pair:
        """Load the graphs; `backbone` is the first of them where it is loaded already."""
        loaded = backbone or LiteRtBackbone(graphs.backbone, threads)
        head = LiteRtHead(graphs.head, threads, backbone=loaded)
        whole = HeadEvaluator(graphs.evaluation, threads) if graphs.evaluation else SteppedHead(head)
        return cls(loaded, head, whole)


class PromptRounds(msgspec.Struct, frozen=True):
    """True rounds of one pair on one prompt, its output, and what it took."""

    id: str
    klass: str
    accepted: list[int]
    output: list[int]
    draft_ms: float | None = None
    verify_ms: float | None = None
    ms_per_token: float | None = None

    def counts(self, gamma: int) -> AcceptCounts:
        return AcceptCounts.from_accepts(gamma, self.accepted)

    @property
    def looping(self) -> bool:
        return ends_in_loop(self.output)


class PlainText(msgspec.Struct, frozen=True):
    """One prompt decoded plainly: tokens, the margin of each choice, and what a step took."""

    output: list[int]
    margins: list[float | None]
    decode_ms: float | None


class Perplexity(msgspec.Struct, frozen=True):
    """Of the backbone on the real continuations, per token; None where no prompt has one."""

    value: float | None
    tokens: int
    reason: str | None = None


def true_rounds(pair: Pair, texts: Sequence[Text], limits: Limits, tell: Told) -> list[PromptRounds]:
    """True rounds of every prompt; one that the limit cut short was verified in full all the same."""
    return [_rounds(pair, text, limits) for text in _told(texts, tell)]


def _rounds(pair: Pair, text: Text, limits: Limits) -> PromptRounds:
    records = decode_speculative(
        pair.backbone, pair.head, text.tokens[: text.split],
        limit=limits.output_tokens, stop=limits.stop, policy=Fixed(limits.gamma),
    )  # fmt: skip
    seen = list(records)
    rounds = [record for record in seen if isinstance(record, RoundRecord)]
    tokens = [record for record in seen if isinstance(record, TokenRecord)]
    return PromptRounds(
        text.prompt.id,
        text.prompt.prompt_class,
        [record.accepted for record in rounds],
        [record.id for record in tokens],
        draft_ms=_median_ms([record.draft_ns for record in rounds]),
        verify_ms=_median_ms([record.verify_ns for record in rounds]),
        ms_per_token=_ms_per_token(tokens),
    )


def plain_texts(backbone: LiteRtBackbone, texts: Sequence[Text], limits: Limits, tell: Told) -> list[PlainText]:
    """Every prompt decoded without drafts: the reference for exactness, and for what a draft must be faster than."""
    found = []
    for text in _told(texts, tell):
        prompt = text.tokens[: text.split]
        records = decode_plain(backbone, prompt, limit=limits.output_tokens, stop=limits.stop)
        tokens = [record for record in records if isinstance(record, TokenRecord)]
        found.append(PlainText([t.id for t in tokens], [t.margin for t in tokens], _ms_per_token(tokens)))
    return found


def _told(texts: Sequence[Text], tell: Told) -> Iterator[Text]:
    for text in texts:
        tell(text.prompt.id)
        yield text


def _median_ms(ns: Sequence[int]) -> float | None:
    return median(ns) / 1e6 if ns else None


def _ms_per_token(tokens: Sequence[TokenRecord]) -> float | None:
    """Wall time a token after the first."""
    return (tokens[-1].t_ns - tokens[0].t_ns) / 1e6 / (len(tokens) - 1) if len(tokens) > 1 else None


def judge_output(pair: Pair, text: Text, output: Sequence[int]) -> Judged:
    """What `pair` chooses and drafts along a prompt with the given output, cut to the context."""
    return judge(pair.backbone, pair.text_head, [*text.tokens[: text.split], *output][: pair.backbone.context_limit])


def rounds_over(judged: Judged, text: Text, output: Sequence[int], gamma: int) -> AcceptCounts:
    """The rounds over a text that is taken for the truth; see `forced.rounds_on`."""
    whole = [*text.tokens[: text.split], *output][: len(judged.choices)]
    return AcceptCounts.from_accepts(gamma, rounds_on(whole, judged.drafts[:, :gamma], text.split - 1))


def forced_hits(judged: Judged, text: Text, gamma: int) -> Hits:
    """Teacher-forced hits from the prompt's last position on."""
    return hits(judged.choices, judged.drafts[:, :gamma], text.split - 1)


def exactness(plain: Sequence[PlainText], rounds: Sequence[PromptRounds]) -> dict[str, int]:
    """Whether speculation gave the tokens of plain decoding; differences at a tiny margin are counted apart."""
    counted = {"prompts": len(plain), "equal": 0, "different_at_small_margin": 0, "different": 0}
    for text, one in zip(plain, rounds, strict=True):
        if text.output == one.output:
            counted["equal"] += 1
            continue
        pairs = zip(text.output, text.margins, one.output, strict=False)
        margin = next((margin for token, margin, other in pairs if token != other), None)
        tiny = margin is not None and margin < NEAR_TIE
        counted["different_at_small_margin" if tiny else "different"] += 1
    return counted


def perplexity(backbone: LiteRtBackbone, texts: Sequence[Text]) -> Perplexity:
    """exp of the mean negative log-likelihood of the continuation tokens."""
    total, count = 0.0, 0
    for text in texts:
        if text.split >= len(text.tokens):
            continue
        likelihood = judge(backbone, None, text.tokens).log_likelihood[text.split - 1 :]
        total, count = total - float(likelihood.sum()), count + len(likelihood)
    if not count:
        return Perplexity(None, 0, "no prompt of the set has a continuation")
    return Perplexity(math.exp(total / count), count)


def summary_of(rows: Sequence[PromptRounds], gamma: int) -> dict[str, Any]:
    """Counts, conditional α per position with Wilson intervals, mean accepted, and α with both intervals.

    `without_loops` leaves out the prompts whose output ends in a cycle, which any head drafts well.
    """
    figures = counts_summary([row.counts(gamma) for row in rows], gamma)
    calm = [row.counts(gamma) for row in rows if not row.looping]
    return {**figures, "looping": len(rows) - len(calm), "without_loops": counts_summary(calm, gamma)}


def counts_summary(prompts: Sequence[AcceptCounts], gamma: int) -> dict[str, Any]:
    """The same for accept counts a prompt."""
    counts = merge(prompts) if prompts else AcceptCounts((0,) * (gamma + 1))
    reached = [int(n) for n in np.cumsum(counts.counts[::-1])[::-1]]
    positions = []
    for k, value in enumerate(conditional(counts) or (None,) * gamma, 1):
        low, high = wilson(reached[k], reached[k - 1]) if reached[k - 1] else (None, None)
        positions.append({"position": k, "value": value, "low": low, "high": high, "n": reached[k - 1]})
    length = mean_acceptance_length(counts)
    return {
        "counts": list(counts.counts),
        "rounds": counts.rounds,
        "prompts": len(prompts),
        "alpha": msgspec.to_builtins(bootstrap_by_prompt(prompts)),
        "conditional_alpha": positions,
        "mean_accepted": None if length is None else length - 1,
        "mean_acceptance_length": length,
    }


class Side(msgspec.Struct, frozen=True):
    """Everything that was seen of one pair on its own backbone's text."""

    plain: list[PlainText]
    rounds: list[PromptRounds]
    perplexity: Perplexity
    sizes: tuple[int, int]


class Steps:
    """Progress over everything that is judged, a prompt a step."""

    def __init__(self, emit: Emitter, total: int) -> None:
        self._emit, self._total, self._done = emit, total, 0

    def told(self, what: str) -> Told:
        def tell(prompt: str) -> None:
            self._emit.progress(self._done, self._total, "prompts", f"{what}: {prompt}")
            self._done += 1

        return tell


def judge_side(
    pair: Pair, texts: Sequence[Text], limits: Limits, steps: Steps, what: str, sizes: tuple[int, int]
) -> Side:
    """A pair on its own text: plainly, with drafts, and its perplexity on the real continuations."""
    return Side(
        plain=plain_texts(pair.backbone, texts, limits, steps.told(f"{what}, plain")),
        rounds=true_rounds(pair, texts, limits, steps.told(f"{what}, drafting")),
        perplexity=perplexity(pair.backbone, texts),
        sizes=sizes,
    )


class Crossing(msgspec.Struct, frozen=True):
    """Two pairs on equal text: accept counts a prompt as `paired.delta_alpha` takes them, and the other pair's hits.

    `hits` is on the other pair's own text, `hits_on_reference` on the text of the reference's backbone.
    """

    counts: list[tuple[AcceptCounts, ...]]
    hits: Hits
    hits_on_reference: Hits


class Reference(msgspec.Struct, frozen=True):
    """The pair that others are held against, with its drafts along its own text."""

    pair: Pair
    rounds: list[PromptRounds]
    judged: list[Judged]

    @classmethod
    def of(cls, pair: Pair, texts: Sequence[Text], rounds: list[PromptRounds]) -> Reference:
        outputs = zip(texts, rounds, strict=True)
        return cls(pair, rounds, [judge_output(pair, text, one.output) for text, one in outputs])

    def hits(self, texts: Sequence[Text], gamma: int) -> Hits:
        """Teacher-forced hits on its own text."""
        found = [forced_hits(judged, text, gamma) for judged, text in zip(self.judged, texts, strict=True)]
        return added(found, gamma)


def added(many: Sequence[Hits], gamma: int) -> Hits:
    """The sum of hits; of none, nothing hit in no position."""
    total = Hits((0,) * gamma, 0)
    for one in many:
        total = total + one
    return total


def cross(
    reference: Reference, other: Pair, texts: Sequence[Text], rounds: Sequence[PromptRounds], gamma: int, tell: Told
) -> Crossing:
    """Both pairs on both outputs; `rounds` are the other pair's own."""
    counts: list[tuple[AcceptCounts, ...]] = []
    own_hits, reference_hits = [], []
    rows = zip(texts, reference.rounds, reference.judged, rounds, strict=True)
    for text, before, judged_before, after in rows:
        tell(text.prompt.id)
        other_before = judge_output(other, text, before.output)
        reference_after = judge_output(reference.pair, text, after.output)
        other_after = judge_output(other, text, after.output)
        counts.append(
            (
                rounds_over(judged_before, text, before.output, gamma),
                rounds_over(other_before, text, before.output, gamma),
                rounds_over(reference_after, text, after.output, gamma),
                rounds_over(other_after, text, after.output, gamma),
            )
        )
        own_hits.append(forced_hits(other_after, text, gamma))
        reference_hits.append(forced_hits(other_before, text, gamma))
    return Crossing(counts, added(own_hits, gamma), added(reference_hits, gamma))
