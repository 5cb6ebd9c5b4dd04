"""Read back from a LiteRT file what its weights really are: a recipe that was asked for proves nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from mtplab.litert.errors import LiteRtError

# What a weight is for, found by walking the graph; names of tensors are fused and cannot tell.
Role = Literal["embedding", "output_projection", "body", "other"]

_SMALLEST_BYTES = 256  # below that a constant is a scalar, a shape or an axis list


class Use(msgspec.Struct, frozen=True, order=True):
    """One operation that reads a weight."""

    signature: str
    op: str
    output: str


class Weight(msgspec.Struct, frozen=True):
    """One stored weight: distinct buffers only, so shared weights count once."""

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    granularity: str
    role: Role
    uses: tuple[Use, ...]
    sha256: str
    module: str | None = None

    @property
    def elements(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n


class Audit(msgspec.Struct, frozen=True):
    """All weights of a file, largest first."""

    file_bytes: int
    weights: tuple[Weight, ...]

    def of(self, role: Role) -> tuple[Weight, ...]:
        return tuple(weight for weight in self.weights if weight.role == role)

    def bytes_by_dtype(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for weight in self.weights:
            totals[weight.dtype] = totals.get(weight.dtype, 0) + weight.bytes
        return totals

    def dtypes_by_role(self) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for weight in self.weights:
            found.setdefault(weight.role, set()).add(weight.dtype)
        return {role: sorted(dtypes) for role, dtypes in found.items()}


def audit(path: Path, modules: Mapping[str, str] | None = None) -> Audit:
    """Read every weight of the graph at `path`; `modules` names them (see `export.module_names`).

    Raises `LiteRtError` when the file cannot be read as a LiteRT graph.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    try:
        model = flatbuffer_utils.read_model(str(path))
    except Exception as error:
        raise LiteRtError(
            f"The weights of {path} cannot be read ({error}); it may be torn: export it again."
        ) from error
    dtypes = {v: k for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
    ops = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    found: dict[int, _Found] = {}
    for signature in model.signatureDefs or []:
        graph = model.subgraphs[signature.subgraphIndex]
        codes = [ops.get(model.operatorCodes[op.opcodeIndex].builtinCode, "CUSTOM") for op in graph.operators]
        projections = _projections(graph, codes, signature)
        widened = _widened(graph, codes)
        for index, (op, code) in enumerate(zip(graph.operators, codes, strict=True)):
            if code == "DEQUANTIZE":
                continue
            for tensor in (graph.tensors[widened.get(i, i)] for i in op.inputs if i >= 0):
                data = model.buffers[tensor.buffer].data
                if data is None or len(data) < _SMALLEST_BYTES:
                    continue
                use = Use(_text(signature.signatureKey), code, _text(graph.tensors[op.outputs[0]].name))
                entry = found.setdefault(tensor.buffer, _Found(tensor, data))
                entry.add(use, _role(code, index in projections))
    weights = [entry.weight(dtypes, modules or {}) for entry in found.values()]
    return Audit(path.stat().st_size, tuple(sorted(weights, key=lambda w: (-w.bytes, w.tensor))))


class _Found:
    """A weight while the graph is being walked."""

    # A tied embedding is also the output projection, and is judged as that.
    _RANK: tuple[Role, ...] = ("output_projection", "body", "embedding", "other")

    def __init__(self, tensor: Any, data: Any) -> None:
        self.tensor, self.data = tensor, data
        self.uses: set[Use] = set()
        self.roles: set[Role] = set()

    def add(self, use: Use, role: Role) -> None:
        self.uses.add(use)
        self.roles.add(role)

    def weight(self, dtypes: Mapping[int, str], modules: Mapping[str, str]) -> Weight:
        named = {modules[key(use)] for use in self.uses if key(use) in modules}
        return Weight(
            tensor=_text(self.tensor.name),
            dtype=dtypes[self.tensor.type],
            shape=tuple(int(n) for n in self.tensor.shape),
            bytes=len(self.data),
            granularity=_granularity(self.tensor.quantization),
            role=next(role for role in self._RANK if role in self.roles),
            uses=tuple(sorted(self.uses)),
            sha256=hashlib.sha256(bytes(self.data)).hexdigest(),
            module=" = ".join(sorted(named)) or None,
        )


def key(use: Use) -> str:
    """The name of a use that survives quantisation."""
    return f"{use.signature}:{use.op}:{use.output}"


def _role(code: str, projection: bool) -> Role:
    if code == "EMBEDDING_LOOKUP":
        return "embedding"
    if code != "FULLY_CONNECTED":
        return "other"
    return "output_projection" if projection else "body"


def _widened(graph: Any, codes: list[str]) -> dict[int, int]:
    """Tensors that DEQUANTIZE makes, with the tensors it makes them from: how weight-only is stored."""
    pairs = zip(graph.operators, codes, strict=True)
    return {int(op.outputs[0]): int(op.inputs[0]) for op, code in pairs if code == "DEQUANTIZE"}


# Operations that only pass logits on.
_PASSING = {"RESHAPE", "CONCATENATION", "PACK", "DEQUANTIZE", "QUANTIZE", "CAST", "TRANSPOSE"}


def _projections(graph: Any, codes: list[str], signature: Any) -> set[int]:
    """Indices of the operations whose product is the signature's `logits`, through passing operations."""
    makers = {output: index for index, op in enumerate(graph.operators) for output in op.outputs}
    waiting = [t.tensorIndex for t in signature.outputs if _text(t.name) == "logits"]
    found: set[int] = set()
    while waiting:
        index = makers.get(waiting.pop())
        if index is None:
            continue
        if codes[index] == "FULLY_CONNECTED":
            found.add(index)
        elif codes[index] in _PASSING:
            waiting += [i for i in graph.operators[index].inputs if i >= 0]
    return found


def _granularity(quantization: Any) -> str:
    if quantization is None:
        return "none"
    if quantization.details is not None:
        return "block"
    if quantization.scale is None or len(quantization.scale) == 0:
        return "none"
    return "tensor" if len(quantization.scale) == 1 else f"channel[{quantization.quantizedDimension}]"


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def table(weights: Iterable[Weight]) -> list[dict[str, Any]]:
    """Rows for people and for the session: module, role, type, shape, bytes."""
    return [
        {
            "module": weight.module,
            "tensor": weight.tensor,
            "op": " + ".join(sorted({use.op for use in weight.uses})),
            "role": weight.role,
            "dtype": weight.dtype,
            "shape": list(weight.shape),
            "bytes": weight.bytes,
            "granularity": weight.granularity,
        }
        for weight in weights
    ]
