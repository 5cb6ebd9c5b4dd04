"""Give blocks of weights a zero point, which LiteRT's blockwise int4 lacks, by rewriting the float graph.

W·x = (W − C⊗1)·x + C·s, where C[out, in/block] is the middle of each block's range and s the sums of x over the
blocks. The first product is what remains for int4, now around zero; the second is 1/block of the size and goes int8.
For weights that were quantised once with scale and minimum (GGUF's Q4_1) the rest lies on −8…7 steps almost exactly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtplab.litert.audit import Use
from mtplab.litert.errors import LiteRtError

Floats = NDArray[np.float32]


def middles(weight: Floats, block: int, bits: int) -> Floats:
    """C[out, in/block] that maps a block's range onto −2^(bits−1)…2^(bits−1)−1, rounded as int8 per row rounds."""
    blocks = weight.reshape(len(weight), -1, block)
    low, high = blocks.min(axis=2), blocks.max(axis=2)
    middle = low + (high - low) * 2 ** (bits - 1) / (2**bits - 1)
    scale = np.maximum(np.abs(middle).max(axis=1, keepdims=True) / 127, 1e-12)
    return np.asarray(np.rint(middle / scale) * scale, np.float32)


def split_offsets(source: Path, target: Path, uses: Iterable[Use], block: int, bits: int) -> dict[Use, Use]:
    """Write `source` to `target` with those FULLY_CONNECTED weights split; returns the use of C beside each use.

    The output of the remaining product keeps the operation's name, so that a use is found again.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    rewriter = _Rewriter(flatbuffer_utils.read_model(str(source)), block, bits)
    added = rewriter.rewrite({(use.signature, use.output): use for use in uses})
    flatbuffer_utils.write_model(rewriter.model, str(target))
    return added


class _Rewriter:
    """One model while it is being rewritten; buffers are shared between signatures and made once."""

    def __init__(self, model: Any, block: int, bits: int) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.model, self.block, self.bits, self._schema = model, block, bits, schema
        self._middle_buffers: dict[int, tuple[int, tuple[int, int]]] = {}
        self._sum_buffers: dict[int, int] = {}

    def rewrite(self, places: dict[tuple[str, str], Use]) -> dict[Use, Use]:
        added: dict[Use, Use] = {}
        for signature in self.model.signatureDefs:
            graph = self.model.subgraphs[signature.subgraphIndex]
            key = signature.signatureKey.decode()
            sums: dict[int, int] = {}
            operators = []
            for op in graph.operators:
                name = graph.tensors[op.outputs[0]].name.decode()
                use = places.get((key, name))
                if use is None:
                    operators.append(op)
                    continue
                operators += self._split(key, graph, op, sums)
                added[use] = Use(key, use.op, f"{name}/offsets")
            graph.operators = operators
        return added

    def _split(self, key: str, graph: Any, op: Any, sums: dict[int, int]) -> list[Any]:
        """The operations that stand in for one: block sums once per input, the two products, their sum."""
        x, weight, output = int(op.inputs[0]), graph.tensors[op.inputs[1]], graph.tensors[op.outputs[0]]
        width = int(weight.shape[1])
        if width % self.block:
            raise LiteRtError(
                f"The weight of {output.name.decode()} is {width} wide, which blocks of {self.block} do not divide; "
                "choose smaller blocks."
            )
        before = []
        if x not in sums:
            shape = [*(int(n) for n in graph.tensors[x].shape[:-1]), width // self.block]
            name = f"{key}/block_sums_{x}"  # the quantizer wants names that are unique in the whole file
            ones = self._tensor(graph, self._ones(width), [width // self.block, width], f"{name}/ones")
            sums[x] = self._tensor(graph, 0, shape, name)
            before.append(self._operator(op, [x, ones, -1], [sums[x]]))
        buffer, shape_c = self._middles(weight)
        middle = self._tensor(graph, buffer, list(shape_c), f"{output.name.decode()}/middles")
        shape = [int(n) for n in output.shape]
        offsets = self._tensor(graph, 0, shape, f"{output.name.decode()}/offsets")
        steps = self._tensor(graph, 0, shape, output.name.decode())
        output.name += b"/whole"
        whole = op.outputs[0]
        op.outputs = [steps]
        return [*before, op, self._operator(op, [sums[x], middle, -1], [offsets]), self._add(steps, offsets, whole)]

    def _middles(self, weight: Any) -> tuple[int, tuple[int, int]]:
        """The buffer of C; the weight's own buffer then holds what remains."""
        if weight.buffer not in self._middle_buffers:
            stored = self.model.buffers[weight.buffer]
            values = np.frombuffer(bytes(stored.data), np.float32).reshape([int(n) for n in weight.shape])
            c = middles(values, self.block, self.bits)
            rest = values - np.repeat(c, self.block, axis=1)
            stored.data = np.frombuffer(rest.tobytes(), np.uint8)
            self._middle_buffers[weight.buffer] = (self._buffer(c), (int(c.shape[0]), int(c.shape[1])))
        return self._middle_buffers[weight.buffer]

    def _ones(self, width: int) -> int:
        if width not in self._sum_buffers:
            ones = np.repeat(np.eye(width // self.block, dtype=np.float32), self.block, axis=1)
            self._sum_buffers[width] = self._buffer(ones)
        return self._sum_buffers[width]

    def _buffer(self, values: Floats) -> int:
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(values.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def _tensor(self, graph: Any, buffer: int, shape: list[int], name: str) -> int:
        tensor = self._schema.TensorT()
        tensor.shape, tensor.buffer, tensor.name = shape, buffer, name.encode()
        tensor.type, tensor.hasRank = self._schema.TensorType.FLOAT32, True
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    def _operator(self, like: Any, inputs: list[int], outputs: list[int]) -> Any:
        op = copy.copy(like)
        op.inputs, op.outputs = inputs, outputs
        return op

    def _add(self, left: int, right: int, output: int) -> Any:
        schema = self._schema
        op = schema.OperatorT()
        op.opcodeIndex = self._add_code()
        op.inputs, op.outputs = [left, right], [output]
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
        return op

    def _add_code(self) -> int:
        add = self._schema.BuiltinOperator.ADD
        for index, code in enumerate(self.model.operatorCodes):
            if code.builtinCode == add:
                return index
        code = self._schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = add, add, 1
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1
