"""A local Hugging Face folder of a llama-class model: config.json, safetensors and tokenizer.json on this disk.

Handled: Llama (with its llama3 rotary scaling and attention bias), Mistral without a sliding window, Qwen2 (bias on
q, k, v), Qwen3 (norms on q and k), Gemma (norms count from 1, scaled embedding, GELU gate). Everything else that
would change the arithmetic is refused with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from mtplab.model.backbone import Activation, Backbone, BackboneConfig, RopeScaling, own_state
from mtplab.model.errors import ModelError
from mtplab.model.files import CONFIG, STATIC_CONTEXT, TOKENIZER
from mtplab.model.memory import require_memory
from mtplab.model.weights import assign, refuse_nan

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma")
_WHY_NOT = {
    "gemma2": "it caps its logits and alternates sliding windows",
    "gemma3": "it alternates sliding windows with rotary bases of their own",
    "gemma3_text": "it alternates sliding windows with rotary bases of their own",
    "phi3": "it joins its projections into one tensor",
    "mixtral": "it routes tokens through experts",
    "qwen2_moe": "it routes tokens through experts",
}
_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
# Drafting weights inside a checkpoint are mapped by their own command; stored rotary tables are computed anew.
_NOT_BACKBONE = re.compile(r"(^|\.)(mtp|medusa\w*|nextn\w*|draft\w*)(\.|$)|rotary_emb\.inv_freq$")
_LAYER = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "attention.q_proj",
    "self_attn.k_proj": "attention.k_proj",
    "self_attn.v_proj": "attention.v_proj",
    "self_attn.o_proj": "attention.o_proj",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "mlp.gate_proj": "gate_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "down_proj",
}


class FolderModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a Hugging Face folder holds, in this project's form."""

    backbone: Backbone
    end_token: int
    end_tokens: tuple[int, ...]
    """All that the generation settings name beside it."""
    chat_template: str | None
    special_tokens: dict[str, str]


def load_hf(folder: Path, context: int = STATIC_CONTEXT) -> FolderModel:
    """Read the folder in float32; raises `ModelError` for what is missing, broken, too big or not llama-class."""
    raw = _json(folder / CONFIG)
    config = read_config(folder.name, raw, context)
    tokenizer = _tokenizer(folder, config)
    require_memory(folder.name, config)
    tensors = dict(_tensors(folder, config, norm_offset=1.0 if raw["model_type"] == "gemma" else 0.0))
    refuse_nan(folder.name, tensors)
    backbone = Backbone(config)
    assign(folder.name, own_state(backbone), tensors)
    words = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    special = {name: text for name in ("bos_token", "eos_token") if (text := _content(words.get(name)))}
    return FolderModel(
        backbone=backbone.eval(),
        end_token=_end_token(folder, raw, tokenizer, special),
        end_tokens=tuple(token for token in _named_ends(folder, raw) if 0 <= token < config.vocab),
        chat_template=_chat_template(folder, words),
        special_tokens=special,
    )


