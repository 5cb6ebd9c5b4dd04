"""One range for one place of the model: what a weight reads and writes has equal ranges where signatures must agree.

Calibrated apart, `decode` and `verify` would round the same activation differently, and verification would choose
other tokens than plain decoding. The prefill shapes agree among themselves, apart from those two: outliers of the
first token occur in them alone, and would coarsen every later step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mtplab.litert.statistics import Ranges, read_graph


def shared_ranges(graph: Path, ranges: Ranges) -> Ranges:
    """`ranges` with the widest of every group of places in place of each; tensors alone keep theirs."""
    merged = dict(ranges)
    for names in groups_of(graph):
        known = [ranges[name] for name in names if name in ranges]
        if len(known) < 2:
            continue
        widest = {
            "min": np.minimum.reduce([np.asarray(one["min"]) for one in known]),
            "max": np.maximum.reduce([np.asarray(one["max"]) for one in known]),
        }
        merged |= {name: widest for name in names if name in ranges}
    return merged


def groups_of(graph: Path) -> list[set[str]]:
    """Names of tensors that are one place of the model in signatures of one kind."""
    places: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for kind, place, name in _places(graph):
        places[kind, place].add(name)
    # A tensor that several weights read (queries, keys and values do) joins their groups.
    groups: list[set[str]] = []
    of: dict[str, set[str]] = {}
    for names in places.values():
        joined = set(names).union(*(of[name] for name in names if name in of))
        of |= dict.fromkeys(joined, joined)
    for joined in of.values():
        if joined not in groups:
            groups.append(joined)
    return groups


def _places(graph: Path) -> Iterator[tuple[str, tuple[Any, ...], str]]:
    """(kind of signature, which end of which use of which weight, tensor) of every operation with a weight."""
    model = read_graph(graph)
    for signature in model.signatureDefs or []:
        kind = "prefill" if signature.signatureKey.startswith(b"prefill") else "step"
        subgraph = model.subgraphs[signature.subgraphIndex]
        uses: Counter[tuple[int, int]] = Counter()
        for op in subgraph.operators:
            weights = [index for index in op.inputs if index >= 0 and _is_constant(model, subgraph.tensors[index])]
            if not weights:
                continue
            buffer = max(
                (subgraph.tensors[index].buffer for index in weights), key=lambda b: len(model.buffers[b].data)
            )
            weight = (int(op.opcodeIndex), int(buffer))
            uses[weight] += 1  # a recurrent head uses a weight once a step
            for end, indices in (("in", op.inputs), ("out", op.outputs)):
                for number, index in enumerate(indices):
                    if index >= 0 and index not in weights:
                        place = (*weight, uses[weight], end, number)
                        yield kind, place, subgraph.tensors[index].name.decode()


def _is_constant(model: Any, tensor: Any) -> bool:
    return model.buffers[tensor.buffer].data is not None
