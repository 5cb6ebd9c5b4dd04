"""How the tests of host stages make a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
