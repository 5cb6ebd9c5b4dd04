"""The stand-in's benchmark_model: runs a .tflite on this host's CPU and logs it as TFLite's tool of that name does.

Times are measured here; only the lines about a GPU, which a host cannot have, come from the scenario. Texts and
streams follow LiteRT's tflite/tools/benchmark: tool lines on stdout, runtime lines and errors on stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # started by path: find this package without putting its neighbours before the stdlib
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    __import__("mtplab")
    del sys.path[0]

import importlib
import json
import os
import signal
import time
from typing import Any

from mtplab.standin import bench_flags, bench_stats
from mtplab.standin.bench_graph import (
    Delegation,
    Graph,
    Model,
    largest_partition,
    read_file,
    read_model,
    xnnpack_delegation,
)  # fmt: skip
from mtplab.standin.bench_io import RUNTIME, TOOL, Failure, Fatal, Throttle, fail, native_noise_held, say

GPU_SCRIPT = "MTPLAB_STANDIN_GPU"
LAST_LINE = "mtplab stand-in: host timings, not a phone"


class Benchmark:
    """One run of the tool."""

    def __init__(self, flags: bench_flags.Flags) -> None:
        self._flags = flags
        script = json.loads(os.environ.get(GPU_SCRIPT, '{"outcome": "full", "refuses": {}}'))
        self._outcome, self._refuses = script["outcome"], script["refuses"]
        self._inputs: list[tuple[int, Any]] = []
        on_gpu = flags["use_gpu"] and self._outcome in ("full", "partial")
        self._throttle = Throttle("G3D" if on_gpu else "BIG")

    def run(self) -> None:
        """Everything from the parameters to the timings; Failure or Fatal when the real tool would end early."""
        flags = self._flags
        for line in flags.log_lines():
            say(TOOL, "INFO", line)
        if flags.unknown:
            say(TOOL, "WARN", "Unconsumed cmdline flags: " + " ".join(flags.unknown))
        if not flags["graph"]:
            raise fail("Please specify the name of your TF Lite input file with --graph")
        # Loading Python's own libraries is no part of what the tool would do: it stays out of time and memory.
        importlib.import_module("ai_edge_litert.interpreter")
        importlib.import_module("ai_edge_litert.schema_py_generated")
        start_memory = bench_stats.resident_mb()
        monitor = bench_stats.PeakMemory(start_memory) if flags["report_peak_memory_footprint"] else None
        data, model = self._load()
        seen = self._delegation_seen(data, model)
        graph = self._choose_graph(model)
        layers = self._check_layers(graph)
        # Only the runtime's own work counts: reading the graph for the log's sake is no part of what the tool does.
        start = time.perf_counter()
        interpreter = self._interpreter()
        init_us = (time.perf_counter() - start) * 1e6
        self._apply_delegates(model, graph, seen)
        start = time.perf_counter()
        self._allocate(interpreter, graph, layers)
        init_us += (time.perf_counter() - start) * 1e6
        say(TOOL, "INFO", f"The input model file size (MB): {len(data) / 1e6:g}")
        say(TOOL, "INFO", f"Initialized session in {init_us / 1e3:g}ms.")
        init_memory = bench_stats.resident_mb()
        self._prepare_inputs(graph, layers)
        inner = interpreter._interpreter
        warm = self._series(inner, graph, flags["warmup_runs"], flags["warmup_min_secs"])
        runs = self._series(inner, graph, flags["num_runs"], flags["min_secs"])
        for line in bench_stats.closing_lines(init_us, warm, runs, start_memory, init_memory, monitor):
            say(TOOL, "INFO", line)

    # --- loading

    def _load(self) -> tuple[bytes, Model]:
        path = self._flags["graph"]
        try:
            data = read_file(path)
        except OSError:
            say(RUNTIME, "ERROR", f"Could not open '{path}'.")
            raise fail(f"Failed to load model {path}") from None
        try:
            model = read_model(data)
        except (ValueError, TypeError, IndexError):
            say(RUNTIME, "ERROR", "Model provided has model identifier that is not TFL3.")
            raise fail(f"Failed to load model {path}") from None
        say(TOOL, "INFO", f"Loaded model {path}")
        say(RUNTIME, "INFO", "Initialized TensorFlow Lite runtime.")
        return data, model

    def _delegation_seen(self, data: bytes, model: Model) -> Delegation | None:
        wanted = self._flags["signature_to_run_for"]
        index = model.signatures.get(wanted, 0)
        if not self._flags["use_xnnpack"] or (self._flags["use_gpu"] and self._outcome != "none"):
            return None
        return xnnpack_delegation(data, model, index, max(1, self._flags["num_threads"]))

    def _choose_graph(self, model: Model) -> Graph:
        wanted, keys = self._flags["signature_to_run_for"], list(model.signatures)
        if self._flags["list_signatures"]:
            say(TOOL, "INFO", f"The Model contains {len(keys)} signature key(s).")
            for key in keys:
                say(TOOL, "INFO", f"-> Signature Key: {key}")
            raise Failure("listed")
        if not keys:
            if wanted:
                raise fail("Signature key is specified, but the model does not have any signatures.")
            return model.graphs[0]
        if len(keys) == 1 and not wanted:
            wanted = keys[0]
        if wanted not in keys:
            flag = '"--signature_to_run_for"'
            error = fail(f"Signature not specified or incorrect. Pass one of the following to the flag {flag}")
            for key in keys:
                say(RUNTIME, "ERROR", f" #> Signature key: {key}")
            raise error
        say(TOOL, "INFO", f"Using signature: {wanted}")
        return model.graphs[model.signatures[wanted]]

    def _interpreter(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        flags = self._flags
        gpu_runs = flags["use_gpu"] and self._outcome in ("full", "dynamic", "crash")
        resolver = OpResolverType.AUTO
        if not flags["use_xnnpack"] and not gpu_runs:
            resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        with native_noise_held() as noise:
            try:
                return Interpreter(
                    model_path=flags["graph"],
                    num_threads=max(1, flags["num_threads"]),
                    experimental_op_resolver_type=resolver,
                )
            except (RuntimeError, ValueError) as error:
                noise.show()
                raise fail(f"Failed to initialize the interpreter: {error}") from None

    # --- delegates

    def _apply_delegates(self, model: Model, graph: Graph, seen: Delegation | None) -> None:
        flags = self._flags
        applied = False
        if flags["use_nnapi"]:
            say(TOOL, "WARN", "NNAPI acceleration is unsupported on this platform.")
        if flags["use_gpu"]:
            self._apply_gpu(model, graph)
            applied = True
        explicit = "use_xnnpack" in flags.given and flags["use_xnnpack"]
        if explicit and not (flags["use_gpu"] and self._outcome == "full"):
            self._apply_xnnpack(graph, seen)
            applied = True
        if not applied and flags["require_full_delegation"]:
            raise fail("Disallowed CPU fallback detected.")
        default = flags["use_xnnpack"] and not explicit
        if default and not (flags["use_gpu"] and self._outcome == "full"):
            say(RUNTIME, "INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")
            if seen is not None:
                _say_replacing(graph, seen.replaced, seen.total, "TfLiteXNNPackDelegate", seen.subsets)

    def _apply_xnnpack(self, graph: Graph, seen: Delegation | None) -> None:
        say(RUNTIME, "INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")
        say(TOOL, "INFO", "XNNPACK delegate created.")
        if seen is None:
            return  # how much XNNPACK took cannot be seen here, so nothing is said of it
        _say_replacing(graph, seen.replaced, seen.total, "TfLiteXNNPackDelegate", seen.subsets)
        self._say_verdict("XNNPACK", seen.kernels, seen.kernels == 1 and seen.subsets == 1)

    def _apply_gpu(self, model: Model, graph: Graph) -> None:
        say(RUNTIME, "INFO", "Created TensorFlow Lite delegate for GPU.")
        say(TOOL, "INFO", "GPU delegate created.")
        if self._outcome == "dynamic":
            tensor = graph.nodes[-1].outputs[0] if graph.nodes and graph.nodes[-1].outputs else 0
            say(
                RUNTIME,
                "WARNING",
                "Attempting to use a delegate that only supports static-sized tensors with a graph that has "
                f"dynamic-sized tensors (tensor#{tensor} is a dynamic-sized tensor).",
            )
            raise fail("Failed to apply GPU delegate.")
        if self._outcome == "none":
            self._say_verdict("GPU", 0, False)
            return
        say(TOOL, "INFO", "Loaded OpenCL library with dlopen.")
        if self._outcome == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        for other in model.graphs:
            taken = self._gpu_takes(other, graph)
            if other is graph:
                kernels, whole = (1 if taken else 0), len(taken) == len(other.nodes)
        self._say_verdict("GPU", kernels, whole)

    def _gpu_takes(self, other: Graph, graph: Graph) -> set[int]:
        """Say what the delegate takes of one subgraph (it is applied to all of them)."""
        refused = self._refused(other) if self._outcome == "partial" else {}
        supported = {i for i, node in enumerate(other.nodes) if node.op not in refused}
        taken, subsets = largest_partition(other, supported)
        rest = len(other.nodes) - len(taken)
        if refused:
            lines = [f"{op}: {reason}" for op, reason in sorted(refused.items())]
            lines.append(
                f"{len(taken)} operations will run on the GPU, and the remaining {rest} operations will run on "
                "the CPU."
            )
            say(RUNTIME, "ERROR", "\n".join(["Following operations are not supported by GPU delegate:", *lines]))
        if taken:
            _say_replacing(other, len(taken), len(other.nodes), "TfLiteGpuDelegateV2", subsets)
            say(RUNTIME, "INFO", "Initialized OpenCL-based API.")
            say(RUNTIME, "INFO", "Created 1 GPU delegate kernels.")
        return taken

    def _refused(self, graph: Graph) -> dict[str, str]:
        present = {node.op for node in graph.nodes}
        refused = {op: reason for op, reason in self._refuses.items() if op in present}
        if refused or not graph.nodes:
            return refused
        # The scenario says "partial": where no listed operation occurs, the last one is refused.
        return {graph.nodes[-1].op: "OP is supported, but tensor type/shape isn't compatible."}

    def _say_verdict(self, name: str, kernels: int, whole: bool) -> None:
        if self._flags["require_full_delegation"] and not whole:
            raise fail("Disallowed CPU fallback detected.")
        said = f"Explicitly applied {name} delegate, and the model graph will be"
        if whole:
            say(TOOL, "INFO", f"{said} completely executed by the delegate.")
        elif kernels:
            say(TOOL, "INFO", f"{said} partially executed by the delegate w/ {kernels} delegate kernels.")
        else:
            text = f"Though {name} delegate is explicitly applied, the model graph will not be executed by the"
            say(TOOL, "INFO", f"{text} delegate.")

    # --- inputs

    def _check_layers(self, graph: Graph) -> list[bench_stats.Layer]:
        flags = self._flags
        try:
            layers = bench_stats.parse_layers(
                flags["input_layer"], flags["input_layer_shape"], flags["input_layer_value_files"]
            )
        except ValueError as error:
            raise fail(str(error)) from None
        if layers and len(layers) != len(graph.inputs):
            raise Fatal(f"Inputs mismatch: Model inputs #:{len(layers)} expected: {len(graph.inputs)}")
        for layer, tensor in zip(layers, graph.inputs, strict=False):
            if layer.name != graph.tensor_names[tensor]:
                said = f"Tensor # {tensor} is named {graph.tensor_names[tensor]} but flags call it {layer.name}"
                say(TOOL, "WARN", said)
            if len(layer.shape) != len(graph.shapes[tensor]):
                raise fail(f"Input tensor #{tensor} should have {len(graph.shapes[tensor])} dimensions!")
        return layers

    def _allocate(self, interpreter: Any, graph: Graph, layers: list[bench_stats.Layer]) -> None:
        import numpy as np  # loaded with the runtime above

        inner = interpreter._interpreter
        with native_noise_held() as noise:
            try:
                for layer, tensor in zip(layers, graph.inputs, strict=False):
                    if layer.shape != graph.shapes[tensor]:
                        shape = np.array(layer.shape, dtype=np.int32)
                        inner.ResizeInputTensor(tensor, shape, False, graph.index)
                inner.AllocateTensors(graph.index)
            except (RuntimeError, ValueError):
                noise.show()
                raise fail("Failed to allocate tensors!") from None

    def _prepare_inputs(self, graph: Graph, layers: list[bench_stats.Layer]) -> None:
        for number, tensor in enumerate(graph.inputs):
            layer = layers[number] if layers else None
            shape = layer.shape if layer else graph.shapes[tensor]
            path = layer.path if layer else ""
            self._inputs.append((tensor, bench_stats.tensor_values(shape, graph.types[tensor], path)))

    # --- running

    def _series(self, inner: Any, graph: Graph, least_runs: int, least_seconds: float) -> list[float]:
        most = self._flags["max_secs"]
        say(
            TOOL,
            "INFO",
            f"Running benchmark for at least {least_runs} iterations and at least {least_seconds:g} seconds but "
            f"terminate if exceeding {most:g} seconds.",
        )
        times_us: list[float] = []
        start = time.perf_counter()
        while True:
            elapsed = time.perf_counter() - start
            if (len(times_us) >= least_runs and elapsed >= least_seconds) or elapsed > most:
                break
            times_us.append(self._once(inner, graph) * 1e6)
            if self._flags["run_delay"] > 0:
                time.sleep(self._flags["run_delay"])
        say(TOOL, "INFO", bench_stats.summary(times_us))
        os.write(TOOL, b"\n")
        return times_us

    def _once(self, inner: Any, graph: Graph) -> float:
        for tensor, values in self._inputs:  # the arena may have reused their memory
            inner.SetTensor(tensor, values, graph.index)
        start = time.perf_counter()
        if not self._flags["dry_run"]:
            inner.Invoke(graph.index)
        spent = time.perf_counter() - start
        extra = self._throttle.stretch(spent)
        if extra > 0:
            time.sleep(extra)
        return time.perf_counter() - start


def _say_replacing(graph: Graph, replaced: int, total: int, delegate: str, subsets: int) -> None:
    name = f" ({graph.name})" if graph.name else ""
    say(
        RUNTIME,
        "VERBOSE",
        f"Replacing {replaced} out of {total} node(s) with delegate ({delegate}) node, yielding {subsets} "
        f"partitions for subgraph {graph.index}{name}.",
    )


def main(arguments: list[str]) -> int:
    """Run the tool; its exit code."""
    say(TOOL, "INFO", "STARTING!")
    try:
        Benchmark(bench_flags.parse(arguments)).run()
    except ImportError as error:
        say(RUNTIME, "ERROR", f"the stand-in runs models with LiteRT ({error}): pip install 'mtplab[pipeline]'")
        return 1
    except bench_flags.FlagError as error:
        say(RUNTIME, "ERROR", str(error))
        return 1
    except Failure:
        say(RUNTIME, "ERROR", "Benchmarking failed.")
        return 1
    except Fatal as error:
        say(RUNTIME, "FATAL", str(error))
        os.kill(os.getpid(), signal.SIGABRT)
    say(TOOL, "INFO", LAST_LINE)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
