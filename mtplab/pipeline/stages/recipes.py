"""Recipes: every pair of backbone and head recipe that was asked for, judged on the same prompts, a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from mtplab.litert.errors import LiteRtError
from mtplab.litert.recipes import Recipe
from mtplab.litert.runtime import LiteRtBackbone
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.judging import (
    THREADS,
    Graphs,
    Pair,
    Reference,
    Side,
    Steps,
    cross,
    judge_side,
    judged_texts,
    limits_for,
    perplexity,
    plain_texts,
    true_rounds,
)
from mtplab.pipeline.recipe_graphs import FLOAT, FloatGraphs, HeadGraphs
from mtplab.pipeline.recipe_rows import recipe_row
from mtplab.pipeline.recipe_times import steps_to_time, timed
from mtplab.pipeline.stages.loading import Text
from mtplab.session.events import RecipeRow
from mtplab.session.recipes import RecipeTable, pareto_front
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.paired import delta_alpha


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage; a pair is a backbone recipe and a head recipe."""

    gamma: int
    recipe_pairs: list[tuple[Recipe, Recipe]]
    acceptance_prompts: dict[str, str]


def run(job: Job, emit: Emitter) -> Output:
    """Figures: the table, `recipes`, told row by row; a pair that cannot be made is a row with its reason."""
    table = _Table(job, emit)
    for _, pairs in groupby(table.pairs, key=lambda pair: pair[0]):
        table.judge_backbone(list(pairs))
    table.time_all()
    rows = table.rows
    front = pareto_front(rows)
    best = ", ".join(f"{rows[i].backbone}/{rows[i].head}" for i in front)
    failed = sum(row.reason is not None for row in rows)
    summary = f"{len(rows)} pairs of recipes; none is smaller, faster and better accepted than {best or 'another'}"
    return Output(
        figures={"recipes": msgspec.to_builtins(table.of(rows))},
        summary=summary + (f"; {failed} could not be judged" if failed else ""),
    )


class _Table:
    """The table while it is being filled; the float pair is its first row and what every other is held against."""

    def __init__(self, job: Job, emit: Emitter) -> None:
        self._emit, self._settings = emit, job.settings(Settings)
        self._graphs = FloatGraphs(job)
        floats = self._graphs.float_head()
        graphs = Graphs(backbone=self._graphs.float_backbone, head=floats.head, evaluation=floats.evaluation)
        pair = Pair.load(graphs, THREADS)
        gamma = self._settings.gamma
        self._limits = limits_for(job, gamma)
        context = pair.backbone.context_limit
        self._texts: list[Text] = judged_texts(job, self._settings.acceptance_prompts, context, gamma)
        wanted = [pair for pair in self._settings.recipe_pairs if [one.label for one in pair] != [FLOAT, FLOAT]]
        self.pairs = sorted(wanted, key=lambda pair: pair[0].label)
        backbones = {backbone.label for backbone, _ in self.pairs}
        timing = steps_to_time(1 + len(self.pairs), self._texts)
        self._steps = Steps(emit, len(self._texts) * (2 + len(backbones) + 2 * len(self.pairs)) + timing)
        self._opens: dict[int, Callable[[], Pair]] = {0: lambda: pair}
        side = judge_side(pair, self._texts, self._limits, self._steps, FLOAT, graphs.sizes)
        self._reference = Reference.of(pair, self._texts, side.rounds)
        self._heads: dict[str, HeadGraphs | str] = {}
        self.rows: list[RecipeRow] = []
        unchanged = Estimate(0.0, 0.0, 0.0, len(self._texts), "reference")
        hits = self._reference.hits(self._texts, gamma)
        self._add(recipe_row((FLOAT, FLOAT), side, gamma, hits, unchanged))

    def judge_backbone(self, pairs: Sequence[tuple[Recipe, Recipe]]) -> None:
        """All pairs of one backbone recipe: its text is written once."""
        recipe = pairs[0][0]
        try:
            path = self._graphs.backbone(recipe, f"backbone_{len(self.rows)}").path
            backbone = LiteRtBackbone(path, THREADS)
            plain = plain_texts(backbone, self._texts, self._limits, self._steps.told(f"{recipe.label}, plain"))
            spoken = perplexity(backbone, self._texts)
        except LiteRtError as error:
            for _, head in pairs:
                self._add(RecipeRow(backbone=recipe.label, head=head.label, reason=str(error)))
            return
        for _, head in pairs:
            made = self._head(head)
            if isinstance(made, str):
                self._add(RecipeRow(backbone=recipe.label, head=head.label, reason=made))
                continue
            graphs = Graphs(backbone=path, head=made.head, evaluation=made.evaluation)
            what = f"{recipe.label}, head {head.label}"
            pair = Pair.load(graphs, THREADS, backbone)
            rounds = true_rounds(pair, self._texts, self._limits, self._steps.told(what))
            told = self._steps.told(f"{what}, equal text")
            crossing = cross(self._reference, pair, self._texts, rounds, self._limits.gamma, told)
            side = Side(plain, rounds, spoken, graphs.sizes)
            self._opens[len(self.rows)] = partial(Pair.load, graphs, THREADS)
            delta = delta_alpha(crossing.counts)
            self._add(recipe_row((recipe.label, head.label), side, self._limits.gamma, crossing.hits, delta))

    def time_all(self) -> None:
        """Time every pair that could be made, in turns; their rows are told again, with times."""
        places = list(self._opens)
        judged = [self.rows[place] for place in places]
        opens = [self._opens[place] for place in places]
        done = timed(judged, opens, self._texts, self._limits, self._steps.told("timing in turns"))
        for place, row in zip(places, done, strict=True):
            self.rows[place] = row
        self._emit.figure("recipes", msgspec.to_builtins(self.of(done)))

    def _head(self, recipe: Recipe) -> HeadGraphs | str:
        """The head by `recipe`, made once, or why it cannot be made."""
        if recipe.label not in self._heads:
            try:
                self._heads[recipe.label] = self._graphs.head(recipe, f"head_{len(self._heads)}")
            except LiteRtError as error:
                self._heads[recipe.label] = str(error)
        return self._heads[recipe.label]

    def _add(self, row: RecipeRow) -> None:
        self.rows.append(row)
        self._emit.figure("recipes", msgspec.to_builtins(self.of([row])))

    def of(self, rows: list[RecipeRow]) -> RecipeTable:
        """A table of these rows, judged as all of them are."""
        prompts: dict[str, Any] = self._settings.acceptance_prompts
        return RecipeTable(
            rows=rows,
            gamma=self._limits.gamma,
            prompt_set=prompts["name"],
            prompt_set_sha256=prompts["sha256"],
            prompts=len(self._texts),
            output_tokens=self._limits.output_tokens,
            threads=THREADS,
        )
