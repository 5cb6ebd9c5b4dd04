"""How the tests of host stages make a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mtplab.pipeline.job import Emitter, Job
from mtplab.pipeline.stage import RunParameters, params_for


def quiet() -> Emitter:
    return Emitter(lambda event: None)


def recipe_values(backbone: str, head: str) -> dict[str, Any]:
    params: dict[str, Any] = params_for("quantise", RunParameters(recipe=backbone, head_recipe=head))["recipes"]
    return params


def make_job(small: Any, folder: Path, stage: str, params: dict[str, Any], **inputs: Path) -> Job:
    folder.mkdir(exist_ok=True)
    names = {name.replace("__", "."): str(path) for name, path in inputs.items()}
    return Job(stage=stage, module="", params=params, inputs=names, workdir=str(folder))


def judged_job(small: Any, folder: Path, stage: str, params: dict[str, Any]) -> Job:
    """A job of a stage that makes pairs out of the float graphs and judges them."""
    from mtplab.litert.export import module_names

    folder.mkdir(exist_ok=True)
    inputs = {"tokenizer__json": small.tokenizer, "model__json": small.reading}
    for graph, module, path in (
        ("backbone", small.torch_backbone, small.backbone),
        ("head", small.torch_head, small.head),
        ("evaluation", small.torch_head, small.evaluation),
    ):
        names = folder / f"{graph}_modules.json"
        names.write_bytes(msgspec.json.encode(module_names(module, path)))
        inputs |= {f"float_{graph}__tflite": path, f"{graph}_modules__json": names}
    return make_job(small, folder, stage, params, **inputs)
