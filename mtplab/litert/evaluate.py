"""Teacher-forced evaluation through LiteRT: a text's choices and states by long windows, all its drafts in few calls.

The backbone is the deployed file itself (its `prefill_N`); the head is its evaluation graph, which has the same
weights (`different_weights` proves it) and takes many positions at once. `SteppedHead` asks the deployed head one
position at a time: for heads without an evaluation graph, and to hold one against the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from mtplab.litert.audit import Audit
from mtplab.litert.errors import LiteRtError
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead, open_graph

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]

SIGNATURE = "evaluate"


class TextHead(Protocol):
    """A head that drafts from every position of a text that `backbone` has just read."""

    @property
    def gamma(self) -> int:
        """Drafts a position."""

    def drafts(self, backbone: LiteRtBackbone, hidden: Floats, tokens: Ids) -> Ids:
        """Drafts [n,γ] from hidden[n,D] at positions 0..n−1 and the tokens[n] that stand one further."""


class HeadEvaluator:
    """The evaluation graph of a head: γ drafts of S positions in one call."""

    def __init__(self, path: Path | str, threads: int = 2) -> None:
        self._model, self.init_ms = open_graph(path, threads)
        if SIGNATURE not in self._model.get_signature_list():
            raise LiteRtError(
                f"The graph {path} has no signature {SIGNATURE}, so it cannot be asked for many positions at once; "
                "export the head again."
            )
        ins = self._model.get_input_tensor_details(SIGNATURE)
        outs = self._model.get_output_tensor_details(SIGNATURE)
        self._shapes = {name: tuple(int(n) for n in row["shape"]) for name, row in ins.items()}
        self._inputs = {name: self._model.create_input_buffer_by_name(SIGNATURE, name) for name in self._shapes}
        self._output = self._model.create_output_buffer_by_name(SIGNATURE, "drafts")
        _, self.positions, self.gamma = (int(n) for n in outs["drafts"]["shape"])

    def drafts(self, backbone: LiteRtBackbone, hidden: Floats, tokens: Ids) -> Ids:
        """See `TextHead`. The last call is padded; what a padded place drafts is thrown away."""
        for name in self._shapes:
            if name.startswith("kv_cache_"):
                self._inputs[name].write(self._cache(backbone, name))
        found = []
        for at in range(0, len(hidden), self.positions):
            real = min(self.positions, len(hidden) - at)
            found.append(self._call(hidden[at : at + real], tokens[at : at + real], at)[:real])
        return np.concatenate(found)

    def _cache(self, backbone: LiteRtBackbone, name: str) -> Floats:
        shape = self._shapes[name]
        if backbone.cache_shapes.get(name) != shape:
            raise LiteRtError(
                f"This head reads {name} {list(shape)}, which {backbone.path.name} does not have; "
                "use the head that was exported with this backbone."
            )
        values: Floats = backbone.cache_buffers([name])[name].read(int(np.prod(shape)), np.float32)
        return values.reshape(shape)

    def _call(self, hidden: Floats, tokens: Ids, at: int) -> Ids:
        values: dict[str, Any] = {
            "hidden": _padded(hidden, self.positions),
            "token": _padded(tokens.astype(np.int32), self.positions),
            # Slots before p+1 are seen: whatever the text reads later must not be.
            "input_pos": np.arange(at + 1, at + 1 + self.positions, dtype=np.int32),
        }
        for name, value in values.items():
            if name in self._shapes:
                self._inputs[name].write(np.ascontiguousarray(value.reshape(self._shapes[name])))
        self._model.run_by_name(SIGNATURE, self._inputs, {"drafts": self._output})
        flat: Ids = self._output.read(self.positions * self.gamma, np.int32)
        return flat.reshape(self.positions, self.gamma)


def _padded(rows: NDArray[Any], length: int) -> NDArray[Any]:
    padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded


class SteppedHead:
    """The deployed head itself, asked position by position."""

    def __init__(self, head: LiteRtHead) -> None:
        self._head, self.gamma = head, head.gamma

    def drafts(self, backbone: LiteRtBackbone, hidden: Floats, tokens: Ids) -> Ids:
        """See `TextHead`."""
        rows = [
            self._head.draft(hidden[p], int(tokens[p]), pos=p + 1).argmax(axis=-1) for p in range(len(hidden))
        ]
        return np.asarray(rows, np.int32).reshape(len(hidden), self.gamma)


class Judged(msgspec.Struct, frozen=True):
    """A text as a pair sees it: the backbone's choices[n], its log-likelihood of tokens 1..n−1, drafts [n−1,γ]."""

    choices: Ids
    log_likelihood: NDArray[np.float64]
    drafts: Ids


def judge(backbone: LiteRtBackbone, head: TextHead | None, tokens: Sequence[int]) -> Judged:
    """Read `tokens` (at most the context) by long windows and draft from every position but the last.

    Without a head there are no drafts.
    """
    backbone.reset()
    logits, hidden = backbone.score(tokens)
    ids = np.asarray(tokens, np.int32)
    return Judged(
        choices=logits.argmax(axis=-1).astype(np.int32),
        log_likelihood=log_likelihood(logits[:-1], ids[1:]),
        drafts=head.drafts(backbone, hidden[:-1], ids[1:]) if head else np.empty((len(ids) - 1, 0), np.int32),
    )


def log_likelihood(logits: Floats, targets: Ids) -> NDArray[np.float64]:
    """Natural log of the probability of targets[n] under logits[n,V]."""
    top = logits.max(axis=-1)
    total = np.exp(logits - top[:, None]).sum(axis=-1, dtype=np.float64)
    return np.asarray(logits[np.arange(len(targets)), targets] - top - np.log(total), np.float64)


def different_weights(one: Audit, other: Audit) -> list[str]:
    """Tensors of `one` whose content `other` does not have: none where an evaluation graph stands for a head."""
    have = {(weight.sha256, weight.dtype, weight.granularity) for weight in other.weights}
    return [
        weight.module or weight.tensor
        for weight in one.weights
        if weight.role != "other" and (weight.sha256, weight.dtype, weight.granularity) not in have
    ]
