"""The backbone's arithmetic as it will be deployed, batched and fast, for the text and states that heads learn from.

`int8` repeats what a dynamic int8 LiteRT graph computes (weights symmetric per output channel, activations asymmetric
per row) in float32: products and sums of these integers are exact there, so only the last scaling rounds differently.
`int8_weights` rounds the weights alone, which costs nothing here.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import torch
import torch.nn.functional as F

from mtplab.model.backbone import Backbone, Block, activate, rotate
from mtplab.model.errors import ModelError

States = Literal["float", "int8", "int8_weights"]


def int8_weight(weight: torch.Tensor) -> torch.Tensor:
    """`weight` [out, in] rounded to 255 levels per output channel, symmetric, and scaled back."""
    scale = (weight.abs().amax(dim=1, keepdim=True) / 127).clamp(min=1e-12)
    return (weight / scale).round().clamp(-127, 127) * scale


def int8_rows(x: torch.Tensor) -> torch.Tensor:
    """x[…, D] rounded to 256 levels per row between its minimum and maximum, zero included, and scaled back."""
    low = x.amin(dim=-1, keepdim=True).clamp(max=0)
    high = x.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-12)
    zero = (-128 - low / scale).round()
    return ((x / scale).round_().add_(zero).clamp_(-128, 127).sub_(zero)).mul_(scale)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One text with what the backbone thought at every position: choices[p] is its own token p+1."""

    tokens: torch.Tensor
    """int64 [n]: the prompt and what was generated, with the end token where it came."""
    choices: torch.Tensor
    """int64 [n], -1 where nobody asked"""
    hidden: torch.Tensor
    """[n, D] before the final norm"""
    k: torch.Tensor
    """[KV, n, HD] of the last layer, rotated as in the cache"""
    v: torch.Tensor
    prompt_length: int


