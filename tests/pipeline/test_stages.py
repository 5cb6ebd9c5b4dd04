"""The host stages on real graphs: aligned, quantised with proof, accepted or refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from stage_jobs import make_job, quiet, recipe_values

from mtplab.pipeline.cache import ArtefactRef, Store
from mtplab.pipeline.errors import PipelineError
from mtplab.pipeline.host_run import key_of, run_host_stage
from mtplab.pipeline.job import StageFailed
from mtplab.pipeline.stage import (
    HOST_STAGES,
    RunParameters,
    StageResult,
    host_stage,
    inputs_for,
    needed_for,
    params_for,
)
from mtplab.session.identity import Policy

pytestmark = pytest.mark.pipeline


MIXED = recipe_values("mixed", "mixed")["backbone"]


def test_quantise_shows_which_module_became_what(quantised: tuple[Path, Any]) -> None:
    folder, output = quantised
    assert output.figures["backbone"]["dtypes_by_role"]["output_projection"] == ["FLOAT32"]
    assert output.figures["head"]["dtypes_by_role"]["output_projection"] == ["INT8"]
    rows = {row["module"]: row for row in output.records["map"]["backbone"]}
    assert rows["blocks.0.attention.q_proj.weight"]["after"] == "INT8"
    assert rows["blocks.0.attention.q_proj.weight"]["uses"] == 3  # prefill, decode, verify share it
    audit = json.loads((folder / "audit.json").read_text())
    assert {row["dtype"] for row in audit["head"] if row["role"] == "body"} == {"INT8"}


def calibrating(small: Any, folder: Path, calibration: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mtplab.pipeline.stages import calibrate

    monkeypatch.setenv("MTPLAB_CACHE", str(folder / "cache"))
    params = {
        "model": "small",
        "model_files": {},
        "calibration": {"name": calibration.name, "path": str(calibration), "sha256": ""},
        "calibration_ranges": "moving_average",
    }
    job = make_job(
        small,
        folder / "work",
        "calibrate",
        params,
        backbone__tflite=small.backbone,
        head__tflite=small.head,
        tokenizer__json=small.tokenizer,
    )
    return calibrate.run(job, quiet())


def calibration_set(tokenizer: Path, path: Path) -> Path:
    from mtplab.calibration.build import Plan, build_set
    from mtplab.calibration.reader import Reader
    from mtplab.calibration.record import save_set
    from mtplab.calibration.sources import Log, Record, Turn

    texts = [f"{n} {chr(97 + n) * (n + 3)} {n * n}" for n in range(8)]
    records = [Record(turns=(Turn("user", text),), place="x") for text in texts]
    reader = Reader("small", tokenizer, 160)
    plan = Plan(longest=90, size=5, no_system=True)
    save_set(path, build_set(Log(tuple(records), (), 0), reader, plan, lambda *_: None, least=4))
    return path


def test_calibration_hands_over_ranges_of_both_graphs_and_keeps_no_prompt_in_the_session(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = calibration_set(small.tokenizer, tmp_path / "calibration.json")
    output = calibrating(small, tmp_path, path, monkeypatch)
    whole = json.loads((tmp_path / "work" / "statistics.json").read_text())
    assert set(whole) == {"backbone", "head"}
    assert all({"min", "max"} <= set(one) for graph in whole.values() for one in graph.values())
    assert output.figures["statistics"]["samples"]["backbone"].keys() == {"prefill_16", "decode", "verify"}
    assert output.figures["set"]["counts"]["chosen"] == 5
    assert "prompts" not in output.figures["set"] and "distance to production unknown" in output.summary
    assert not list((tmp_path / "cache" / "calibration").glob("*"))


def test_a_calibration_set_of_another_tokenizer_stops_the_stage(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtplab.calibration.errors import CalibrationError

    other = tmp_path / "other.json"
    other.write_text(small.tokenizer.read_text().replace('"version":', ' "version":', 1))
    path = calibration_set(other, tmp_path / "calibration.json")
    with pytest.raises(CalibrationError, match="its tokens would be other words"):
        calibrating(small, tmp_path, path, monkeypatch)


def test_statistics_reach_quantisation_where_the_run_calibrates_and_are_not_missed_where_it_does_not() -> None:
    def done(stage: str, *names: str) -> StageResult:
        return StageResult(
            stage=stage, status="done", seconds=0, artefacts={name: ArtefactRef(name, 1) for name in names}
        )

    before = {
        "export": done("export", "backbone.tflite", "head.tflite", "backbone_modules.json", "head_modules.json")
    }
    assert "statistics.json" not in inputs_for("quantise", before)
    after = {**before, "calibrate": done("calibrate", "statistics.json")}
    assert inputs_for("quantise", after)["statistics.json"] == "statistics.json"


@pytest.fixture
def aligning(small: Any, prompt_file: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    from types import SimpleNamespace

    from mtplab.pipeline.stages import align

    model = SimpleNamespace(
        backbone=small.torch_backbone,
        config=small.torch_backbone.config,
        tokenizer_path=small.tokenizer,
        reading=lambda: None,
    )
    monkeypatch.setattr(align, "load_frozen", lambda *args: (model, small.torch_head))

    def go(folder: Path, head: Path, backbone: Path) -> Any:
        params = {
            "model": "tiny",
            "model_files": {},
            "head": "token_conditioned",
            "acceptance_prompts": prompt_file,
            "alignment_threshold": 0.99,
        }
        job = make_job(small, folder, "align", params, head__tflite=head, backbone__tflite=backbone)
        return align.run(job, quiet())

    return go


def test_exported_graphs_agree_with_torch_on_real_text(small: Any, aligning: Any, tmp_path: Path) -> None:
    figures = aligning(tmp_path, small.head, small.backbone).figures
    for graph in ("draft", "prefill", "decode", "verify"):
        assert min(figures[graph]["top1"]) >= 0.99, graph
        assert figures[graph]["n"] >= 200
    assert len(figures["draft"]["top1"]) == 3
    assert figures["worst_top1"] >= 0.99


def test_a_graph_that_disagrees_stops_the_pipeline_and_points_at_norms(
    small: Any, aligning: Any, tmp_path: Path
) -> None:
    with pytest.raises(StageFailed, match=r"norm layers .* dtypes") as refused:
        # A head of the other family stands for an export gone wrong.
        aligning(tmp_path, small.plain_head, small.backbone)
    assert refused.value.figures["worst_top1"] < 0.99


def test_stages_stand_in_order_and_each_takes_only_from_earlier_ones() -> None:
    names = [stage.name for stage in HOST_STAGES]
    assert names == ["freeze", "export", "align", "calibrate", "quantise", "recipes", "acceptance", "bundle"]
    for index, stage in enumerate(HOST_STAGES):
        assert all(source in names[:index] for source, _ in stage.takes.values())
        assert not stage.measuring
    assert needed_for("freeze") == ["freeze"]
    assert {"freeze", "calibrate"} < set(needed_for("calibrate")) and "quantise" not in needed_for("calibrate")
    with pytest.raises(PipelineError, match="run freeze first"):
        inputs_for("export", {})
    with pytest.raises(PipelineError, match="no host stage"):
        host_stage("bake")


def test_a_stage_sees_only_what_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtplab.pipeline.stage.model_files", lambda spec: {"backbone.safetensors": "00"})
    run = RunParameters()
    longer = RunParameters(policy=Policy(output_limit=96))
    assert params_for("export", run) == params_for("export", longer)
    assert params_for("freeze", run) != params_for("freeze", longer)


def key(stage: str, run: RunParameters, **inputs: str) -> str:
    """The stage's key, or that of a part of a stage, with made-up inputs."""
    part = host_stage(stage)
    params = params_for("export" if stage.startswith("export") else stage, run)
    given = {own: inputs.get(own.partition(".")[0], "00") for own in part.takes}
    return key_of(stage, {use: params[use] for use in part.uses}, given)


