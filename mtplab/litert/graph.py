"""Open LiteRT graphs and hold the buffers of their signatures. Needs numpy and ai_edge_litert only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mtplab.litert.errors import LiteRtError

Accelerator = Literal["cpu", "gpu", "npu"]
ACCELERATORS: tuple[Accelerator, ...] = ("cpu", "gpu", "npu")
Floats = NDArray[np.float32]

_MAGIC = b"TFL3"
_ALIGNMENT_BYTES = 64  # the runtime copies host memory that begins elsewhere


def open_graph(path: Path | str, threads: int, accelerator: Accelerator = "cpu") -> tuple[Any, float]:
    """Compile a `.tflite` file for one accelerator; returns the model and the milliseconds that took.

    Raises `LiteRtError` when the file is missing, is no LiteRT graph, or does not run there as a whole: the CPU is
    never beside another accelerator, because then nobody could tell which of them was measured.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise LiteRtError(
            f"The graph {path} cannot be read ({error.strerror}); give the path of a .tflite file."
        ) from error
    if head[4:] != _MAGIC:
        raise LiteRtError(
            f"The file {path} is no LiteRT graph (its identifier is not TFL3); export or push it again."
        )
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.cpu_options import CpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import Options

    hardware = getattr(HardwareAccelerator, accelerator.upper())
    options = Options(hardware_accelerators=hardware, cpu_options=CpuOptions(num_threads=threads))
    began = time.perf_counter()
    try:
        model = CompiledModel.from_file(str(path), options=options)
    except (RuntimeError, ValueError) as error:
        if accelerator != "cpu":
            said = " ".join(str(error).rpartition("└")[2].split())[:160]  # the rest names places in its sources
            raise LiteRtError(
                f"The graph {path.name} does not run on the {accelerator.upper()} here ({said}); "
                "use the CPU, or a machine whose LiteRT has that accelerator."
            ) from error
        raise LiteRtError(
            f"The graph {path} does not compile for the CPU ({error}); it may be torn: export or push it again."
        ) from error
    return model, (time.perf_counter() - began) * 1e3


class Signature:
    """Named buffers of one signature; the cache buffers are bound anew at every run.

    On the CPU (`on_host`) outputs are written into arrays of this process, so that of a long prefill only the
    wanted rows are copied; that an array is the buffer's own memory is proven at its first reading.
    """

    def __init__(self, model: Any, name: str, *, on_host: bool) -> None:
        self.model, self.name = model, name
        ins, outs = model.get_input_tensor_details(name), model.get_output_tensor_details(name)
        self.input_shapes = {key: tuple(int(n) for n in value["shape"]) for key, value in ins.items()}
        self.output_shapes = {key: tuple(int(n) for n in value["shape"]) for key, value in outs.items()}
        self.inputs = {
            key: model.create_input_buffer_by_name(name, key) for key in self.input_shapes if not is_cache(key)
        }
        outputs = [key for key in self.output_shapes if not is_cache(key)]
        self._dtypes = {key: np.dtype(outs[key]["dtype"]) for key in outputs}
        held = outputs if on_host else []
        self._arrays = {key: _aligned(self.output_shapes[key], self._dtypes[key]) for key in held}
        self._proven: dict[str, bool] = {}
        self.outputs = {
            key: _host_buffer(self._arrays[key]) if on_host else model.create_output_buffer_by_name(name, key)
            for key in outputs
        }
        self.copied_ns: dict[str, int] = {}
        """What copying each input and output took last; an accelerator that works on its own is waited for there."""

    def run(self, inputs: dict[str, Any], cache_in: dict[str, Any], cache_out: dict[str, Any]) -> None:
        for key, value in inputs.items():
            began = time.perf_counter_ns()
            self.inputs[key].write(value)
            self.copied_ns[key] = time.perf_counter_ns() - began
        self.model.run_by_name(self.name, {**self.inputs, **cache_in}, {**self.outputs, **cache_out})

    def read(self, key: str, rows: slice = slice(None)) -> NDArray[Any]:
        """A copy of `rows` of the output [1, rows, width]."""
        began = time.perf_counter_ns()
        array = self._arrays.get(key)
        if array is None or not self._proven.get(key, True):
            values = self._read(key)[0, rows]
        else:
            values = array[0, rows].copy()
        self.copied_ns[key] = time.perf_counter_ns() - began
        if array is not None and key not in self._proven:
            whole = self._read(key)
            self._proven[key] = np.array_equal(array, whole, equal_nan=array.dtype.kind == "f")
            return whole[0, rows]
        return values

    def _read(self, key: str) -> NDArray[Any]:
        shape = self.output_shapes[key]
        values: NDArray[Any] = self.outputs[key].read(int(np.prod(shape)), self._dtypes[key]).reshape(shape)
        return values


def is_cache(name: str) -> bool:
    return name.startswith("kv_cache_")


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    count = int(np.prod(shape))
    raw = np.full(count * 4 + _ALIGNMENT_BYTES, 0xFF, np.uint8)  # nan, so that what nobody wrote is no result
    begin = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[begin : begin + count * 4].view(dtype).reshape(shape)


def _host_buffer(array: NDArray[Any]) -> Any:
    from ai_edge_litert.tensor_buffer import TensorBuffer

    return TensorBuffer.create_from_host_memory(array)
