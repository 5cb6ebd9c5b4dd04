"""Real inputs for benchmarking a graph: token ids, positions, hidden states and caches of a real prompt, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead

Value = NDArray[np.float32] | NDArray[np.int32]


def write_inputs(
    backbone: LiteRtBackbone, head: LiteRtHead, tokens: Sequence[int], folder: Path
) -> dict[str, list[dict[str, Any]]]:
    """Write the inputs of every signature of both graphs, as they stand after prefilling `tokens`.

    Returns, by `graph/signature`, the inputs in the order in which `benchmark_model` wants them: name of the tensor,
    static shape, and the file in `folder`. Random bytes would be no such input: an id out of the vocabulary ends
    the tool, and a mask over nothing costs another time.
    """
    backbone.reset()
    logits, hidden = backbone.prefill(tokens)
    token, at = int(np.argmax(logits)), len(tokens)
    caches = backbone.caches()
    found = {}
    for signature, order in tensor_order(backbone.path).items():
        size = backbone.input_shape(signature, "tokens")[1]
        start = 0 if signature.startswith("prefill_") else min(at, backbone.context_limit - size)
        ids = [*tokens, token] if start == 0 else [token] * size
        values: dict[str, Value] = {
            "tokens": np.resize(np.asarray(ids, np.int32), (1, size)),
            "input_pos": np.arange(start, start + size, dtype=np.int32),
            **caches,
        }
        found[f"backbone/{signature}"] = _write(f"{signature}-", order, values, folder)
    draft: dict[str, Value] = {
        "hidden": hidden.reshape(1, 1, -1),
        "token": np.array([[token]], np.int32),
        "input_pos": np.array([at], np.int32),
        **caches,
    }
    for signature, order in tensor_order(head.path).items():
        found[f"head/{signature}"] = _write("draft-", order, draft, folder)
    return found


def _write(
    prefix: str, order: Sequence[tuple[str, str]], values: dict[str, Value], folder: Path
) -> list[dict[str, Any]]:
    rows = []
    for name, tensor in order:
        value = np.ascontiguousarray(values[name])
        # The caches are the same for every signature: one file serves them all.
        file = f"input-{name}.bin" if name.startswith("kv_cache_") else f"input-{prefix}{name}.bin"
        (folder / file).write_bytes(value.tobytes())
        rows.append({"name": tensor, "shape": list(value.shape), "artefact": file})
    return rows


def tensor_order(path: Path) -> dict[str, list[tuple[str, str]]]:
    """By signature: (input's name, its tensor's name) in the subgraph's own order, read from the file."""
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(path))
    orders = {}
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]
        names = {one.tensorIndex: one.name.decode() for one in signature.inputs}
        orders[signature.signatureKey.decode()] = [
            (names[index], graph.tensors[index].name.decode()) for index in graph.inputs
        ]
    return orders
