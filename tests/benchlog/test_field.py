"""Logs as people post them: quoted, re-stamped, from delegates that are libraries, with a model talking between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mtplab.benchlog.command import log_command
from mtplab.benchlog.compose import counted
from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import Reading

HEAD = "INFO: STARTING!\nINFO: Log parameter values verbosely: [0]\nINFO: Graph: [m.tflite]\n"
GPU = HEAD + "INFO: Use gpu: [1]\nINFO: Created TensorFlow Lite delegate for GPU.\nINFO: GPU delegate created.\n"
XNNPACK = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
TOOK = (
    "VERBOSE: Replacing {} out of 9 node(s) with delegate ({}) node, yielding {} partitions for subgraph 0 (main).\n"
)
TAIL = """INFO: Initialized session in 8.5ms.
INFO: count=3 first=9 curr=8 min=7 max=9 avg=8 std=1
INFO: count=50 first=7 curr=7 min=6 max=9 avg=7 std=1
INFO: Inference timings in us: Init: 8500, First inference: 9, Warmup (avg): 8, Inference (avg): 7
INFO: Memory footprint delta from the start of the tool (MB): init=8 overall=9
"""
REFUSED = """ERROR: Following operations are not supported by GPU delegate:

CAST: Not supported cast case
CUSTOM TFLite_Detection_PostProcess: Operation is not supported.
DELEGATE TfLiteXNNPackDelegate: Operation is not supported.
DEQUANTIZE:

