"""What several host stages share: the frozen model, checked against its record, and real text as tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mtplab.model.prompts import Prompt, load_prompts
from mtplab.pipeline.job import Job, StageFailed

if TYPE_CHECKING:
    from mtplab.model.heads import Head
    from mtplab.model.sources import LoadedModel


class FrozenBackbone(msgspec.Struct, frozen=True, kw_only=True):
    """Which backbone was frozen: the part of the freeze record that depends neither on head nor on policy."""

    backbone_sha256: str


class FrozenHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which head was frozen; a draft length is no part of it, since its weights are the same for all."""

    head_sha256: str
    head_kind: str


class ModelSettings(msgspec.Struct, frozen=True):
    """Parameters of every stage that loads the model with its head."""

    model: str
    model_files: dict[str, str]
    head: str


class Text(msgspec.Struct, frozen=True):
    """A prompt with its real continuation, as tokens; `split` is where the continuation begins."""

    prompt: Prompt
    tokens: list[int]
    split: int


def use_one_thread() -> None:
    """Torch runs only tiny operations here; more threads than free cores would wait for each other."""
    import torch

    torch.set_num_threads(1)


def require_files(name: str, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Fail where the model's files are not the ones that the stage's key was made for."""
    if dict(found) != dict(expected):
        raise StageFailed(f"The files of the model {name} changed while the pipeline ran; start the run again.")


def choose_head(model: LoadedModel, kind: str) -> Head:
    """The model's head of that family."""
    if kind not in model.heads:
        raise StageFailed(
            f"The model {model.name} has no {kind} head; choose one of {', '.join(model.heads) or 'none'}."
        )
    return model.heads[kind]


def load_frozen(settings: ModelSettings, job: Job) -> tuple[LoadedModel, Head]:
    """Load the model again; backbone.json and head.json prove by hash that both are the frozen ones."""
    from mtplab.model.sources import load_model

    loaded = load_model(settings.model)
    require_files(loaded.name, loaded.files, settings.model_files)
    head = choose_head(loaded, settings.head)
    _require_frozen(loaded, job)
    frozen = msgspec.json.decode(job.input("head.json").read_bytes(), type=FrozenHead)
    _require_still(settings.model, head, frozen.head_sha256)
    return loaded, head


def load_frozen_backbone(spec: str, files: Mapping[str, str], job: Job) -> LoadedModel:
    """Like `load_frozen`, whatever the heads beside the backbone are."""
    from mtplab.model.files import without_heads
    from mtplab.model.sources import load_model

    loaded = load_model(spec)
    require_files(loaded.name, without_heads(loaded.files), files)
    _require_frozen(loaded, job)
    return loaded


def _require_frozen(model: LoadedModel, job: Job) -> None:
    frozen = msgspec.json.decode(job.input("backbone.json").read_bytes(), type=FrozenBackbone)
    _require_still(model.name, model.backbone, frozen.backbone_sha256)


def _require_still(name: str, module: Any, sha256: str) -> None:
    from mtplab.model.freeze import state_sha256

    module.requires_grad_(False)
    module.eval()
    if state_sha256(module) != sha256:
        raise StageFailed(
            f"The weights of {name} are not the ones that were frozen, so no later figure would belong to them; "
            "run the freeze stage again."
        )


def read_texts(prompt_file: str, tokenizer: Path, longest: int) -> list[Text]:
    """Prompts with continuations as tokens, cut to `longest`; prompts without one stand alone."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    texts = []
    for prompt in load_prompts(prompt_file).prompts:
        alone = encoder.encode(prompt.text).ids
        whole = encoder.encode(prompt.text + (prompt.continuation or "")).ids
        # A word across the border may be cut differently; the continuation begins where both still agree.
        split = next((i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b), len(alone))
        texts.append(Text(prompt, whole[:longest], min(split, longest)))
    return texts
