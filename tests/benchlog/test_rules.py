"""Each rule is alive: without it, some log is read differently. And each says where it was read."""

from __future__ import annotations

from typing import Any

import pytest

from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import LlmFigures, Reading
from mtplab.benchlog.rules import Rules, load_rules

RULES = load_rules()
HEAD = "STARTING!\nLog parameter values verbosely: [0]\nGraph: [m]\n"
GPU = HEAD + "Use gpu: [1]\n"
DELTA = "Memory footprint delta from the start of the tool (MB): init=1 overall=2\n"
TIMINGS = "Inference timings in us: Init: 5, First inference: 4, Warmup (avg): 3, Inference (avg): 2\n"
TOOK = "Replacing 9 out of 9 node(s) with delegate ({}) node, yielding 1 partitions for subgraph 0.\n"
GPU_TOOK = TOOK.format("TfLiteGpuDelegateV2")
LITERT = "========== BENCHMARK RESULTS ==========\n"

XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
DASHES = "-" * 50 + "\n"
INFO = "input_prompt: x\nBenchmarkInfo:\n  Time to first token: 1 s\n" + DASHES
RATIO: dict[str, Any] = {"drafted_tokens": 9, "verified_tokens": 3, "success_ratio": 3 / 9}
PROFILE = (
    "Operator-wise Profiling Info for Regular Benchmark Runs:\nDelegate internal: \n"
    "[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
)

