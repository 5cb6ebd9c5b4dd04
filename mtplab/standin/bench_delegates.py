"""What the delegates say: the lines of the GPU and the NPU are the scenario's, those of XNNPACK are seen here.

The work itself is done by this host's CPU, whatever a delegate is said to have taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplab.standin import bench_flags
from mtplab.standin.bench_graph import Delegation, Graph, Model, largest_partition
from mtplab.standin.bench_io import RUNTIME, TOOL, fail, say

SCRIPT = "MTPLAB_STANDIN_SCRIPT"
NPU_COUNTER = "MTPLAB_STANDIN_NPU_COUNTER"
GPU_TAKES_ALL, GPU_RUNS = ("full", "gl"), ("full", "gl", "partial")
NO_OPENCL = "Can not open OpenCL library on this device - dlopen failed: library \"libOpenCL.so\" not found"
WRONG_TYPE = "OP is supported, but tensor type/shape isn't compatible."


@dataclass(frozen=True)
class Script:
    """What the scenario lets the accelerators do."""

    gpu: str = "full"
    refuses: dict[str, str] | None = None
    overflows: bool = False  # half precision ends in infinity, which no log tells
    npu: str = "full"
    accelerators: tuple[str, ...] = ()  # NNAPI's drivers by name; none: the phone has no NNAPI


def read_script() -> Script:
    """The script in the environment; without one everything works and there is no NNAPI."""
    raw: dict[str, Any] = json.loads(os.environ.get(SCRIPT, "{}"))
    return Script(**{**raw, "accelerators": tuple(raw.get("accelerators", ()))})


class Delegates:
    """The delegates of one run of benchmark_model, in the order in which the tool applies them."""

    def __init__(self, flags: bench_flags.Flags, script: Script) -> None:
        self._flags, self._script = flags, script

    # --- what they do

    def die(self) -> str:
        """The die that works."""
        if self._flags["use_gpu"] and self._script.gpu in GPU_RUNS:
            return "G3D"
        return "TPU" if self.on_npu() else "BIG"

    def overflows(self) -> bool:
        """True when the outputs are the GPU's, and some are too large for half precision."""
        gpu = bool(self._flags["use_gpu"] and self._script.gpu in GPU_RUNS)
        return gpu and self._script.overflows and self._flags["gpu_precision_loss_allowed"]

    def on_npu(self) -> bool:
        """True when inferences are the NPU's."""
        if not self._flags["use_nnapi"] or self._script.npu != "full":
            return False
        return any(name != "nnapi-reference" for name in self._nnapi_drivers())

    def takes_something(self) -> bool:
        """True when nothing can be said of XNNPACK's share: an accelerator was before it, or the run ends early."""
        gpu = self._flags["use_gpu"] and self._script.gpu not in ("none", "missing")
        return gpu or self.on_npu()

    def takes_all(self) -> bool:
        """True when the CPU's own delegate has nothing left to take."""
        gpu = self._flags["use_gpu"] and self._script.gpu in (*GPU_TAKES_ALL, "dynamic", "crash")
        return gpu or self.on_npu()

    def taken(self, graph: Graph) -> tuple[set[int], str]:
        """The nodes of a graph that an accelerator is said to run, and the name of its delegate."""
        if self._flags["use_gpu"] and self._script.gpu in GPU_RUNS:
            supported = {i for i, node in enumerate(graph.nodes) if node.op not in gpu_refused(graph, self._script)}
            return largest_partition(graph, supported)[0], "TfLiteGpuDelegateV2"
        return (set(range(len(graph.nodes))) if self.on_npu() else set()), "TfLiteNnapiDelegate"

    def count_inference(self) -> None:
        """An inference on the NPU moves its counter; nothing else does."""
        if self.on_npu():
            count_inference()

    # --- what they say

    def parameter_lines(self) -> list[str]:
        """What the delegates' providers add to the list of parameters."""
        if not self._flags["use_nnapi"] or not self._script.accelerators or self._script.npu == "missing":
            return []
        return [f"NNAPI accelerators available: [{','.join(self._script.accelerators)}]"]

    def apply(self, model: Model, graph: Graph, seen: Delegation | None) -> None:
        """Say all that stands between the runtime's first line and the model's size; Failure ends the run."""
        flags = self._flags
        applied = False
        if flags["use_gpu"]:
            applied = self._apply_gpu(model, graph)
        if flags["use_nnapi"]:
            applied = self._apply_nnapi(graph) or applied
        explicit = "use_xnnpack" in flags.given and flags["use_xnnpack"]
        if explicit and not self.takes_all():
            self._apply_xnnpack(graph, seen)
            applied = True
        if not applied and flags["require_full_delegation"]:
            raise fail("Disallowed CPU fallback detected.")
        if flags["use_xnnpack"] and not explicit and not self.takes_all():
            say(RUNTIME, "INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")
            if seen is not None:
                say_replacing(graph, seen.replaced, "TfLiteXNNPackDelegate", seen.subsets)

    def _apply_xnnpack(self, graph: Graph, seen: Delegation | None) -> None:
        say(RUNTIME, "INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")
        say(TOOL, "INFO", "XNNPACK delegate created.")
        if seen is None:
            return  # how much XNNPACK took cannot be seen here, so nothing is said of it
        say_replacing(graph, seen.replaced, "TfLiteXNNPackDelegate", seen.subsets)
        self._say_verdict("XNNPACK", seen.kernels, seen.kernels == 1 and seen.subsets == 1)

    def _apply_gpu(self, model: Model, graph: Graph) -> bool:
        outcome = self._script.gpu
        if outcome == "missing":
            say(TOOL, "WARN", "GPU acceleration is unsupported on this platform.")
            return False
        say(RUNTIME, "INFO", "Created TensorFlow Lite delegate for GPU.")
        say(TOOL, "INFO", "GPU delegate created.")
        if outcome == "dynamic":
            fail_dynamic(graph)
            raise fail("Failed to apply GPU delegate.")
        if outcome == "none":
            self._say_verdict("GPU", 0, False)
            return True
        if outcome != "gl":
            say(TOOL, "INFO", "Loaded OpenCL library with dlopen.")
        if outcome == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        kernels, whole = 0, False
        for other in model.graphs:
            taken = gpu_takes(other, self._script)
            if other is graph:
                kernels, whole = (1 if taken else 0), len(taken) == len(other.nodes)
        self._say_verdict("GPU", kernels, whole)
        return True

    def _nnapi_drivers(self) -> tuple[str, ...]:
        wanted = self._flags["nnapi_accelerator_name"]
        return tuple(name for name in self._script.accelerators if wanted in ("", name))

    def _apply_nnapi(self, graph: Graph) -> bool:
        if not self._script.accelerators or self._script.npu == "missing":
            say(TOOL, "WARN", "NNAPI acceleration is unsupported on this platform.")
            return False
        if not self._nnapi_drivers():
            wanted, known = self._flags["nnapi_accelerator_name"], ",".join(self._script.accelerators)
            said = f"Could not find the specified NNAPI accelerator: {wanted}. Must be one of: {{{known}}}."
            say(RUNTIME, "ERROR", said)
            raise fail("Failed to apply NNAPI delegate.")
        say(RUNTIME, "INFO", "Created TensorFlow Lite delegate for NNAPI.")
        say(TOOL, "INFO", "NNAPI delegate created.")
        unheard = "NNAPI SL driver did not implement SL_ANeuralNetworksDiagnostic_registerCallbacks!"
        say(RUNTIME, "WARNING", unheard)
        if self._script.npu == "refused":
            said = "NN API returned error ANEURALNETWORKS_BAD_DATA at line 1132 while adding operation.\n"
            say(RUNTIME, "ERROR", said)
            say(RUNTIME, "ERROR", "Restored original execution plan after delegate application failure.")
            raise fail("Failed to apply NNAPI delegate.")
        if not self.on_npu():
            self._say_verdict("NNAPI", 0, False)
            return True
        say_replacing(graph, len(graph.nodes), "TfLiteNnapiDelegate", 1)
        self._say_verdict("NNAPI", 1, True)
        return True

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


