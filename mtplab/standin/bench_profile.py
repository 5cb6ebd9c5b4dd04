"""benchmark_model's op profile: each operation of the graph timed by itself on this host, in the tool's own tables.

The runtime's own profiler cannot be reached from Python, so every node is cut out into a model of one operation and
really run, with random values. What an accelerator is said to have taken is one row with the rest of the time.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

from mtplab.standin.bench_graph import Graph
from mtplab.standin.bench_stats import summary, tensor_values

MOST_NODES, RUNS = 4000, 5
WIDTH = 40
HEADER = f"\t{'[node type]':>{WIDTH}}\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]"


@dataclass(frozen=True)
class Row:
    """One line of the profile; times in microseconds."""

    kind: str
    name: str
    first_us: float
    mean_us: float  # of a few runs, the median


def op_rows(data: bytes, graph: Graph, skipped: set[int]) -> list[Row]:
    """A row for each node but those skipped, in order of execution; a node that cannot run alone has none.

    Works in a child process: an operation that random values upset must not end the benchmark.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _measure_and_exit(writer, data, graph, skipped)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return [Row(*json.loads(line)) for line in lines]


def _measure_and_exit(writer: int, data: bytes, graph: Graph, skipped: set[int]) -> None:
    status = 1
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromPackedBuf(data, 0)
        for number, node in enumerate(graph.nodes[:MOST_NODES]):
            if number in skipped:
                continue
            try:
                times = _run_alone(schema, model, graph.index, number)
            except (RuntimeError, ValueError, TypeError, KeyError):
                continue
            name = graph.tensor_names[node.outputs[0]] if node.outputs else ""
            # The median: one interruption must not name the slowest operation.
            row = [node.op, f"[{name}]:{number}", times[0], statistics.median(times)]
            os.write(writer, json.dumps(row).encode() + b"\n")
        status = 0
    finally:
        os._exit(status)


def _run_alone(schema: Any, model: Any, subgraph: int, number: int) -> list[float]:
    """Microseconds of some runs of one node."""
    import flatbuffers
    from ai_edge_litert.interpreter import Interpreter

    alone, reads = _cut_out(schema, model, subgraph, number)
    builder = flatbuffers.Builder(1024)
    builder.Finish(alone.Pack(builder), b"TFL3")
    inner = Interpreter(model_content=bytes(builder.Output()), num_threads=1)
    inner.allocate_tensors()
    for place in reads:
        tensor = alone.subgraphs[0].tensors[place]
        shape = tuple(int(size) for size in (tensor.shape if tensor.shape is not None else ()))
        inner.set_tensor(place, tensor_values(shape, tensor.type, ""))
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        inner.invoke()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def _cut_out(schema: Any, model: Any, subgraph: int, number: int) -> tuple[Any, list[int]]:
    """A model of one operation, and which of its tensors must be given values."""
    source = model.subgraphs[subgraph]
    node = source.operators[number]
    made, graph = schema.ModelT(), schema.SubGraphT()
    made.version, made.operatorCodes, made.subgraphs = 3, model.operatorCodes, [graph]
    made.buffers = [schema.BufferT()]
    places: dict[int, int] = {-1: -1}
    graph.tensors, reads = [], []
    for tensor in [*node.inputs, *node.outputs]:
        if int(tensor) in places:
            continue
        places[int(tensor)] = len(graph.tensors)
        copy, buffer = schema.TensorT(), model.buffers[source.tensors[tensor].buffer]
        copy.__dict__.update(source.tensors[tensor].__dict__)
        copy.buffer = 0
        if buffer.data is not None and len(buffer.data):
            copy.buffer = len(made.buffers)
            made.buffers.append(buffer)
        elif tensor in node.inputs:
            reads.append(len(graph.tensors))
        graph.tensors.append(copy)
    only = schema.OperatorT()
    only.__dict__.update(node.__dict__)
    only.inputs = [places[int(tensor)] for tensor in node.inputs]
    only.outputs = [places[int(tensor)] for tensor in node.outputs]
    graph.operators, graph.inputs, graph.outputs = [only], reads, only.outputs
    return made, reads


def profile(
    data: bytes, graph: Graph, taken: set[int], delegate: str, init_us: float, runs_us: list[float]
) -> list[str]:
    """The tool's two entries, about the initialisation and about the runs; `taken` is the accelerator's part."""
    rows = op_rows(data, graph, taken)
    if taken:
        rest_us = max(0.0, sum(runs_us) / max(1, len(runs_us)) - sum(row.mean_us for row in rows))
        rows.insert(0, Row(delegate, f"{delegate}:{len(graph.nodes)}", rest_us, rest_us))
    first = Row("AllocateTensors", "AllocateTensors/0", init_us, init_us)
    begin = ["Profiling Info for Benchmark Initialization:", *_table("Run Order", [first])]
    return ["\n".join(begin), _regular(rows)]


def _regular(rows: list[Row]) -> str:
    slowest = sorted(rows, key=lambda row: -row.mean_us)
    lines = ["Operator-wise Profiling Info for Regular Benchmark Runs:", *_table("Run Order", rows), ""]
    lines += [*_table("Top by Computation Time", slowest[:10]), "", f"Number of nodes executed: {len(rows)}"]
    heads = [f"{head:>10}" for head in ("[count]", "[avg ms]", "[avg %]", "[cdf %]")]
    lines += [_bar("Summary by node type"), "\t".join(["", f"{'[Node type]':>24}", *heads])]
    total, reached = sum(row.mean_us for row in rows) or 1.0, 0.0
    kinds = {row.kind: [other.mean_us for other in rows if other.kind == row.kind] for row in slowest}
    for kind, times in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        reached += sum(times)
        shares = f"{100 * sum(times) / total:9.3f}%\t{100 * reached / total:9.3f}%"
        lines.append(f"\t{kind:>24}\t{len(times):9d}\t{sum(times) / 1e3:10.3f}\t {shares}")
    lines += ["", f"Timings (microseconds): {summary([total])}", "Memory (bytes): count=0"]
    lines += [f"{len(rows)} nodes observed", ""]
    return "\n".join(lines)


def _bar(title: str) -> str:
    return f"{'=' * 30} {title} {'=' * 30}"


def _table(title: str, rows: list[Row]) -> list[str]:
    lines, reached = [_bar(title), HEADER], 0.0
    total = sum(row.mean_us for row in rows) or 1.0
    for row in rows:
        reached += row.mean_us
        shares = f"{100 * row.mean_us / total:7.3f}%\t{100 * reached / total:7.3f}%"
        times = f"{row.first_us / 1e3:9.3f}\t{row.mean_us / 1e3:9.3f}"
        lines.append(f"\t{row.kind:>{WIDTH}}\t{times}\t{shares}\t{0:10.3f}\t{1:9d}\t{row.name}")
    return lines
