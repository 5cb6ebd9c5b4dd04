"""Compare exported graphs with the torch modules they were made from, on the same inputs (R7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.model.backbone import Backbone
from mtplab.model.heads import Head


class Agreement(msgspec.Struct, frozen=True):
    """How far a graph agrees with torch over `n` positions; `top1` has one entry per draft position for a head."""

    graph: str
    n: int
    top1: tuple[float, ...]
    max_abs_diff: float

    @property
    def worst(self) -> float:
        return min(self.top1)


class _Tally:
    """Agreement while it is being counted."""

    def __init__(self, graph: str, columns: int = 1) -> None:
        self.graph, self.columns = graph, columns
        self.equal = np.zeros(columns, np.int64)
        self.n, self.diff = 0, 0.0

    def add(self, got: np.ndarray, wanted: np.ndarray) -> None:
        """Logits[columns·m, V] of both sides, draft positions fastest."""
        same = (got.argmax(-1) == wanted.argmax(-1)).reshape(-1, self.columns)
        self.equal += same.sum(axis=0)
        self.n += len(same)
        # nan must not hide: a maximum that is not a number is reported as infinite.
        difference = float(np.abs(got - wanted).max())
        self.diff = max(self.diff, difference if np.isfinite(difference) else float("inf"))

    def result(self) -> Agreement:
        return Agreement(self.graph, self.n, tuple(float(n) / self.n for n in self.equal), self.diff)


@torch.no_grad()
def align_backbone(
    runtime: LiteRtBackbone, backbone: Backbone, sequences: Sequence[Sequence[int]], stepwise: int = 8
) -> list[Agreement]:
    """Logits of real text through prefill, decode and verify against torch without a cache.

    Every sequence goes through prefill whole; the last `stepwise` windows of γ+1 tokens of each go through
    decode one by one and through verify, over a cache that prefill filled.
    """
    prefill, decode, verify = _Tally("prefill"), _Tally("decode"), _Tally("verify")
    width = runtime.gamma + 1
    for tokens in sequences:
        wanted = backbone.forward_sequence(torch.tensor([list(tokens)]))[0][0].numpy()
        prefill.add(runtime.score(tokens)[0], wanted)
        start = max(1, len(tokens) - stepwise * width)
        runtime.prefill(tokens[:start])
        for pos in range(start, len(tokens)):
            decode.add(runtime.decode(tokens[pos], pos)[0][None], wanted[pos : pos + 1])
        runtime.prefill(tokens[:start])
        for pos in range(start, len(tokens) - width + 1, width):
            verify.add(runtime.verify(tokens[pos : pos + width], pos)[0], wanted[pos : pos + width])
    return [tally.result() for tally in (prefill, decode, verify) if tally.n]


@torch.no_grad()
def align_head(
    runtime: LiteRtHead, head: Head, backbone: Backbone, sequences: Sequence[Sequence[int]], states: int
) -> Agreement:
    """The first `states` hidden states of real text, each with its next token, through both heads."""
    tally = _Tally("draft", runtime.gamma)
    for tokens in sequences:
        hidden = backbone.hidden_sequence(torch.tensor([list(tokens)]))[0]
        for pos in range(len(tokens) - 1):
            if tally.n >= states:
                return tally.result()
            inputs: dict[str, Any] = {"hidden": hidden[pos][None, None]}
            if head.takes_token:
                inputs["token"] = torch.tensor([[tokens[pos + 1]]], dtype=torch.int32)
            wanted = head(**inputs)["logits"][0].numpy()
            tally.add(runtime.draft(hidden[pos].numpy(), tokens[pos + 1]), wanted)
    return tally.result()
