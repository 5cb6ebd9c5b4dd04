"""Sensitivity: lift one group of layers at a time, and say which together let a recipe pass the gate."""

from __future__ import annotations

import msgspec

from mtplab.litert.recipes import Recipe
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.judging import THREADS, Graphs, Pair, Reference, judged_texts, limits_for, true_rounds
from mtplab.pipeline.recipe_graphs import FloatGraphs
from mtplab.pipeline.sensitivity import Bench


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    gamma: int
    recipes: dict[str, Recipe]
    acceptance_prompts: dict[str, str]
    alpha_drop_limit: float


def run(job: Job, emit: Emitter) -> Output:
    """Figures: the recipe as it is, every lift, what was tried together, and the sentence that says what to lift."""
    settings, graphs = job.settings(Settings), FloatGraphs(job)
    floats = graphs.float_head()
    emit.progress(0, None, "", "writing the float backbone's text")
    pair = Pair.load(Graphs(backbone=graphs.float_backbone, head=floats.head, evaluation=floats.evaluation), THREADS)
    texts = judged_texts(job, settings.acceptance_prompts, pair.backbone.context_limit, settings.gamma)
    limits = limits_for(job, settings.gamma)
    rounds = true_rounds(pair, texts, limits, lambda prompt: emit.progress(0, None, "", f"float text of {prompt}"))
    reference = Reference.of(pair, texts, rounds)
    recipes = settings.recipes["backbone"], settings.recipes["head"]
    bench = Bench(graphs, recipes, reference, texts, limits, -settings.alpha_drop_limit, emit)
    as_is, found = bench.as_is(), bench.run()
    sentence = "it passes as it is" if as_is.passes else found.sentence()
    figures = {
        **msgspec.to_builtins(found),
        "recipes": [recipe.label for recipe in recipes],
        "as_is": msgspec.to_builtins(as_is.delta_alpha),
        "passes": as_is.passes,
        "sentence": sentence,
        "limit": -settings.alpha_drop_limit,
        "prompts": len(texts),
    }
    return Output(figures=figures, summary=sentence)
