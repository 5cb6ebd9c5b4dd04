"""Command lines of on-device programs."""

from __future__ import annotations

import shlex

import pytest

from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link
from mtplab.device.tools import (
    BenchmarkOptions,
    InputFile,
    TokenRunnerOptions,
    benchmark_command,
    token_runner_command,
)


def test_the_counts_rule_and_not_the_clock() -> None:
    command = benchmark_command(BenchmarkOptions(graph="/data/local/tmp/mtplab/m.tflite"))
    assert command[0] == "/data/local/tmp/benchmark_model"
    for flag in ("--warmup_runs=10", "--num_runs=50", "--min_secs=0", "--warmup_min_secs=0", "--use_gpu=false"):
        assert flag in command
    assert not [word for word in command if "xnnpack" in word]  # not asked for: the tool's own default stands


@pytest.mark.parametrize("few", [{"warmup_runs": 9}, {"runs": 49}, {"threads": 0}])
def test_too_little_to_be_evidence_is_refused(few: dict[str, int]) -> None:
    with pytest.raises(CommandFailed):
        benchmark_command(BenchmarkOptions(graph="/m", **few))


def test_real_inputs_are_named_shaped_and_escaped() -> None:
    inputs = (InputFile("tokens", (1, 4), "/data/t.bin"), InputFile("pos:0", (4,), "/data/p.bin"))
    command = benchmark_command(
        BenchmarkOptions(graph="/m", signature="verify", use_gpu=True, inputs=inputs, core_mask="f0")
    )
    assert command[:2] == ["taskset", "f0"]
    assert "--signature_to_run_for=verify" in command
    assert "--input_layer=tokens,pos:0" in command
    assert "--input_layer_shape=1,4:4" in command
    assert "--input_layer_value_files=tokens:/data/t.bin,pos::0:/data/p.bin" in command
    with pytest.raises(CommandFailed, match="no , or :"):
        benchmark_command(BenchmarkOptions(graph="/m", inputs=(InputFile("a", (1,), "/data/a,b"),)))


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
    result = link.run(benchmark_command(BenchmarkOptions(graph="/data/local/tmp/mtplab/none.tflite")))
    assert result.exit_code != 0
    assert "none.tflite" in result.stdout + result.stderr
