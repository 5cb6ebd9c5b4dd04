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

# Operations whose second input is the weight that a recipe may pick; constants of all others stay as they are.
WEIGHTED = ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")
_SMALLEST_BYTES = 256  # below that a constant is a scalar, a shape or an axis list


class Use(msgspec.Struct, frozen=True, order=True):
    """One operation that reads a weight."""

    signature: str
    op: str
    output: str


# How an operation computes with its weight, seen in the graph around it.
Compute = Literal["float", "dynamic", "weight_only", "static_int8", "static_int16"]


class Weight(msgspec.Struct, frozen=True):
    """One stored weight: distinct buffers only, so shared weights count once.

    `granularity` is none, tensor, channel[axis] or block[size]. `scale_bytes` is what its scales and zero points
    take in the whole file: every signature keeps its own copy of them, blockwise ones excepted.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    scale_bytes: int
    granularity: str
    role: Role
    uses: tuple[Use, ...]
    sha256: str
    module: str | None = None


class Audit(msgspec.Struct, frozen=True):
    """All weights of a file, largest first, and by `key` of a use how its operation computes."""

    file_bytes: int
    weights: tuple[Weight, ...]
    computes: dict[str, Compute]

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
    computes: dict[str, Compute] = {}
    for signature in model.signatureDefs or []:
        graph = model.subgraphs[signature.subgraphIndex]
        codes = [ops.get(model.operatorCodes[op.opcodeIndex].builtinCode, "CUSTOM") for op in graph.operators]
        projections = _projections(graph, codes, signature)
        widened = _widened(graph, codes)
        for index, (op, code) in enumerate(zip(graph.operators, codes, strict=True)):
            if code == "DEQUANTIZE":
                continue
            for place, i in enumerate(op.inputs):
                if i < 0:
                    continue
                tensor = graph.tensors[widened.get(i, i)]
                data = model.buffers[tensor.buffer].data
                weighs = place == 1 and code in WEIGHTED
                if data is None or len(data) < (1 if weighs else _SMALLEST_BYTES):
                    continue
                # A bias is read by the same operation, and must not be taken for its weight.
                name = code if weighs or code not in WEIGHTED else f"{code}_BIAS"
                use = Use(_text(signature.signatureKey), name, _text(graph.tensors[op.outputs[0]].name))
                entry = found.setdefault(tensor.buffer, _Found(tensor, data))
                entry.add(use, _role(name, index in projections), _scales(model, graph, tensor))
                given = dtypes[graph.tensors[op.inputs[0]].type] if code == "FULLY_CONNECTED" else "FLOAT32"
                computes[key(use)] = _computes(dtypes[tensor.type], given, i in widened)
    weights = [entry.weight(dtypes, modules or {}) for entry in found.values()]
    return Audit(path.stat().st_size, tuple(sorted(weights, key=lambda w: (-w.bytes, w.tensor))), computes)


def _computes(weight: str, given: str, widened: bool) -> Compute:
    if given in ("INT8", "INT16"):
        return "static_int8" if given == "INT8" else "static_int16"
    if widened:
        return "weight_only"
    return "dynamic" if weight.startswith("INT") else "float"


def _scales(model: Any, graph: Any, tensor: Any) -> tuple[str, int]:
    """What is to be counted once, and its bytes: scales in the tensor's own record, or blockwise in a buffer."""
    quantization = tensor.quantization
    if quantization is None:
        return "", 0
    if quantization.details is not None:
        scales = graph.tensors[quantization.details.scales]
        return f"buffer {scales.buffer}", len(model.buffers[scales.buffer].data)
    count = 0 if quantization.scale is None else len(quantization.scale)
    points = 0 if quantization.zeroPoint is None else len(quantization.zeroPoint)
    return f"tensor {id(tensor)}", 4 * count + 8 * points


class _Found:
    """A weight while the graph is being walked."""

    # A tied embedding is also the output projection, and is judged as that.
    _RANK: tuple[Role, ...] = ("output_projection", "body", "embedding", "other")

    def __init__(self, tensor: Any, data: Any) -> None:
        self.tensor, self.data = tensor, data
        self.uses: set[Use] = set()
        self.roles: set[Role] = set()
        self.scales: dict[str, int] = {}

    def add(self, use: Use, role: Role, scales: tuple[str, int]) -> None:
        self.uses.add(use)
        self.roles.add(role)
        self.scales[scales[0]] = scales[1]

    def weight(self, dtypes: Mapping[int, str], modules: Mapping[str, str]) -> Weight:
        named = {modules[key(use)] for use in self.uses if key(use) in modules}
        return Weight(
            tensor=_text(self.tensor.name),
            dtype=dtypes[self.tensor.type],
            shape=tuple(int(n) for n in self.tensor.shape),
            bytes=len(self.data),
            scale_bytes=sum(self.scales.values()),
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


# What a graph gives that the output projection made: logits, or (an evaluation graph) only the tokens chosen by them.
_PROJECTED = ("logits", "drafts")
# Operations that only pass logits on; a reduced draft vocabulary is padded and gathered over the whole one.
_PASSING = {
    "RESHAPE", "CONCATENATION", "PACK", "DEQUANTIZE", "QUANTIZE", "CAST", "TRANSPOSE", "PADV2", "PAD", "GATHER_ND",
    "GATHER", "ARG_MAX",
}  # fmt: skip


def _projections(graph: Any, codes: list[str], signature: Any) -> set[int]:
    """Indices of the operations whose product the signature gives as one of _PROJECTED, through passing ones."""
    makers = {output: index for index, op in enumerate(graph.operators) for output in op.outputs}
    waiting = [t.tensorIndex for t in signature.outputs if _text(t.name) in _PROJECTED]
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
        return f"block[{int(quantization.details.blockSize)}]"
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
            "scale_bytes": weight.scale_bytes,
            "granularity": weight.granularity,
        }
        for weight in weights
    ]
