"""`mtplab recipes` shows what a recipe would do before anything is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mtplab.engine.recipes_command import recipes_command


def called(*args: str) -> Result:
    return CliRunner().invoke(recipes_command, list(args))


def test_every_recipe_is_listed_with_what_it_needs() -> None:
    listed = {one["name"]: one for one in json.loads(called("--json").stdout)}
    assert listed["mixed"]["from"] == "shipped" and not listed["mixed"]["needs_calibration"]
    assert listed["static_int8"]["needs_calibration"]
    assert "static_int8" in called().stdout


def test_a_recipe_is_shown_rule_by_rule_with_the_heads() -> None:
    shown = called("mixed_int4").stdout
    assert "1. on = body: int4 per channel, dynamic" in shown
    assert "the head gets: mixed" in shown


@pytest.mark.pipeline
def test_the_map_names_the_rule_of_every_weight(small: Any, tmp_path: Path) -> None:
    from mtplab.litert.export import module_names

    modules = tmp_path / "modules.json"
    modules.write_text(json.dumps(module_names(small.torch_backbone, small.backbone)))
    told = json.loads(called("mixed", "--graph", str(small.backbone), "--modules", str(modules), "--json").stdout)
    rows = {(row["module"], row["role"]): row for row in told["graphs"]["backbone.tflite"]}
    assert rows["blocks.1.down_proj.weight", "body"]["rule"] == 1
    assert rows["blocks.1.down_proj.weight", "body"]["uses"] == 3
    assert rows["embedding.weight", "output_projection"]["rule"] is None


@pytest.mark.pipeline
def test_a_rule_that_finds_nothing_ends_with_a_sentence(small: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('[typo]\ntitle = ""\nrules = [{ match = "lm_haed", bits = 8, compute = "dynamic" }]\n')
    ended = called(str(recipe), "--graph", str(small.head))
    assert ended.exit_code == 1 and "finds no weight" in ended.stderr
    recipe.write_text("[")
    assert called(str(recipe)).exit_code == 1
