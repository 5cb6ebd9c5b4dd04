"""Which layers a recipe hurts is found by lifting them one group at a time, not guessed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from stage_jobs import judged_job, quiet, recipe_values

from mtplab.litert.recipes import recipe_named
from mtplab.pipeline.sensitivity import Group, Lift, Proposal, Sensitivity, groups_of, lifted
from mtplab.speculation.intervals import Estimate

# Block 1 is ruined, block 0 hardly touched.
RUINED = {"name": "ruined", "title": "one bad block", "rules": [
    {"match": r"^blocks\.0\.", "bits": 8, "compute": "dynamic"},
    {"match": r"^blocks\.1\.", "bits": 2, "compute": "dynamic"}]}  # fmt: skip


def estimate(value: float, low: float) -> Estimate:
    return Estimate(value, low, value + 0.01, 8, "test")


def test_a_group_is_a_block_or_a_module_and_says_what_it_is_lifted_to() -> None:
    dtypes = {
        "blocks.10.gate_proj.weight": "INT8",
        "blocks.2.gate_proj.weight": "INT4",
        "blocks.2.attention.q_proj.weight": "INT8",
        "embedding.weight = lm_head.weight": "INT8",
    }
    groups = groups_of("backbone", dtypes)
    assert [(group.name, group.to) for group in groups] == [
        ("blocks.2", "int8"), ("blocks.10", "float"), ("embedding.weight = lm_head.weight", "float"),
    ]  # fmt: skip


def test_a_lifting_rule_takes_the_modules_of_its_group_and_no_others() -> None:
    modules = ("blocks.1.attention.q_proj.weight", "blocks.1.down_proj.weight")
    rule = Group("backbone", "blocks.1", modules, "float").rule
    assert all(re.search(rule.match or "", module) for module in modules)
    for other in ("blocks.10.down_proj.weight", "blocks.1.up_proj.weight", "blocks.1.down_proj.weight_2"):
        assert not re.search(rule.match or "", other), other
    assert (rule.bits, rule.compute) == (32, "float")
    tied = Group("backbone", "embedding.weight = lm_head.weight", ("embedding.weight = lm_head.weight",), "int8").rule
    assert re.search(tied.match or "", "embedding.weight = lm_head.weight") and tied.bits == 8
    recipe = lifted(recipe_named("mixed"), [Group("backbone", "blocks.1", modules, "float")])
    assert recipe.rules[-1] == rule and recipe.rules[:-1] == recipe_named("mixed").rules


def test_the_sentence_names_what_was_seen_to_help() -> None:
    lift = Lift("backbone", "blocks.1", "int8", estimate(0.08, 0.05), 1000)
    cure = Proposal(["backbone blocks.1"], {"backbone": [], "head": []}, estimate(-0.001, -0.01), 250_000, True)
    told = Sensitivity([lift], [cure]).sentence()
    assert "lift backbone blocks.1" in told and "0.25 MB" in told and "-0.001" in told
    bad = Proposal(["backbone blocks.1"], {"backbone": [], "head": []}, estimate(-0.2, -0.3), 1, False)
    hopeless = Sensitivity([lift], [bad]).sentence()
    assert "choose another recipe" in hopeless and "blocks.1 (+0.080)" in hopeless
    assert "nothing to lift" in Sensitivity([], []).sentence()


@pytest.fixture(scope="module")
def found(small: Any, prompt_file: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    from mtplab.pipeline.stages import sensitivity

    params = {
        "gamma": 3,
        "recipes": {"backbone": RUINED, "head": recipe_values("mixed", "mixed")["head"]},
        "acceptance_prompts": prompt_file,
        "alpha_drop_limit": 0.02,
    }
    job = judged_job(small, tmp_path_factory.mktemp("sensitivity") / "work", "sensitivity", params)
    return sensitivity.run(job, quiet()).figures


def test_the_ruined_block_is_found_and_lifting_it_opens_the_gate(found: Any) -> None:
    assert not found["passes"] and found["as_is"]["low"] < -0.02
    best = found["lifts"][0]
    assert (best["graph"], best["group"], best["to"]) == ("backbone", "blocks.1", "int8")
    assert best["gain"]["value"] > 0 and best["bytes_added"] > 0
    others = [one for one in found["lifts"] if one is not best]
    assert {one["graph"] for one in others} == {"backbone", "head"}
    assert all(one["gain"]["value"] < best["gain"]["value"] for one in others)
    first = found["proposals"][0]
    assert first["groups"] == ["backbone blocks.1"] and first["passes"]
    assert "lift backbone blocks.1" in found["sentence"]


def test_people_get_the_rules_to_add(found: Any) -> None:
    from mtplab.pipeline.sensitivity_command import sensitivity_lines

    text = "\n".join(sensitivity_lines(found))
    assert "rules to add at the end of the backbone's recipe" in text
    line = next(line for line in text.splitlines() if line.startswith("  { match"))
    rule = _toml(f"rules = [{line}]")["rules"][0]
    assert rule["bits"] == 8 and re.search(rule["match"], "blocks.1.down_proj.weight")


def _toml(text: str) -> dict[str, Any]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def test_a_shut_gate_says_which_layers_to_lift(small: Any, prompt_file: dict[str, str], tmp_path: Path) -> None:
    import msgspec

    from mtplab.litert.quantise import quantise
    from mtplab.litert.recipes import Recipe
    from mtplab.pipeline.job import StageFailed
    from mtplab.pipeline.stages import acceptance

    recipe = msgspec.convert(RUINED, Recipe)
    params = {
        "gamma": 3,
        "recipes": {"backbone": RUINED, "head": recipe_values("float", "float")["head"]},
        "acceptance_prompts": prompt_file,
        "alpha_drop_limit": 0.02,
    }
    job = judged_job(small, tmp_path / "work", "acceptance", params)
    modules = msgspec.json.decode(job.input("backbone_modules.json").read_bytes())
    quantise(small.backbone, tmp_path / "backbone.tflite", recipe, modules)
    job.inputs.update({"backbone.tflite": str(tmp_path / "backbone.tflite"), "head.tflite": str(small.head)})
    with pytest.raises(StageFailed, match=r"may cost .* of α .*lift backbone blocks\.1") as refused:
        acceptance.run(job, quiet())
    assert refused.value.figures["sensitivity"]["lifts"][0]["group"] == "blocks.1"
    assert len(refused.value.figures["recipes"]["rows"]) == 2
