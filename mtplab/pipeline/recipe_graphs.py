"""A pair of graphs by any recipes, out of the float graphs of a run: for comparing recipes and for lifting layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mtplab.litert.evaluate import different_weights
from mtplab.litert.quantise import Quantised, quantise
from mtplab.litert.recipes import Recipe
from mtplab.pipeline.job import Job

FLOAT = "float"
STATISTICS = "statistics.json"


class BackboneGraph(msgspec.Struct, frozen=True):
    """A backbone by one recipe, and which module of it has which type now."""

    path: Path
    dtypes: dict[str, str]


class HeadGraphs(msgspec.Struct, frozen=True):
    """A head by one recipe; `evaluation` is None where it has to be asked position by position."""

    head: Path
    evaluation: Path | None
    dtypes: dict[str, str]


class FloatGraphs(msgspec.Struct, frozen=True):
    """The float graphs that a job was given, and a folder for what is made of them."""

    job: Job

    def float_head(self) -> HeadGraphs:
        return HeadGraphs(self.job.input("float_head.tflite"), self.job.input("float_evaluation.tflite"), {})

    @property
    def float_backbone(self) -> Path:
        return self.job.input("float_backbone.tflite")

    def backbone(self, recipe: Recipe, name: str) -> BackboneGraph:
        """The backbone by `recipe`, written as `name`. Raises `LiteRtError` where the recipe does not fit."""
        target = self.job.output(f"{name}.tflite")
        made = quantise(
            self.float_backbone, target, recipe, self._modules("backbone"), self._statistics("backbone", recipe)
        )
        return BackboneGraph(target, _dtypes(made))

    def head(self, recipe: Recipe, name: str) -> HeadGraphs:
        """The head by `recipe`, written as `name`, with its evaluation graph."""
        target = self.job.output(f"{name}.tflite")
        made = quantise(
            self.float_head().head, target, recipe, self._modules("head"), self._statistics("head", recipe)
        )
        if recipe.needs_calibration:
            return HeadGraphs(target, None, _dtypes(made))  # nobody recorded ranges in the evaluation graph
        evaluation = self.job.output(f"{name}_evaluation.tflite")
        judged = quantise(
            self.job.input("float_evaluation.tflite"), evaluation, recipe, self._modules("evaluation")
        )
        same = not different_weights(judged.after, made.after)
        return HeadGraphs(target, evaluation if same else None, _dtypes(made))

    def _modules(self, graph: str) -> dict[str, str]:
        return msgspec.json.decode(self.job.input(f"{graph}_modules.json").read_bytes(), type=dict[str, str])

    def _statistics(self, graph: str, recipe: Recipe) -> dict[str, Any] | None:
        if not recipe.needs_calibration or STATISTICS not in self.job.inputs:
            return None
        found: dict[str, dict[str, Any]] = msgspec.json.decode(self.job.input(STATISTICS).read_bytes())
        return found.get(graph)


def _dtypes(made: Quantised) -> dict[str, str]:
    """The type of every named weight that the recipe changed."""
    return {one.module: one.after for one in made.changes if one.module is not None and one.before != one.after}
