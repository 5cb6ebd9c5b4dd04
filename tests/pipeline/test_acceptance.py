"""The acceptance stage on real graphs: true rounds, teacher-forced hits, the paired change, and its gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stage_jobs import make_job, quiet, recipe_values

pytestmark = pytest.mark.pipeline


def accept(
    small: Any, folder: Path, prompts: dict[str, str], backbone: Path, head: Path, limit: float, head_recipe: str
) -> Any:
    from mtplab.litert.export import module_names
    from mtplab.pipeline.stages import acceptance

    folder.mkdir(exist_ok=True)
    names = module_names(small.torch_head, small.evaluation)
    (folder / "evaluation_modules.json").write_text(json.dumps(names))
    params = {
        "gamma": 3,
        "recipes": recipe_values("mixed", head_recipe),
        "acceptance_prompts": prompts,
        "alpha_drop_limit": limit,
    }
    job = make_job(
        small,
        folder,
        "acceptance",
        params,
        float_backbone__tflite=small.backbone,
        float_head__tflite=small.head,
        backbone__tflite=backbone,
        head__tflite=head,
        float_evaluation__tflite=small.evaluation,
        evaluation_modules__json=folder / "evaluation_modules.json",
        tokenizer__json=small.tokenizer,
        model__json=small.reading,
    )
    return acceptance.run(job, quiet())


def test_acceptance_of_the_same_graphs_does_not_change(
    small: Any, prompt_file: dict[str, str], tmp_path: Path
) -> None:
    output = accept(small, tmp_path, prompt_file, small.backbone, small.head, 0.02, "float")
    assert output.figures["delta_alpha"]["value"] == 0
    assert output.figures["exactness"] == {
        "prompts": 8,
        "equal": 8,
        "different_at_small_margin": 0,
        "different": 0,
    }
    assert output.figures["float"] == output.figures["deployed"]
    assert set(output.figures["per_class"]) == {"code", "chat"}
    assert len(output.figures["float"]["conditional_alpha"]) == 3
    assert output.figures["perplexity"]["float"] == output.figures["perplexity"]["deployed"]
    forced = output.figures["teacher_forced"]
    assert forced["float"] == forced["deployed"] and len(forced["float"]) == 3
    assert forced["float"][0]["n"] > output.figures["float"]["rounds"]  # not only where rounds begin
    rounds = output.figures["float"]["rounds"]
    assert rounds == sum(len(row["accepted"]) for row in output.records["float"])


def test_acceptance_judges_the_quantised_pair_exactly(
    small: Any, quantised: tuple[Path, Any], prompt_file: dict[str, str], tmp_path: Path
) -> None:
    folder, _ = quantised
    graphs = folder / "backbone.tflite", folder / "head.tflite"
    output = accept(small, tmp_path, prompt_file, *graphs, 1.0, "dynamic_int8")
    exact = output.figures["exactness"]
    assert exact["equal"] + exact["different_at_small_margin"] == 8
    assert output.figures["perplexity"]["deployed"]["value"] > 1
    assert output.figures["head_asked"] == "many positions a call"
    rows = output.figures["recipes"]["rows"]
    assert [(row["backbone"], row["head"]) for row in rows] == [("float", "float"), ("mixed", "dynamic_int8")]
    assert rows[1]["backbone_bytes"] == (folder / "backbone.tflite").stat().st_size < rows[0]["backbone_bytes"]
    for row in rows:
        assert row["alpha"]["low"] <= row["alpha"]["value"] <= row["alpha"]["high"]
        assert row["ms_per_token"]["value"] > 0 and row["decode_ms"]["unit"] == "ms"
    assert rows[1]["delta_alpha"]["value"] == output.figures["delta_alpha"]["value"]


def test_a_head_whose_evaluation_graph_has_other_weights_is_asked_position_by_position(
    small: Any, quantised: tuple[Path, Any], prompt_file: dict[str, str], tmp_path: Path
) -> None:
    folder, _ = quantised
    graphs = folder / "backbone.tflite", folder / "head.tflite"
    in_one = accept(small, tmp_path, prompt_file, *graphs, 1.0, "dynamic_int8")
    stepped = accept(small, tmp_path, prompt_file, *graphs, 1.0, "mixed")
    assert stepped.figures["head_asked"] == "position by position"
    assert stepped.figures["teacher_forced"] == in_one.figures["teacher_forced"]
    assert stepped.figures["delta_alpha"] == in_one.figures["delta_alpha"]


def test_perplexity_is_that_of_the_torch_model(small: Any, prompt_file: dict[str, str]) -> None:
    import torch
    import torch.nn.functional as F

    from mtplab.litert.runtime import LiteRtBackbone
    from mtplab.pipeline.judging import perplexity
    from mtplab.pipeline.stages.loading import read_texts

    texts = read_texts(prompt_file["path"], small.tokenizer, 96)
    losses = []
    for text in texts:
        tokens = torch.tensor([text.tokens])
        with torch.no_grad():
            logits = small.torch_backbone.forward_sequence(tokens)[0]
        losses.append(F.cross_entropy(logits[0, text.split - 1 : -1], tokens[0, text.split :], reduction="none"))
    wanted = float(torch.cat(losses).double().mean().exp())
    found = perplexity(LiteRtBackbone(small.backbone), texts)
    assert found.value == pytest.approx(wanted, rel=1e-3)
    assert found.tokens == sum(len(loss) for loss in losses)


def counted(full: int, none: int) -> Any:
    from mtplab.speculation.acceptance import AcceptCounts

    return AcceptCounts((none, 5, 5, full))


def test_a_lost_alpha_fails_the_stage_with_its_interval() -> None:
    from mtplab.litert.recipes import recipe_named
    from mtplab.pipeline.stages.acceptance import Settings, loss, lost, verdict
    from mtplab.speculation.paired import delta_alpha

    good, bad = counted(20, 10), counted(10, 20)
    settings = Settings(3, {"backbone": recipe_named("mixed"), "head": recipe_named("mixed")}, {}, 0.02)
    exact = {"prompts": 12, "equal": 12, "different_at_small_margin": 0, "different": 0}
    worse = delta_alpha([(good, bad, good, bad)] * 12)
    assert worse.value is not None and worse.value < -0.02
    assert lost(settings, worse) and verdict(settings, worse, exact) is None
    assert "may cost 0.189 of α" in loss(settings, worse) and "0.020 allowed" in loss(settings, worse)
    same = delta_alpha([(good, good, good, good)] * 12)
    better = delta_alpha([(bad, good, bad, good)] * 12)
    assert not lost(settings, same) and not lost(settings, better) and verdict(settings, better, exact) is None
    assert "other tokens" in str(verdict(settings, same, {**exact, "different": 1}))
    assert "unknown" in str(verdict(settings, delta_alpha([]), exact)) and not lost(settings, delta_alpha([]))


def test_a_pair_that_is_only_better_on_its_own_text_did_not_change() -> None:
    from mtplab.speculation.paired import delta_alpha

    at_home, away = counted(20, 10), counted(15, 15)
    change = delta_alpha([(at_home, away, away, at_home)] * 12)
    assert change.value == pytest.approx(0, abs=1e-12)


def test_the_change_is_paired_by_prompt() -> None:
    from mtplab.speculation.paired import delta_own_text

    # Prompts differ wildly, the change is the same in each: unpaired the interval would span zero.
    before = [counted(n, 40 - n) for n in range(2, 38, 3)]
    after = [counted(n - 1, 41 - n) for n in range(2, 38, 3)]
    change = delta_own_text(before, after)
    assert change.high is not None and change.high < 0


def test_judging_a_pair_on_its_own_output_gives_its_true_rounds(small: Any, prompt_file: dict[str, str]) -> None:
    from mtplab.pipeline.judging import Graphs, Limits, Pair, judge_output, rounds_over, true_rounds
    from mtplab.pipeline.stages.loading import read_texts
    from mtplab.speculation.acceptance import AcceptCounts

    pair = Pair.load(Graphs(backbone=small.backbone, head=small.head, evaluation=small.evaluation), 1)
    texts = read_texts(prompt_file["path"], small.tokenizer, 96)
    limits = Limits(gamma=3, output_tokens=48, stop=frozenset([0]))
    for text, true in zip(texts, true_rounds(pair, texts, limits, lambda prompt: None), strict=True):
        judged = rounds_over(judge_output(pair, text, true.output), text, true.output, 3)
        assert 0 <= len(true.accepted) - judged.rounds <= 3  # the last tokens leave no room for γ drafts
        assert judged == AcceptCounts.from_accepts(3, true.accepted[: judged.rounds])
