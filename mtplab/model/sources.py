"""Where models come from: `tiny` is shipped; everything else is refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mtplab.model.backbone import Backbone, BackboneConfig
from mtplab.model.files import BACKBONE, CONFIG, END_OF_TEXT_ID, TOKENIZER, model_files, model_folder
from mtplab.model.heads import Head, load_head
from mtplab.model.weights import load_backbone


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be frozen: weights in float32, eval mode, heads by family, hashes of every file."""

    name: str
    config: BackboneConfig
    backbone: Backbone
    tokenizer_path: Path
    heads: dict[str, Head]
    files: dict[str, str]
    end_token: int = END_OF_TEXT_ID


def load_model(spec: str) -> LoadedModel:
    """Load a supported model with all its heads; raises `ModelError` otherwise."""
    folder = model_folder(spec)
    return load_folder(folder, spec, model_files(spec))


def load_folder(folder: Path, name: str, files: dict[str, str]) -> LoadedModel:
    """Load the files of one model folder in float32."""
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
