"""Where models come from: `tiny` is shipped; everything else is refused with a sentence.

`model_files` needs no torch, so that cache keys and readiness checks stay light.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mtplab.model.errors import ModelError

if TYPE_CHECKING:
    from mtplab.model.backbone import Backbone, BackboneConfig
    from mtplab.model.heads import Head

_SHIPPED = Path(__file__).parent
SUPPORTED = ("tiny",)
CONFIG, TOKENIZER, BACKBONE = "config.json", "tokenizer.json", "backbone.safetensors"
END_OF_TEXT_ID = 0


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be frozen: weights in float32, eval mode, heads by family, hashes of every file."""

    name: str
    config: BackboneConfig
    backbone: Backbone
    tokenizer_path: Path
    heads: dict[str, Head]
    files: dict[str, str]
    end_token: int = END_OF_TEXT_ID


def model_folder(spec: str) -> Path:
    """The folder of a model; raises `ModelError` for anything but a supported name."""
    if spec not in SUPPORTED:
        raise ModelError(
            f"The model {spec!r} is not known; supported is {', '.join(SUPPORTED)}, which is shipped with mtplab."
        )
    folder = _SHIPPED / spec
    missing = [name for name in (CONFIG, TOKENIZER, BACKBONE) if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"The model {spec} lacks {', '.join(missing)}, so the installation is incomplete; install mtplab again."
        )
    return folder


def model_files(spec: str | Path) -> dict[str, str]:
    """sha256 of every file that decides the behaviour of a model (name, or its folder). Imports no torch."""
    folder = spec if isinstance(spec, Path) else model_folder(spec)
    names = [CONFIG, TOKENIZER, BACKBONE, *sorted(path.name for path in folder.glob("head_*.safetensors"))]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def load_model(spec: str) -> LoadedModel:
    """Load a supported model with all its heads; raises `ModelError` otherwise."""
    folder = model_folder(spec)
    return load_folder(folder, spec, model_files(spec))


def load_folder(folder: Path, name: str, files: dict[str, str]) -> LoadedModel:
    """Load the files of one model folder in float32."""
    from mtplab.model.backbone import BackboneConfig
    from mtplab.model.heads import load_head
    from mtplab.model.weights import load_backbone

    config = BackboneConfig.load(folder / CONFIG)
    backbone = load_backbone(folder / BACKBONE, config)
    heads = {
        path.stem.removeprefix("head_"): load_head(path, backbone)
        for path in sorted(folder.glob("head_*.safetensors"))
    }
    return LoadedModel(
        name=name,
        config=config,
        backbone=backbone,
        tokenizer_path=folder / TOKENIZER,
        heads=heads,
        files=files,
    )
