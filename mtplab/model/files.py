"""Which files make a model, and their hashes; needs no torch, so that cache keys and readiness checks stay light."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mtplab.model.errors import ModelError

_SHIPPED = Path(__file__).parent
SUPPORTED = ("tiny",)
CONFIG, TOKENIZER, BACKBONE = "config.json", "tokenizer.json", "backbone.safetensors"
END_OF_TEXT_ID = 0


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
