"""Whether a model fits the memory of this machine, asked before anything large is read."""

from __future__ import annotations

import psutil

from mtplab.model.backbone import BackboneConfig
from mtplab.model.errors import ModelError

_FLOAT_BYTES = 4
# The weights as read and the weights in the module exist side by side for a moment.
_COPIES = 2


def parameter_count(config: BackboneConfig) -> int:
    """Distinct parameters of a backbone of this shape, without building it."""
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = config.d_model * (2 * query + 2 * key + 3 * config.ff + 2)
    layer += (query + 2 * key) * config.qkv_bias + config.d_model * config.o_bias
    layer += 2 * config.head_dim * config.qk_norm
    return config.layers * layer + config.d_model + config.vocab * config.d_model * (1 if config.tied else 2)


def require_memory(name: str, config: BackboneConfig, available_bytes: int | None = None) -> None:
    """Raise `ModelError` when loading would need more than what is free; by default that of this machine."""
    free = psutil.virtual_memory().available if available_bytes is None else available_bytes
    needed = parameter_count(config) * _FLOAT_BYTES * _COPIES
    if needed > free:
        raise ModelError(
            f"The model {name} has {parameter_count(config) / 1e9:.2f} billion parameters, which need about "
            f"{needed / 1e9:.1f} GB in float32 while they are loaded, but only {free / 1e9:.1f} GB are free; "
            "close other programs or use a smaller model."
        )
