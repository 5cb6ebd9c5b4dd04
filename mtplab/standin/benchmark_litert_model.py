"""The stand-in's benchmark_litert_model: runs a .tflite on this host's CPU and logs it as LiteRT's tool does.

Like the real one it has no verdict of its own and feeds random values only; what accelerators do is the scenario's.
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
from mtplab.standin.bench_accelerators import Accelerators, fail_at, log
from mtplab.standin.bench_delegates import read_script
from mtplab.standin.bench_graph import Delegation, Graph, Model, read_file, read_model, xnnpack_delegation
from mtplab.standin.bench_io import RUNTIME, TOOL, Failure, Throttle, say
from mtplab.standin.bench_run import HostRun, as_program, import_runtime

TOOL_SOURCE, HEADER = "benchmark_litert_model.cc", "benchmark_litert_model.h"


class LitertBenchmark:
    """One run of the tool."""

    def __init__(self, flags: bench_flags.Flags) -> None:
        self._flags = flags
        self._accelerators = Accelerators(flags, read_script())
        throttle = Throttle(self._accelerators.die())
        self._host = HostRun(flags, throttle, self._accelerators.count_inference)

    def run(self) -> None:
        """Everything from the parameters to the results; Failure or Fatal when the real tool would end early."""
        flags = self._flags
        for line in flags.log_lines():
            say(TOOL, "INFO", line)
        if flags.unknown:
            say(TOOL, "WARN", "Unconsumed cmdline flags: " + " ".join(flags.unknown))
        import_runtime()
        start_memory = bench_stats.resident_mb()
        monitor = bench_stats.PeakMemory(start_memory) if flags["report_peak_memory_footprint"] else None
        data, model = self._load()
        signature, graph = self._choose(model)
        seen = self._xnnpack_takes(data, model, graph)
        self._accelerators.register()
        say(RUNTIME, "INFO", "Initialized TensorFlow Lite runtime.")
        start = time.perf_counter()
        self._host.load(flags["graph"], default_delegate=True)
        init_us = (time.perf_counter() - start) * 1e6
        self._accelerators.compile(model, graph, seen)
        start = time.perf_counter()
        self._host.allocate(graph, [])
        init_us += (time.perf_counter() - start) * 1e6
        say(TOOL, "INFO", f"The input model file size (MB): {len(data) / 1e6:g}")
        say(TOOL, "INFO", f"Initialized session in {init_us / 1e3:g}ms.")
        init_memory = bench_stats.resident_mb()
        input_bytes = self._host.prepare_inputs(graph, [])
        warm = self._host.series(graph, flags["warmup_runs"], flags["warmup_min_secs"])
        runs = self._host.series(graph, flags["num_runs"], flags["min_secs"])
        self._say_results(signature, init_us, warm, runs, input_bytes)
        self._say_memory(start_memory, init_memory, monitor)
        log("INFO", f"{HEADER}:138", "======================================\n")

    def _load(self) -> tuple[bytes, Model]:
        path = self._flags["graph"]
        log("INFO", f"{TOOL_SOURCE}:118", f"Loading model from: {path}")
        try:
            data = read_file(path)
            return data, read_model(data)
        except (OSError, ValueError, TypeError, IndexError):
            log("ERROR", f"{TOOL_SOURCE}:121", "Failed to load model.")
            raise Failure(path) from None
        finally:
            for name in ("dispatch_library_path", "compiler_plugin_library_path"):
                log("INFO", f"{TOOL_SOURCE}:97", f"{name}: {self._flags[name]}")

    def _choose(self, model: Model) -> tuple[str, Graph]:
        """The signature asked for, else the first one."""
        wanted = self._flags["signature_to_run_for"] or next(iter(model.signatures), "")
        if wanted in model.signatures:
            return wanted, model.graphs[model.signatures[wanted]]
        if self._flags["signature_to_run_for"]:
            raise fail_at("compiled_model.cc:512", f"Signature {wanted} not found")
        return "<placeholder signature>", model.graphs[0]

    def _xnnpack_takes(self, data: bytes, model: Model, graph: Graph) -> Delegation | None:
        if self._accelerators.takes_all() or self._accelerators.on_gpu():
            return None
        return xnnpack_delegation(data, model, graph.index, max(1, self._flags["num_threads"]))

    @staticmethod
    def _say_results(signature: str, init_us: float, warm: list[float], runs: list[float], input_bytes: int) -> None:
        log("INFO", f"{HEADER}:90", "\n========== BENCHMARK RESULTS ==========")
        mean_us = sum(runs) / len(runs) if runs else 0.0
        warm_us = sum(warm) / len(warm) if warm else 0.0
        lines = {
            92: f"Signature name:       {signature}",
            94: f"Model initialization: {init_us / 1e3:.2f} ms",
            96: f"Warmup (first):       {(warm[0] if warm else 0.0) / 1e3:.2f} ms",
            98: f"Warmup (avg):         {warm_us / 1e3:.2f} ms ({len(warm)} runs)",
            100: f"Inference (avg):      {mean_us / 1e3:.2f} ms ({len(runs)} runs)",
        }
        if runs:
            spread_us = (sum((value - mean_us) ** 2 for value in runs) / len(runs)) ** 0.5
            lines |= {
                104: f"Inference (min):      {min(runs) / 1e3:.2f} ms",
                106: f"Inference (max):      {max(runs) / 1e3:.2f} ms",
                108: f"Inference (std):      {spread_us / 1e3:.2f}",
                115: f"Throughput:           {input_bytes / mean_us:.2f} MB/s",
            }
        else:
            lines[110] = "No inference runs were performed."
            lines[117] = "No throughput data available (throughput <= 0)."
        for line, text in lines.items():
            log("INFO", f"{HEADER}:{line}", text)

    @staticmethod
    def _say_memory(start: float | None, init: float | None, monitor: bench_stats.PeakMemory | None) -> None:
        now = bench_stats.resident_mb()
        if start is None or init is None or now is None:
            return
        log("INFO", f"{HEADER}:124", "\nMemory Usage:")
        log("INFO", f"{HEADER}:126", f"Init footprint:       {max(0.0, init - start):.2f} MB")
        log("INFO", f"{HEADER}:128", f"Overall footprint:    {max(0.0, now - start):.2f} MB")
        if monitor is None:
            log("INFO", f"{HEADER}:135", "Peak memory usage not available. (peak_mem_mb <= 0)")
        else:
            log("INFO", f"{HEADER}:131", f"Peak memory:          {monitor.stop():.2f} MB")


if __name__ == "__main__":
    as_program(lambda words: LitertBenchmark(bench_flags.parse(words, "benchmark_litert_flags.toml")).run())