"""
PARTIAL = GPU + REFUSED + "6 operations will run on the GPU, and the remaining 3 operations will run on the CPU.\n"
PARTIAL += TOOK.format(6, "TfLiteGpuDelegateV2", 3) + TAIL


def read(text: str, requested: str | None = None) -> Reading:
    reader = LogReader(requested)
    reader.feed_text(text)
    return reader.finish()


@pytest.mark.parametrize(
    "carry",
    [
        lambda n, line: f"> {line}",
        lambda n, line: f"> > {line}",
        lambda n, line: f"    {line}",
        lambda n, line: f"{n:6d}\t{line}",
        lambda n, line: f"bench-1  | {line}",
        lambda n, line: f"1764453141.{n:06d} {line}",
        lambda n, line: f"[   12.{n:06d}] {line}",
        lambda n, line: f"2026-01-31 10:38:42,123 - INFO - {line}",
        lambda n, line: f"2026-01-31 10:38:42,123 - bench.run - INFO - {line}",
        lambda n, line: f"Nov 29 21:52:21 {line}",
        lambda n, line: f"2019-12-02 14:00:37.712 9436-9476/? I/tflite: {line}",
    ],
)
def test_a_log_reads_the_same_however_it_was_quoted_or_stamped(carry: Callable[[int, str], str]) -> None:
    plain = read(PARTIAL)
    carried = read("".join(carry(n, line) + "\n" for n, line in enumerate(PARTIAL.splitlines(), 1)))
    assert (plain.verdict, plain.delegated_nodes, plain.total_nodes, plain.partitions) == ("partial", 6, 9, 3)
    for name in ("verdict", "requested", "reason", "unsupported_ops", "init_us", "inference_avg_us", "complete"):
        assert getattr(carried, name) == getattr(plain, name), name
    assert [proof.line for proof in carried.evidence] == [proof.line for proof in plain.evidence]


def test_custom_operations_and_another_delegates_nodes_stand_among_the_unsupported() -> None:
    names = [name for name, _ in read(PARTIAL).unsupported_ops]
    assert names == ["CAST", "CUSTOM TFLite_Detection_PostProcess", "DELEGATE TfLiteXNNPackDelegate", "DEQUANTIZE"]


def test_what_follows_a_list_of_operations_without_a_summary_is_no_operation() -> None:
    note = "INFO: Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE\n"
    reading = read(GPU + "ERROR: Following operations are not supported by GPU delegate:\nCAST: no\n" + note)
    assert reading.unsupported_ops == (("CAST", "no"),)


@pytest.mark.parametrize("first", ["First ", ""])
def test_a_delegate_that_takes_no_operation_is_a_fallback_not_a_part(first: str) -> None:
    reading = read(f"{GPU}{REFUSED}{first}0 operations will run on the GPU, and the remaining 65 on the CPU.\n{TAIL}")
    assert reading.verdict == "fallback_cpu"
    assert (reading.delegated_nodes, reading.total_nodes) == (0, 65)


@pytest.mark.parametrize("flag", ["--usegpu=true", "--use-gpu=true", "--gpu=1", "--enable_gpu"])
def test_a_misspelt_switch_that_the_tool_ignored_is_still_what_was_wanted(flag: str) -> None:
    reading = read(f"{HEAD}WARN: Unconsumed cmdline flags: {flag}\n{XNNPACK}{TAIL}")
    assert (reading.requested, reading.verdict) == ("gpu", "fallback_cpu")


@pytest.mark.parametrize("flag", ["--use_cpu=true", "--usegpu=false", "--gpu_model=mali"])
def test_another_ignored_flag_asks_for_no_accelerator(flag: str) -> None:
    reading = read(f"{HEAD}WARN: Unconsumed cmdline flags: {flag}\n{XNNPACK}{TAIL}")
    assert (reading.requested, reading.verdict) == ("cpu", "cpu_baseline")


QNN = "INFO: External delegate path: [/data/local/tmp/libQnnTFLiteDelegate.so]\n"
OPTIONS = "INFO: External delegate options: [log_level:1;backend_type:{};]\n"


@pytest.mark.parametrize("stderr_first", [False, True])
def test_a_qnn_library_that_was_told_to_use_the_gpu_never_counts_for_the_npu(stderr_first: bool) -> None:
    head, took = HEAD + QNN + OPTIONS.format("gpu"), TOOK.format(9, "TfLiteQnnDelegate", 1)
    text = took + head + TAIL if stderr_first else head + took + TAIL
    assert read(text).requested == "gpu"
    assert read(text).verdict == "full_delegate"
    assert read(text, "npu").verdict == "unknown"


def test_options_that_are_repeated_for_ever_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtplab.benchlog import intake

    looks: list[None] = []
    plain = intake._name_again
    monkeypatch.setattr(intake, "_name_again", lambda run: (looks.append(None), plain(run)))
    read(HEAD + QNN + (OPTIONS.format("gpu") + OPTIONS.format("htp")) * 50)
    assert len(looks) == 1


def test_an_external_delegate_that_took_nothing_is_known_by_its_library() -> None:
    summary = "INFO: TfLiteQnnDelegate delegate: 0 nodes delegated out of 31 nodes with 0 partitions.\n"
    though = "INFO: Though EXTERNAL delegate is explicitly applied, the model graph will not be executed by it.\n"
    reading = read(
        HEAD + QNN + OPTIONS.format("htp") + "INFO: EXTERNAL delegate created.\n" + summary + though + TAIL
    )
    assert (reading.requested, reading.verdict) == ("npu", "fallback_cpu")
    assert (reading.delegated_nodes, reading.total_nodes) == (0, 31)


def test_a_library_that_nobody_knows_proves_nothing() -> None:
    path = "INFO: External delegate path: [/lib/libvx_delegate.so]\nINFO: EXTERNAL delegate created.\n"
    applied = (
        "INFO: Explicitly applied EXTERNAL delegate, and the model graph will be completely executed by the delegate"
    )
    reading = read(HEAD + path + OPTIONS.format("gpu") + TOOK.format(9, "Vx Delegate", 1) + applied + "\n" + TAIL)
    assert (reading.requested, reading.verdict) == (None, "unknown")


def test_two_lines_about_one_step_give_the_total_and_the_partitions() -> None:
    summary = "INFO: TfLiteHexagonDelegate delegate: 136 nodes delegated out of 139 nodes with 2 partitions.\n"
    took = "VERBOSE: Replacing 136 node(s) with delegate (TfLiteHexagonDelegate) node, yielding 5 partitions.\n"
    reading = read(HEAD + "INFO: Use Hexagon: [1]\n" + summary + took + TAIL)
    assert (reading.verdict, reading.delegated_nodes, reading.total_nodes, reading.partitions) == (
        "partial",
        136,
        139,
        5,
    )


def test_a_failure_that_no_rule_explains_is_told_by_the_first_error() -> None:
    errors = "ERROR: hexagon_nn_config failed. Error: -1\nERROR: Delegate kernel was not initialized\n"
    reading = read(HEAD + "INFO: Use Hexagon: [1]\n" + errors + "ERROR: Benchmarking failed.\n")
    assert (reading.verdict, reading.reason) == ("failed", "hexagon_nn_config failed. Error: -1")
    assert reading.evidence[0].line == 5


def test_an_error_of_somebody_else_on_the_phone_is_no_reason() -> None:
    stamp = "05-31 10:38:42.607 22206 22206 "
    lines = [
        "E SurfaceFlinger: out of buffers",
        "E tflite  : Failed to load model m",
        "I tflite  : Benchmarking failed.",
    ]
    assert read("".join(f"{stamp}{line}\n" for line in lines)).reason == "Failed to load model m"


def test_a_dispatch_kernel_that_was_refused_outvotes_the_line_that_took_its_node() -> None:
    took = "VERBOSE: Replacing 1 out of 1 node(s) with delegate (DispatchDelegate) node, yielding 1 partitions.\n"
    refused = "Failed to create a dispatch delegate kernel: Incompatible Neuron SDK major version: 8.2.30, but 9.2.0"
    reading = read(f"{HEAD}INFO: Use NPU: [1]\n{took}ERROR: [dispatch_delegate.cc:134] {refused}\n{XNNPACK}{TAIL}")
    assert (reading.verdict, reading.reason) == ("failed", refused)


def test_a_number_that_no_process_ends_with_is_no_exit_code() -> None:
    assert read(HEAD + "exit code: 999\n").exit_code is None
    assert read(HEAD + "exit code: 255\n").exit_code == 255


@pytest.mark.parametrize(
    "last",
    [
        "Bus error (core dumped)",
        "Illegal instruction",
        "Terminated",
        "Bad system call",
        "Trace/breakpoint trap",
        "The process ended because of a segmentation fault. Consult the runtime log for more details.",
    ],
)
def test_every_way_in_which_a_shell_tells_a_signal_is_a_crash(last: str) -> None:
    assert read(GPU + TOOK.format(9, "TfLiteGpuDelegateV2", 1) + last + "\n").verdict == "crash"


def test_a_run_after_a_crash_is_another_run() -> None:
    lm = "I0000 00:00:1758744860.457295   56310 main.cc:193] Choose backend: gpu\n"
    reading = read(lm + "Segmentation fault\n" + lm + "BenchmarkInfo:\n")
    assert (reading.runs_in_log, reading.verdict) == (2, "crash")


LM = """I0000 00:00:1758744860.457295   56310 main.cc:193] Choose backend: gpu
INFO: [gpu_registry.cc:149] Dynamically loaded GPU accelerator(libLiteRtOpenClAccelerator.so) registered.
{}input_prompt: Hi
{}
BenchmarkInfo:
  Time to first token: 0.31 s
