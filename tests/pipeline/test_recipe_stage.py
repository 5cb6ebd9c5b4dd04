"""Recipes set beside each other on real graphs: a row a pair, the failed ones with their reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from stage_jobs import judged_job, recipe_values

from mtplab.pipeline.job import Emitter
from mtplab.pipeline.stage import RunParameters, recipe_pairs

pytestmark = pytest.mark.pipeline

MISSING = {"name": "typo", "title": "a rule that finds nothing", "rules": [
    {"match": "no_such_layer", "bits": 8, "compute": "dynamic"}]}  # fmt: skip


@pytest.fixture(scope="module")
def table(small: Any, prompt_file: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    from mtplab.pipeline.stages import recipes

    mixed = recipe_values("mixed", "dynamic_int8")
    pairs = [
        [mixed["backbone"], mixed["head"]],
        [MISSING, mixed["head"]],
        [mixed["backbone"], MISSING],
        [recipe_values("float", "float")["backbone"], recipe_values("float", "float")["head"]],
    ]
    params = {"gamma": 3, "recipe_pairs": pairs, "acceptance_prompts": prompt_file}
    told: list[dict[str, Any]] = []
    job = judged_job(small, tmp_path_factory.mktemp("grid") / "work", "recipes", params)
    return recipes.run(job, Emitter(told.append)), told


def test_every_pair_is_a_row_and_the_float_pair_the_first(table: Any) -> None:
    output, _ = table
    rows = output.figures["recipes"]["rows"]
    assert (rows[0]["backbone"], rows[0]["head"], rows[0]["delta_alpha"]["value"]) == ("float", "float", 0.0)
    names = [(row["backbone"], row["head"].partition("@")[0]) for row in rows]
    assert names.count(("float", "float")) == 1
    assert ("mixed", "dynamic_int8") in names and ("mixed", "typo") in names
    whole = next(row for row in rows if row["backbone"] == "mixed" and row["reason"] is None)
    assert whole["backbone_bytes"] < rows[0]["backbone_bytes"]
    assert len(whole["top1"]) == len(whole["conditional_alpha"]) == 3
    assert whole["alpha"]["low"] <= whole["alpha"]["value"] <= whole["alpha"]["high"]
    for name in ("decode_ms", "draft_ms", "verify_ms", "ms_per_token", "perplexity"):
        assert whole[name]["value"] > 0, name


def test_a_pair_that_cannot_be_made_says_why_and_the_others_are_judged(table: Any) -> None:
    output, _ = table
    failed = [row for row in output.figures["recipes"]["rows"] if row["reason"]]
    assert len(failed) == 2 and all("no_such_layer" in row["reason"] for row in failed)
    assert all(row["alpha"]["value"] is None for row in failed)
    assert "2 could not be judged" in output.summary


def test_rows_are_told_as_they_come_and_progress_ends_where_it_said(table: Any) -> None:
    output, told = table
    *singly, timed = [event["value"]["rows"] for event in told if event["e"] == "figure"]
    assert all(len(rows) == 1 for rows in singly)
    final = output.figures["recipes"]["rows"]
    assert [(rows[0]["backbone"], rows[0]["head"]) for rows in singly] == [(r["backbone"], r["head"]) for r in final]
    # Times come at the end, measured in turns; a pair that could not be made has none.
    assert timed == [row for row in final if row["reason"] is None]
    progress = [event for event in told if event["e"] == "progress"]
    assert all(event["done"] < event["total"] for event in progress)


def test_every_backbone_recipe_meets_every_head_recipe_or_its_own() -> None:
    run = RunParameters(compared_recipes=("mixed", "float"), compared_head_recipes=("float", "dynamic_int8"))
    labels = [(backbone.label, head.label) for backbone, head in recipe_pairs(run)]
    assert labels == [("mixed", "float"), ("mixed", "dynamic_int8"), ("float", "float"), ("float", "dynamic_int8")]
    alone = msgspec.structs.replace(run, compared_head_recipes=())
    assert [(b.label, h.label) for b, h in recipe_pairs(alone)] == [("mixed", "mixed"), ("float", "float")]
