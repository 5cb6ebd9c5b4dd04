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

import time

from mtplab.standin import bench_flags, bench_stats
from mtplab.standin.bench_delegates import Delegates, read_script
from mtplab.standin.bench_graph import Delegation, Graph, Model, read_file, read_model, xnnpack_delegation
from mtplab.standin.bench_io import RUNTIME, TOOL, Failure, Fatal, Throttle, fail, say
from mtplab.standin.bench_profile import profile
from mtplab.standin.bench_run import HostRun, as_program, import_runtime


class Benchmark:
    """One run of the tool."""

    def __init__(self, flags: bench_flags.Flags) -> None:
        self._flags = flags
        self._delegates = Delegates(flags, read_script())
        self._host = HostRun(flags, Throttle(self._delegates.die()), self._delegates.count_inference)

    def run(self) -> None:
        """Everything from the parameters to the timings; Failure or Fatal when the real tool would end early."""
        flags = self._flags
        for line in [*flags.log_lines(), *self._delegates.parameter_lines()]:
            say(TOOL, "INFO", line)
        if flags.unknown:
            say(TOOL, "WARN", "Unconsumed cmdline flags: " + " ".join(flags.unknown))
        if not flags["graph"]:
            raise fail("Please specify the name of your TF Lite input file with --graph")
        import_runtime()
        start_memory = bench_stats.resident_mb()
        monitor = bench_stats.PeakMemory(start_memory) if flags["report_peak_memory_footprint"] else None
        data, model = self._load()
        seen = self._delegation_seen(data, model)
        graph = self._choose_graph(model)
        layers = self._check_layers(graph)
        # Only the runtime's own work counts: reading the graph for the log's sake is no part of what the tool does.
        start = time.perf_counter()
        self._host.load(flags["graph"], default_delegate=flags["use_xnnpack"] or self._delegates.takes_all())
        init_us = (time.perf_counter() - start) * 1e6
        self._delegates.apply(model, graph, seen)
        start = time.perf_counter()
        self._host.allocate(graph, layers)
        init_us += (time.perf_counter() - start) * 1e6
        say(TOOL, "INFO", f"The input model file size (MB): {len(data) / 1e6:g}")
        say(TOOL, "INFO", f"Initialized session in {init_us / 1e3:g}ms.")
        init_memory = bench_stats.resident_mb()
        self._host.prepare_inputs(graph, layers)
        warm = self._host.series(graph, flags["warmup_runs"], flags["warmup_min_secs"])
        runs = self._host.series(graph, flags["num_runs"], flags["min_secs"])
        for line in bench_stats.closing_lines(init_us, warm, runs, start_memory, init_memory, monitor):
            say(TOOL, "INFO", line)
        if flags["enable_op_profiling"]:
            taken, delegate = self._delegates.taken(graph)
            for entry in profile(data, graph, taken, delegate, init_us, runs):
                say(TOOL, "INFO", entry)
        if flags["output_filepath"]:
            self._host.save_outputs(graph, flags["output_filepath"], self._delegates.overflows())

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


if __name__ == "__main__":
    as_program(lambda words: Benchmark(bench_flags.parse(words, "benchmark_flags.toml")).run())
