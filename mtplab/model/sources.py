"""Where models come from: shipped, out of an installed package, a Hugging Face folder, or a factory of the user's."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import msgspec
import torch

from mtplab.model.backbone import Backbone, BackboneConfig, empty_cache
from mtplab.model.chat import render_chat
from mtplab.model.errors import ModelError
from mtplab.model.files import (
    BACKBONE,
    CONFIG,
    END_OF_TEXT_ID,
    SMOLLM2,
    TOKENIZER,
    is_factory,
    is_folder,
    model_files,
    model_folder,
)
from mtplab.model.gguf_source import load_gguf
from mtplab.model.heads import Head, load_head
from mtplab.model.hf_source import load_hf
from mtplab.model.reading import Reading
from mtplab.model.weights import load_backbone
from mtplab.session.paths import cache_dir

_PROBE_TOKENS = 4


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to be frozen: weights in float32, eval mode, heads by family, hashes of every file."""

    name: str
    config: BackboneConfig
    backbone: Backbone
    tokenizer_path: Path
    heads: dict[str, Head]
    files: dict[str, str]
    end_token: int = END_OF_TEXT_ID
    end_tokens: tuple[int, ...] = ()
    """All tokens that end an answer, where there are more than `end_token`."""
    chat_template: str | None = None
    special_tokens: dict[str, str] = {}

    def reading(self) -> Reading:
        """What the stages after freezing know of the model."""
        return Reading(
            name=self.name,
            vocab=self.config.vocab,
            context=self.config.context,
            end_tokens=sorted({self.end_token, *self.end_tokens}),
            chat_template=self.chat_template,
            special_tokens=self.special_tokens,
        )

    def chat(self, prompt: str, system: str | None = None) -> str:
        """`prompt` inside the model's own chat template; as it is where the model has none."""
        if self.chat_template is None:
            return prompt if system is None else f"{system}\n\n{prompt}"
        return render_chat(self.chat_template, prompt, system, **self.special_tokens)


def load_model(spec: str, *, from_command_line: bool = False) -> LoadedModel:
    """Load a model with all its heads: `tiny`, `smollm2`, or a Hugging Face folder.

    `module:factory` is taken from the command line only, since it runs the user's own code: a session that somebody
    mailed must never do that. Raises `ModelError` with one sentence. Nothing is downloaded and nothing is unpickled.
    """
    if is_factory(spec) and from_command_line:
        return _load_factory(spec)
    folder = model_folder(spec)
    if spec == SMOLLM2:
        return _load_smollm2(folder)
    if is_folder(spec):
        return _load_hf(folder, model_files(spec))
    return load_folder(folder, spec, model_files(spec))


def load_folder(folder: Path, name: str, files: dict[str, str]) -> LoadedModel:
    """Load the files of one model folder in mtplab's own form, in float32."""
    config = BackboneConfig.load(folder / CONFIG)
    backbone = load_backbone(folder / BACKBONE, config)
    return LoadedModel(
        name=name,
        config=config,
        backbone=backbone,
        tokenizer_path=folder / TOKENIZER,
        heads=_heads(folder, backbone),
        files=files,
    )


def _heads(folder: Path, backbone: Backbone) -> dict[str, Head]:
    return {
        path.stem.removeprefix("head_"): load_head(path, backbone)
        for path in sorted(folder.glob("head_*.safetensors"))
    }


def _load_hf(folder: Path, files: dict[str, str]) -> LoadedModel:
    source = load_hf(folder)
    return LoadedModel(
        name=folder.resolve().name,
        config=source.backbone.config,
        backbone=source.backbone,
        tokenizer_path=folder / TOKENIZER,
        heads=_heads(folder, source.backbone),
        files=files,
        end_token=source.end_token,
        end_tokens=source.end_tokens,
        chat_template=source.chat_template,
        special_tokens=source.special_tokens,
    )


def _load_factory(spec: str) -> LoadedModel:
    """`module:factory`: a callable without arguments that returns a `LoadedModel`.

    Its backbone is `mtplab.model.backbone.Backbone`, or a subclass that keeps the contract of "Graphs" in
    CONTRIBUTING.md, which is proven here: reading tokens through the cache gives what reading them at once gives.
    """
    module, _, name = spec.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:  # whatever the user's own code raises
        raise ModelError(
            f"The factory {spec} did not give a model ({type(error).__name__}: {error}); correct it, or put its "
            "module on PYTHONPATH."
        ) from error
    if not isinstance(made, LoadedModel) or not isinstance(made.backbone, Backbone):
        raise ModelError(
            f"The factory {spec} returned {type(made).__name__} and no LoadedModel with a Backbone; see "
            "mtplab.model.sources."
        )
    _require_contract(spec, made.backbone)
    return msgspec.structs.replace(made, files=model_files(spec))


@torch.no_grad()
def _require_contract(spec: str, backbone: Backbone) -> None:
    tokens = torch.arange(1, _PROBE_TOKENS + 1)[None] % backbone.config.vocab
    at_once, _ = backbone.eval().forward_sequence(tokens)
    positions = torch.arange(_PROBE_TOKENS, dtype=torch.int32)
    cached = backbone(tokens.int(), positions, **empty_cache(backbone.config))["logits"]
    if not torch.allclose(at_once, cached, atol=1e-3, rtol=1e-3):
        raise ModelError(
            f"The model of {spec} says something else through its KV cache than without, so draft and verification "
            "would not agree; correct its forward."
        )


def _load_smollm2(folder: Path) -> LoadedModel:
    source = load_gguf()
    return LoadedModel(
        name=SMOLLM2,
        config=source.backbone.config,
        backbone=source.backbone,
        tokenizer_path=_kept_tokenizer(source.tokenizer.to_str(), source.sha256),
        heads=_heads(folder, source.backbone),
        files=model_files(SMOLLM2),
        end_token=source.end_token,
        chat_template=source.chat_template,
    )


def _kept_tokenizer(text: str, sha256: str) -> Path:
    """A GGUF keeps its tokenizer inside; the stages want a file, so it is written once into the cache."""
    folder = cache_dir() / "tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sha256[:32]}.json"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    return path
