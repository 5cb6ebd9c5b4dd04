"""Cut signatures out of a finished graph and give them other inputs and outputs: the weights stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.litert.errors import LiteRtError

_APART_BYTES = 256
_ALIGNED_BYTES = 16


class Piece(msgspec.Struct, frozen=True):
    """One signature to keep: from `source`, under the name `name`.

    `inputs` and `outputs` name the tensors (by their index in the source's subgraph) that it begins and ends with;
    operations that no output needs go.
    """

    source: str
    name: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


class Graph:
    """A LiteRT file taken apart, to be asked for tensors and to be cut."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.tools import flatbuffer_utils

        self.path = path
        try:
            self._model: Any = flatbuffer_utils.read_model(str(path))
        except Exception as error:  # the reader raises whatever a torn file makes it stumble over
            raise LiteRtError(f"The graph {path} cannot be read ({error}); export or quantise it again.") from error
        self._signatures = {_text(one.signatureKey): one for one in self._model.signatureDefs or []}

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(self._signatures)

    def inputs(self, signature: str) -> dict[str, int]:
        """Tensor index of every input of a signature, by name."""
        return {_text(one.name): int(one.tensorIndex) for one in self._signature(signature).inputs}

    def outputs(self, signature: str) -> dict[str, int]:
        """Tensor index of every output of a signature, by name."""
        return {_text(one.name): int(one.tensorIndex) for one in self._signature(signature).outputs}

    def shape(self, signature: str, tensor: int) -> tuple[int, ...]:
        """Static shape of one tensor."""
        return tuple(int(n) for n in self._subgraph(signature).tensors[tensor].shape)

    def fork(self, signature: str, tensor: int) -> int:
        """The first tensor behind `tensor` that more than one operation reads.

        Behind the token ids of a decoder that is the embedded token: the norm and the residual both want it.
        """
        graph = self._subgraph(signature)
        while True:
            readers = [op for op in graph.operators if tensor in _inputs(op)]
            if len(readers) != 1 or len(readers[0].outputs) != 1:
                return tensor
            tensor = int(readers[0].outputs[0])

    def write(self, pieces: Sequence[Piece], path: Path) -> Path:
        """Write a graph of these pieces only, in their order; weights that several share are still stored once."""
        from ai_edge_litert import schema_py_generated as schema

        model: Any = schema.ModelT()
        for field in ("version", "operatorCodes", "description"):
            setattr(model, field, getattr(self._model, field))
        model.subgraphs, model.signatureDefs = [], []
        for number, piece in enumerate(pieces):
            graph, entry = _cut(self._subgraph(piece.source), piece, schema)
            entry.subgraphIndex = number
            model.subgraphs.append(graph)
            model.signatureDefs.append(entry)
        _keep_buffers(self._model, model)
        path.unlink(missing_ok=True)
        _write(model, path, schema)
        return path

    def _signature(self, name: str) -> Any:
        if name not in self._signatures:
            have = ", ".join(self._signatures) or "none"
            raise LiteRtError(f"The graph {self.path} has no signature {name} (it has {have}); export it again.")
        return self._signatures[name]

    def _subgraph(self, name: str) -> Any:
        return self._model.subgraphs[self._signature(name).subgraphIndex]


def _cut(source: Any, piece: Piece, schema: Any) -> tuple[Any, Any]:
    """The subgraph of one piece with tensors renumbered, and its signature."""
    operators = _needed(source, piece)
    if any(_runs_another(op) for op in operators):
        raise LiteRtError(
            f"{piece.name} holds an operation that runs another subgraph (a loop or a composite), which cannot be "
            "cut out with it; export the graph with mtplab."
        )
    kept = sorted(
        {*piece.inputs.values(), *piece.outputs.values()}
        | {int(i) for op in operators for i in [*_inputs(op), *op.outputs]}
    )
    place = {old: new for new, old in enumerate(kept)} | {-1: -1}
    graph = schema.SubGraphT()
    graph.name = piece.name.encode()
    graph.tensors = [source.tensors[i] for i in kept]
    graph.operators = [_renumbered(op, place, schema) for op in operators]
    graph.inputs = [place[i] for i in piece.inputs.values()]
    graph.outputs = [place[i] for i in piece.outputs.values()]
    entry = schema.SignatureDefT()
    entry.signatureKey = piece.name.encode()
    entry.inputs = [_entry(name, place[i], schema) for name, i in piece.inputs.items()]
    entry.outputs = [_entry(name, place[i], schema) for name, i in piece.outputs.items()]
    return graph, entry


def _needed(source: Any, piece: Piece) -> list[Any]:
    """Operations between the piece's inputs and outputs, in their order."""
    given, waiting = set(piece.inputs.values()), set(piece.outputs.values())
    needed: list[Any] = []
    for op in reversed(source.operators):
        if waiting.isdisjoint(int(i) for i in op.outputs):
            continue
        needed.append(op)
        waiting |= {i for i in _inputs(op) if i not in given}
    missing = {int(i) for i in source.inputs} & waiting - given
    if missing:
        names = ", ".join(sorted(_text(source.tensors[i].name) for i in missing))
        raise LiteRtError(f"{piece.name} would still need {names} as input, so it cannot be cut out of this graph.")
    return needed[::-1]


def _runs_another(op: Any) -> bool:
    options = [vars(one) for one in (op.builtinOptions, op.builtinOptions2) if one is not None]
    return any(name.endswith("SubgraphIndex") for fields in options for name in fields)


def _inputs(op: Any) -> list[int]:
    return [int(i) for i in op.inputs if i >= 0]


def _renumbered(op: Any, place: Mapping[int, int], schema: Any) -> Any:
    made = schema.OperatorT()
    made.__dict__.update(op.__dict__)
    made.inputs = [place[int(i)] for i in op.inputs]
    made.outputs = [place[int(i)] for i in op.outputs]
    made.intermediates = []
    return made


def _entry(name: str, tensor: int, schema: Any) -> Any:
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name.encode(), tensor
    return made


def _keep_buffers(source: Any, model: Any) -> None:
    """Give `model` the buffers that it still uses, and its metadata; its tensors are copied, being renumbered."""
    order: dict[int, int] = {0: 0}  # buffer 0 means "no data" by convention
    for graph in model.subgraphs:
        graph.tensors = [_rebuffered(tensor, order) for tensor in graph.tensors]
    model.metadata = [_rebuffered(entry, order) for entry in source.metadata or []]
    model.buffers = [source.buffers[old] for old in order]


def _rebuffered(item: Any, order: dict[int, int]) -> Any:
    made = type(item)()
    made.__dict__.update(item.__dict__)
    made.buffer = order.setdefault(int(item.buffer), len(order))
    return made


def _write(model: Any, path: Path, schema: Any) -> None:
    """Write the graph with its weights behind it, aligned as the kernels want them.

    Inside, the library would write them one byte at a time and not align them.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    apart: dict[int, bytes] = {}
    for number, buffer in enumerate(model.buffers):
        if buffer.data is not None and len(buffer.data) >= _APART_BYTES:
            apart[number] = bytes(buffer.data)
            model.buffers[number] = holder = schema.BufferT()
            holder.offset, holder.size = 1, len(apart[number])  # a place kept for what is known only now
    head = flatbuffer_utils.convert_object_to_bytearray(model)
    packed, end = schema.Model.GetRootAs(head, 0), len(head)
    places = {}
    for number, data in apart.items():
        places[number] = -(-end // _ALIGNED_BYTES) * _ALIGNED_BYTES
        flatbuffer_utils.update_packed_buffer(packed.Buffers(number), offset=places[number])
        end = places[number] + len(data)
    with path.open("wb") as file:
        file.write(head)
        for number, data in apart.items():
            file.write(bytes(places[number] - file.tell()))
            file.write(data)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
