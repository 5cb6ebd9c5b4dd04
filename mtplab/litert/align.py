"""Compare exported graphs with the torch modules they were made from, on the same inputs (R7)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch

from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.model.backbone import Backbone
from mtplab.model.head_base import Attend, Head
from mtplab.model.heads import ParallelHead, at_gamma, attend_for


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
    decode one by one and through every verify of the ladder, over a cache that prefill filled.
    """
    prefill, decode = _Tally("prefill"), _Tally("decode")
    verifies = {gamma: _Tally(_name("verify", gamma, runtime.gammas)) for gamma in runtime.gammas}
    for tokens in sequences:
        wanted = backbone.forward_sequence(torch.tensor([list(tokens)]))[0][0].numpy()
        prefill.add(runtime.score(tokens)[0], wanted)
        start = max(1, len(tokens) - stepwise * (runtime.gamma + 1))
        runtime.prefill(tokens[:start])
        for pos in range(start, len(tokens)):
            decode.add(runtime.decode(tokens[pos], pos)[0][None], wanted[pos : pos + 1])
        for gamma, verify in verifies.items():
            width = gamma + 1
            runtime.prefill(tokens[:start])
            for pos in range(start, len(tokens) - width + 1, width):
                verify.add(runtime.verify(tokens[pos : pos + width], pos)[0], wanted[pos : pos + width])
    return [tally.result() for tally in (prefill, decode, *verifies.values()) if tally.n]


def _name(graph: str, gamma: int, gammas: Sequence[int]) -> str:
    return graph if len(gammas) == 1 else f"{graph}_{gamma}"


@torch.no_grad()
def align_head(
    runtime: LiteRtHead,
    head: Head,
    backbone: Backbone,
    sequences: Sequence[Sequence[int]],
    states: int,
    backbone_runtime: LiteRtBackbone | None = None,
) -> list[Agreement]:
    """The first `states` hidden states of real text, each with its next token, through both heads, for every γ.

    A zero-copy head reads the cache that `backbone_runtime` filled with the same text; torch reads torch's own.
    """
    tallies = {gamma: _Tally(_name("draft", gamma, runtime.gammas), gamma) for gamma in runtime.gammas}
    longest = at_gamma(head, runtime.gamma)
    left = states
    for tokens in sequences:
        hidden, k, v = backbone.sequence_with_cache(torch.tensor([list(tokens)]))
        attend = attend_for(longest, (k, v), torch.arange(len(tokens) - 1)[None])
        fed = torch.tensor([list(tokens[1:])])
        wanted = _chained(longest, hidden[:, :-1], fed, attend)[:left]
        if runtime.takes_cache and backbone_runtime is not None:
            backbone_runtime.prefill(tokens)
        for pos, logits in enumerate(wanted):
            for gamma, tally in tallies.items():
                got = runtime.draft(hidden[0, pos].numpy(), tokens[pos + 1], gamma, pos + 1)
                tally.add(got, logits[:gamma].numpy())
        left -= len(wanted)
        if left <= 0:
            break
    return [tally.result() for tally in tallies.values()]


def _chained(head: Head, hidden: torch.Tensor, token: torch.Tensor, attend: Attend | None) -> torch.Tensor:
    """Logits [n, γ, V] of the drafts from every state of hidden[1,n,D], each fed the one before."""
    state, drafts = head.begin(hidden), []
    if isinstance(head, ParallelHead):
        return torch.stack([logits[0] for logits in head.drafts_given(hidden, None)], dim=1)
    for k in range(1, head.gamma + 1):
        state = head.step(state, head.embedding(token) if head.takes_token else None, k, attend)
        reduced = head.project_reduced(state)
        drafts.append(head.expand(reduced)[0])
        token = head.choose(reduced).long()
    return torch.stack(drafts, dim=1)
