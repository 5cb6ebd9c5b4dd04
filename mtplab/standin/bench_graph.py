"""What a .tflite file says about its graphs, and how a delegate would cut one up."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Node:
    """One operation: its type and the tensors it reads and writes."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """One subgraph."""

    index: int
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensor_names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[int, ...]
    calls_other_graphs: bool


@dataclass(frozen=True)
class Model:
    """A file's subgraphs, and which of them each signature runs."""

    graphs: tuple[Graph, ...]
    signatures: dict[str, int]


def read_model(data: bytes) -> Model:
    """Read the flatbuffer; ValueError when it is none."""
    if data[4:8] != b"TFL3":
        raise ValueError("not a .tflite file")
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if name.isupper()}
    model = schema.Model.GetRootAs(data, 0)
    ops = []
    for i in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(i)
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = code.CustomCode()
        ops.append(custom.decode() if custom else names.get(number, str(number)))
    graphs = tuple(_read_graph(model.Subgraphs(i), i, ops) for i in range(model.SubgraphsLength()))
    signatures = {}
    for i in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(i)
        signatures[signature.SignatureKey().decode()] = signature.SubgraphIndex()
    return Model(graphs, signatures)


def _read_graph(table: object, index: int, ops: list[str]) -> Graph:
    get = table.__class__
    nodes = []
    for i in range(get.OperatorsLength(table)):  # type: ignore[attr-defined]
        node = get.Operators(table, i)  # type: ignore[attr-defined]
        reads = tuple(node.Inputs(j) for j in range(node.InputsLength()))
        writes = tuple(node.Outputs(j) for j in range(node.OutputsLength()))
        nodes.append(Node(ops[node.OpcodeIndex()], reads, writes))
    tensors = [get.Tensors(table, i) for i in range(get.TensorsLength(table))]  # type: ignore[attr-defined]
    name = get.Name(table)  # type: ignore[attr-defined]
    calling = {"WHILE", "IF", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "STABLEHLO_CASE"}
    return Graph(
        index=index,
        name=name.decode() if name else "",
        nodes=tuple(nodes),
        inputs=tuple(get.Inputs(table, i) for i in range(get.InputsLength(table))),  # type: ignore[attr-defined]
        outputs=tuple(get.Outputs(table, i) for i in range(get.OutputsLength(table))),  # type: ignore[attr-defined]
        tensor_names=tuple((tensor.Name() or b"").decode() for tensor in tensors),
        shapes=tuple(tuple(tensor.Shape(j) for j in range(tensor.ShapeLength())) for tensor in tensors),
        types=tuple(tensor.Type() for tensor in tensors),
        calls_other_graphs=any(node.op in calling for node in nodes),
    )


def partitions(graph: Graph, taken: set[int]) -> list[tuple[bool, list[int]]]:
    """Cut a graph into subsets that run one after another, each wholly taken or wholly not.

    The greedy scheme of TFLite's PartitionGraphIntoIndependentNodeSubsets: as many ready nodes of one kind as there
    are, then of the other. Gives (taken?, node numbers) in order of execution.
    """
    made_by = {tensor: i for i, node in enumerate(graph.nodes) for tensor in node.outputs}
    waiting = set(range(len(graph.nodes)))
    done: set[int] = set()
    subsets: list[tuple[bool, list[int]]] = []

    def ready(number: int) -> bool:
        needs = (made_by.get(tensor) for tensor in graph.nodes[number].inputs)
        return all(maker is None or maker in done for maker in needs)

    while waiting:
        first = next((i for i in sorted(waiting) if ready(i)), None)
        if first is None:
            raise ValueError("the graph has a circle")
        kind, members = first in taken, []
        for i in sorted(waiting):  # nodes stand in execution order: one pass reaches all that become ready
            if (i in taken) == kind and ready(i):
                members.append(i)
                done.add(i)
        waiting -= set(members)
        subsets.append((kind, members))
    return subsets


def largest_partition(graph: Graph, supported: set[int]) -> tuple[set[int], int]:
    """What a GPU delegate takes by default: the largest supported subset, and the subsets there are then."""
    taken: set[int] = set()
    for kind, members in partitions(graph, supported):
        if kind and len(members) > len(taken):
            taken = set(members)
    return taken, len(partitions(graph, taken))


@dataclass(frozen=True)
class Delegation:
    """How many nodes a delegate took, in how many kernels, out of how many subsets."""

    replaced: int
    total: int
    kernels: int
    subsets: int


def xnnpack_delegation(data: bytes, model: Model, index: int, threads: int) -> Delegation | None:
    """What XNNPACK really takes of a subgraph on this host, seen in a child process; None if that cannot be seen."""
    graph = model.graphs[index]
    if index and any(other.calls_other_graphs for other in model.graphs):
        return None  # moving the graph to the front would renumber what others call
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _inspect_and_exit(writer, with_graph_in_front(data, index), threads)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        return None
    return _delegation(graph, [(tuple(reads), tuple(writes)) for reads, writes in json.loads(answer)])


def _inspect_and_exit(writer: int, data: bytes, threads: int) -> None:
    """In the child: let the runtime apply XNNPACK and report what its kernels read and write."""
    status = 1
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_content=data, num_threads=threads)
        interpreter.allocate_tensors()
        inner = interpreter._interpreter
        kernels = [
            ([int(tensor) for tensor in inner.NodeInputs(i)], [int(tensor) for tensor in inner.NodeOutputs(i)])
            for i in range(inner.NumNodes())
            if "delegate" in inner.NodeName(i).lower()
        ]
        os.write(writer, json.dumps(kernels).encode())
        status = 0
    finally:
        os._exit(status)


def _delegation(graph: Graph, kernels: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Delegation:
    """Which nodes the kernels replaced: all that nobody needs any more once the kernels write their tensors."""
    given = {tensor for _reads, writes in kernels for tensor in writes}
    made_by = {tensor: i for i, node in enumerate(graph.nodes) for tensor in node.outputs}
    wanted = [*graph.outputs, *(tensor for reads, _writes in kernels for tensor in reads)]
    kept = {i for i, node in enumerate(graph.nodes) if not node.outputs}  # such a node acts by side effect
    wanted += [tensor for i in kept for tensor in graph.nodes[i].inputs]
    while wanted:
        tensor = wanted.pop()
        maker = made_by.get(tensor)
        if tensor in given or maker is None or maker in kept:
            continue
        kept.add(maker)
        wanted += graph.nodes[maker].inputs
    replaced = set(range(len(graph.nodes))) - kept
    return Delegation(len(replaced), len(graph.nodes), len(kernels), len(partitions(graph, replaced)))


def with_graph_in_front(data: bytes, index: int) -> bytes:
    """The same model with subgraph `index` swapped into first place (a vector of offsets is edited in place)."""
    if index == 0:
        return data
    edited = bytearray(data)

    def u32(position: int) -> int:
        return int(struct.unpack_from("<I", edited, position)[0])

    root = u32(0)
    vtable = root - struct.unpack_from("<i", edited, root)[0]
    field = struct.unpack_from("<H", edited, vtable + 4 + 2 * 2)[0]  # Model.subgraphs is the third field
    vector = root + field + u32(root + field)
    first, other = vector + 4, vector + 4 + 4 * index
    first_target, other_target = first + u32(first), other + u32(other)
    struct.pack_into("<I", edited, first, other_target - first)
    struct.pack_into("<I", edited, other, first_target - other)
    return bytes(edited)


def read_file(path: str) -> bytes:
    """A model's bytes."""
    return Path(path).read_bytes()
