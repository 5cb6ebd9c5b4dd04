"""benchmark_model's figures: layers, tensors, statistics and memory, in the tool's own formats."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplab.standin.bench_io import Fatal


@dataclass(frozen=True)
class Layer:
    """One input as the flags describe it."""

    name: str
    shape: tuple[int, ...]
    path: str = ""


def parse_layers(names: str, shapes: str, files: str) -> list[Layer]:
    """Read --input_layer=a,b --input_layer_shape=1,2:3 --input_layer_value_files=a:path,b:path; ValueError if bad."""
    if not names:
        if shapes or files:
            raise ValueError("--input_layer_shape and --input_layer_value_files need --input_layer.")
        return []
    listed, cut = names.split(","), shapes.split(":") if shapes else []
    if len(listed) != len(cut):
        raise ValueError("The number of items in --input_layer_shape must match that of --input_layer.")
    try:
        sizes = [tuple(int(size) for size in shape.split(",") if size) for shape in cut]
    except ValueError:
        raise ValueError(f"Incorrect size string specified: {shapes}") from None
    paths = {}
    for item in files.split(",") if files else []:
        # A colon in a layer's name is written `\:`.
        found = re.fullmatch(r"((?:[^:\\]|\\.)+):(.+)", item)
        name = found.group(1).replace("\\:", ":") if found else ""
        if found is None or name not in listed:
            raise ValueError(f"Cannot find the corresponding input_layer name({item}) in --input_layer.")
        paths[name] = found.group(2)
    return [Layer(name, shape, paths.get(name, "")) for name, shape in zip(listed, sizes, strict=True)]


def tensor_values(shape: tuple[int, ...], tensor_type: int, path: str) -> Any:
    """The values of one input: the file's bytes, or random ones in the tool's ranges; aborts on a wrong size."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    kinds = {
        schema.TensorType.FLOAT32: np.float32, schema.TensorType.FLOAT16: np.float16,
        schema.TensorType.INT32: np.int32, schema.TensorType.INT64: np.int64, schema.TensorType.INT16: np.int16,
        schema.TensorType.INT8: np.int8, schema.TensorType.UINT8: np.uint8, schema.TensorType.BOOL: np.bool_,
    }  # fmt: skip
    if tensor_type not in kinds:
        raise Fatal(f"Don't know how to populate tensor of type {tensor_type}")
    kind = np.dtype(kinds[tensor_type])
    if path:
        try:
            data = Path(path).read_bytes()
        except OSError:
            raise Fatal(f"Failed to read the input_layer_value_file:{path}") from None
        wanted = int(np.prod(shape)) * kind.itemsize
        if len(data) != wanted:
            raise Fatal(f"The size of {path} is {len(data)} bytes. It should be {wanted} bytes.")
        return np.frombuffer(data, dtype=kind).reshape(shape)
    generator = np.random.default_rng()
    if kind.kind == "f":
        return generator.uniform(-0.5, 0.5, shape).astype(kind)
    if kind.kind == "b":
        return generator.integers(0, 2, shape).astype(kind)
    low, high = {1: (-127, 127), 2: (0, 99), 4: (0, 99), 8: (0, 99)}[kind.itemsize]
    return generator.integers(max(low, 0) if kind.kind == "u" else low, high + 1, shape).astype(kind)


def summary(times_us: list[float]) -> str:
    """The `count=…` line (tsl/util/stats_calculator.h): whole microseconds, averages with six digits."""
    values = [int(value) for value in times_us]
    if not values:
        return "count=0"
    ordered, count = sorted(values), len(values)
    middle = [ordered[min(count - 1, int(count * share))] for share in (0.05, 0.5, 0.95)]
    tail = "p5={} median={} p95={}".format(*middle)
    if count == 1:
        return f"count=1 curr={values[0]} {tail}"
    if ordered[0] == ordered[-1]:
        return f"count={count} curr={values[0]}(all same) {tail}"
    mean = sum(values) / count
    spread = (sum((value - mean) ** 2 for value in values) / count) ** 0.5
    return (
        f"count={count} first={values[0]} curr={values[-1]} min={ordered[0]} max={ordered[-1]} "
        f"avg={mean:g} std={int(spread)} {tail}"
    )


def closing_lines(
    init_us: float,
    warm_us: list[float],
    runs_us: list[float],
    start_mb: float | None,
    init_mb: float | None,
    monitor: PeakMemory | None,
) -> list[str]:
    """From `Inference timings in us` to the memory footprint."""
    first = (warm_us or runs_us or [0.0])[0]
    lines = [
        f"Inference timings in us: Init: {int(init_us)}, First inference: {int(first)}, "
        f"Warmup (avg): {_mean(warm_us):g}, Inference (avg): {_mean(runs_us):g}"
    ]
    now_mb = resident_mb()
    if start_mb is None or init_mb is None or now_mb is None:
        return lines
    lines += [
        "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to the "
        "actual memory footprint of the model at runtime. Take the information at your discretion.",
        f"Memory footprint delta from the start of the tool (MB): init={max(0.0, init_mb - start_mb):g} "
        f"overall={max(0.0, now_mb - start_mb):g}",
    ]
    if monitor is not None:
        lines += [f"Overall peak memory footprint (MB) via periodic monitoring: {monitor.stop():g}"]
        lines += _memory_status()
    return lines


def _mean(values: list[float]) -> float:
    return sum(int(value) for value in values) / len(values) if values else 0.0


def _status_mb() -> dict[str, float]:
    found = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in ("VmRSS", "RssAnon", "RssFile", "RssShmem"):
                found[name] = int(rest.split()[0]) / 1024
    return found


def resident_mb() -> float | None:
    """Memory of this process in MB (2^20), or None where the system does not tell."""
    found = _status_mb().get("VmRSS")
    if found is None and sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return found


def _memory_status() -> list[str]:
    found = _status_mb()
    if len(found) < 4:
        return []
    return [
        "Memory status at the end of exeution:",
        f"- VmRSS              : {int(found['VmRSS'])} MB",
        f"+ RssAnnon           : {int(found['RssAnon'])} MB",
        f"+ RssFile + RssShmem : {int(found['RssFile'] + found['RssShmem'])} MB",
    ]


class PeakMemory:
    """Looks at this process's memory every 50 ms, as the tool does."""

    def __init__(self, start_mb: float | None) -> None:
        self._start, self._peak = start_mb or 0.0, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self._peak = max(self._peak, (resident_mb() or 0.0) - self._start)

    def stop(self) -> float:
        """The largest growth seen, in MB."""
        self._ended.set()
        self._thread.join()
        return max(self._peak, (resident_mb() or 0.0) - self._start)
