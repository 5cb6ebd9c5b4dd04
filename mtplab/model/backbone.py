"""A decoder-only grouped-query transformer whose KV cache is an explicit input and output.

Two ways through the same weights: `forward` (batch 1, static cache, what is exported) and
`forward_sequence` (batched, no cache, what is trained). `hidden` is always the last layer's output
*before* the final norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import torch
import torch.nn as nn
import torch.nn.functional as F

from mtplab.model.errors import ModelError

# cache[1,KV,T,HD], new[1,KV,S,HD], input_pos[S] -> cache with `new` written at `input_pos`
CacheUpdate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

Activation = Literal["silu", "gelu_tanh"]

# Large enough that exp() of a masked score is exactly 0 in float32, small enough for int16 activations.
MASKED = -1e4


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True):
    """Llama 3's stretching of rotary frequencies: long waves are slowed by `factor`, short ones stay."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


class BackboneConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a llama-class backbone; round-trips through JSON.

    The fields after `norm_eps` are what Llama, Qwen and Gemma do differently; their defaults are the shipped tiny's.
    """

    vocab: int = 1024
    d_model: int = 128
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ff: int = 384
    context: int = 256
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise ModelError(
                f"A backbone with {self.heads} heads, {self.kv_heads} KV heads and head_dim {self.head_dim} "
                "cannot be built, because heads must be a multiple of KV heads and head_dim even; "
                "correct its config.json."
            )

    @classmethod
    def small(cls) -> BackboneConfig:
        """The shape of the shipped `tiny` model."""
        return cls()

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> BackboneConfig:
        """Raise `ModelError` when `text` is not a complete backbone configuration."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ModelError(
                f"The backbone configuration cannot be read ({error}); give a config.json written by mtplab."
            ) from error

    @classmethod
    def load(cls, path: Path) -> BackboneConfig:
        return cls.from_json(path.read_bytes())