"""
CLAIMS = [
    TOOK.format(9, "LITERT_CL", 1).removeprefix("VERBOSE: "),
    "Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.",
    "Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 2 kernels.",
    "Segmentation fault",
    "I use backend=CPU, of course",
    "Benchmarking failed? No selector for CAST",
]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("own", ["", TOOK.format(12, "LITERT_CL", 1).replace("of 9", "of 12")])
def test_what_a_model_says_about_its_run_changes_no_verdict(claim: str, own: str) -> None:
    told, silent = read(LM.format(own, claim)), read(LM.format(own, "Hello."))
    assert silent.verdict == ("full_delegate" if own else "unknown")
    assert (told.verdict, told.requested, told.evidence) == (silent.verdict, silent.requested, silent.evidence)


def test_a_crash_while_the_model_talks_is_a_crash() -> None:
    text = LM.format(TOOK.format(9, "LITERT_CL", 1), "Once upon a ti\nSegmentation fault")
    assert read(text.partition("BenchmarkInfo")[0]).verdict == "crash"


@pytest.mark.parametrize("result", ["INFO: count=0\n" * 2, "INFO: No inference runs were performed.\n"])
def test_a_delegate_that_never_ran_the_graph_counts_as_unknown(result: str) -> None:
    zero = "INFO: Inference timings in us: Init: 8500, First inference: 0, Warmup (avg): 0, Inference (avg): 0\n"
    reading = read(GPU + TOOK.format(9, "TfLiteGpuDelegateV2", 1) + result + zero + TAIL.splitlines()[-1] + "\n")
    assert reading.complete
    assert (reading.first_us, reading.warmup_avg_us, reading.inference_avg_us) == (None, None, None)
    assert counted(reading) == "unknown"
    assert any("no inference was made" in finding.text for finding in reading.findings)


def test_an_empty_name_is_refused_not_taken_for_the_folder_one_stands_in(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(PARTIAL)
    result = CliRunner().invoke(log_command, [""])
    assert result.exit_code == 1
    assert "empty name" in result.output
