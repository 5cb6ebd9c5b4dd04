"""What each way of storing a backbone's weights loses of them, and its bits a weight; no model is run.

    python benchmarks/weight_error.py GRAPH.tflite MODULES.json [--every 7] [--results FILE.json]

GRAPH is the float backbone as the export stage writes it, MODULES the names of its weights. Every n-th weight of the
body is rounded in numpy as the recipes round it; bits count scales and zero points too. A cheap look before a recipe
is measured by benchmarks/low_bit.py: an error of the weights is not yet one of the text.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from mtplab.litert.offsets import middles
from mtplab.litert.search import best_scales
from mtplab.pipeline.cache import file_sha256

Floats = NDArray[np.float32]
BLOCK = 32
_BLOCK_SCALE_BITS, _CHANNEL_SCALE_BITS, _OFFSET_BITS = (
    16,
    96,
    8,
)  # a channel's scale has an int64 zero point beside it


def rounded(groups: Floats, scales: Floats, bits: int) -> Floats:
    most = 2 ** (bits - 1) - 1
    return np.clip(np.rint(groups / scales[:, None]), -most - 1, most) * scales[:, None]


def min_max(bits: int, size: int) -> Callable[[Floats], Floats]:
    def store(weight: Floats) -> Floats:
        groups = weight.reshape(-1, size or weight.shape[1])
        scales = np.maximum(np.abs(groups).max(axis=1), 1e-9) / (2 ** (bits - 1) - 1)
        return rounded(groups, scales, bits).reshape(weight.shape)

    return store


def searched(bits: int, size: int) -> Callable[[Floats], Floats]:
    def store(weight: Floats) -> Floats:
        groups = weight.reshape(-1, size or weight.shape[1])
        return rounded(groups, best_scales(groups, bits, size > 0), bits).reshape(weight.shape)

    return store


def with_offsets(weight: Floats) -> Floats:
    middle = np.repeat(middles(weight, BLOCK, 4), BLOCK, axis=1)
    return searched(4, BLOCK)(weight - middle) + middle


WAYS: dict[str, tuple[Callable[[Floats], Floats], float, float]] = {
    # how to store, bits a weight, bits a row
    "int8 per channel": (min_max(8, 0), 8, _CHANNEL_SCALE_BITS),
    "int4 per channel": (min_max(4, 0), 4, _CHANNEL_SCALE_BITS),
    "int4 per channel, search": (searched(4, 0), 4, _CHANNEL_SCALE_BITS),
    "int4 block32": (min_max(4, BLOCK), 4 + _BLOCK_SCALE_BITS / BLOCK, 0),
    "int4 block32, search": (searched(4, BLOCK), 4 + _BLOCK_SCALE_BITS / BLOCK, 0),
    "int4 block32, search, offsets": (
        with_offsets,
        4 + (_BLOCK_SCALE_BITS + _OFFSET_BITS) / BLOCK,
        _CHANNEL_SCALE_BITS,
    ),
}


def weights(graph: Path, modules: dict[str, str], every: int) -> dict[str, Floats]:
    """Every n-th weight of the body by its module."""
    from ai_edge_litert.tools import flatbuffer_utils

    from mtplab.litert.audit import audit

    chosen = {
        w.tensor: str(w.module)
        for w in sorted(audit(graph, modules).of("body"), key=lambda w: str(w.module))[::every]
    }
    model = flatbuffer_utils.read_model(str(graph))
    return {
        chosen[tensor.name.decode()]: np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32).reshape(
            [int(n) for n in tensor.shape]
        )
        for tensor in model.subgraphs[0].tensors
        if tensor.name.decode() in chosen and model.buffers[tensor.buffer].data is not None
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("modules", type=Path)
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    modules = msgspec.json.decode(given.modules.read_bytes())
    found = weights(given.graph, modules.get("backbone", modules), given.every)
    rows = {}
    for name, (store, bits, row_bits) in WAYS.items():
        lost = sum(float(np.square(store(w) - w).sum()) for w in found.values())
        whole = sum(float(np.square(w).sum()) for w in found.values())
        size = sum(bits * w.size + row_bits * len(w) for w in found.values()) / sum(w.size for w in found.values())
        rows[name] = {"relative_squared_error": lost / whole, "bits_per_weight": size}
        print(f"{name:<30} {lost / whole:.2e} of the squares lost, {size:.2f} bits a weight")
    print(f"{len(found)} weights of the body, every {given.every}th; made by benchmarks/weight_error.py")
    if given.results:
        facts = {
            "script": "benchmarks/weight_error.py",
            "graph_sha256": file_sha256(given.graph),
            "every": given.every,
        }
        given.results.write_bytes(msgspec.json.format(msgspec.json.encode({**facts, "rows": rows}), indent=1) + b"\n")


if __name__ == "__main__":
    main()