# Small logs for what the captured ones do not show: text, requested, and some of what must be read.
CASES: list[tuple[str, str | None, dict[str, Any]]] = [
    (HEAD + "Report the peak memory footprint: [1]\n" + DELTA, None, {"complete": False}),
    (HEAD + "Overall peak memory footprint (MB) via periodic monitoring: 3\n", None, {"complete": True}),
    (
        HEAD
        + "Overall peak memory footprint (MB) via periodic monitoring: 3\nMemory status at the end of exeution:\n",
        None,
        {"complete": False, "peak_memory_bytes": 3 * 1048576},
    ),
    (HEAD + "Memory status at the end of exeution:\n+ RssFile + RssShmem : 104 MB\n", None, {"complete": True}),
    (
        HEAD + "Enable op profiling: [1]\n" + DELTA + "Operator-wise Profiling Info for Regular Benchmark Runs:\n",
        None,
        {"complete": False},
    ),
    (
        HEAD
        + "Enable op profiling: [1]\n"
        + DELTA
        + "Operator-wise Profiling Info for Regular Benchmark Runs:\n4 nodes observed\n",
        None,
        {"complete": True},
    ),
    (HEAD + LITERT + "INFO: [benchmark_litert_model.h:140] " + "=" * 38 + "\n", None, {"complete": True}),
    ("## 20:52:40 thermal=ThermalStatus:0\n" + HEAD + DELTA, None, {"complete": False}),
    (HEAD + "exit code: 139\n", "gpu", {"verdict": "crash", "exit_code": 139}),
    ("Choose backend: gpu\n", None, {"requested": "gpu", "tool": "litert_lm_main"}),
    ("Init footprint:       1.50 MB\nOverall footprint:    2.50 MB\n", None, {"overall_memory_bytes": 2621440}),
    ("Peak memory:          2.00 MB\n", None, {"peak_memory_bytes": 2097152}),
    (LITERT + "No inference runs were performed.\n", "gpu", {"verdict": "unknown"}),
    (
        "First run took 9 microseconds\nSlowest run took 8 microseconds\nFastest run took 6 microseconds\n"
        "All runs took average 7 microseconds\nModel run completed\n",
        None,
        {"tool": "run_model", "first_us": 9, "inference_max_us": 8, "inference_min_us": 6, "inference_avg_us": 7},
    ),
    ("input_prompt: x\nModel run completed\n", None, {"complete": True}),
    ("----- Results -----\nInit time:            1.5 s\n", None, {"init_us": 1500000, "tool": "litert-lm"}),
    ("Time to first token:  0.5 s\nPrefill speed:        9 tokens/s\n", None, {}),
    (
        "Partitioned subgraph<0>, selected 9 ops, from a total of 10 ops. resulted in 2 partitions\n",
        None,
        {"requested": "npu", "verdict": "partial", "delegated_nodes": 9},
    ),
    ("Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR)\n", "gpu", {"verdict": "crash"}),
    ("Segmentation fault\n", "gpu", {"verdict": "crash"}),
    ("SIGABRT\n", "gpu", {"verdict": "crash"}),
    ("Aborted \n", "gpu", {"verdict": "crash"}),
    ('CANNOT LINK EXECUTABLE "./benchmark_model": library "x.so" not found\n', "gpu", {"verdict": "failed"}),
    ("sh: ./benchmark_model: inaccessible or not found\n", "gpu", {"verdict": "failed"}),
    ("sh: ./benchmark_model: can't execute: Permission denied\n", "gpu", {"verdict": "failed"}),
    ("Node number 3 (TfLiteGpuDelegateV2) failed to prepare.\n", "gpu", {"verdict": "failed"}),
    ("Node number 3 (CONV_2D) failed to invoke.\n", "npu", {"verdict": "failed"}),
    ("Delegate X/GPU failed to prepare. Retrying without this delegate.\n", None, {"verdict": "fallback_cpu"}),
    ("Applied 0 delegates. Model will run\n", "npu", {"verdict": "fallback_cpu", "delegated_nodes": 0}),
    ("Using accelerator=CPU\n", "npu", {"verdict": "fallback_cpu"}),
    ("Failed to apply GPU delegate.\n", "gpu", {"verdict": "failed"}),
    ("Failed to apply GPU delegate.\n", "npu", {"verdict": "unknown"}),
    ("Restored previous execution plan after delegate application failure.\n", "npu", {"verdict": "failed"}),
    ("TfLiteGpuDelegate Prepare: delegate is not initialized\n", None, {"verdict": "failed", "requested": "gpu"}),
    ("TfLiteGpuDelegate Init: No shader implementation for X\n", None, {"verdict": "failed", "requested": "gpu"}),
    ("GpuDelegate must run on the same thread where it was initialized.\n", "gpu", {"verdict": "failed"}),
    ("Hint fully delegated to single delegate is set, but the graph is not fully delegated.\n", "gpu", {}),
    ("Failed to create engine: INTERNAL\n", "npu", {"verdict": "failed"}),
    (GPU + GPU_TOOK + "Disallowed CPU fallback detected.\n", None, {"verdict": "failed"}),
    ("Some ops are not accelerated. Add kLiteRtHwAcceleratorCpu\n", "npu", {"verdict": "failed"}),
    ("Failed to modify graph with delegate\n", "npu", {"verdict": "failed"}),
    (GPU + "Failed to allocate device memory (clCreateBuffer): Out of resources\n", None, {"verdict": "failed"}),
    ("Can not find OpenCL library on this device\n", None, {"verdict": "failed", "requested": "gpu"}),
    (GPU + GPU_TOOK + "No selector for convolution\n", None, {"verdict": "failed"}),
    (GPU + GPU_TOOK + "Falling back to OpenGL\n", None, {"verdict": "backend_downgrade"}),
    (GPU + GPU_TOOK + "Initialized OpenGL-based API.\n", None, {"verdict": "backend_downgrade"}),
    (
        GPU + GPU_TOOK + "OpenCL not supported on this platform. Using WebGPU instead.\n",
        None,
        {"verdict": "backend_downgrade"},
    ),
    (GPU + "Failed to load OpenCL library with dlopen: x. Trying ICD loader.\n" + GPU_TOOK, None, {}),
    (GPU + "No operations will run on the GPU, and all 9 operations will run on the CPU.\n", None, {}),
    ("WARN: GPU acceleration is unsupported on this platform.\n" + TIMINGS, None, {"verdict": "fallback_cpu"}),
    (
        "GPU accelerator could not be dynamically loaded and registered: x\n"
        "Dynamically loaded GPU accelerator(libLiteRtClGlAccelerator.so) registered.\n",
        "gpu",
        {"verdict": "unknown"},
    ),
    (GPU + "op code #99 cannot be handled by this delegate.\n", None, {"verdict": "partial"}),
    ("First 20 operations will run on the GPU, and the remaining 5 on the CPU.\n", "gpu", {"verdict": "partial"}),
    ("NN API returned error ANEURALNETWORKS_BAD_DATA at line 1 while x.\n", None, {"requested": "nnapi"}),
    ("Could not find the specified NNAPI accelerator: x.\n" + TIMINGS, None, {"verdict": "fallback_cpu"}),
    ("WARN: NNAPI acceleration is unsupported on this platform.\n" + TIMINGS, None, {"verdict": "fallback_cpu"}),
    ("NNAPI accelerators available: [nnapi-reference]\n", "nnapi", {"verdict": "fallback_cpu"}),
    ("NPU accelerator could not be loaded and registered: kLiteRtStatusErrorInvalidArgument\n", "npu", {}),
    ("NPU accelerator could not be loaded and registered: x\n" + GPU_TOOK, None, {"verdict": "full_delegate"}),
    ("Failed to apply compiler plugins: x\n", "npu", {"verdict": "fallback_cpu"}),
    ("getEdgeTpuFd failed, error code -8\n", "npu", {"verdict": "failed"}),
    ("Qnn HTP version 2.1 is mismatched\n", None, {"requested": "npu", "verdict": "failed"}),
    (GPU + "Found serialized data for model x\n" + GPU_TOOK, None, {"cold_init": False}),
    (GPU + "ERROR: No serialized data found: x\n" + GPU_TOOK, None, {"cold_init": True, "verdict": "full_delegate"}),
    ("Log parameter values verbosely: [0]\n" + DELTA, None, {"complete": True, "tool": "benchmark_model (APK)"}),
    ("INFO: Loaded model /data/local/tmp/m.tflite\n", None, {"tool": "benchmark_model", "verdict": "unknown"}),
    ("WARN: Unconsumed cmdline flags: --use_gpu=true\n" + TIMINGS, None, {"verdict": "fallback_cpu"}),
    ("I0000 00:00:1.2 3 litert_lm_main.cc:193] x\n", None, {"tool": "litert_lm_main"}),
    ("An error occurred during benchmarking\n", "gpu", {"verdict": "failed"}),
    ("ERROR benchmark_litert_model: x\nModel file not found: nope.tflite\n", None, {"verdict": "failed"}),
    ("Model is not fully accelerated but --require_full_delegation was set.\n", "npu", {"verdict": "failed"}),
    ("Requesting full delegation and CPU acceleration are incompatible.\n", None, {"verdict": "failed"}),
    (" BENCHMARK RESULTS\nInference (avg): 1.00 ms (3 runs)\n" + "=" * 40 + "\n", None, {"complete": True}),
    (
        "Accelerators:    GPU | CPU\nCreate WebGPU environment (x)\n" + XNNPACK + TIMINGS,
        None,
        {"requested": "gpu", "verdict": "unknown"},
    ),
    (INFO + "    No prefill turns recorded.\n" + DASHES, None, {"complete": False}),
    (INFO + "    No prefill turns recorded.\n" + DASHES * 2, None, {"complete": True}),
    (INFO + "  Mark Durations (1):\n    - a: 1ms\n" + DASHES, None, {"complete": True}),
    ("Num drafted tokens: 9\nNum verified tokens: 3\n", None, {"llm": LlmFigures(None, **RATIO)}),
    (PROFILE + "\tCONV_2D\t1.0\t1.5\t100.0%\t100.0%\t0.0\t1\tx:0\n", None, {}),
    ("NNAPI delegate created.\nTransport layer setup failed\n", None, {"requested": "nnapi"}),
    (
        GPU + "ERROR: Could not open 'm'.\nERROR: Benchmarking failed.\n",
        None,
        {"verdict": "failed", "reason": "Could not open 'm'."},
    ),
    (
        HEAD + "INFO: TfLiteHexagonDelegate delegate: 136 nodes delegated out of 139 nodes with 2 partitions.\n",
        None,
        {"verdict": "partial", "requested": "npu", "delegated_nodes": 136, "total_nodes": 139, "partitions": None},
    ),
    (
        "Applied 1 delegates: GPUV2/OpenCL. Model is fully delegated=true.\n",
        None,
        {"verdict": "full_delegate", "requested": "gpu"},
    ),
    (
        "Applied 1 delegates: QNN/HTP. Model is fully delegated=false.\n",
        None,
        {"verdict": "partial", "requested": "npu"},
    ),
    (
        "RuntimeError: Attempting to use a delegate that only supports static-sized tensors with a graph\n",
        "gpu",
        {"verdict": "failed"},
    ),
    (
        HEAD + "Use Hexagon: [1]\nCould not create Hexagon delegate: platform may not support delegate\n" + TIMINGS,
        None,
        {"verdict": "fallback_cpu", "requested": "npu"},
    ),
    (
        HEAD
        + "Use NNAPI: [1]\nNNAPI accelerator name: [nnapi-reference]\n"
        + TOOK.format("TfLiteNnapiDelegate")
        + TIMINGS,
        None,
        {"verdict": "fallback_cpu"},
    ),
]


