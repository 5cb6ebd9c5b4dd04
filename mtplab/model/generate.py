"""Greedy text of a backbone through its KV cache: what heads learn from and are judged on."""

from __future__ import annotations

import torch

from mtplab.model.backbone import Backbone, empty_cache
from mtplab.model.errors import ModelError


@torch.no_grad()
def greedy(backbone: Backbone, prompts: torch.Tensor, new_tokens: int) -> torch.Tensor:
    """Continue prompts[B,P] (all of one length) greedily; returns [B, P + new_tokens], int64.

    Text is not cut at the end-of-text token: what follows it is the caller's business.
    """
    batch, length = prompts.shape
    if length + new_tokens > backbone.config.context:
        raise ModelError(
            f"A prompt of {length} tokens and {new_tokens} new ones do not fit the context of "
            f"{backbone.config.context}; shorten the prompt or the output limit."
        )
    cache = empty_cache(backbone.config, batch)
    out = backbone(prompts.int(), torch.arange(length, dtype=torch.int32), **cache)
    tokens = [prompts.long()]
    chosen = out["logits"][:, -1:].argmax(-1)
    for position in range(length, length + new_tokens):
        tokens.append(chosen)
        if position + 1 == length + new_tokens:
            break
        cache = {name: out[name] for name in cache}
        out = backbone(chosen.int(), torch.tensor([position], dtype=torch.int32), **cache)
        chosen = out["logits"].argmax(-1)
    return torch.cat(tokens, dim=1)
