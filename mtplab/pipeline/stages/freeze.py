"""Freeze: prove that nothing trains, moves or is drawn, and lay out the files that every later stage takes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.freeze import freeze
from mtplab.model.heads import at_gamma, head_cost
from mtplab.model.prompts import load_prompts
from mtplab.model.reading import Reading
from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
from mtplab.pipeline.stages.loading import (
    FrozenBackbone,
    FrozenHead,
    ModelSettings,
    choose_head,
    load_chosen,
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
    """Artefacts: freeze.json, backbone.json, head.json, model.json, tokenizer.json, prompts.jsonl."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 3, "steps", "reading the model")
    model = load_chosen(settings.model)
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
    reading = model.reading()
    _require_tokenizer(reading, model.tokenizer_path)
    _write(job.output("model.json"), reading)
    _write_prompts(job.output("prompts.jsonl"), settings.prompts["path"], reading)
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
        "end_tokens": reading.end_tokens,
        "context": reading.context,
        "chat_template": reading.chat_template is not None,
        "warning": cost.warning,
    }
    emit.progress(3, 3, "steps", "frozen")
    return Output(
        figures=figures,
        artefacts=("freeze.json", "backbone.json", "head.json", "model.json", "tokenizer.json", "prompts.jsonl"),
        records={"freeze": record.to_dict()},
        summary=(
            f"{record.backbone_parameters / 1e6:.2f} M parameters and a {record.head_kind} head "
            f"(γ = {record.gamma}, {cost.own_share:.1%} of the backbone) are still"
        ),
    )


def _require_tokenizer(reading: Reading, path: Path) -> None:
    """Fail where the tokenizer makes tokens that the model does not have: it is another model's."""
    from tokenizers import Tokenizer

    try:
        highest = max(Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True).values(), default=-1)
    except Exception as error:  # tokenizers raises nothing narrower
        raise StageFailed(f"The tokenizer of {reading.name} cannot be read ({error}); save it again.") from error
    if not 0 <= highest < reading.vocab:
        raise StageFailed(
            f"The tokenizer has ids up to {highest} but {reading.name} has {reading.vocab} tokens, so it belongs to "
            "another model; give the tokenizer.json that belongs to the weights."
        )


def _write_prompts(path: Path, prompt_file: str, reading: Reading) -> None:
    """The prompts as the model is given them: a program on a phone knows no chat template.

    `bare` is the text before the template, and `system` says that a system prompt stands before it: LiteRT-LM's own
    program puts the template of its bundle around a text.
    """
    rows = [
        {
            "id": prompt.id,
            "class": prompt.prompt_class,
            "text": reading.text_of(prompt),
            **({"templated": True, "bare": prompt.text} if reading.templates(prompt) else {}),
            **({"system": True} if prompt.system and not prompt.raw else {}),
        }
        for prompt in load_prompts(prompt_file).prompts
    ]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def _write(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))
