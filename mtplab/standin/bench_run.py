"""What both benchmark programs do on this host: load a model, give it inputs, run and time it, and end as a tool."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from mtplab.standin import bench_flags, bench_stats
from mtplab.standin.bench_graph import Graph
from mtplab.standin.bench_io import RUNTIME, TOOL, Failure, Fatal, Throttle, fail, native_noise_held, say

LAST_LINE = "mtplab stand-in: host timings, not a phone"


def import_runtime() -> None:
    """Loading Python's own libraries is no part of what a tool would do: it stays out of time and memory."""
    importlib.import_module("ai_edge_litert.interpreter")
    importlib.import_module("ai_edge_litert.schema_py_generated")


class HostRun:
    """One model on this host's CPU, as slow as the phone's clocks are now."""

    def __init__(self, flags: bench_flags.Flags, throttle: Throttle, after_inference: Callable[[], None]) -> None:
        self._flags, self._throttle, self._after_inference = flags, throttle, after_inference
        self._inner: Any = None
        self._inputs: list[tuple[int, Any]] = []

    def load(self, path: str, default_delegate: bool) -> None:
        """Make the interpreter; Failure when the runtime refuses the model."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.AUTO if default_delegate else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        with native_noise_held() as noise:
            try:
                made = Interpreter(
                    model_path=path,
                    num_threads=max(1, self._flags["num_threads"]),
                    experimental_op_resolver_type=resolver,
                )
            except (RuntimeError, ValueError) as error:
                noise.show()
                raise fail(f"Failed to initialize the interpreter: {error}") from None
        self._inner = made._interpreter

    def allocate(self, graph: Graph, layers: list[bench_stats.Layer]) -> None:
        """Give every tensor its memory; inputs take the shapes of `layers`."""
        import numpy as np  # loaded with the runtime above

        with native_noise_held() as noise:
            try:
                for layer, tensor in zip(layers, graph.inputs, strict=False):
                    if layer.shape != graph.shapes[tensor]:
                        shape = np.array(layer.shape, dtype=np.int32)
                        self._inner.ResizeInputTensor(tensor, shape, False, graph.index)
                self._inner.AllocateTensors(graph.index)
            except (RuntimeError, ValueError):
                noise.show()
                raise fail("Failed to allocate tensors!") from None

    def prepare_inputs(self, graph: Graph, layers: list[bench_stats.Layer]) -> int:
        """Random values, or those of the layers' files; how many bytes they are."""
        for number, tensor in enumerate(graph.inputs):
            layer = layers[number] if layers else None
            shape = layer.shape if layer else graph.shapes[tensor]
            path = layer.path if layer else ""
            self._inputs.append((tensor, bench_stats.tensor_values(shape, graph.types[tensor], path)))
        return sum(int(values.nbytes) for _, values in self._inputs)

    def series(self, graph: Graph, least_runs: int, least_seconds: float) -> list[float]:
        """Run until there are enough runs and seconds; each run's time in microseconds. Logs as the tools do."""
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
            times_us.append(self._once(graph) * 1e6)
            if self._flags["run_delay"] > 0:
                time.sleep(self._flags["run_delay"])
        say(TOOL, "INFO", bench_stats.summary(times_us))
        os.write(TOOL, b"\n")
        return times_us

    def save_outputs(self, graph: Graph, path: str, overflows: bool) -> None:
        """All outputs one after the other as raw bytes; like the tool, silent about a file it cannot write.

        `overflows`: the largest value of each is infinite, as half precision leaves it.
        """
        with contextlib.suppress(OSError), Path(path).open("wb") as file:
            for tensor in graph.outputs:
                values = self._inner.GetTensor(tensor, graph.index)
                if overflows and values.dtype.kind == "f":
                    values.flat[values.argmax()] = float("inf")
                file.write(values.tobytes())

    def _once(self, graph: Graph) -> float:
        for tensor, values in self._inputs:  # the arena may have reused their memory
            self._inner.SetTensor(tensor, values, graph.index)
        start = time.perf_counter()
        if not self._flags["dry_run"]:
            self._inner.Invoke(graph.index)
            self._after_inference()
        spent = time.perf_counter() - start
        extra = self._throttle.stretch(spent)
        if extra > 0:
            time.sleep(extra)
        return time.perf_counter() - start


def as_program(work: Callable[[list[str]], None]) -> NoReturn:
    """Run a tool with the process's arguments and end the process as the tool would end."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    say(TOOL, "INFO", "STARTING!")
    sys.exit(_status(work))


def _status(work: Callable[[list[str]], None]) -> int:
    try:
        work(sys.argv[1:])
    except ImportError as error:
        say(RUNTIME, "ERROR", f"the stand-in runs models with LiteRT ({error}): pip install 'mtplab[pipeline]'")
        return 1
    except bench_flags.FlagError as error:
        for line in (str(error), error.usage, "Benchmarking failed."):
            say(RUNTIME, "ERROR", line)
        return 1
    except Failure:
        say(RUNTIME, "ERROR", "Benchmarking failed.")
        return 1
    except Fatal as error:
        say(RUNTIME, "FATAL", str(error))
        os.kill(os.getpid(), signal.SIGABRT)
    say(TOOL, "INFO", LAST_LINE)
    return 0
