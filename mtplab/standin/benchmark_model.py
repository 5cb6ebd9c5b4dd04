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
import os
import signal
import time
from typing import Any

from mtplab.standin import bench_flags, bench_stats
from mtplab.standin.bench_delegates import Delegates, read_script
from mtplab.standin.bench_graph import Delegation, Graph, Model, read_file, read_model, xnnpack_delegation
from mtplab.standin.bench_io import RUNTIME, TOOL, Failure, Fatal, Throttle, fail, native_noise_held, say

LAST_LINE = "mtplab stand-in: host timings, not a phone"


class Benchmark:
    """One run of the tool."""

    def __init__(self, flags: bench_flags.Flags) -> None:
        self._flags = flags
        self._delegates = Delegates(flags, read_script())
        self._inputs: list[tuple[int, Any]] = []
        self._throttle = Throttle(self._delegates.die())

    def run(self) -> None:
        """Everything from the parameters to the timings; Failure or Fatal when the real tool would end early."""
        flags = self._flags
        for line in [*flags.log_lines(), *self._delegates.parameter_lines()]:
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
        self._delegates.apply(model, graph, seen)
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
        if not self._flags["use_xnnpack"] or self._delegates.takes_something():
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
        resolver = OpResolverType.AUTO
        if not flags["use_xnnpack"] and not self._delegates.takes_all():
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
            self._delegates.count_inference()
        spent = time.perf_counter() - start
        extra = self._throttle.stretch(spent)
        if extra > 0:
            time.sleep(extra)
        return time.perf_counter() - start


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
