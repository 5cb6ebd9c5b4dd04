"""Freeze: prove that nothing trains, moves or is drawn, and lay out the files that every later stage takes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.freeze import freeze
from mtplab.model.heads import at_gamma, head_cost
from mtplab.model.sources import load_model
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import (
    FrozenBackbone,
    FrozenHead,
    ModelSettings,
    choose_head,
    require_files,
    use_one_thread,
)
from mtplab.session.identity import Policy


class Settings(ModelSettings, frozen=True):
    """Parameters of the stage."""

    gamma: int
    policy: Policy
    prompts: dict[str, str]


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: freeze.json, backbone.json, head.json, tokenizer.json, prompts.jsonl."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 3, "steps", "reading the model")
    model = load_model(settings.model)
    require_files(model.name, model.files, settings.model_files)
    trained = choose_head(model, settings.head)
    head = at_gamma(trained, settings.gamma)
    emit.progress(1, 3, "steps", "proving that nothing moves")
    record = freeze(model.backbone, head, settings.policy)
    cost = head_cost(head, model.backbone)
    emit.progress(2, 3, "steps", "writing")
    _write(job.output("freeze.json"), record.to_dict())
    _write(job.output("backbone.json"), FrozenBackbone(backbone_sha256=record.backbone_sha256))
    _write(job.output("head.json"), FrozenHead(head_sha256=record.head_sha256, head_kind=record.head_kind))
    shutil.copyfile(model.tokenizer_path, job.output("tokenizer.json"))
    shutil.copyfile(settings.prompts["path"], job.output("prompts.jsonl"))
    figures = {
        "freeze_sha256": record.sha256,
        "policy_sha256": record.policy_sha256,
        "gamma": record.gamma,
        "trained_gamma": trained.gamma,
        "head_kind": record.head_kind,
        "backbone_parameters": record.backbone_parameters,
        "head_own_parameters": record.head_own_parameters,
        "head_own_share": cost.own_share,
        "head_bytes_read_per_round": cost.bytes_read_per_round,
        "proofs": record.proofs,
        "warning": cost.warning,
    }
    emit.progress(3, 3, "steps", "frozen")
    return Output(
        figures=figures,
        artefacts=("freeze.json", "backbone.json", "head.json", "tokenizer.json", "prompts.jsonl"),
        records={"freeze": record.to_dict()},
        summary=(
            f"{record.backbone_parameters / 1e6:.2f} M parameters and a {record.head_kind} head "
            f"(γ = {record.gamma}, {cost.own_share:.1%} of the backbone) are still"
        ),
    )


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
