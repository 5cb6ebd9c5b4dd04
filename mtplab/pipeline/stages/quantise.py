"""Quantise: backbone and head by their recipes, proven by reading every weight back (R8)."""

from __future__ import annotations

from typing import Any

import msgspec

from mtplab.litert.audit import table
from mtplab.litert.quantise import Quantised, quantise
from mtplab.litert.recipes import Recipe
from mtplab.pipeline.job import Emitter, Job, Output

STATISTICS = "statistics.json"


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    recipes: dict[str, Recipe]


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: backbone.tflite and head.tflite, deployed, and audit.json."""
    settings = job.settings(Settings)
    results: dict[str, Quantised] = {}
    for done, (graph, recipe) in enumerate(settings.recipes.items()):
        emit.progress(done, len(settings.recipes), "graphs", f"{graph}: {recipe.name}")
        file = f"{graph}.tflite"
        results[graph] = quantise(
            job.input(file), job.output(file), recipe, _modules(job, graph), _statistics(job, graph, recipe)
        )
    emit.progress(len(settings.recipes), len(settings.recipes), "graphs", "read back")
    figures = {graph: _figures(result) for graph, result in results.items()}
    audits = {graph: table(result.after.weights) for graph, result in results.items()}
    job.output("audit.json").write_bytes(msgspec.json.encode(audits))
    parts = [
        f"{graph} {result.recipe}: {result.touched} of {len(result.changes)} weights changed, "
        f"{result.before.file_bytes / 1e6:.1f} → {result.after.file_bytes / 1e6:.1f} MB"
        for graph, result in results.items()
    ]
    return Output(
        figures=figures,
        artefacts=("backbone.tflite", "head.tflite", "audit.json"),
        records={"audit": audits, "map": {graph: _map(result) for graph, result in results.items()}},
        summary="; ".join(parts),
    )


def _modules(job: Job, graph: str) -> dict[str, str]:
    return msgspec.json.decode(job.input(f"{graph}_modules.json").read_bytes(), type=dict[str, str])


def _statistics(job: Job, graph: str, recipe: Recipe) -> dict[str, Any] | None:
    """The quantizer's own calibration result for that graph: {graph: {tensor: {min, max}}}, where there is one."""
    if not recipe.needs_calibration or STATISTICS not in job.inputs:
        return None
    found: dict[str, dict[str, Any]] = msgspec.json.decode(job.input(STATISTICS).read_bytes())
    return found.get(graph)


def _figures(result: Quantised) -> dict[str, Any]:
    return {
        "recipe": result.recipe,
        "weights_changed": result.touched,
        "weights": len(result.changes),
        "bytes_before": result.before.file_bytes,
        "bytes_after": result.after.file_bytes,
        "scale_bytes": sum(weight.scale_bytes for weight in result.after.weights),
        "weight_bytes_by_dtype": result.after.bytes_by_dtype(),
        "dtypes_by_role": result.after.dtypes_by_role(),
    }


def _map(result: Quantised) -> list[dict[str, Any]]:
    """Module → type before and after; uses of one weight in several signatures are one row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in result.changes:
        row = rows.setdefault(
            (change.module, change.role, change.shape, change.before, change.after, change.compute),
            {
                "module": change.module,
                "role": change.role,
                "op": change.op,
                "shape": list(change.shape),
                "before": change.before,
                "after": change.after,
                "granularity": change.granularity,
                "compute": change.compute,
                "output": change.output,
                "uses": 0,
            },
        )
        row["uses"] += 1
    return list(rows.values())