def read_config(name: str, raw: dict[str, Any], context: int) -> BackboneConfig:
    """The backbone of a Hugging Face config.json, with a static cache of at most `context` tokens."""
    family = raw.get("model_type")
    if family not in _FAMILIES:
        because = _WHY_NOT.get(str(family), "its arithmetic is not known here")
        raise ModelError(
            f"The model in {name} is of type {family!r}, which cannot be loaded: {because}; supported are "
            f"{', '.join(_FAMILIES)}, or give module:factory."
        )
    _refuse_changes(name, raw, context)
    try:
        heads, width = int(raw["num_attention_heads"]), int(raw["hidden_size"])
        biased = bool(raw.get("attention_bias", False))
        return BackboneConfig(
            vocab=int(raw["vocab_size"]),
            d_model=width,
            layers=int(raw["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or width // heads),
            ff=int(raw["intermediate_size"]),
            context=min(context, int(raw.get("max_position_embeddings", context))),
            rope_theta=float(_rope(raw).get("rope_theta", 10_000.0)),
            norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            tied=bool(raw.get("tie_word_embeddings", family == "gemma")),
            qkv_bias=family == "qwen2" or biased,
            o_bias=biased and family != "qwen2",
            qk_norm=family == "qwen3",
            activation=_activation(name, raw),
            embedding_scale=width**0.5 if family == "gemma" else 1.0,
            rope_scaling=_scaling(name, _rope(raw)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"The config.json of {name} is not complete ({type(error).__name__}: {error}); "
            "copy it from the checkpoint again."
        ) from error


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings: newer files have rope_parameters, older ones rope_theta beside rope_scaling."""
    old = raw.get("rope_scaling") or {}
    new = raw.get("rope_parameters") or {}
    base = {"rope_theta": raw["rope_theta"]} if raw.get("rope_theta") is not None else {}
    return {**base, **old, **new}


def _scaling(name: str, rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", None):
        return None
    if kind != "llama3":
        raise ModelError(
            f"The model in {name} scales its rotary positions by {kind!r}, which cannot be loaded; only llama3 is."
        )
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )


def _activation(name: str, raw: dict[str, Any]) -> Activation:
    # Gemma's first files say "gelu" and mean the tanh form, as transformers reads them.
    given = raw.get("hidden_activation") or raw.get("hidden_act", "silu")
    if raw["model_type"] == "gemma":
        given = "gelu_pytorch_tanh"
    if given not in _ACTIVATIONS:
        raise ModelError(
            f"The model in {name} has the activation {given!r}; only {', '.join(_ACTIVATIONS)} can be loaded."
        )
    return _ACTIVATIONS[given]


def _refuse_changes(name: str, raw: dict[str, Any], context: int) -> None:
    """Settings that change the arithmetic and are not handled."""
    window = raw.get("sliding_window") if raw.get("use_sliding_window", raw["model_type"] == "mistral") else None
    refused = {
        "is quantised already (quantization_config)": raw.get("quantization_config") is not None,
        "has a bias in its feed-forward part (mlp_bias)": bool(raw.get("mlp_bias")),
        f"looks back only {window} tokens (sliding_window)": window is not None and int(window) < context,
        "rotates only a part of each head (partial_rotary_factor)": raw.get("partial_rotary_factor", 1.0) != 1.0,
    }
    for what, given in refused.items():
        if given:
            raise ModelError(
                f"The model in {name} {what}, which cannot be loaded; give a plain checkpoint or module:factory."
            )


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path.name} in {path.parent.name} cannot be read ({error}); a model folder needs config.json, "
            "*.safetensors and tokenizer.json."
        ) from error


def _tokenizer(folder: Path, config: BackboneConfig) -> Any:
    """The tokenizer, refused when it is another model's."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    if not path.is_file():
        raise ModelError(f"{folder.name} has no tokenizer.json; save the fast tokenizer of the model there.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(f"The tokenizer.json of {folder.name} cannot be read ({error}); save it again.") from error
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if not config.vocab // 2 <= highest + 1 <= config.vocab:
        raise ModelError(
            f"The tokenizer in {folder.name} has ids up to {highest} but the model has {config.vocab} tokens, so it "
            "belongs to another model; copy the right tokenizer.json."
        )
    return tokenizer


def _tensors(folder: Path, config: BackboneConfig, norm_offset: float) -> Iterator[tuple[str, torch.Tensor]]:
    """Our names and float32 tensors of every safetensors file of the folder."""
    paths = [path for path in sorted(folder.glob("*.safetensors")) if not path.name.startswith("head_")]
    if not paths:
        raise ModelError(
            f"{folder.name} has no safetensors; pickled checkpoints (*.bin, *.pt) are refused because opening one "
            "can run code, so convert it to safetensors first."
        )
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if _NOT_BACKBONE.search(name):
                        continue
                    ours = our_name(name)
                    if ours == "lm_head.weight" and config.tied:
                        continue  # a copy of the embedding
                    value = file.get_tensor(name).float()
                    yield ours, value + norm_offset if ours.endswith("norm.weight") else value
        except (OSError, SafetensorError) as error:
            raise ModelError(f"The weights {path.name} cannot be opened ({error}); copy them again.") from error


def our_name(name: str) -> str:
    """Our parameter name of a Hugging Face tensor; a name that is not known stays as it is and will not fit."""
    plain = name.removeprefix("model.")
    fixed = {"embed_tokens.weight": "embedding.weight", "norm.weight": "final_norm.weight"}
    if plain in fixed:
        return fixed[plain]
    found = re.fullmatch(r"layers\.(\d+)\.(.+)\.(weight|bias)", plain)
    if found and found[2] in _LAYER:
        return f"blocks.{found[1]}.{_LAYER[found[2]]}.{found[3]}"
    return plain


def _content(token: Any) -> str | None:
    """The text of a special token, which stands bare or in an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _end_token(folder: Path, raw: dict[str, Any], tokenizer: Any, special: dict[str, str]) -> int:
    """What ends an answer: the tokenizer's eos_token, else what generation_config.json or config.json say first."""
    known = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    end = known if known is not None else next(iter(_named_ends(folder, raw)), None)
    if not isinstance(end, int) or not 0 <= end < int(raw["vocab_size"]):
        raise ModelError(
            f"{folder.name} does not say which token ends a text; set eos_token_id in its generation_config.json."
        )
    return end


def _named_ends(folder: Path, raw: dict[str, Any]) -> list[int]:
    path = folder / "generation_config.json"
    said = (_json(path) if path.is_file() else {}).get("eos_token_id")
    said = raw.get("eos_token_id") if said is None else said
    return [token for token in (said if isinstance(said, list) else [said]) if isinstance(token, int)]


def _chat_template(folder: Path, words: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    given = words.get("chat_template")
    if isinstance(given, list):  # several by name
        named = {one.get("name"): one.get("template") for one in given if isinstance(one, dict)}
        given = named.get("default")
    return given if isinstance(given, str) else None
