"""Acceptance: true draft–verify rounds before and after quantisation, on the same prompts (R10).

Each pair of graphs drafts against its own backbone's greedy text: what the user of the deployed pair will get.
What quantisation cost is judged apart from that, on equal text: see `delta_alpha`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from mtplab.litert.inputs import write_inputs
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.measure.exactness import NEAR_TIE
from mtplab.model.files import END_OF_TEXT_ID
from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
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
from mtplab.speculation.intervals import Estimate, bootstrap_statistic, wilson
from mtplab.speculation.sampling import accepted_prefix

OUTPUT_TOKENS = 48  # a prompt; enough for some 25 rounds
THREADS = 1  # what is accepted does not depend on it, and a small model is fastest so


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    gamma: int
    recipe: str
    head_recipe: str
    acceptance_prompts: dict[str, str]
    alpha_drop_limit: float


class PromptRounds(msgspec.Struct, frozen=True):
    """What one pair of graphs did with one prompt."""

    id: str
    klass: str
    accepted: list[int]
    output: list[int]

    def counts(self, gamma: int) -> AcceptCounts:
        return AcceptCounts.from_accepts(gamma, self.accepted)


class Perplexity(msgspec.Struct, frozen=True):
    """Of the backbone on the real continuations, per token; None where no prompt has one."""

    value: float | None
    tokens: int
    reason: str | None = None


def run(job: Job, emit: Emitter) -> Output:
    """Figures of the float and the deployed pair and their paired difference; artefacts are inputs for the bench."""
    settings = job.settings(Settings)
    gamma = settings.gamma
    float_pair = Pair.load(job, "float_backbone.tflite", "float_head.tflite", gamma)
    deployed = Pair.load(job, "backbone.tflite", "head.tflite", gamma)
    context = float_pair.backbone.context_limit
    texts = read_texts(settings.acceptance_prompts["path"], job.input("tokenizer.json"), context)
    texts = [text for text in texts if text.split + gamma + 1 < context]
    before = _rounds(float_pair, texts, emit, 0, 2 * len(texts), "float")
    after = _rounds(deployed, texts, emit, len(texts), 2 * len(texts), "deployed")
    emit.progress(2 * len(texts), 2 * len(texts), "prompts", "comparing on equal text")
    exact = exactness(deployed.backbone, texts, after)
    rows = zip(texts, before, after, strict=True)
    delta = delta_alpha([crossed_counts(float_pair, deployed, *row, gamma) for row in rows])
    own_text = delta_own_text([one.counts(gamma) for one in before], [one.counts(gamma) for one in after])
    prompt = texts[0].tokens[: texts[0].split]
    bench_inputs = write_inputs(deployed.backbone, deployed.head, prompt, job.output("."))
    figures = {
        "float": summary_of(before, gamma),
        "deployed": summary_of(after, gamma),
        "delta_alpha": msgspec.to_builtins(delta),
        "delta_alpha_own_text": msgspec.to_builtins(own_text),
        "per_class": {
            klass: {"float": summary_of(rows, gamma), "deployed": summary_of(_of(after, klass), gamma)}
            for klass, rows in _classes(before).items()
        },
        "perplexity": {
            "float": msgspec.to_builtins(perplexity(float_pair.backbone, texts)),
            "deployed": msgspec.to_builtins(perplexity(deployed.backbone, texts)),
        },
        "exactness": exact,
        "limit": -settings.alpha_drop_limit,
        "prompt_set": settings.acceptance_prompts["name"],
        "prompts": len(texts),
        "bench_inputs": bench_inputs,
    }
    records = {"float": _record(before), "deployed": _record(after)}
    fault = verdict(settings, delta, exact)
    if fault is not None:
        raise StageFailed(fault, figures, records)
    files = tuple(sorted({row["artefact"] for rows in bench_inputs.values() for row in rows}))
    summary = _sentence(before, after, delta, gamma)
    return Output(figures=figures, artefacts=files, records=records, summary=summary)


class Pair(msgspec.Struct, frozen=True):
    """A backbone and the head that drafts for it, `gamma` tokens a round."""

    backbone: Any
    head: Any
    gamma: int

    @classmethod
    def load(cls, job: Job, backbone: str, head: str, gamma: int) -> Pair:
        runtime = LiteRtBackbone(job.input(backbone), THREADS)
        return cls(runtime, LiteRtHead(job.input(head), THREADS, backbone=runtime), gamma)


def _rounds(pair: Pair, texts: Sequence[Text], emit: Emitter, done: int, total: int, what: str) -> list[PromptRounds]:
    """True rounds of every prompt; one that the limit cut short was verified in full all the same."""
    found = []
    stop = frozenset([END_OF_TEXT_ID])
    for index, text in enumerate(texts):
        emit.progress(done + index, total, "prompts", f"{what}: {text.prompt.id}")
        prompt = text.tokens[: text.split]
        records = list(
            decode_speculative(
                pair.backbone, pair.head, prompt, limit=OUTPUT_TOKENS, stop=stop, policy=Fixed(pair.gamma)
            )
        )
        accepted = [record.accepted for record in records if isinstance(record, RoundRecord)]
        output = [record.id for record in records if isinstance(record, TokenRecord)]
        found.append(PromptRounds(text.prompt.id, text.prompt.prompt_class, accepted, output))
    return found


def accepts_on(pair: Pair, prompt: Sequence[int], output: Sequence[int]) -> list[int]:
    """Accepted drafts of every round that a given `output` leaves room to judge, its tokens taken as the truth.

    On the pair's own greedy output these are its true rounds.
    """
    gamma, start = pair.gamma, 0
    whole = [*prompt, *output]
    states = pair.backbone.score(whole[: pair.backbone.context_limit])[1]
    found = []
    while start + gamma < len(output):
        position = len(prompt) + start - 1
        drafts = pair.head.draft(states[position], output[start], gamma, position + 1).argmax(axis=-1)
        accepted = accepted_prefix([int(draft) for draft in drafts], output[start + 1 : start + 1 + gamma])
        found.append(accepted)
        start += accepted + 1
    return found


def crossed_counts(
    float_pair: Pair, deployed_pair: Pair, text: Text, before: PromptRounds, after: PromptRounds, gamma: int
) -> tuple[AcceptCounts, ...]:
    """Both pairs on both outputs: float and deployed on the float text, float and deployed on the deployed text."""
    prompt = text.tokens[: text.split]
    return tuple(
        AcceptCounts.from_accepts(gamma, accepts_on(pair, prompt, output))
        for output in (before.output, after.output)
        for pair in (float_pair, deployed_pair)
    )


def exactness(backbone: LiteRtBackbone, texts: Sequence[Text], rounds: Sequence[PromptRounds]) -> dict[str, int]:
    """Whether speculation gave the tokens of plain decoding; differences at a tiny margin are counted apart."""
    counted = {"prompts": len(texts), "equal": 0, "different_at_small_margin": 0, "different": 0}
    for text, one in zip(texts, rounds, strict=True):
        plain = [
            record
            for record in decode_plain(
                backbone, text.tokens[: text.split], limit=OUTPUT_TOKENS, stop=frozenset([END_OF_TEXT_ID])
            )
            if isinstance(record, TokenRecord)
        ]
        if [record.id for record in plain] == one.output:
            counted["equal"] += 1
            continue
        pairs = zip(plain, one.output, strict=False)
        first = next((record for record, token in pairs if record.id != token), None)
        tiny = first is not None and first.margin is not None and first.margin < NEAR_TIE
        counted["different_at_small_margin" if tiny else "different"] += 1
    return counted


def perplexity(backbone: LiteRtBackbone, texts: Sequence[Text]) -> Perplexity:
    """exp of the mean negative log-likelihood of the continuation tokens."""
    losses: list[float] = []
    for text in texts:
        if text.split >= len(text.tokens):
            continue
        logits = backbone.score(text.tokens)[0][text.split - 1 : -1].astype(np.float64)
        top = logits.max(axis=-1)
        normaliser = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        targets = np.asarray(text.tokens[text.split :])
        losses += list(normaliser - logits[np.arange(len(targets)), targets])
    if not losses:
        return Perplexity(None, 0, "no prompt of the set has a continuation")
    return Perplexity(math.exp(sum(losses) / len(losses)), len(losses))


def summary_of(rows: Sequence[PromptRounds], gamma: int) -> dict[str, Any]:
    """Counts, conditional α per position with Wilson intervals, mean accepted, and α with both intervals."""
    prompts = [row.counts(gamma) for row in rows]
    counts = merge(prompts)
    reached = [int(n) for n in np.cumsum(counts.counts[::-1])[::-1]]
    positions = []
    for k, value in enumerate(conditional(counts) or (), 1):
        low, high = wilson(reached[k], reached[k - 1]) if reached[k - 1] else (None, None)
        positions.append({"position": k, "value": value, "low": low, "high": high, "n": reached[k - 1]})
    length = mean_acceptance_length(counts)
    return {
        "counts": list(counts.counts),
        "rounds": counts.rounds,
        "prompts": len(rows),
        "alpha": msgspec.to_builtins(bootstrap_by_prompt(prompts)),
        "conditional_alpha": positions,
        "mean_accepted": None if length is None else length - 1,
        "mean_acceptance_length": length,
    }


def delta_alpha(crossed: Sequence[tuple[AcceptCounts, ...]]) -> Estimate:
    """Change in α (maximum likelihood) by quantisation, on equal text; bootstrapped over prompts.

    Quantisation also changes which text is written, and one text drafts better than another by chance: that noise
    drowns a change of a few hundredths. So both pairs are judged on both texts and the two changes averaged; a
    pair's advantage on its own text cancels.
    """
    rows = [[n for one in four for n in one.counts] for four in crossed if all(one.rounds for one in four)]
    return bootstrap_statistic(rows, _crossed_change, "delta_alpha_equal_text_paired_bootstrap_by_prompt")


def delta_own_text(before: Sequence[AcceptCounts], after: Sequence[AcceptCounts]) -> Estimate:
    """Difference of the true rounds' α, each pair on its own text; bootstrapped over prompts, paired."""
    rows = [[*a.counts, *b.counts] for a, b in zip(before, after, strict=True) if a.rounds and b.rounds]
    return bootstrap_statistic(rows, _change, "delta_alpha_own_text_paired_bootstrap_by_prompt")


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