class _Layer:
    """One block with its projections joined, so that a row costs four matrix products."""

    def __init__(self, block: Block, states: States) -> None:
        attention = block.attention
        self.block, self.states = block, states
        qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.qkv = self._weight(torch.cat([one.weight for one in qkv]))
        self.qkv_bias = torch.cat([one.bias for one in qkv]) if attention.config.qkv_bias else None
        self.o, self.o_bias = self._weight(attention.o_proj.weight), attention.o_proj.bias
        self.up = self._weight(torch.cat([block.gate_proj.weight, block.up_proj.weight]))
        self.down = self._weight(block.down_proj.weight)

    def _weight(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self.states == "float" else int8_weight(weight)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return F.linear(int8_rows(x) if self.states == "int8" else x, weight, bias)


class DeployedBackbone:
    """Batched greedy generation over `backbone` in the arithmetic of `states`; the backbone itself is left alone."""

    @torch.no_grad()
    def __init__(self, backbone: Backbone, states: States = "int8") -> None:
        self.backbone, self.config, self.states = backbone, backbone.config, states
        self.layers = [_Layer(block, states) for block in backbone.blocks]
        quantised = states != "float"
        self.embedding = int8_weight(backbone.embedding.weight) if quantised else backbone.embedding.weight
        if self.config.tied:
            self.lm_head = self.embedding
        else:
            self.lm_head = int8_weight(backbone.lm_head.weight) if quantised else backbone.lm_head.weight

    def logits(self, hidden: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits[…, V] after hidden[…, D]; of the vocabulary entries `rows` only, where given."""
        x = self.backbone.final_norm(hidden)
        weight = self.lm_head if rows is None else self.lm_head[rows]
        return F.linear(int8_rows(x) if self.states == "int8" else x, weight)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        caches: list[torch.Tensor],
        start: int,
    ) -> torch.Tensor:
        """hidden[B,S,D] of tokens, positions [B,S] under mask[B,1,S,start+S].

        Caches per layer [2,B,KV,T,HD] are written from slot `start` on.
        """
        config, (batch, length) = self.config, tokens.shape
        cos, sin = self.backbone.cos[positions][:, None], self.backbone.sin[positions][:, None]
        kv_width, end = config.kv_heads * config.head_dim, start + length
        x = F.embedding(tokens, self.embedding)
        if config.embedding_scale != 1.0:
            x = x * config.embedding_scale
        for layer, cache in zip(self.layers, caches, strict=True):
            block, attention = layer.block, layer.block.attention
            joined = layer.linear(block.attention_norm(x), layer.qkv, layer.qkv_bias)
            q, k, v = joined.split([config.heads * config.head_dim, kv_width, kv_width], dim=-1)
            q = q.view(batch, length, config.heads, config.head_dim).transpose(1, 2)
            k = k.view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
            if config.qk_norm:
                q, k = attention.q_norm(q), attention.k_norm(k)
            cache[0, :, :, start:end] = rotate(k, cos, sin)
            cache[1, :, :, start:end] = v.view(batch, length, config.kv_heads, config.head_dim).transpose(1, 2)
            seen = F.scaled_dot_product_attention(
                rotate(q, cos, sin), cache[0, :, :, :end], cache[1, :, :, :end], attn_mask=mask, enable_gqa=True
            )
            x = x + layer.linear(seen.transpose(1, 2).reshape(batch, length, -1), layer.o, layer.o_bias)
            gate, up = layer.linear(block.ff_norm(x), layer.up).split(config.ff, dim=-1)
            x = x + layer.linear(activate(gate, config.activation) * up, layer.down)
        return x

    def texts(self, prompts: list[list[int]], new_tokens: int, end_token: int | None) -> list[Row]:
        """Continue every prompt greedily by up to `new_tokens`; a text ends with the end token where that comes.

        Choices inside the prompts are not computed and stand as -1.
        """
        batch = _Batch(self, prompts, new_tokens)
        batch.read_prompts()
        batch.generate(end_token)
        return batch.rows()

    def score(self, texts: list[list[int]]) -> list[Row]:
        """States and choices of every token of given texts; a row's `prompt_length` is 1."""
        batch = _Batch(self, texts, 0)
        batch.read_prompts(choose=True)
        return [msgspec.structs.replace(row, prompt_length=1) for row in batch.rows()]


class _Batch:
    """Texts on their way through the backbone side by side.

    What all prompts begin with (a chat template's system prompt) is read once and stands at the left edge of every
    row; the rest of shorter prompts stands at the right, behind slots that are masked.
    """

    @torch.no_grad()
    def __init__(self, deployed: DeployedBackbone, prompts: list[list[int]], new_tokens: int) -> None:
        config = deployed.config
        self.deployed, self.prompts, self.new_tokens = deployed, prompts, new_tokens
        self.widest = max(map(len, prompts))
        self.total = self.widest + new_tokens
        if self.total > config.context:
            raise ModelError(
                f"A prompt of {self.widest} tokens and {new_tokens} new ones do not fit the context of "
                f"{config.context}; shorten the prompt or the output limit."
            )
        self.common = common_prefix(prompts)
        count = len(prompts)
        self.gap = torch.tensor([self.widest - len(prompt) for prompt in prompts])
        self.tokens = torch.zeros(count, self.total, dtype=torch.long)
        self.choices = torch.full((count, self.total), -1)
        self.hidden = torch.zeros(count, self.total, config.d_model)
        for row, prompt in enumerate(prompts):
            rest = prompt[self.common :]
            self.tokens[row, : self.common] = torch.tensor(prompt[: self.common])
            self.tokens[row, self.widest - len(rest) : self.widest] = torch.tensor(rest)
        shape = (2, count, config.kv_heads, self.total, config.head_dim)
        self.caches = [torch.zeros(shape) for _ in deployed.layers]
        slots = torch.arange(self.total)
        self.real = (slots < self.common) | (slots >= self.common + self.gap[:, None])
        self.ends = torch.full((count,), self.total)

    @torch.no_grad()
    def read_prompts(self, choose: bool = False) -> None:
        """Fill caches and states of the prompts; with `choose`, the choices after every token of them too."""
        common, widest = self.common, self.widest
        if common:
            slots = torch.arange(common)
            mask = (slots[None] <= slots[:, None])[None, None]
            caches = [cache[:, :1] for cache in self.caches]
            self.hidden[:, :common] = self.deployed.forward(self.tokens[:1, :common], slots[None], mask, caches, 0)
            for cache in self.caches:
                cache[:, :, :, :common] = cache[:, :1, :, :common].clone()
        slots = torch.arange(common, widest)
        # A masked slot still needs something to look at, or its softmax is not a number.
        itself = torch.arange(widest) == slots[:, None]
        mask = (torch.arange(widest) <= slots[:, None]) & self.real[:, None, :widest] | itself
        positions = (slots - self.gap[:, None]).clamp(min=0)
        read = self.deployed.forward(self.tokens[:, common:widest], positions, mask[:, None], self.caches, common)
        self.hidden[:, common:widest] = read
        for slot in range(0 if choose else widest - 1, widest):
            self.choices[:, slot] = self.deployed.logits(self.hidden[:, slot]).argmax(-1)

    @torch.no_grad()
    def generate(self, end_token: int | None) -> None:
        """One token a step for all rows, until all have ended or the room is used."""
        for slot in range(self.widest, self.total):
            given = self.tokens[:, slot] = self.choices[:, slot - 1]
            if end_token is not None:
                self.ends[(given == end_token) & (self.ends == self.total)] = slot + 1
            mask, at = self.real[:, None, None, : slot + 1], (slot - self.gap)[:, None]
            self.hidden[:, slot] = self.deployed.forward(given[:, None], at, mask, self.caches, slot)[:, 0]
            self.choices[:, slot] = self.deployed.logits(self.hidden[:, slot]).argmax(-1)
            if bool((self.ends <= slot + 1).all()):
                break

    def rows(self) -> list[Row]:
        """Every text without the masked slots."""
        found = []
        for row, prompt in enumerate(self.prompts):
            keep = self.real[row].clone()
            keep[int(self.ends[row]) :] = False
            found.append(
                Row(
                    tokens=self.tokens[row, keep],
                    choices=self.choices[row, keep],
                    hidden=self.hidden[row, keep],
                    k=self.caches[-1][0, row][:, keep],
                    v=self.caches[-1][1, row][:, keep],
                    prompt_length=len(prompt),
                )
            )
        return found


def common_prefix(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, at least one of each left over."""
    first, last = min(prompts), max(prompts)
    most = min(map(len, prompts)) - 1
    return next((i for i in range(most) if first[i] != last[i]), most)
