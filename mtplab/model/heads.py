"""Draft heads: building, saving and loading them, and what they cost; their families stand in `head_families`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file

from mtplab.model.backbone import Backbone
from mtplab.model.errors import ModelError
from mtplab.model.head_base import AttentionShape, Head, HeadConfig
from mtplab.model.head_families import (
    FAMILIES,
    ParallelHead,
    RecurrentResidualHead,
    TokenConditionedHead,
    ZeroCopyHead,
    attend_for,
)
from mtplab.model.kinds import KINDS, Kind
from mtplab.model.weights import assign, read_tensors, refuse_nan

__all__ = [
    "KINDS",
    "AttentionShape",
    "Head",
    "HeadConfig",
    "HeadCost",
    "Kind",
    "ParallelHead",
    "RecurrentResidualHead",
    "TokenConditionedHead",
    "ZeroCopyHead",
    "at_gamma",
    "attend_for",
    "build_head",
    "head_cost",
    "load_head",
    "save_head",
]

# Above this share of the backbone's parameters a head is warned about: decode is bound by memory bandwidth.
LARGE_HEAD_SHARE = 0.05
_IDS = "draft_ids"


class HeadCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a head adds to a backbone. Bytes count the stored element size given, not cache misses."""

    own_parameters: int
    shared_parameters: int
    backbone_parameters: int
    own_share: float
    bytes_read_per_round: int
    bytes_per_parameter: float
    warning: str | None


def build_head(
    kind: Kind,
    backbone: Backbone,
    gamma: int = 3,
    *,
    ff: int | None = None,
    draft_ids: Sequence[int] | torch.Tensor | None = None,
) -> Head:
    """A fresh head of the family, with random own weights, on `backbone`.

    `draft_ids` are the tokens of a reduced draft vocabulary, ascending; None drafts over the whole vocabulary.
    """
    if kind not in FAMILIES:
        raise ModelError(f"There is no head family {kind!r}; choose one of {', '.join(KINDS)}.")
    shape = backbone.config
    ids = None if draft_ids is None else torch.as_tensor(draft_ids, dtype=torch.long)
    attention = AttentionShape(
        layer=shape.layers - 1, heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim
    )
    config = HeadConfig(
        kind=kind,
        gamma=gamma,
        d_model=shape.d_model,
        vocab=shape.vocab,
        norm_eps=shape.norm_eps,
        draft_vocab=None if ids is None else len(ids),
        attention=attention if kind == "zero_copy" else None,
        **({} if ff is None else {"ff": ff}),
    )
    return FAMILIES[kind](config, backbone, ids)


def at_gamma(head: Head, gamma: int) -> Head:
    """`head` with another draft length and the same weights; families that chain their step can draft any length."""
    if gamma == head.gamma:
        return head
    if isinstance(head, ParallelHead) and gamma > head.gamma:
        raise ModelError(
            f"A parallel head has one block for each of its {head.gamma} drafts and cannot draft {gamma}; "
            f"choose γ ≤ {head.gamma} or train one for {gamma}."
        )
    other = copy.copy(head)
    other.config = msgspec.structs.replace(head.config, gamma=gamma)
    other.gamma = gamma
    return other


def choosing(head: Head) -> Head:
    """`head` with the same weights, giving the ids of its drafts alone.

    Logits then never leave the graph, and those of a reduced vocabulary need not be spread over the whole one.
    """
    other = copy.copy(head)
    other.only_ids = True
    return other


def head_cost(head: Head, backbone: Backbone, bytes_per_parameter: float = 4.0) -> HeadCost:
    """Size of the head (R5). A round reads the own weights and the output projection once per step.

    A parallel head reads only one draft's block per draft. Embedding look-ups read γ rows of d_model. Weights small
    enough to stay in a cache are read from there, so the bytes are an upper bound of memory traffic; the backbone's
    KV cache, which a zero-copy head reads too, grows with the text and is not counted.
    """
    own = sum(value.numel() for _, value in head.own_parameters())
    width, drafted = head.config.d_model, head.config.draft_vocab or head.config.vocab
    backbone_parameters = backbone.parameter_count()
    rows = width if head.takes_token else 0
    per_round = own if head.config.kind == "parallel" else head.gamma * own
    read = per_round + head.gamma * (width * drafted + rows)
    share = own / backbone_parameters
    warning = None
    if share > LARGE_HEAD_SHARE:
        warning = (
            f"The head's own parameters are {share:.1%} of the backbone's, above {LARGE_HEAD_SHARE:.0%}: "
            "decode is bound by memory bandwidth, so measure whether the drafts pay for it."
        )
    return HeadCost(
        own_parameters=own,
        shared_parameters=width * drafted,
        backbone_parameters=backbone_parameters,
        own_share=share,
        bytes_read_per_round=int(read * bytes_per_parameter),
        bytes_per_parameter=bytes_per_parameter,
        warning=warning,
    )


def save_head(head: Head, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write the head's own tensors as safetensors with its configuration in the metadata."""
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in head.own_parameters()}
    if head.draft_ids is not None:
        tensors[_IDS] = head.draft_ids
    save_file(tensors, path, metadata={"mtplab_head": msgspec.json.encode(head.config).decode()})


def load_head(path: Path, backbone: Backbone) -> Head:
    """Read a head for `backbone`; only safetensors with mtplab's metadata are opened."""
    tensors, metadata = read_tensors(path)
    try:
        config = msgspec.json.decode(metadata.get("mtplab_head", ""), type=HeadConfig)
    except (msgspec.DecodeError, ModelError) as error:
        raise ModelError(
            f"The head {path.name} does not say its family and γ ({error}); save it again with save_head, "
            "or map the tensors of another checkpoint with --map."
        ) from error
    refuse_nan(path.name, tensors)
    ids = tensors.pop(_IDS, None)
    head = FAMILIES[config.kind](config, backbone, None if ids is None else ids.round().long())
    assign(path.name, dict(head.own_parameters()), tensors)
    return head.eval()
