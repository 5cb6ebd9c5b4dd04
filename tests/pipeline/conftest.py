"""A prompt set and a quantised pair that the tests of several host stages share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stage_jobs import make_job, quiet, recipe_values


@pytest.fixture(scope="session")
def prompt_file(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("prompts") / "set.jsonl"
    rng = np.random.default_rng(1)
    rows = []
    for n in range(8):
        letters = "".join(chr(33 + int(c)) for c in rng.integers(0, 90, 70))
        rows.append(
            {"id": f"p{n}", "class": ("code", "chat")[n % 2], "text": letters[:30], "continuation": letters[30:]}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "set", "path": str(path), "sha256": "-"}


@pytest.fixture(scope="session")
def quantised(small: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from mtplab.litert.export import module_names
    from mtplab.pipeline.stages import quantise

    folder = tmp_path_factory.mktemp("quantised")
    for graph, module, path in (
        ("backbone", small.torch_backbone, small.backbone),
        ("head", small.torch_head, small.head),
    ):
        (folder / f"{graph}_modules.json").write_text(json.dumps(module_names(module, path)))
    job = make_job(
        small,
        folder / "work",
        "quantise",
        {"recipes": recipe_values("mixed", "dynamic_int8")},
        backbone__tflite=small.backbone,
        head__tflite=small.head,
        backbone_modules__json=folder / "backbone_modules.json",
        head_modules__json=folder / "head_modules.json",
    )
    return folder / "work", quantise.run(job, quiet())