def verdict(settings: Settings, delta: Estimate, exact: dict[str, int]) -> str | None:
    """The sentence with which the stage fails, or None."""
    if exact["different"]:
        return (
            f"Speculative decoding gave other tokens than plain decoding for {exact['different']} of "
            f"{exact['prompts']} prompts at a clear margin, so drafts change the output; compare the verify and "
            "decode signatures of the deployed backbone."
        )
    if delta.value is None:
        return f"The change in α is unknown ({delta.reason}); give prompts that lead to draft rounds."
    if delta.low is None:
        return f"The change in α has no interval ({delta.reason}); give at least two prompts."
    if delta.low < -settings.alpha_drop_limit:
        return (
            f"Quantisation ({settings.recipe}, head {settings.head_recipe}) may cost {-delta.low:.3f} of α "
            f"(change on equal text {delta.value:+.3f}, 95 % from {delta.low:+.3f} to {delta.high:+.3f}), more than "
            f"the {settings.alpha_drop_limit:.3f} allowed; lift the output projection and the head's layers back to "
            "float first."
        )
    return None


def _sentence(before: Sequence[PromptRounds], after: Sequence[PromptRounds], delta: Estimate, gamma: int) -> str:
    old, new = (summary_of(rows, gamma) for rows in (before, after))
    return (
        f"α {old['alpha']['value']:.3f} → {new['alpha']['value']:.3f} "
        f"(on equal text {delta.value:+.3f}, 95 % {delta.low:+.3f} … {delta.high:+.3f}), "
        f"mean accepted {new['mean_accepted']:.2f} of {gamma} over {new['rounds']} rounds"
    )


def _classes(rows: Sequence[PromptRounds]) -> dict[str, list[PromptRounds]]:
    return {klass: _of(rows, klass) for klass in dict.fromkeys(row.klass for row in rows)}


def _of(rows: Sequence[PromptRounds], klass: str) -> list[PromptRounds]:
    return [row for row in rows if row.klass == klass]


def _record(rows: Sequence[PromptRounds]) -> list[dict[str, Any]]:
    return [
        {"id": row.id, "class": row.klass, "accepted": row.accepted, "output_tokens": len(row.output)} for row in rows
    ]
