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
    try:
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            return {name: file.get_tensor(name).float() for name in file.keys()}, metadata  # noqa: SIM118
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


def save_backbone(backbone: Backbone, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write the weights with the tied embedding stored once."""
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in own_state(backbone).items()}
    save_file(tensors, path, metadata={"mtplab_backbone": backbone.config.to_json()})


def load_backbone(path: Path, config: BackboneConfig) -> Backbone:
    """The backbone of `config` with the weights of `path`, float32, in eval mode."""
    backbone = Backbone(config)
    tensors, _ = read_tensors(path)
    assign(path.name, own_state(backbone), tensors)
    return backbone.eval()