def _read(text: str, requested: str | None, rules: Rules) -> Reading:
    reader = LogReader(requested, rules)
    for line in text.splitlines():
        reader.feed(line)
    return reader.finish()


@pytest.mark.parametrize(("text", "requested", "expected"), CASES, ids=[c[0].splitlines()[-1][:48] for c in CASES])
def test_each_kind_of_line_is_read(text: str, requested: str | None, expected: dict[str, Any]) -> None:
    reading = _read(text, requested, RULES)
    assert {key: getattr(reading, key) for key in expected} == expected


@pytest.fixture(scope="module")
def corpus(samples: Any, dialects: Any) -> list[tuple[str, str | None, Reading]]:
    """Every log of these tests with its reading under all rules."""
    logs = [(text, requested) for text, requested, _ in CASES]
    logs += [("\n".join(sample.lines), None) for sample in (*samples, *dialects)]
    return [(text, requested, _read(text, requested, RULES)) for text, requested in logs]


@pytest.mark.parametrize("rule_id", list(RULES.by_id))
def test_each_rule_is_alive(rule_id: str, corpus: list[tuple[str, str | None, Reading]]) -> None:
    without = RULES.without(rule_id)
    assert any(_read(text, requested, without) != reading for text, requested, reading in corpus)


@pytest.mark.parametrize("label", list(RULES.file.labels))
def test_each_label_of_a_parameter_line_is_reached(label: str) -> None:
    for line in (f"INFO: {label}: [1]", f"{label} : [1]"):
        reader = LogReader()
        reader.feed(line)
        if label in ("Use gpu", "Use nnapi") or " :" not in line:
            assert reader.run.params == {RULES.file.labels[label]: "1"}


def test_rules_are_well_kept() -> None:
    ids = [rule.id for rule in RULES.file.rule]
    assert len(ids) == len(set(ids))
    for rule in RULES.file.rule:
        assert rule.words or rule.inside, rule.id
        assert rule.source, rule.id
        assert bool(rule.verdict) <= bool(rule.priority), rule.id
        assert all(word.split() == [word] for word in rule.words), rule.id
        bad = rule.verdict not in (None, "full_delegate", "cpu_baseline")
        if bad:
            assert rule.cause, rule.id
            assert rule.cure, rule.id
        for condition in (*rule.when, *rule.unless):
            kind, _, rest = condition.partition(":")
            assert kind in ("seen", "param", "nodes")
            assert kind != "seen" or rest in RULES.by_id, rule.id


def test_only_a_delegates_own_word_may_prove_full_delegation() -> None:
    proving = [rule.id for rule in RULES.file.rule if rule.verdict == "full_delegate"]
    assert proving == ["hub-fully", "applied-completely"]
