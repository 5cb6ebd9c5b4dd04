"""A draft head in the form that LiteRT-LM runs: one draft a call, the runtime feeds token and state back.

The runtime calls it γ times a round with `activations` = embedding of the last token ‖ state before, and takes the
largest logit and the new state. The first state is `hidden[p]`; `input_pos` is p in every call of the round, and mask
and caches hold the slots 0..p (probed on litert-lm 0.18.1; tests/litert/test_bundle.py would tell another contract).

Nothing tells the graph which draft of the round it makes. So all queries of a zero-copy head stand at p+1, where in
our own loop that of draft k stands at p+k: its counts are near, and those of a token-conditioned head are the same.
"""

from __future__ import annotations

import torch
import torch.nn as nn

from mtplab.model.backbone import Backbone, empty_cache
from mtplab.model.errors import ModelError
from mtplab.model.head_base import Head
from mtplab.model.head_families import TokenConditionedHead, ZeroCopyHead
from mtplab.model.kinds import no_drafter


class SingleStep(nn.Module):
    """`head` as one step: activations[1,1,2D] and input_pos[1] to logits[1,1,V] and projected_activations[1,1,D]."""

    def __init__(self, head: Head, backbone: Backbone) -> None:
        """Raises `ModelError` for a head that is no chain of token and state."""
        super().__init__()
        if not isinstance(head, TokenConditionedHead):
            raise ModelError(no_drafter(head.config.kind))
        self.head = head
        self.context = backbone.config.context
        self.embedding_scale = backbone.config.embedding_scale
        self._cache_shape = tuple(next(iter(empty_cache(backbone.config).values())).shape)
        self.eval()

    def example_inputs(self) -> dict[str, torch.Tensor]:
        """Inputs by name in the static shapes of an export; a zero-copy head also takes its caches."""
        inputs = {
            "activations": torch.linspace(-1.7, 1.7, 2 * self.head.config.d_model).view(1, 1, -1),
            "input_pos": torch.ones(1, dtype=torch.int32),
        }
        names = self.head.cache_inputs() if isinstance(self.head, ZeroCopyHead) else ()
        return inputs | {name: torch.zeros(self._cache_shape) for name in names}

    def forward(
        self, activations: torch.Tensor, input_pos: torch.Tensor, **kv: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """One draft. Without attention the position decides nothing, but the runtime always writes it."""
        width = self.head.config.d_model
        embedded, state = activations[..., :width], activations[..., width:]
        if self.embedding_scale != 1.0:
            embedded = embedded / self.embedding_scale
        if isinstance(self.head, ZeroCopyHead):
            k_name, v_name = self.head.cache_inputs()
            attend = self.head.attend_cache(kv[k_name], kv[v_name], input_pos + 1)
            made = self.head.step(state, embedded, 1, attend)
        else:
            # Multiplied by nothing, so that the graph keeps the input.
            made = self.head.step(state, embedded) + input_pos.float() * 0.0
        return {"logits": self.head.project(made), "projected_activations": made}
