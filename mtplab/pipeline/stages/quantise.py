"""Quantise: backbone and head by their recipes, proven by reading every weight back (R8)."""

from __future__ import annotations

from typing import Any

import msgspec

from mtplab.litert.audit import table
from mtplab.litert.quantise import Quantised, quantise
from mtplab.pipeline.job import Emitter, Job, Output


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    recipe: str
    head_recipe: str


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: backbone.tflite and head.tflite, deployed, and audit.json."""
    settings = job.settings(Settings)
    modules = msgspec.json.decode(job.input("modules.json").read_bytes(), type=dict[str, dict[str, str]])
    results: dict[str, Quantised] = {}
    plan = {"backbone": settings.recipe, "head": settings.head_recipe}
    for done, (graph, recipe) in enumerate(plan.items()):
        emit.progress(done, len(plan), "graphs", f"{graph}: {recipe}")
        file = f"{graph}.tflite"
        results[graph] = quantise(job.input(file), job.output(file), recipe, modules=modules[graph])
    emit.progress(len(plan), len(plan), "graphs", "read back")
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


def _figures(result: Quantised) -> dict[str, Any]:
    return {
        "recipe": result.recipe,
        "weights_changed": result.touched,
        "weights": len(result.changes),
        "bytes_before": result.before.file_bytes,
        "bytes_after": result.after.file_bytes,
        "weight_bytes_by_dtype": result.after.bytes_by_dtype(),
        "dtypes_by_role": result.after.dtypes_by_role(),
    }


def _map(result: Quantised) -> list[dict[str, Any]]:
    """Module → type before and after; uses of one weight in several signatures are one row."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for change in result.changes:
        row = rows.setdefault(
            (change.module, change.role, change.shape, change.before, change.after),
            {
                "module": change.module,
                "role": change.role,
                "op": change.op,
                "shape": list(change.shape),
                "before": change.before,
                "after": change.after,
                "granularity": change.granularity,
                "uses": 0,
            },
        )
        row["uses"] += 1
    return list(rows.values())
