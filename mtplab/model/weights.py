"""Reading and writing weights: safetensors only, because opening a pickle can run code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mtplab.model.backbone import Backbone, BackboneConfig, own_state
from mtplab.model.errors import ModelError


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, str]]:
    """All tensors in float32 and the metadata of a safetensors file; raises `ModelError` for other files."""
    tensors, metadata = read_stored(path)
    return {name: value.float() for name, value in tensors.items()}, metadata


def read_stored(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, str]]:
    """Like `read_tensors`, but every tensor in the type it is stored in."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"The weights {path.name} cannot be opened as safetensors ({error}); pickled checkpoints are refused "
            "because opening one can run code, so convert the file to safetensors first."
        ) from error


def assign(module_name: str, expected: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
    """Copy `given` into `expected` by name; raises `ModelError` unless names and shapes are the same."""
    wrong = sorted(
        name
        for name in {*expected, *given}
        if name not in expected or name not in given or expected[name].shape != given[name].shape
    )
    if wrong:
        raise ModelError(
            f"The weights of {module_name} do not fit its configuration (first at {wrong[0]}); "
            "use the file that belongs to this config.json."
        )
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(given[name])


def refuse_nan(name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise `ModelError` when a weight is not a finite number: every figure after it would be noise."""
    broken = next((key for key, value in tensors.items() if not bool(torch.isfinite(value).all())), None)
    if broken is not None:
        raise ModelError(
            f"The weights of {name} hold values that are no finite numbers (first in {broken}), as after an overflow "
            "in fp16; save the checkpoint again from its float32 or bfloat16 weights."
        )


def save_backbone(backbone: Backbone, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write the weights with the tied embedding stored once."""
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in own_state(backbone).items()}
    save_file(tensors, path, metadata={"mtplab_backbone": backbone.config.to_json()})


def load_backbone(path: Path, config: BackboneConfig) -> Backbone:
    """The backbone of `config` with the weights of `path`, float32, in eval mode."""
    backbone = Backbone(config)
    tensors, _ = read_tensors(path)
    refuse_nan(path.name, tensors)
    assign(path.name, own_state(backbone), tensors)
    return backbone.eval()
