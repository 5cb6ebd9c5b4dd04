"""What several host stages share: the frozen model, checked against its record, and real text as tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mtplab.model.prompts import Prompt, load_prompts
from mtplab.pipeline.job import StageFailed

if TYPE_CHECKING:
    from mtplab.model.heads import Head
    from mtplab.model.sources import LoadedModel


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Which weights were frozen: the part of the freeze record that does not depend on the policy."""

    backbone_sha256: str
    head_sha256: str
    head_kind: str
    gamma: int


class Text(msgspec.Struct, frozen=True):
    """A prompt with its real continuation, as tokens; `split` is where the continuation begins."""

    prompt: Prompt
    tokens: list[int]
    split: int


def use_one_thread() -> None:
    """Torch runs only tiny operations here; more threads than free cores would wait for each other."""
    import torch

    torch.set_num_threads(1)


def require_files(model: LoadedModel, expected: Mapping[str, str]) -> None:
    """Fail where the model's files are not the ones that the stage's key was made for."""
    if model.files != dict(expected):
        raise StageFailed(f"The files of the model {model.name} changed while the pipeline ran; start the run again.")


def choose_head(model: LoadedModel, kind: str, gamma: int) -> Head:
    """The model's head of that family, with that γ."""
    if kind not in model.heads:
        raise StageFailed(
            f"The model {model.name} has no {kind} head; choose one of {', '.join(model.heads) or 'none'}."
        )
    head = model.heads[kind]
    if head.gamma != gamma:
        raise StageFailed(
            f"The {kind} head of {model.name} is built for γ = {head.gamma}, not {gamma}; run with γ = {head.gamma}."
        )
    return head


def load_frozen(
    model: str, files: Mapping[str, str], kind: str, gamma: int, weights: Path
) -> tuple[LoadedModel, Head]:
    """Load the model again and prove by hash that it is the frozen one."""
    from mtplab.model.freeze import state_sha256
    from mtplab.model.sources import load_model

    loaded = load_model(model)
    require_files(loaded, files)
    head = choose_head(loaded, kind, gamma)
    for module in (loaded.backbone, head):
        module.requires_grad_(False)
        module.eval()
    frozen = msgspec.json.decode(weights.read_bytes(), type=Weights)
    if (state_sha256(loaded.backbone), state_sha256(head)) != (frozen.backbone_sha256, frozen.head_sha256):
        raise StageFailed(
            f"The weights of {model} are not the ones that were frozen, so no later figure would belong to them; "
            "run the freeze stage again."
        )
    return loaded, head


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
