"""Greedy text of a backbone through its KV cache: what heads learn from and are judged on."""

from __future__ import annotations

import torch

from mtplab.model.backbone import Backbone, empty_cache
from mtplab.model.errors import ModelError


@torch.no_grad()
def greedy_with_hidden(
    backbone: Backbone, prompts: torch.Tensor, new_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Continue prompts[B,P] (all of one length) greedily.

    Returns tokens [B, P + new_tokens], int64, and the hidden state of every token but the last,
    [B, P + new_tokens - 1, D]. Text is not cut at the end-of-text token: that is the caller's business.
    """
    batch, length = prompts.shape
    if length + new_tokens > backbone.config.context:
        raise ModelError(
            f"A prompt of {length} tokens and {new_tokens} new ones do not fit the context of "
            f"{backbone.config.context}; shorten the prompt or the output limit."
        )
    names = list(empty_cache(backbone.config))
    out = backbone(prompts.int(), torch.arange(length, dtype=torch.int32), **empty_cache(backbone.config, batch))
    tokens, hidden = [prompts.long()], [out["hidden"]]
    for position in range(length, length + new_tokens):
        chosen = out["logits"][:, -1:].argmax(-1)
        tokens.append(chosen)
        if position + 1 < length + new_tokens:
            cache = {name: out[name] for name in names}
            out = backbone(chosen.int(), torch.tensor([position], dtype=torch.int32), **cache)
            hidden.append(out["hidden"])
    return torch.cat(tokens, dim=1), torch.cat(hidden, dim=1)


def greedy(backbone: Backbone, prompts: torch.Tensor, new_tokens: int) -> torch.Tensor:
    """The tokens of `greedy_with_hidden` alone."""
    return greedy_with_hidden(backbone, prompts, new_tokens)[0]