def test_a_draft_length_inside_the_ladder_exports_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"backbone.safetensors": "00", "head_token_conditioned.safetensors": "01"}
    monkeypatch.setattr("mtplab.pipeline.stage.model_files", lambda spec: files)
    three, two, five = RunParameters(), RunParameters(gamma=2), RunParameters(gamma=5)
    assert five.ladder == (1, 2, 3, 5)
    for stage in ("export", "export_head", "export_backbone", "align"):
        assert key(stage, three) == key(stage, two), stage
        assert stage == "align" or key(stage, three) != key(stage, five), stage
    assert key("freeze", three) != key("freeze", two), "the record names the draft length"
    assert key("acceptance", three) != key("acceptance", two)


def test_another_head_exports_no_backbone_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"backbone.safetensors": "00", "head_token_conditioned.safetensors": "01"}
    monkeypatch.setattr("mtplab.pipeline.stage.model_files", lambda spec: files)
    one, other = RunParameters(), RunParameters(head="recurrent_residual")
    assert key("export_backbone", one) == key("export_backbone", other, head="11")
    assert key("export_head", one) != key("export_head", other)
    before = key("export_backbone", one)
    files["head_token_conditioned.safetensors"] = "02"
    assert key("export_backbone", one) == before
    files["backbone.safetensors"] = "03"
    assert key("export_backbone", one) != before
    assert key("export_backbone", one, backbone="04") != key("export_backbone", one)


