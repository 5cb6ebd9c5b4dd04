"""A .tflite file written by hand: a row of operations, real enough to be run and made in no time."""

from __future__ import annotations

from typing import Any

import numpy
from ai_edge_litert import schema_py_generated as schema

WIDTH = 16
# What each operation needs besides its input: a weight, and a table of options.
_WITH_WEIGHT = {"FULLY_CONNECTED": "FullyConnectedOptions", "BATCH_MATMUL": "BatchMatMulOptions"}
_KINDS = (*_WITH_WEIGHT, "TANH")


def tflite(signatures: dict[str, list[str]]) -> bytes:
    """A model of one signature per entry, which runs its operations one after the other on float32[1, 16].

    Operations are FULLY_CONNECTED, BATCH_MATMUL and TANH. The tensors of a signature NAME are NAME_x (the input),
    NAME_w (the weight that all share) and NAME_0, NAME_1 …, of which the last is the output.
    """
    import flatbuffers

    model = schema.ModelT()
    model.version = 3
    model.operatorCodes = [_code(kind) for kind in _KINDS]
    model.buffers = [schema.BufferT(), schema.BufferT()]
    weights = numpy.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(numpy.float32)
    model.buffers[1].data = numpy.frombuffer(weights.tobytes(), dtype=numpy.uint8)
    model.subgraphs = [_graph(name, kinds) for name, kinds in signatures.items()]
    model.signatureDefs = [_signature(name, i, len(kinds) + 1) for i, (name, kinds) in enumerate(signatures.items())]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _code(kind: str) -> Any:
    made = schema.OperatorCodeT()
    number = getattr(schema.BuiltinOperator, kind)
    made.builtinCode, made.deprecatedBuiltinCode, made.version = number, number, 1
    return made


def _graph(name: str, kinds: list[str]) -> Any:
    made = schema.SubGraphT()
    made.name = name.encode()
    made.tensors = [_tensor(f"{name}_x", [1, WIDTH]), _tensor(f"{name}_w", [WIDTH, WIDTH], buffer=1)]
    made.tensors += [_tensor(f"{name}_{i}", [1, WIDTH]) for i in range(len(kinds))]
    made.operators = [_node(kind, 0 if i == 0 else i + 1, i + 2) for i, kind in enumerate(kinds)]
    made.inputs, made.outputs = [0], [len(kinds) + 1]
    return made


def _tensor(name: str, shape: list[int], buffer: int = 0) -> Any:
    made = schema.TensorT()
    made.name, made.shape, made.type, made.buffer = name.encode(), shape, schema.TensorType.FLOAT32, buffer
    return made


def _node(kind: str, reads: int, writes: int) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex, made.outputs = _KINDS.index(kind), [writes]
    made.inputs = [reads]
    if kind in _WITH_WEIGHT:
        made.inputs = [reads, 1, -1] if kind == "FULLY_CONNECTED" else [reads, 1]
        options = _WITH_WEIGHT[kind]
        made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        made.builtinOptions = getattr(schema, f"{options}T")()
    return made


def _signature(name: str, subgraph: int, output: int) -> Any:
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = name.encode(), subgraph
    for field, index, key in (("inputs", 0, b"x"), ("outputs", output, b"y")):
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = key, index
        setattr(made, field, [entry])
    return made