def count_inference() -> None:
    """One more in the file of the NPU's counter, whose fields are summed by whoever reads it."""
    path = os.environ.get(NPU_COUNTER)
    if path:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = [int(word) for word in Path(path).read_text(encoding="ascii").split()]
            fields[0] += 1
            Path(path).write_text(" ".join(map(str, fields)) + "\n", encoding="ascii")


def fail_dynamic(graph: Graph) -> None:
    """The runtime's line about a tensor whose shape is not fixed."""
    tensor = graph.nodes[-1].outputs[0] if graph.nodes and graph.nodes[-1].outputs else 0
    said = "Attempting to use a delegate that only supports static-sized tensors with a graph that has "
    say(RUNTIME, "WARNING", f"{said}dynamic-sized tensors (tensor#{tensor} is a dynamic-sized tensor).")


def gpu_takes(graph: Graph, script: Script) -> set[int]:
    """Say what the GPU delegate takes of one subgraph (it is applied to all of them) and return the nodes."""
    refused = gpu_refused(graph, script)
    supported = {i for i, node in enumerate(graph.nodes) if node.op not in refused}
    taken, subsets = largest_partition(graph, supported)
    rest = len(graph.nodes) - len(taken)
    if refused:
        lines = [f"{op}: {reason}" for op, reason in sorted(refused.items())]
        lines.append(
            f"{len(taken)} operations will run on the GPU, and the remaining {rest} operations will run on the CPU."
        )
        say(RUNTIME, "ERROR", "\n".join(["Following operations are not supported by GPU delegate:", *lines]))
    if taken:
        say_replacing(graph, len(taken), "TfLiteGpuDelegateV2", subsets)
        if script.gpu == "gl":
            say(RUNTIME, "ERROR", NO_OPENCL)
            say(RUNTIME, "ERROR", "Falling back to OpenGL")
        say(RUNTIME, "INFO", f"Initialized {'OpenGL' if script.gpu == 'gl' else 'OpenCL'}-based API.")
        say(RUNTIME, "INFO", "Created 1 GPU delegate kernels.")
    return taken


def gpu_refused(graph: Graph, script: Script) -> dict[str, str]:
    """The operations of this graph that the GPU refuses, with the reason."""
    if script.gpu != "partial":
        return {}
    present = {node.op for node in graph.nodes}
    refused = {op: reason for op, reason in (script.refuses or {}).items() if op in present}
    if refused or not graph.nodes:
        return refused
    # The scenario says "partial": where no listed operation occurs, the last one is refused.
    return {graph.nodes[-1].op: WRONG_TYPE}


def say_replacing(graph: Graph, replaced: int, delegate: str, subsets: int, of: int | None = None) -> None:
    """The runtime's line about one subgraph (core/subgraph.cc); `of` where it has other nodes than its file."""
    total = len(graph.nodes) if of is None else of
    name = f" ({graph.name})" if graph.name else ""
    text = f"Replacing {replaced} out of {total} node(s) with delegate ({delegate}) node, yielding"
    say(RUNTIME, "VERBOSE", f"{text} {subsets} partitions for subgraph {graph.index}{name}.")
