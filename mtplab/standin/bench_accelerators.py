"""What LiteRT's accelerators say while a model is compiled for them; those of GPU and NPU are the scenario's."""

from __future__ import annotations

import os
import signal

from mtplab.standin import bench_flags
from mtplab.standin.bench_delegates import (
    GPU_RUNS,
    GPU_TAKES_ALL,
    Script,
    count_inference,
    fail_dynamic,
    gpu_refused,
    say_replacing,
)
from mtplab.standin.bench_graph import Delegation, Graph, Model, largest_partition
from mtplab.standin.bench_io import RUNTIME, Failure, Fatal, say

DELEGATES = {"full": "LITERT_CL", "partial": "LITERT_CL", "gl": "LITERT_GL"}
INVALID = "kLiteRtStatusErrorInvalidArgument"


def log(severity: str, place: str, text: str) -> None:
    """One line of LITERT_LOG, which names the place in the source."""
    say(RUNTIME, severity, f"[{place}] {text}")


def fail_at(place: str, text: str) -> Failure:
    """Print an error of LiteRT and what the tool makes of it."""
    log("ERROR", place, text)
    log("ERROR", "benchmark_litert_model.cc:152", "Failed to compile model.")
    return Failure(text)


class Accelerators:
    """The accelerators of one run of benchmark_litert_model."""

    def __init__(self, flags: bench_flags.Flags, script: Script) -> None:
        self._flags, self._script = flags, script

    # --- what they do

    def with_cpu(self) -> bool:
        """True when the CPU may take what the others leave: only a full delegation without --use_cpu forbids it."""
        return bool(self._flags["use_cpu"] or not self._flags["require_full_delegation"])

    def on_npu(self) -> bool:
        """True when inferences are the NPU's: it works, and a dispatch library was named."""
        return bool(self._flags["use_npu"] and self._script.npu == "full" and self._flags["dispatch_library_path"])

    def on_gpu(self) -> bool:
        """True when the GPU takes a part of the graph; the NPU is asked first."""
        return bool(self._flags["use_gpu"] and self._script.gpu in GPU_RUNS and not self.on_npu())

    def die(self) -> str:
        """The die that works."""
        return "TPU" if self.on_npu() else "G3D" if self.on_gpu() else "BIG"

    def takes_all(self) -> bool:
        """True when the CPU's delegate has nothing left to take."""
        return self.on_npu() or (self.on_gpu() and self._script.gpu in GPU_TAKES_ALL)

    def count_inference(self) -> None:
        """An inference on the NPU moves its counter."""
        if self.on_npu():
            count_inference()

    # --- what they say

    def register(self) -> None:
        """What the environment says of each accelerator, asked for or not."""
        if self._flags["require_full_delegation"] and self._flags["use_cpu"]:
            said = "Requesting full delegation and CPU acceleration are incompatible."
            log("ERROR", "benchmark_litert_model.cc:84", said)
            raise Fatal("Aborted")
        if self._flags["dispatch_library_path"]:
            log("INFO", "npu_registry.cc:42", "NPU accelerator registered.")
        else:
            log("WARNING", "npu_registry.cc:34", f"NPU accelerator could not be loaded and registered: {INVALID}.")
        if self._script.gpu == "missing":
            log("WARNING", "gpu_registry.cc:153", f"GPU accelerator could not be loaded and registered: {INVALID}.")
        else:
            said = "Dynamically loaded GPU accelerator(libLiteRtClGlAccelerator.so) registered."
            log("INFO", "gpu_registry.cc:149", said)
        log("INFO", "cpu_registry.cc:30", "CPU accelerator registered.")

    def compile(self, model: Model, graph: Graph, seen: Delegation | None) -> None:
        """What compiling the model says; Failure ends the run. `seen`: what XNNPACK takes on this host."""
        whole = False
        if self._flags["use_npu"]:
            whole = self._compile_npu(graph)
        if self._flags["use_gpu"] and not whole:
            whole = self._compile_gpu(model, graph)
        if whole:
            return
        if not self.with_cpu():
            text = "Some ops are not accelerated. Add kLiteRtHwAcceleratorCpu to the compilation config"
            raise fail_at("compiled_model.cc:1092", f"{text} to allow CPU execution of those ops.")
        say(RUNTIME, "INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")
        if seen is not None:
            say_replacing(graph, seen.replaced, "TfLiteXNNPackDelegate", seen.subsets)

    def _compile_gpu(self, model: Model, graph: Graph) -> bool:
        outcome = self._script.gpu
        if outcome in ("missing", "none"):
            return False
        if outcome == "dynamic":
            fail_dynamic(graph)
            raise fail_at("compiled_model.cc:1045", "Failed to modify graph with delegate")
        if outcome == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if outcome == "gl":
            said = "OpenCL not supported on this platform. Using OpenGL instead."
            log("WARNING", "ml_drift_cl_gl_accelerator.cc:117", said)
        whole = False
        for other in model.graphs:
            refused = gpu_refused(other, self._script)
            supported = {i for i, node in enumerate(other.nodes) if node.op not in refused}
            taken, subsets = largest_partition(other, supported)
            if taken:
                say_replacing(other, len(taken), DELEGATES[outcome], subsets)
            if other is graph:
                whole = len(taken) == len(other.nodes)
        return whole

    def _compile_npu(self, graph: Graph) -> bool:
        folder, outcome = self._flags["dispatch_library_path"], self._script.npu
        if not folder:
            return False
        if outcome == "missing":
            log("ERROR", "litert_dispatch.cc:117", f"No dispatch library found in {folder}")
            raise fail_at("dispatch_delegate.cc:146", "Failed to initialize Dispatch API")
        if outcome == "refused":
            self._refuse()
        if outcome == "none":
            log("WARNING", "compiled_model.cc:741", "Failed to apply compiler plugins: No applicable plugin found.")
            return False
        count = len(graph.nodes)
        said = f"Partitioned subgraph<{graph.index}>, selected {count} ops, from a total of {count} ops."
        log("INFO", "compiler_plugin.cc:740", f"{said} resulted in 1 partitions.")
        say_replacing(graph, 1, "DispatchDelegate", 1, of=1)
        return True

    def _refuse(self) -> None:
        if "google-edgetpu" in self._script.accelerators:
            said = "Model is not in the EdgeTPU allowed list or signature mismatched"
            log("ERROR", "google_tensor_dispatch.cc:88", said)
            log("ERROR", "google_tensor_dispatch.cc:93", "getEdgeTpuFd failed, error code -8")
        else:
            say(RUNTIME, "ERROR", "QnnDsp <E> Failed to load skel, error: 4000")
            say(RUNTIME, "ERROR", "QnnDsp <E> Transport layer setup failed: 14001")
            log("ERROR", "dispatch_api.cc:145", "Failed to initialize QNN backend")
        raise fail_at("dispatch_delegate.cc:146", "Failed to initialize Dispatch API")
