"""Command lines of on-device programs."""

from __future__ import annotations

import shlex

import pytest

from mtplab.device.binaries import Tool
from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link
from mtplab.device.tools import (
    BenchmarkOptions,
    InputFile,
    Requested,
    TokenRunnerOptions,
    benchmark_command,
    token_runner_command,
)

LITERT = Tool(path="/data/local/tmp/tools/benchmark_model", kind="benchmark_litert_model")
INPUTS = (InputFile("tokens", (1, 4), "/data/t.bin"), InputFile("pos:0", (4,), "/data/p.bin"))


def words(tool: Tool | None = None, **options: object) -> list[str]:
    return list(benchmark_command(BenchmarkOptions(graph="/m", **options), tool).words)  # type: ignore[arg-type]


def test_the_counts_rule_and_not_the_clock() -> None:
    for command in (words(), words(LITERT)):
        for flag in ("--warmup_runs=10", "--num_runs=50", "--min_secs=0", "--warmup_min_secs=0", "--use_gpu=false"):
            assert flag in command
    assert words()[0] == "/data/local/tmp/benchmark_model"


@pytest.mark.parametrize("few", [{"warmup_runs": 9}, {"runs": 49}, {"threads": 0}, {"core_mask": "f0; id"}])
def test_what_is_no_evidence_is_refused(few: dict[str, int]) -> None:
    with pytest.raises(CommandFailed):
        words(**few)


def test_real_inputs_are_named_shaped_and_escaped() -> None:
    command = benchmark_command(
        BenchmarkOptions(graph="/m", signature="verify", requested="gpu", inputs=INPUTS, core_mask="f0")
    )
    assert command.real_inputs and command.left_out == ()
    assert command.words[:2] == ("taskset", "f0")
    assert "--signature_to_run_for=verify" in command.words
    assert "--input_layer=tokens,pos:0" in command.words
    assert "--input_layer_shape=1,4:4" in command.words
    assert "--input_layer_value_files=tokens:/data/t.bin,pos::0:/data/p.bin" in command.words
    with pytest.raises(CommandFailed, match="no , or :"):
        words(inputs=(InputFile("a", (1,), "/data/a,b"),))


@pytest.mark.parametrize(
    ("tool", "requested", "given", "never"),
    [
        (None, "cpu", ["--use_xnnpack=true", "--use_gpu=false"], ["use_cpu", "serialize", "precision"]),
        (
            None,
            "gpu",
            [
                "--use_gpu=true", "--use_xnnpack=false", "--gpu_precision_loss_allowed=false",
                "--delegate_serialize_dir=/c", "--delegate_serialize_token=t", "--enable_op_profiling=true",
            ],
            ["use_cpu", "allow_fp16"],
        ),
        (LITERT, "cpu", ["--use_cpu=true", "--use_gpu=false"], ["xnnpack", "gpu_serialization", "dispatch"]),
        (
            LITERT,
            "gpu",
            [
                "--use_cpu=false", "--use_gpu=true", "--allow_fp16=false", "--gpu_serialization_dir=/c",
                "--gpu_model_cache_key=t", "--use_profiler=true",
            ],
            ["xnnpack", "precision_loss", "delegate_serialize"],
        ),
        (
            LITERT,
            "npu",
            ["--use_cpu=false", "--use_npu=true", "--use_gpu=false", "--dispatch_library_path=/d"],
            ["gpu_serialization", "allow_fp16"],
        ),
    ],
)  # fmt: skip
def test_each_tool_is_asked_in_its_own_flags(
    tool: Tool | None, requested: Requested, given: list[str], never: list[str]
) -> None:
    command = words(
        tool, requested=requested, gpu_precision="fp32", cache_dir="/c", cache_token="t", dispatch_dir="/d",
        op_profiling=True,
    )  # fmt: skip
    assert not set(given) - set(command)
    assert not [word for word in command if any(part in word for part in never)]


def test_litert_finds_its_accelerators_beside_the_program() -> None:
    command = words(LITERT, requested="npu", dispatch_dir="/data/local/tmp/npu", core_mask="f0")
    assert command[:4] == [
        "env", "LD_LIBRARY_PATH=/data/local/tmp/tools:/data/local/tmp/npu:/data/local/tmp", "taskset", "f0",
    ]  # fmt: skip
    assert words(LITERT)[0] == LITERT.path


def test_a_flag_the_tool_did_not_tell_is_left_out_and_said() -> None:
    told = frozenset({"graph", "use_gpu", "use_npu", "input_layer"})
    old = Tool(kind="benchmark_litert_model", flags=told)
    options = BenchmarkOptions(graph="/m", requested="gpu", gpu_precision="fp32", inputs=INPUTS, signature="s")
    command = benchmark_command(options, old)
    assert command.left_out == ("input_layer_shape", "input_layer_value_files", "allow_fp16")
    assert not command.real_inputs
    assert not [word for word in command.words if "input_layer" in word or "fp16" in word]
    assert "--signature_to_run_for=s" in command.words  # another graph would be measured without it


@pytest.mark.parametrize(
    ("tool", "requested"),
    [
        (None, "npu"),
        (Tool(flags=frozenset({"graph", "use_xnnpack"})), "gpu"),
        (Tool(kind="benchmark_litert_model", flags=frozenset({"graph", "use_gpu"})), "npu"),
    ],
)
def test_a_tool_that_cannot_ask_an_accelerator_is_refused(tool: Tool | None, requested: Requested) -> None:
    with pytest.raises(CommandFailed, match="--benchmark-binary"):
        words(tool, requested=requested)


def test_the_token_runner_needs_a_head_for_mtp() -> None:
    options = TokenRunnerOptions(backbone="/b", tokenizer="/t", prompts="/p", mtp=True)
    with pytest.raises(CommandFailed, match="needs a draft head"):
        token_runner_command(options)
    plain = token_runner_command(TokenRunnerOptions(backbone="/b", tokenizer="/t", prompts="/p", stop_ids=(0, 2)))
    assert "--mtp=off" in plain
    assert plain[-2:] == ["--stop-id=0", "--stop-id=2"]


@pytest.mark.parametrize("word", ["a b", "$HOME", "it's", "`id`", "; rm -rf /", "*", "a\nb", "ä"])
def test_every_argument_reaches_the_program_as_it_is(link: Link, word: str) -> None:
    assert link.run(["echo", word], check=True).stdout == word + "\n"
    assert shlex.quote(word)


def test_a_missing_graph_is_a_failure_with_the_tools_own_words(link: Link) -> None:
    command = benchmark_command(BenchmarkOptions(graph="/data/local/tmp/mtplab/none.tflite", core_mask="3"))
    result = link.run(command.words)
    assert result.exit_code == 1
    assert "none.tflite" in result.stdout + result.stderr
