"""Export a draft head a second time for judging it: all positions of a text in one call, drafts as token ids."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn as nn

from mtplab.litert.evaluate import SIGNATURE
from mtplab.litert.export import Progress, convert, unwatched
from mtplab.model.head_families import ZeroCopyHead
from mtplab.model.heads import Head

POSITIONS = 64  # a call; more gain nothing and cost memory for logits


class EvaluatedHead(nn.Module):
    """The head over S positions at once. Logits never leave the graph: S·γ·V floats would cost more than the rest."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(
        self,
        hidden: torch.Tensor,
        token: torch.Tensor | None = None,
        input_pos: torch.Tensor | None = None,
        **kv: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """hidden[1,S,D] and what the head's family takes (token[1,S], input_pos[S], caches) to drafts[1,S,γ] int32.

        `input_pos` is p+1 for the state of p, as in the head's own graph.
        """
        head, attend = self.head, None
        if isinstance(head, ZeroCopyHead) and input_pos is not None:
            k_name, v_name = head.cache_inputs()
            attend = head.attend_cache(kv[k_name], kv[v_name], input_pos)
        if not head.takes_token or token is None:
            states = head.states_given(hidden, None, attend)
            return {"drafts": torch.stack([head.choose(head.project_reduced(state)) for state in states], dim=-1)}
        state, drafts = head.begin(hidden), []
        for k in range(1, head.gamma + 1):
            state = head.step(state, head.embedding(token), k, attend)
            token = head.choose(head.project_reduced(state))
            drafts.append(token)
        return {"drafts": torch.stack(drafts, dim=-1)}


def evaluation_inputs(head: Head, positions: int = POSITIONS) -> dict[str, torch.Tensor]:
    """Inputs in the static shapes of the evaluation graph, out of those of the head's own."""
    inputs = {}
    for name, value in head.example_inputs().items():
        if name == "input_pos":
            value = torch.arange(1, positions + 1, dtype=torch.int32)
        elif name in ("hidden", "token"):
            value = value.repeat(1, positions, *[1] * (value.dim() - 2))
        inputs[name] = value
    return inputs


def export_evaluation(
    head: Head, path: Path, progress: Progress = unwatched, positions: int = POSITIONS
) -> Path:
    """Write `head` with the signature `evaluate`."""
    module = EvaluatedHead(head)
    module.train(head.training)
    return convert({SIGNATURE: (module, evaluation_inputs(head, positions))}, path, progress)
