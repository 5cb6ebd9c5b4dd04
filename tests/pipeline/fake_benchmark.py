"""A benchmark tool for tests, run by the stand-in in place of its own: quick, and as wrong as its graph's name asks.

`litert` as first argument makes it LiteRT's tool. In the signature's name: `short` makes too few runs, `nan` spoils
the GPU's outputs, `idle` gives the GPU the CPU's times.
"""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

LITERT = sys.argv[1] == "litert"
FLAGS = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[2:])
COMMON = ("num_runs", "warmup_runs", "graph", "signature_to_run_for", "use_gpu", "num_threads")
OWN = {
    True: ("use_cpu", "use_npu", "dispatch_library_path", "allow_fp16"),
    False: (
        "use_xnnpack", "input_layer", "input_layer_shape", "input_layer_value_files", "output_filepath",
        "enable_op_profiling", "delegate_serialize_dir", "delegate_serialize_token",
    ),
}  # fmt: skip


def say(text: str, error: bool = False) -> None:
    """A line as the tool or the runtime prints it."""
    print(text, file=sys.stderr if error else sys.stdout, flush=True)


def main() -> int:
    """Print the log that the flags ask for."""
    say("INFO: STARTING!")
    if FLAGS["num_runs"] == "?":
        say("ERROR: usage: benchmark_model <flags>\nFlags:", True)
        for name in (*COMMON, *OWN[LITERT]):
            say(f"\t--{name}=\tstring\toptional\tsomething", True)
        return 1
    gpu, npu = FLAGS["use_gpu"] == "true", FLAGS.get("use_npu") == "true"
    signature = FLAGS["signature_to_run_for"]
    say("INFO: Log parameter values verbosely: [0]")
    for label, flag in (("Min num runs", "num_runs"), ("Min warmup runs", "warmup_runs"), ("Graph", "graph")):
        say(f"INFO: {label}: [{FLAGS[flag]}]")
    for label, on in (("Use gpu", gpu), ("Use NPU", npu)):
        if on:
            say(f"INFO: {label}: [1]")
    say("INFO: Initialized TensorFlow Lite runtime.", True)
    delegate = "TfLiteGpuDelegateV2" if gpu else "DispatchDelegate" if npu else "TfLiteXNNPackDelegate"
    if gpu:
        say("INFO: Created TensorFlow Lite delegate for GPU.", True)
        say("INFO: GPU delegate created.")
        cached = Path(FLAGS.get("delegate_serialize_dir", "/nowhere")) / FLAGS.get("delegate_serialize_token", "x")
        known = cached.exists()
        say(f"INFO: Initialized OpenCL-based API{' from serialized data' if known else ''}.", True)
        say(f"INFO: {'Found' if known else 'No'} serialized data {'for model' if known else 'found'} x.", True)
        if cached.parent.is_dir():
            cached.write_text("compiled")
    elif not npu:
        say("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.", True)
    say(f"VERBOSE: Replacing 3 out of 3 node(s) with delegate ({delegate}) node, yielding 1 partitions.", True)
    if gpu:
        say("INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.")
    time.sleep(0.01)  # the runtime's lines have their own way to the phone's adbd
    say(f"INFO: Initialized session in {9.5 if gpu else 4.5}ms.")
    us = 100 if gpu and "idle" not in signature else 400
    for asked in ("warmup_runs", "num_runs"):
        say(
            f"INFO: Running benchmark for at least {FLAGS[asked]} iterations and at least 0 seconds but terminate if "
            "exceeding 300 seconds."
        )
        runs = 7 if "short" in signature and asked == "num_runs" else int(FLAGS[asked])
        say(
            f"INFO: count={runs} first={us} curr={us} min={us - 9} max={us + 9} "
            f"avg={us}.{2 if asked == 'warmup_runs' else 5} std=4 p5={us - 8} median={us} "
            f"p95={us + 8}\n"
        )
    say(
        f"INFO: Inference timings in us: Init: {9500 if gpu else 4500}, First inference: {us}, Warmup (avg): {us}.2, "
        f"Inference (avg): {us}.5"
    )
    if FLAGS.get("output_filepath"):
        values = [1.0, float("nan") if gpu and "nan" in signature else 2.0]
        Path(FLAGS["output_filepath"]).write_bytes(struct.pack("<2f", *values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