def test_a_key_ignores_where_a_prompt_file_stands() -> None:
    one = {"acceptance_prompts": {"name": "x", "path": "/one/x.jsonl", "sha256": "00"}}
    two = {"acceptance_prompts": {"name": "x", "path": "/two/x.jsonl", "sha256": "00"}}
    new = {"acceptance_prompts": {"name": "x", "path": "/one/x.jsonl", "sha256": "01"}}
    assert key_of("acceptance", one, {}) == key_of("acceptance", two, {})
    assert key_of("acceptance", one, {}) != key_of("acceptance", new, {})


def through_worker(
    small: Any, store: Store, recipe: dict[str, Any], **options: Any
) -> tuple[StageResult, list[dict[str, Any]]]:
    names = store.root / "modules.json"
    names.write_text("{}")
    inputs = {
        "backbone.tflite": store.put(small.backbone).sha256,
        "head.tflite": store.put(small.head).sha256,
        "backbone_modules.json": store.put(names).sha256,
        "head_modules.json": store.put(names).sha256,
    }
    events: list[dict[str, Any]] = []
    params = {"recipes": {"backbone": recipe, "head": recipe}}
    result = run_host_stage("quantise", params, inputs, store, events.append, threading.Event(), **options)
    return result, events


def test_a_stage_runs_in_a_worker_once_and_is_cached_then(small: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    first, events = through_worker(small, store, MIXED)
    assert first.status == "done", first.reason
    assert any(event["e"] == "progress" for event in events)
    assert store.path(first.artefacts["backbone.tflite"].sha256).stat().st_size > 0
    again, events = through_worker(small, store, MIXED)
    assert (again.status, again.seconds, events) == ("cached", first.seconds, [])
    assert again.artefacts == first.artefacts and again.figures == first.figures
    store.path(first.artefacts["head.tflite"].sha256).write_bytes(b"torn")
    mended, _ = through_worker(small, store, MIXED)
    assert mended.status == "done" and mended.artefacts == first.artefacts
    assert list((store.root / "scratch").iterdir()) == []


def test_a_failed_stage_is_not_cached(small: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    typo = {"on": None, "match": "no_such_layer", "bits": 8, "compute": "dynamic"}
    result, _ = through_worker(small, store, {"name": "typo", "title": "", "rules": [typo]})
    assert result.status == "failed" and "finds no weight" in str(result.reason)
    assert store.lookup(result.key) is None


def test_an_input_that_left_the_cache_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    inputs = {"backbone.tflite": "0" * 64}
    with pytest.raises(PipelineError, match=r"input backbone\.tflite is no longer in the cache"):
        run_host_stage("quantise", {}, inputs, store, lambda event: None, threading.Event())


def test_a_part_that_is_killed_leaves_the_parts_before_it_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtplab.pipeline import host_run, stage
    from mtplab.pipeline.process import Ended

    ran: list[str] = []
    alive = {"export_head": True, "export_evaluation": True, "export_backbone": False}

    def worker(job: Any, on_event: Any, cancel: Any) -> Ended:
        ran.append(job.stage)
        file = f"{job.stage}.tflite"
        job.output(file).write_text("half" if not alive[job.stage] else "whole")
        on_event({"e": "progress", "done": 1, "total": 2})
        if not alive[job.stage]:
            return Ended("failed", {}, "The worker was killed by SIGKILL; run the stage again.")
        return Ended("done", {"figures": {job.stage: 1}, "artefacts": [file], "records": {}, "summary": job.stage})

    monkeypatch.setattr(host_run, "run_worker", worker)
    monkeypatch.setattr(stage, "model_files", lambda spec: {"backbone.safetensors": "00"})
    store, told = Store(tmp_path / "cache"), list[float]()
    (tmp_path / "json").write_text("{}")
    sha256 = store.put(tmp_path / "json").sha256
    params = params_for("export", RunParameters())

    def go() -> StageResult:
        inputs = {"backbone.json": sha256, "head.json": sha256}
        return run_host_stage(
            "export", params, inputs, store, lambda event: told.append(event["done"]), threading.Event()
        )

    killed = go()
    assert killed.status == "failed" and "SIGKILL" in str(killed.reason)
    assert "export_backbone.tflite" not in killed.artefacts
    assert list((store.root / "scratch").iterdir()) == [], "no half artefact stays behind"
    assert 0 < told[0] < told[-1] < 1, "progress is that of the whole stage"
    ran.clear()
    alive["export_backbone"] = True
    mended = go()
    assert (mended.status, ran) == ("done", ["export_backbone"])
    assert store.path(mended.artefacts["export_backbone.tflite"].sha256).read_text() == "whole"
    assert set(mended.artefacts) == {f"{part}.tflite" for part in alive}
    assert go().status == "cached" and ran == ["export_backbone"]
