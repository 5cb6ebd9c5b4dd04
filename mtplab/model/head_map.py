"""A draft head out of somebody else's checkpoint: which of its tensors is which of ours is said by a TOML map.

    kind = "token_conditioned"
    gamma = 3
    ff = 768                                   # width of the feed-forward part; left out: read from gate_proj
    ones = ["out_norm.weight"]                 # tensors that the checkpoint does not have and that are 1
    transpose = ["join_proj.weight"]           # matrices stored as [in, out]

    [tensors]                                  # ours = theirs
    "join_proj.weight" = "mtp.0.eh_proj.weight"

The order of join_proj's input is token, then state. Norm weights are taken as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch

from mtplab.model.backbone import Backbone
from mtplab.model.errors import ModelError
from mtplab.model.heads import Head, build_head
from mtplab.model.kinds import Kind
from mtplab.model.weights import assign, read_tensors, refuse_nan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class HeadMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a map file."""

    kind: Kind
    gamma: int
    tensors: dict[str, str]
    ff: int | None = None
    ones: list[str] = []
    transpose: list[str] = []


def read_map(path: Path) -> HeadMap:
    """Raise `ModelError` when `path` is no map."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=HeadMap)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ModelError(
            f"The map {path.name} cannot be read ({error}); it names kind, gamma and [tensors] with ours = theirs."
        ) from error


def load_mapped_head(checkpoint: Path, mapping: HeadMap, backbone: Backbone) -> Head:
    """The head whose tensors stand in `checkpoint` under the names of `mapping`; float32, eval mode."""
    stored, _ = read_tensors(checkpoint)
    absent = sorted(set(mapping.tensors.values()) - set(stored))
    if absent:
        raise ModelError(
            f"{checkpoint.name} has no tensor {absent[0]}, which the map names; it has {_some(sorted(stored))}."
        )
    given = {ours: stored[theirs] for ours, theirs in mapping.tensors.items()}
    for name in mapping.transpose:
        if name not in given or given[name].dim() != 2:
            raise ModelError(f"The map transposes {name}, which is no matrix that it maps; correct its list.")
        given[name] = given[name].T
    ff = mapping.ff or (given["gate_proj.weight"].shape[0] if "gate_proj.weight" in given else None)
    head = build_head(mapping.kind, backbone, mapping.gamma, ff=ff)
    own = dict(head.own_parameters())
    given |= {name: torch.ones_like(own[name]) for name in mapping.ones if name in own}
    missing = sorted(set(own) - set(given))
    if missing:
        raise ModelError(
            f"The map gives no tensor for {_some(missing)} of a {mapping.kind} head; add them to [tensors] or ones."
        )
    refuse_nan(checkpoint.name, given)
    assign(checkpoint.name, own, given)
    return head.eval()


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
