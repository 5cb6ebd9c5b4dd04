"""Ranges of every activation, as the quantiser keeps them in a file: written whole, read with what they belong to."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mtplab.litert.errors import LiteRtError
from mtplab.session.atomic import write_atomic

# {tensor: {"min": array, "max": array}}, the form that ai_edge_quantizer's `quantize(calibration_result)` takes
Ranges = dict[str, dict[str, Any]]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What statistics belong to; `samples` counts the runs of every signature."""

    graph_sha256: str
    set_sha256: str
    ranges: str
    prompts: int
    samples: dict[str, int]
    quantizer: str


def packed(ranges: Ranges, origin: Origin) -> dict[str, Any]:
    """Ranges in ai_edge_quantizer's own calibration-result form, the origin in its metadata."""
    require_numbers("graph", ranges)
    qsvs = {name: {end: np.asarray(value).tolist() for end, value in one.items()} for name, one in ranges.items()}
    metadata = {"num_samples_calibrated": sum(origin.samples.values()), "mtplab": msgspec.to_builtins(origin)}
    return {"model_qsvs": qsvs, "metadata": metadata}


def unpacked(value: Any) -> tuple[Ranges, Origin]:
    """The contrary of `packed`."""
    origin = msgspec.convert(value["metadata"]["mtplab"], Origin)
    ranges = {
        str(name): {end: np.asarray(one[end], np.float64) for end in ("min", "max")}
        for name, one in value["model_qsvs"].items()
    }
    return ranges, origin


def write_json(path: Path, value: Any) -> None:
    """Write a value of `packed` whole or not at all; floats come back bit by bit."""
    write_atomic(path, json.dumps(value, allow_nan=False).encode())


def read_statistics(path: Path) -> tuple[Ranges, Origin]:
    """Ranges with numpy arrays, and what they belong to; raises `LiteRtError` for anything else."""
    try:
        return unpacked(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LiteRtError(
            f"{path.name} holds no calibration statistics ({type(error).__name__}: {str(error)[:120]}); run the "
            "stage calibrate again."
        ) from error


def load_statistics(path: Path, graph: Path) -> Ranges:
    """The ranges for quantising `graph`, proven to be that graph's and to cover each of its signatures.

    Raises `LiteRtError` with the signature that has no data.
    """
    ranges, origin = read_statistics(path)
    if origin.graph_sha256 != sha256_of(graph):
        raise LiteRtError(
            f"The statistics {path.name} belong to another graph than {graph.name}; run the stage calibrate again."
        )
    require_every_signature(graph.name, signatures_of(graph), ranges, origin.samples)
    return ranges


def require_every_signature(
    graph: str, signatures: Mapping[str, Signature], ranges: Ranges, samples: Mapping[str, int]
) -> None:
    """Refuse statistics that leave a signature, or an activation of it, without data or without a finite range."""
    for signature, described in signatures.items():
        tensors = described.activations
        if not samples.get(signature):
            seen = ", ".join(name for name, count in samples.items() if count) or "none"
            raise LiteRtError(
                f"The signature {signature} of {graph} has no calibration data (only {seen} has), so a static "
                "recipe would guess its ranges; calibrate every signature."
            )
        missing = [name for name in tensors if name not in ranges]
        if missing:
            raise LiteRtError(
                f"{len(missing)} of {len(tensors)} activations of the signature {signature} of {graph} have no "
                f"range (such as {missing[0][:80]}); calibrate it again."
            )
        require_numbers(f"signature {signature}", {name: ranges[name] for name in tensors})


def require_numbers(where: str, ranges: Ranges) -> None:
    """Refuse ranges that are not finite; `where` says whose they are."""
    for name, one in ranges.items():
        if not all(math.isfinite(float(value)) for end in one.values() for value in np.ravel(end)):
            raise LiteRtError(
                f"The activation {name[:80]} of the {where} became NaN or infinite while calibrating; "
                "look at the model's weights and norm layers, since no recipe can mend that."
            )


class Signature(msgspec.Struct, frozen=True):
    """What one signature takes and gives: static shapes by name; and the names of its float activations."""

    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]
    activations: tuple[str, ...]


def signatures_of(graph: Path) -> dict[str, Signature]:
    """Every signature of a graph; activations are the float tensors in use that are no constants."""
    from ai_edge_litert import schema_py_generated as schema

    model = read_graph(graph)
    found = {}
    for signature in model.signatureDefs or []:
        subgraph = model.subgraphs[signature.subgraphIndex]
        used = {int(index) for op in subgraph.operators for index in (*op.inputs, *op.outputs) if index >= 0}
        found[signature.signatureKey.decode()] = Signature(
            inputs=_shapes(subgraph, signature.inputs),
            outputs=_shapes(subgraph, signature.outputs),
            activations=tuple(
                tensor.name.decode()
                for index, tensor in enumerate(subgraph.tensors)
                if index in used
                and tensor.type == schema.TensorType.FLOAT32
                and model.buffers[tensor.buffer].data is None
            ),
        )
    return found


def read_graph(graph: Path) -> Any:
    """The file as flatbuffer objects; raises `LiteRtError` where it is torn."""
    from ai_edge_litert.tools import flatbuffer_utils

    try:
        return flatbuffer_utils.read_model(str(graph))
    except Exception as error:  # the reader raises whatever it stumbles over
        raise LiteRtError(
            f"The graph {graph.name} cannot be read ({str(error)[:120]}); it may be torn: export it again."
        ) from error


def _shapes(subgraph: Any, ends: Any) -> dict[str, tuple[int, ...]]:
    return {
        one.name.decode(): tuple(int(size) for size in subgraph.tensors[one.tensorIndex].shape) for one in ends or []
    }


def sha256_of(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
