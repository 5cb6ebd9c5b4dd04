"""Whether a model fits the memory of this machine, asked before anything large is read."""

from __future__ import annotations

import psutil

from mtplab.model.backbone import BackboneConfig
from mtplab.model.errors import ModelError

_FLOAT_BYTES = 4
# The weights as read and the weights in the module exist side by side for a moment.
_COPIES = 2
# Seen when SmolLM2 was converted: 3.3 GB at the peak for 0.54 GB of weights, of which the converter itself takes 0.6.
_EXPORT_COPIES = 5
_CONVERTER_BYTES = 600_000_000


def parameter_count(config: BackboneConfig) -> int:
    """Distinct parameters of a backbone of this shape, without building it."""
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = config.d_model * (2 * query + 2 * key + 3 * config.ff + 2)
    layer += (query + 2 * key) * config.qkv_bias + config.d_model * config.o_bias
    layer += 2 * config.head_dim * config.qk_norm
    return config.layers * layer + config.d_model + config.vocab * config.d_model * (1 if config.tied else 2)


def require_memory(name: str, config: BackboneConfig, available_bytes: int | None = None) -> None:
    """Raise `ModelError` when loading would need more than what is free; by default that of this machine."""
    needed = parameter_count(config) * _FLOAT_BYTES * _COPIES
    _require(name, config, needed, "loaded", available_bytes)


def require_export_memory(name: str, config: BackboneConfig, available_bytes: int | None = None) -> None:
    """Like `require_memory`, for the conversion of a model that is loaded already; asked before it begins."""
    needed = parameter_count(config) * _FLOAT_BYTES * _EXPORT_COPIES + _CONVERTER_BYTES
    _require(name, config, needed, "converted", available_bytes)


def _require(name: str, config: BackboneConfig, needed: int, when: str, available_bytes: int | None) -> None:
    free = psutil.virtual_memory().available if available_bytes is None else available_bytes
    if needed > free:
        raise ModelError(
            f"The model {name} has {parameter_count(config) / 1e9:.2f} billion parameters, which need about "
            f"{needed / 1e9:.1f} GB in float32 while they are {when}, but only {free / 1e9:.1f} GB are free; "
            "close other programs or use a smaller model."
        )
