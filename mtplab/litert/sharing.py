"""Store equal weights of a graph once: the quantizer writes a tied table anew for every signature that reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

_SMALLEST_BYTES = 1024


def share_equal_buffers(path: Path) -> int:
    """Let tensors whose bytes are equal read one buffer; rewrites `path` where that saves, returns bytes saved."""
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(path))
    first: dict[bytes, int] = {}
    instead: dict[int, int] = {}
    saved = 0
    for index, buffer in enumerate(model.buffers):
        if buffer.data is None or len(buffer.data) < _SMALLEST_BYTES:
            continue
        kept = first.setdefault(hashlib.sha256(bytes(buffer.data)).digest(), index)
        if kept != index:
            instead[index] = kept
            saved += len(buffer.data)
    if not instead:
        return 0
    tensors: list[Any] = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    for tensor in tensors:
        tensor.buffer = instead.get(tensor.buffer, tensor.buffer)
    for index in instead:
        model.buffers[index].data = None  # indices of the other buffers stay
    flatbuffer_utils.write_model(model, str(path))
    return saved
