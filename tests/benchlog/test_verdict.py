"""What was requested × what the log proves: silence, noise and flags never make a verdict better."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.benchlog.files import exit_code_of
from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import BACKENDS, Reading

STARTED = ["INFO: STARTING!", "INFO: Graph: [m.tflite]", "INFO: Use gpu: [1]", "INFO: Loaded model m.tflite"]
GPU_TOOK_ALL = "Replacing 9 out of 9 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 1 partitions."
TIMINGS = "INFO: Inference timings in us: Init: 5, First inference: 4, Warmup (avg): 3, Inference (avg): 2"
MEMORY = "INFO: Memory footprint delta from the start of the tool (MB): init=1 overall=2"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."

# The delegates' own words, by backend: full_delegate needs one of these for the very backend.
PROOFS = {
    "gpu": ("TfLiteGpuDelegateV2)", "LITERT_CL)", "applied GPU delegate", "--use_gpu=1"),
    "nnapi": ("TfLiteNnapiDelegate)", "applied NNAPI delegate"),
    "npu": ("DispatchDelegate)",),
    "cpu": (),
}
NOISE = [
    "OpenCL sampler not available, falling back to statically linked C API",
    'dlopen failed: library "libadreno_app_profiles.so": cannot open shared object file: No such file or directory',
    "WARNING: NNAPI SL driver did not implement SL_ANeuralNetworksDiagnostic_registerCallbacks!",
    "nnapi error: unable to open library libneuralnetworks.so",
    "INFO: Loaded OpenCL library with dlopen.",
    "Attempting to enumerate delegates",
    "# a remark about the GPU delegate, made by a script",
    "07-19 14:10:10.844  7937  7937 I ActivityManager: Killing 123:com.example/u0a1 (adj 900): empty",
    "The weather is fine; the exit is on the left.",
]


def _verdict(lines: list[str], requested: str | None = None, exit_code: int | None = None) -> Reading:
    reader = LogReader(requested)
    for line in lines:
        reader.feed(line)
    return reader.finish(exit_code)


@pytest.mark.parametrize("requested", BACKENDS)
def test_changing_the_requested_flag_never_makes_a_verdict_full(sample: Any, read: Any, requested: str) -> None:
    reading = read(sample.lines, requested)
    if reading.verdict == "full_delegate":
        assert any(proof in line for line in sample.lines for proof in PROOFS[requested])
        if requested != sample.expected["requested"]:
            pytest.fail(f"{sample.name} is full for {requested}, which nobody asked for")
    assert reading.requested == requested
    assert (reading.verdict == "cpu_baseline") <= (requested == "cpu")


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_mixture_of_lines_is_full_without_that_delegates_own_line(samples: Any, data: Any) -> None:
    lines = [line for sample in samples for line in sample.lines]
    picked = data.draw(st.lists(st.sampled_from(lines), max_size=40))
    for requested in BACKENDS:
        reading = _verdict(picked, requested)
        if reading.verdict == "full_delegate":
            assert any(proof in line for line in picked for proof in PROOFS[requested])


def test_the_gpu_log_is_full_for_the_gpu_only(samples: Any, read: Any) -> None:
    lines = samples[0].lines
    assert [read(lines, b).verdict for b in BACKENDS] == ["unknown", "full_delegate", "unknown", "unknown"]
    assert "GPU delegate at work" in read(lines, "npu").reason
    assert read(lines, "npu").delegated_nodes is None


def test_a_cpu_log_is_a_fallback_for_whoever_wanted_an_accelerator(samples: Any, read: Any) -> None:
    lines = next(s for s in samples if s.name.startswith("05")).lines
    assert [read(lines, b).verdict for b in BACKENDS] == ["cpu_baseline", *["fallback_cpu"] * 3]


@given(st.integers(0, 10_000), st.sampled_from(NOISE))
@settings(max_examples=60, deadline=None)
def test_noise_lines_change_nothing(samples: Any, place: int, noise: str) -> None:
    for sample in samples[place % 8 :: 8]:
        at = place % (len(sample.lines) + 1)
        # Line numbers move; what is read must not.
        with_noise = _verdict([*sample.lines[:at], noise, *sample.lines[at:]])
        without = _verdict(sample.lines)
        for field in ("verdict", "reason", "requested", "inference_avg_us", "delegated_nodes", "complete", "llm"):
            assert getattr(with_noise, field) == getattr(without, field)
        assert len(with_noise.findings) == len(without.findings)


@pytest.mark.parametrize("noise", NOISE)
def test_noise_alone_is_unknown(noise: str) -> None:
    assert _verdict([noise] * 3).verdict == "unknown"


@given(st.lists(st.text(max_size=200), max_size=30))
@settings(max_examples=200, deadline=None)
def test_random_text_is_unknown(lines: list[str]) -> None:
    reading = _verdict(lines)
    assert (reading.verdict, reading.tool, reading.complete) == ("unknown", None, False)
    assert reading.reason


def test_a_failed_backend_outvotes_the_dispatch_delegates_line(samples: Any, read: Any) -> None:
    lines = next(s for s in samples if s.name.startswith("38")).lines
    assert read(lines).verdict == "failed"
    healthy = [line for line in lines if "Replacing" in line]
    assert _verdict(healthy).verdict == "full_delegate"


def test_all_nodes_in_two_kernels_is_full_although_the_tool_says_partially() -> None:
    took = "VERBOSE: Replacing 9 out of 9 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 2 partitions."
    partially = (
        "INFO: Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate"
        " w/ 2 delegate kernels."
    )
    assert _verdict([*STARTED, took, partially]).verdict == "full_delegate"
    assert _verdict([*STARTED, partially]).verdict == "partial"
    took = took.replace("9 out of", "8 out of")
    assert _verdict([*STARTED, took, partially]).verdict == "partial"
    xnnpack = took.replace("8 out", "9 out").replace("TfLiteGpuDelegateV2", "TfLiteXNNPackDelegate")
    assert _verdict([*STARTED, xnnpack, partially]).verdict == "partial"


def test_any_subgraph_that_is_not_whole_makes_it_partial() -> None:
    line = "Replacing {} out of 9 node(s) with delegate (LITERT_CL) node, yielding 1 partitions for subgraph {} (x)."
    reading = _verdict([line.format(9, 0), line.format(5, 1)])
    assert (reading.verdict, reading.delegated_nodes) == ("partial", 9)
    assert [proof.line for proof in reading.evidence] == [2]


def test_an_older_delegate_that_names_operations_and_leaves_none_is_not_partial() -> None:
    head = ["Following operations are not supported by GPU delegate:", "DEQUANTIZE: "]
    none = "164 operations will run on the GPU, and the remaining 0 operations will run on the CPU."
    assert _verdict([*head, none]).verdict == "unknown"
    assert _verdict([*head, none, GPU_TOOK_ALL]).verdict == "full_delegate"
    some = none.replace("remaining 0", "remaining 3")
    reading = _verdict([*head, some])
    assert (reading.verdict, reading.delegated_nodes, reading.total_nodes) == ("partial", 164, 167)


def test_a_static_shape_warning_about_another_delegate_does_not_spoil_a_gpu_that_ran() -> None:
    warning = "WARNING: Attempting to use a delegate that only supports static-sized tensors with a graph that has"
    assert _verdict([*STARTED, GPU_TOOK_ALL, warning]).verdict == "full_delegate"
    assert _verdict([*STARTED, warning]).verdict == "failed"


def test_a_failed_kernel_is_a_downgrade_only_when_opengl_follows() -> None:
    kernel = "ERROR: Failed to build program executable - Build program failure"
    assert _verdict([*STARTED, kernel]).verdict == "failed"
    reading = _verdict([*STARTED, kernel, "INFO: Falling back to OpenGL", GPU_TOOK_ALL])
    assert (reading.verdict, reading.delegated_nodes) == ("backend_downgrade", 9)
    assert "Failed to build program" in reading.reason


def test_opengl_on_purpose_is_no_downgrade() -> None:
    gl = "INFO: Initialized OpenGL-based API."
    assert _verdict([*STARTED, gl, GPU_TOOK_ALL]).verdict == "backend_downgrade"
    assert _verdict([*STARTED, "INFO: GPU backend: [gl]", gl, GPU_TOOK_ALL]).verdict == "full_delegate"


def test_configuration_alone_is_no_proof() -> None:
    reading = _verdict([*STARTED, TIMINGS, MEMORY])
    assert (reading.verdict, reading.requested, reading.complete) == ("unknown", "gpu", True)
    assert "configuration is no proof" in reading.reason


ENFORCED = "./benchmark_model --graph=m --use_gpu=1 --use_cpu=0 --require_full_delegation=1"


def test_an_enforcing_flag_proves_only_with_figures_and_only_its_own_backend() -> None:
    figure = "INFO: [benchmark_litert_model.h:100] Inference (avg):      7430.20 ms (10 runs)"
    assert _verdict([ENFORCED]).verdict == "unknown"
    assert _verdict([ENFORCED, figure]).verdict == "full_delegate"
    for other in ("npu", "nnapi", "cpu"):
        assert _verdict([ENFORCED, figure], other).verdict == "unknown"
    assert _verdict([ENFORCED + " --use_npu=1", figure]).verdict == "unknown"
    assert _verdict([ENFORCED.replace("delegation=1", "delegation=0"), figure]).verdict == "unknown"
    ignored = "WARN: Unconsumed cmdline flags: --require_full_delegation=1"
    assert _verdict([ENFORCED, ignored, figure]).verdict == "unknown"


def test_an_ignored_flag_is_a_finding_and_a_fallback() -> None:
    lines = ["STARTING!", "WARN: Unconsumed cmdline flags: --use_gpu=true", "Graph: [m]", TIMINGS]
    reading = _verdict(lines)
    assert (reading.requested, reading.verdict) == ("gpu", "fallback_cpu")
    assert any("--use_gpu=true" in finding.text for finding in reading.findings)


def test_an_ignored_flag_for_something_else_is_only_a_finding() -> None:
    reading = _verdict([*STARTED, "WARN: Unconsumed cmdline flags: --use_gpuu=true", GPU_TOOK_ALL])
    assert reading.verdict == "full_delegate"
    assert [finding.rule for finding in reading.findings] == ["flags-ignored", "cut-before-inference"]


@pytest.mark.parametrize(
    ("code", "closing", "verdict"),
    [
        (139, False, "crash"),
        (134, False, "crash"),
        (137, True, "crash"),
        (1, False, "crash"),
        (0, True, "full_delegate"),
    ],
)
def test_the_exit_code_has_its_say(code: int, closing: bool, verdict: str) -> None:
    lines = [*STARTED, GPU_TOOK_ALL, *([TIMINGS, MEMORY] if closing else [])]
    assert _verdict(lines, exit_code=code).verdict == verdict
    assert _verdict([*lines, f"## exit {code} 20:52:45"]).verdict == verdict


def test_a_program_that_said_why_it_failed_did_not_crash() -> None:
    lines = [*STARTED, "ERROR: TfLiteGpuDelegate Init: bad input dims size: 5", "ERROR: Benchmarking failed."]
    reading = _verdict(lines, exit_code=1)
    assert (reading.verdict, reading.exit_code, reading.complete) == ("failed", 1, True)
    assert reading.reason == "TfLiteGpuDelegate Init: bad input dims size: 5"
    assert _verdict(["sh: ./benchmark_model: not found"], "gpu", exit_code=127).verdict == "failed"


def test_a_clean_exit_without_figures_proves_nothing() -> None:
    assert _verdict(STARTED, exit_code=0).verdict == "unknown"
    reading = _verdict([*STARTED, GPU_TOOK_ALL], exit_code=0)
    assert reading.verdict == "full_delegate"
    assert [finding.rule for finding in reading.findings] == ["no-figures"]


def test_fewer_runs_than_asked_is_a_finding() -> None:
    stats = "INFO: count={n} first=3 curr=3 min=3 max=3 avg={avg} std=0"
    lines = ["STARTING!", "Min num runs: [50]", stats.format(n=2, avg=3), stats.format(n=7, avg=2), TIMINGS]
    reading = _verdict(lines)
    assert (reading.warmup_runs, reading.inference_runs, reading.runs_asked) == (2, 7, 50)
    assert any(finding.rule == "runs-fewer-than-asked" for finding in reading.findings)


def test_nnapi_on_its_reference_is_the_cpu() -> None:
    only = "INFO: NNAPI accelerators available: [nnapi-reference]"
    took = "VERBOSE: Replacing 9 out of 9 node(s) with delegate (TfLiteNnapiDelegate) node, yielding 1 partitions."
    assert _verdict([only, took]).verdict == "fallback_cpu"
    vendor = only.replace("[nnapi", "[google-edgetpu,nnapi")
    reading = _verdict([vendor, took])
    assert reading.verdict == "full_delegate"
    assert any("disable_nnapi_cpu" in finding.text for finding in reading.findings)


def test_the_compilers_coverage_outvotes_a_replacing_line_that_counts_dispatch_nodes() -> None:
    cover = "Partitioned subgraph<0>, selected 90 ops, from a total of 100 ops. resulted in 3 partitions"
    took = "Replacing 3 out of 3 node(s) with delegate (DispatchDelegate) node, yielding 1 partitions."
    reading = _verdict([cover, took])
    assert (reading.verdict, reading.delegated_nodes, reading.total_nodes) == ("partial", 90, 100)
    assert _verdict([cover.replace("selected 90", "selected 100")], "npu").verdict == "unknown"


def test_of_several_runs_the_worst_that_ended_counts() -> None:
    good = [*STARTED, GPU_TOOK_ALL, TIMINGS, MEMORY]
    bad = [*STARTED, "ERROR: TfLiteGpuDelegate Init: x", "ERROR: Benchmarking failed."]
    for lines in ([*good, *bad], [*bad, *good]):
        reading = _verdict(lines)
        assert (reading.verdict, reading.runs_in_log, reading.complete) == ("failed", 2, True)
        assert any("full_delegate" in finding.text for finding in reading.findings)
    assert _verdict([*good, *STARTED]).verdict == "full_delegate"


# For each bad or good rung of the ladder in rules.toml one line that stands on it, the highest first.
LADDER = [
    ("crash", "Fatal signal 11 (SIGSEGV), code 1"),
    ("failed", "ERROR: Benchmarking failed."),
    ("fallback_cpu", "Delegate X/GPU failed to prepare. Retrying without this delegate."),
    ("failed", "CANNOT LINK EXECUTABLE: x"),
    ("failed", "GpuDelegate must run on the same thread where it was initialized."),
    ("failed", "ERROR: TfLiteGpuDelegate Init: bad input dims size: 5"),
    ("failed", "Restored original execution plan after delegate application failure."),
    ("fallback_cpu", "Created 0 GPU delegate kernels."),
    ("backend_downgrade", "Falling back to OpenGL"),
    ("failed", "No selector for convolution"),
    ("partial", "op code #99 cannot be handled by this delegate."),
    ("full_delegate", GPU_TOOK_ALL),
    ("fallback_cpu", "GPU accelerator could not be loaded and registered."),
    ("failed", "Attempting to use a delegate that only supports static-sized tensors with a graph that has"),
]


@pytest.mark.parametrize("high", range(len(LADDER)))
def test_of_two_lines_that_disagree_the_higher_rung_wins_in_either_order(high: int) -> None:
    verdict, line = LADDER[high]
    for _, lower in LADDER[high + 1 :]:
        for pair in ([line, lower], [lower, line]):
            assert _verdict(pair, "gpu").verdict == verdict, (line, lower)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_live_verdicts_are_provisional_until_the_end(samples: Any, data: Any) -> None:
    lines = data.draw(st.sampled_from(samples)).lines
    reader = LogReader(data.draw(st.sampled_from([None, *BACKENDS])))
    reader.feed_text("\n".join(lines[: data.draw(st.integers(0, len(lines)))]))
    assert reader.verdict().provisional
    assert not reader.finish().provisional


def test_a_delegate_that_nobody_knows_is_no_baseline_and_no_success() -> None:
    applied = (
        "INFO: Explicitly applied EXTERNAL delegate, and the model graph will be completely executed by the delegate."
    )
    lines = ["STARTING!", "Graph: [m]", "EXTERNAL delegate created.", applied, TIMINGS]
    for requested in (None, *BACKENDS):
        assert _verdict(lines, requested).verdict == "unknown"
    assert "does not know" in _verdict(lines).reason


def test_the_op_profile_shows_what_the_cpu_ran() -> None:
    head = [
        *STARTED,
        "Operator-wise Profiling Info for Regular Benchmark Runs:",
        "============================== Run Order ==============================",
        "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]",
    ]
    gpu = "\tTfLiteGpuDelegateV2\t1.0\t1.5\t75.0%\t75.0%\t0.0\t1\tx:1"
    cpu = "\tGATHER\t0.5\t0.5\t25.0%\t100.0%\t0.0\t1\ty:2"
    end = ["", "Number of nodes executed: 2", "2 nodes observed"]
    assert _verdict([*head, gpu, *end]).verdict == "full_delegate"
    assert _verdict([*head, gpu]).verdict == "unknown"  # who knows what comes
    assert _verdict([*head, cpu, *end]).verdict == "fallback_cpu"
    both = _verdict([*head, gpu, cpu, *end])
    assert both.verdict == _verdict([*head, GPU_TOOK_ALL, gpu, cpu, *end]).verdict == "partial"
    assert [row.on_cpu for row in both.op_profile] == [False, True]
    assert any("25.0 % of the time" in finding.text for finding in both.findings)


def test_fully_accelerated_proves_nothing_where_the_cpu_was_allowed() -> None:
    figure = "Inference (avg):       4.50 ms (50 runs)"
    for allowed, verdict in (("GPU", "full_delegate"), ("GPU | CPU", "unknown"), ("NPU | GPU", "unknown")):
        lines = [f"Accelerators:    {allowed}", "Fully accelerated: True", figure]
        assert _verdict(lines, "gpu").verdict == verdict
    refused = ["Accelerators:    GPU", "Fully accelerated: False", figure]
    assert (_verdict(refused).verdict, _verdict([*refused, GPU_TOOK_ALL]).verdict) == ("unknown", "partial")


def test_requested_must_be_a_backend() -> None:
    with pytest.raises(ValueError, match="cpu, gpu, nnapi or npu"):
        LogReader("tpu")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["full_delegate", "cpu_baseline"], 0),
        (["full_delegate", "unknown"], 5),
        (["unknown", "partial", "full_delegate"], 3),
        (["unknown", "fallback_cpu", "crash"], 4),
        (["backend_downgrade", "failed"], 4),
        ([], 0),
    ],
)
def test_exit_codes_keep_their_order(verdicts: list[str], code: int) -> None:
    assert exit_code_of(verdicts) == code
