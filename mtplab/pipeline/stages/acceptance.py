"""Acceptance: true draft–verify rounds before and after quantisation, on the same prompts (R10).

Each pair of graphs drafts against its own backbone's greedy text: what the user of the deployed pair will get.
What quantisation cost is judged apart from that, on equal text: see `paired.delta_alpha`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.litert.audit import audit
from mtplab.litert.evaluate import different_weights
from mtplab.litert.inputs import write_inputs
from mtplab.litert.quantise import quantise
from mtplab.litert.recipes import Recipe
from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
from mtplab.pipeline.judging import (
    OUTPUT_TOKENS,
    THREADS,
    Crossing,
    Graphs,
    Pair,
    PromptRounds,
    Reference,
    Side,
    Steps,
    counts_summary,
    cross,
    exactness,
    judge_side,
    judged_texts,
    limits_for,
    summary_of,
)
from mtplab.pipeline.recipe_graphs import FLOAT, FloatGraphs
from mtplab.pipeline.recipe_rows import recipe_row
from mtplab.pipeline.recipe_times import steps_to_time, timed
from mtplab.pipeline.sensitivity import Bench
from mtplab.pipeline.stages.loading import Text
from mtplab.session.events import RecipeRow
from mtplab.session.recipes import RecipeTable
from mtplab.speculation.forced import Hits
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.paired import delta_alpha, delta_own_text


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    gamma: int
    recipes: dict[str, Recipe]
    acceptance_prompts: dict[str, str]
    alpha_drop_limit: float

    @property
    def labels(self) -> tuple[str, str]:
        """The recipes of backbone and head as the session names them."""
        return self.recipes["backbone"].label, self.recipes["head"].label


def run(job: Job, emit: Emitter) -> Output:
    """Figures of the float and the deployed pair and their paired difference; artefacts are inputs for the bench."""
    settings = job.settings(Settings)
    floats = Graphs(
        backbone=job.input("float_backbone.tflite"),
        head=job.input("float_head.tflite"),
        evaluation=job.input("float_evaluation.tflite"),
    )
    deployed = Graphs(
        backbone=job.input("backbone.tflite"),
        head=job.input("head.tflite"),
        evaluation=evaluation_graph(job, settings.recipes["head"]),
    )
    before, after = Pair.load(floats, THREADS), Pair.load(deployed, THREADS)
    limits = limits_for(job, settings.gamma)
    texts = judged_texts(job, settings.acceptance_prompts, before.backbone.context_limit, settings.gamma)
    steps = Steps(emit, 5 * len(texts) + steps_to_time(2, texts))
    float_side = judge_side(before, texts, limits, steps, "float", floats.sizes)
    deployed_side = judge_side(after, texts, limits, steps, "deployed", deployed.sizes)
    reference = Reference.of(before, texts, float_side.rounds)
    crossing = cross(reference, after, texts, deployed_side.rounds, limits.gamma, steps.told("equal text"))
    found = Found(settings, texts, float_side, deployed_side, reference.hits(texts, limits.gamma), crossing)
    prompt = texts[0].tokens[: texts[0].split]
    bench_inputs = write_inputs(after.backbone, after.head, prompt, job.output("."))
    asked = "many positions a call" if deployed.evaluation else "position by position"
    rows = found.rows()
    opens = [lambda: before, lambda: after][-len(rows) :]
    rows = timed(rows, opens, texts, limits, steps.told("timing in turns"))
    table = msgspec.to_builtins(found.table(rows))
    figures = {**found.figures(), "recipes": table, "bench_inputs": bench_inputs, "head_asked": asked}
    records = {"float": _record(float_side.rounds), "deployed": _record(deployed_side.rounds)}
    fault = verdict(settings, found.delta, found.exact)
    if fault is None and lost(settings, found.delta):
        recipes = settings.recipes["backbone"], settings.recipes["head"]
        bench = Bench(FloatGraphs(job), recipes, reference, texts, limits, -settings.alpha_drop_limit, emit)
        sensitivity = bench.run()
        figures["sensitivity"] = msgspec.to_builtins(sensitivity)
        fault = f"{loss(settings, found.delta)}; {sensitivity.sentence()}."
    if fault is not None:
        raise StageFailed(fault, figures, records)
    files = tuple(sorted({row["artefact"] for rows in bench_inputs.values() for row in rows}))
    return Output(figures=figures, artefacts=files, records=records, summary=found.sentence())


def evaluation_graph(job: Job, recipe: Recipe) -> Path | None:
    """The head's evaluation graph by the recipe of the deployed head; None where their weights are not the same.

    A recipe that needs statistics has none for this graph.
    """
    if recipe.needs_calibration:
        return None
    modules = msgspec.json.decode(job.input("evaluation_modules.json").read_bytes(), type=dict[str, str])
    target = job.output("evaluation.tflite")
    made = quantise(job.input("float_evaluation.tflite"), target, recipe, modules)
    return None if different_weights(made.after, audit(job.input("head.tflite"))) else target


class Found(msgspec.Struct, frozen=True):
    """What was seen of both pairs, as the stage reports it."""

    settings: Settings
    texts: list[Text]
    before: Side
    after: Side
    float_hits: Hits
    crossing: Crossing

    @property
    def delta(self) -> Estimate:
        return delta_alpha(self.crossing.counts)

    @property
    def exact(self) -> dict[str, int]:
        return exactness(self.after.plain, self.after.rounds)

    def figures(self) -> dict[str, Any]:
        gamma, rounds = self.settings.gamma, (self.before.rounds, self.after.rounds)
        own_text = delta_own_text(*[[one.counts(gamma) for one in side] for side in rounds])
        return {
            "float": summary_of(rounds[0], gamma),
            "deployed": summary_of(rounds[1], gamma),
            # Another reference, which no user of the deployed pair meets: the float backbone's greedy text.
            "deployed_on_float_text": {
                **counts_summary([four[1] for four in self.crossing.counts], gamma),
                "top1": _rates(self.crossing.hits_on_reference),
            },
            "teacher_forced": {"float": _rates(self.float_hits), "deployed": _rates(self.crossing.hits)},
            "delta_alpha": msgspec.to_builtins(self.delta),
            "delta_alpha_own_text": msgspec.to_builtins(own_text),
            "per_class": {
                klass: {"float": summary_of(of_class, gamma), "deployed": summary_of(_of(rounds[1], klass), gamma)}
                for klass, of_class in _classes(rounds[0]).items()
            },
            "perplexity": {
                "float": msgspec.to_builtins(self.before.perplexity),
                "deployed": msgspec.to_builtins(self.after.perplexity),
            },
            "exactness": self.exact,
            "limit": -self.settings.alpha_drop_limit,
            "prompt_set": self.settings.acceptance_prompts["name"],
            "prompts": len(self.texts),
        }

    def rows(self) -> list[RecipeRow]:
        """Both pairs as rows of the recipe table; one where the deployed pair is the float one."""
        gamma, recipes = self.settings.gamma, self.settings.labels
        unchanged = Estimate(0.0, 0.0, 0.0, len(self.texts), "reference")
        float_row = recipe_row((FLOAT, FLOAT), self.before, gamma, self.float_hits, unchanged)
        deployed = recipe_row(recipes, self.after, gamma, self.crossing.hits, self.delta)
        return [deployed] if recipes == (FLOAT, FLOAT) else [float_row, deployed]

    def table(self, rows: list[RecipeRow]) -> RecipeTable:
        """The rows with what they were judged on."""
        return RecipeTable(
            rows=rows,
            gamma=self.settings.gamma,
            prompt_set=self.settings.acceptance_prompts["name"],
            prompt_set_sha256=self.settings.acceptance_prompts["sha256"],
            prompts=len(self.texts),
            output_tokens=OUTPUT_TOKENS,
            threads=THREADS,
        )

    def sentence(self) -> str:
        gamma, delta = self.settings.gamma, self.delta
        old, new = (summary_of(side.rounds, gamma) for side in (self.before, self.after))
        return (
            f"α {old['alpha']['value']:.3f} → {new['alpha']['value']:.3f} "
            f"(on equal text {delta.value:+.3f}, 95 % {delta.low:+.3f} … {delta.high:+.3f}), "
            f"mean accepted {new['mean_accepted']:.2f} of {gamma} over {new['rounds']} rounds"
        )


def verdict(settings: Settings, delta: Estimate, exact: dict[str, int]) -> str | None:
    """What makes the comparison itself worthless, as a sentence, or None."""
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
    return None


def lost(settings: Settings, delta: Estimate) -> bool:
    """Whether the paired lower bound of the change lies below the limit: whether the gate is shut."""
    return delta.low is not None and delta.low < -settings.alpha_drop_limit


def loss(settings: Settings, delta: Estimate) -> str:
    """What quantisation may cost, without a full stop."""
    assert delta.low is not None
    return (
        f"Quantisation ({settings.labels[0]}, head {settings.labels[1]}) may cost {-delta.low:.3f} of α "
        f"(change on equal text {delta.value:+.3f}, 95 % from {delta.low:+.3f} to {delta.high:+.3f}), more than "
        f"the {settings.alpha_drop_limit:.3f} allowed"
    )


def _rates(hits: Hits) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(rate) for rate in hits.rates()]


def _classes(rows: Sequence[PromptRounds]) -> dict[str, list[PromptRounds]]:
    return {klass: _of(rows, klass) for klass in dict.fromkeys(row.klass for row in rows)}


def _of(rows: Sequence[PromptRounds], klass: str) -> list[PromptRounds]:
    return [row for row in rows if row.klass == klass]


def _record(rows: Sequence[PromptRounds]) -> list[dict[str, Any]]:
    return [
        {"id": row.id, "class": row.klass, "accepted": row.accepted, "output_tokens": len(row.output)} for row in rows
    ]