def index_copy_update(cache: torch.Tensor, new: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
    """The cache update for torch; export injects one that becomes DYNAMIC_UPDATE_SLICE."""
    return cache.index_copy(2, input_pos.long(), new)


def cache_names(config: BackboneConfig) -> list[str]:
    """Names of the cache tensors, in the order k_0, v_0, k_1, …"""
    return [f"kv_cache_{kind}_{layer}" for layer in range(config.layers) for kind in ("k", "v")]


def empty_cache(config: BackboneConfig, batch: int = 1) -> dict[str, torch.Tensor]:
    """Zeroed caches, each [batch, KV, T, HD] float32, by name; exports have batch 1."""
    shape = (batch, config.kv_heads, config.context, config.head_dim)
    return {name: torch.zeros(shape) for name in cache_names(config)}


def rope_frequencies(config: BackboneConfig) -> torch.Tensor:
    """Angle per position of each pair, [HD/2]; scaled as transformers does for `rope_type` llama3."""
    frequencies = config.rope_theta ** -(torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    waves = scaling.original_context * frequencies / (2 * math.pi)
    smooth = (waves - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    smooth = smooth.clamp(0, 1)
    return frequencies * (smooth + (1 - smooth) / scaling.factor)


def rope_tables(config: BackboneConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [T, HD/2] of every position of the context."""
    angles = torch.outer(torch.arange(config.context).float(), rope_frequencies(config))
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Half-split rotary embedding of x[…, S, HD] with cos, sin [S, HD/2]."""
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def activate(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """The gate's activation."""
    return F.silu(x) if activation == "silu" else F.gelu(x, approximate="tanh")


class Attention(nn.Module):
    """Grouped-query attention, with and without a cache."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        width = config.heads * config.head_dim
        kv_width = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.d_model, width, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.d_model, kv_width, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.d_model, kv_width, bias=config.qkv_bias)
        self.o_proj = nn.Linear(width, config.d_model, bias=config.o_bias)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)

    def project(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x[B,S,D] to rotated q[B,H,S,HD], rotated k and plain v [B,KV,S,HD]."""
        config = self.config
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, config.heads, config.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
        if config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def merge(self, heads: torch.Tensor) -> torch.Tensor:
        """[B,H,S,HD] back to [B,S,D]."""
        batch, _, length, _ = heads.shape
        return self.o_proj(heads.transpose(1, 2).reshape(batch, length, -1))

    def cached(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Attend q[B,H,S,HD] to whole caches [B,KV,T,HD] under mask[S,T]; a group shares its KV head."""
        config = self.config
        batch, groups, length = q.shape[0], config.heads // config.kv_heads, q.shape[2]
        q = q.reshape(batch, config.kv_heads, groups * length, config.head_dim)
        scores = torch.matmul(q, k_cache.transpose(2, 3)) * config.head_dim**-0.5
        scores = scores.view(batch, config.kv_heads, groups, length, config.context) + mask
        weights = F.softmax(scores, dim=-1).view(batch, config.kv_heads, groups * length, config.context)
        return self.merge(torch.matmul(weights, v_cache).view(batch, config.heads, length, config.head_dim))

    def sequence(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention inside the sequence alone, batched."""
        groups = self.config.heads // self.config.kv_heads
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Block(nn.Module):
    """Pre-norm attention and gated feed-forward (SwiGLU, or GeGLU for Gemma)."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ff_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.gate_proj = nn.Linear(config.d_model, config.ff, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.ff, bias=False)
        self.down_proj = nn.Linear(config.ff, config.d_model, bias=False)

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.ff_norm(x)
        return x + self.down_proj(activate(self.gate_proj(y), self.activation) * self.up_proj(y))


class Backbone(nn.Module):
    """The transformer. Where input and output embedding are tied, the file holds the vocabulary once."""

    def __init__(self, config: BackboneConfig, cache_update: CacheUpdate = index_copy_update) -> None:
        super().__init__()
        self.config = config
        self.cache_update = cache_update
        self.embedding = nn.Embedding(config.vocab, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.lm_head = nn.Linear(config.d_model, config.vocab, bias=False)
        if config.tied:
            self.lm_head.weight = self.embedding.weight
        cos, sin = rope_tables(config)
        self.cos: torch.Tensor
        self.sin: torch.Tensor
        self.slots: torch.Tensor
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.register_buffer("slots", torch.arange(config.context, dtype=torch.int32), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        # Residual branches start small so that depth does not inflate the stream (GPT-2's rule).
        for block in self._blocks():
            for linear in (block.attention.o_proj, block.down_proj):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * self.config.layers))

    def _blocks(self) -> list[Block]:
        return [cast(Block, block) for block in self.blocks]

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor, **kv: torch.Tensor) -> dict[str, torch.Tensor]:
        """tokens[1,S] int32 at positions input_pos[S] int32, with all caches by name.

        A larger batch works too when all its rows stand at the same positions (text generation for training).
        Returns logits[1,S,V], hidden[1,S,D] and the caches under their own names. A query at position p
        sees the cache slots 0..p only, so stale slots beyond p never matter.
        """
        positions = input_pos.long()
        cos, sin = self.cos[positions], self.sin[positions]
        mask = torch.where(self.slots[None, :] <= input_pos[:, None], 0.0, MASKED)
        x = self.embed(tokens)
        caches: dict[str, torch.Tensor] = {}
        for layer, block in enumerate(self._blocks()):
            q, k, v = block.attention.project(block.attention_norm(x), cos, sin)
            k_name, v_name = f"kv_cache_k_{layer}", f"kv_cache_v_{layer}"
            caches[k_name] = self.cache_update(kv[k_name], k, input_pos)
            caches[v_name] = self.cache_update(kv[v_name], v, input_pos)
            x = block.feed_forward(x + block.attention.cached(q, caches[k_name], caches[v_name], mask))
        return {"logits": self.logits(x), "hidden": x, **caches}

    def forward_sequence(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens[B,S] from position 0 without a cache; returns logits[B,S,V], hidden[B,S,D]."""
        hidden = self.hidden_sequence(tokens)
        return self.logits(hidden), hidden

    def hidden_sequence(self, tokens: torch.Tensor) -> torch.Tensor:
        """hidden[B,S,D] of tokens[B,S], without the output projection."""
        return self.sequence_with_cache(tokens)[0]

    def sequence_with_cache(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """hidden[B,S,D] of tokens[B,S], and what the last layer writes into its cache: k, v [B,KV,S,HD]."""
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.embed(tokens)
        for block in self._blocks():
            q, k, v = block.attention.project(block.attention_norm(x), cos, sin)
            x = block.feed_forward(x + block.attention.sequence(q, k, v))
        return x, k, v

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the first layer reads for tokens[…]."""
        x = self.embedding(tokens)
        return x if self.config.embedding_scale == 1.0 else x * self.config.embedding_scale

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the token after each hidden state."""
        return self.lm_head(self.final_norm(hidden))

    def parameter_count(self) -> int:
        """Distinct parameters (the tied embedding counts once)."""
        return sum(parameter.numel() for parameter in self.parameters())


def own_state(backbone: Backbone) -> dict[str, Any]:
    """State as it is stored: a tied output projection only once."""
    tied = backbone.config.tied
    return {name: value for name, value in backbone.state_dict().items() if not (tied and name == "lm_head.weight")}
