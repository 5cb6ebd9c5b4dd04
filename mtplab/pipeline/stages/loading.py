"""What several host stages share: the frozen model, checked against its record, and real text as tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mtplab.model.prompts import Prompt, load_prompts
from mtplab.model.reading import Reading
from mtplab.pipeline.cache import file_sha256
from mtplab.pipeline.choices import Choice, HeadFile
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
    head: Choice


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


def load_chosen(spec: str) -> LoadedModel:
    """The model of a run. A `module:factory` is among them: the engine took it from the command line only."""
    from mtplab.model.sources import load_model

    return load_model(spec, from_command_line=True)


def choose_head(model: LoadedModel, choice: Choice) -> Head:
    """The model's head of that family, or the head in a file; refused with a sentence where it does not fit."""
    if isinstance(choice, HeadFile):
        return _head_of_file(model, choice)
    if choice not in model.heads:
        raise StageFailed(
            f"The model {model.name} has no {choice} head; choose one of {', '.join(model.heads) or 'none'}, "
            "or give a head's file with --head FILE."
        )
    return model.heads[choice]


def _head_of_file(model: LoadedModel, choice: HeadFile) -> Head:
    from mtplab.model.head_map import load_mapped_head, read_map
    from mtplab.model.heads import load_head

    for named in filter(None, (choice.file, choice.map)):
        if file_sha256(Path(named.path)) != named.sha256:
            name = Path(named.path).name
            raise StageFailed(f"The file {name} changed while the pipeline ran; start the run again.")
    path = Path(choice.file.path)
    if choice.map is None:
        return load_head(path, model.backbone)
    return load_mapped_head(path, read_map(Path(choice.map.path)), model.backbone)


def load_frozen(settings: ModelSettings, job: Job) -> tuple[LoadedModel, Head]:
    """Load the model again; backbone.json and head.json prove by hash that both are the frozen ones."""
    loaded = load_chosen(settings.model)
    require_files(loaded.name, loaded.files, settings.model_files)
    head = choose_head(loaded, settings.head)
    _require_frozen(loaded, job)
    frozen = msgspec.json.decode(job.input("head.json").read_bytes(), type=FrozenHead)
    _require_still(f"the head of {loaded.name}", head, frozen.head_sha256)
    return loaded, head


def load_frozen_backbone(spec: str, files: Mapping[str, str], job: Job) -> LoadedModel:
    """Like `load_frozen`, whatever the heads beside the backbone are."""
    from mtplab.model.files import without_heads
    loaded = load_chosen(spec)
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


def read_texts(prompt_file: str, tokenizer: Path, longest: int, reading: Reading | None = None) -> list[Text]:
    """Prompts with continuations as tokens, cut to `longest`; prompts without one stand alone.

    `reading` puts the model's chat template around them.
    """
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    texts = []
    for prompt in load_prompts(prompt_file).prompts:
        text = prompt.text if reading is None else reading.text_of(prompt)
        adds = reading is None or not reading.templates(prompt)
        alone = encoder.encode(text, add_special_tokens=adds).ids
        whole = encoder.encode(text + (prompt.continuation or ""), add_special_tokens=adds).ids
        # A word across the border may be cut differently; the continuation begins where both still agree.
        split = next((i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b), len(alone))
        texts.append(Text(prompt, whole[:longest], min(split, longest)))
    return texts
