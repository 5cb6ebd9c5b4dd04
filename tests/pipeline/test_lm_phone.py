"""LiteRT-LM's own program on the stand-in: streamed text becomes the records that a token runner would give."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from mtplab.device import paths
from mtplab.device.binaries import lm_flags_of
from mtplab.device.errors import CommandFailed
from mtplab.device.shell import Line
from mtplab.device.standin_host import StandinProcess, litert_lm
from mtplab.device.tools import LitertLmOptions, litert_lm_command
from mtplab.pipeline.job import StageFailed
from mtplab.pipeline.lm_phone import LmPrompt, hear, run_on_phone

CAPTURED = Path(__file__).parents[1] / "data" / "benchlogs" / "43_litertlm_cmake_cpu_benchmarkinfo_ttft.txt"
OPTIONS = LitertLmOptions(bundle="/b", prompt="p", max_tokens=8)


def _out(text: str, t: float) -> Line:
    return Line("stdout", text, t)


def test_text_is_told_from_the_echo_before_it_and_the_report_behind_it_however_it_is_cut() -> None:
    prompt = "What is the tallest building in the world?"
    whole = CAPTURED.read_text()
    lines = whole.splitlines(keepends=True)
    text = "".join(lines[2 : lines.index("BenchmarkInfo:\n")]).rstrip("\n")
    for size in (1, 7, 64, len(whole)):
        said = [_out(whole[i : i + size], float(i)) for i in range(0, len(whole), size)]
        heard = hear(said, prompt)
        assert "".join(part for part, _ in heard.pieces) == text
        assert heard.asked_t is not None and heard.asked_t <= heard.pieces[0][1]
        assert any("Decode Turn 1: Processed 62 tokens" in line for line in heard.log)


def test_a_model_that_writes_the_reports_first_word_is_not_cut_there() -> None:
    heard = hear(
        [_out("input_prompt: p\na BenchmarkInfo:\nb\n\nI0000 00:00:1.5   7 a.cc:1] BenchmarkInfo:\n", 1.0)], "p"
    )
    assert heard.pieces == (("a BenchmarkInfo:\nb", 1.0),)


def test_the_larger_program_says_in_its_log_when_it_takes_the_prompt() -> None:
    said = [
        Line("stderr", "I0000 00:00:1.5 7 litert_lm_lib.cc:1] Running single-turn conversation", 1.0),
        _out("one", 2.0),
        _out(" two\n", 3.0),
    ]
    heard = hear(said, "p")
    assert (heard.asked_t, heard.pieces) == (1.0, (("one", 2.0), (" two", 3.0)))


def test_a_program_that_never_says_when_it_took_the_prompt_is_known_for_that() -> None:
    assert hear([_out("text", 1.0)], "p").asked_t is None


def test_a_build_without_a_flag_that_the_measurement_rests_on_is_refused() -> None:
    with pytest.raises(CommandFailed, match="has no --max_output_tokens"):
        litert_lm_command(OPTIONS, frozenset({"backend", "model_path", "input_prompt"}))
    assert "--enable_speculative_decoding=false" in litert_lm_command(OPTIONS)


@pytest.mark.skipif(importlib.util.find_spec("litert_lm") is None, reason="litert-lm is not installed")
@pytest.mark.pipeline
def test_a_pushed_bundle_runs_on_the_stand_in_with_and_without_speculation(
    small: Any, lm_bundle: Any, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(small.tokenizer))
    with StandinProcess(programs={paths.LITERT_LM: litert_lm()}) as phone:
        link = phone.link()
        flags = lm_flags_of(link, paths.LITERT_LM)
        assert "enable_speculative_decoding" in flags
        place = f"{paths.MODELS_DIR}/small.litertlm"
        link.push(lm_bundle.path, place)
        options = LitertLmOptions(bundle=place, prompt="", max_tokens=12, threads=1)
        prompts = [LmPrompt("a", "code", "def add(a, b):")]
        runs = {
            gamma: run_on_phone(
                link, prompts, tokenizer, options, gamma=gamma, simulated=True, log=tmp_path / "lm.log", flags=flags
            )
            for gamma in (None, 3)
        }
        with pytest.raises(StageFailed, match="exit code 1"):
            run_on_phone(
                link, prompts, tokenizer, LitertLmOptions(bundle="/none", prompt="", max_tokens=2), gamma=None,
                simulated=True, log=tmp_path / "lm.log",
            )  # fmt: skip
    plain, drafted = (runs[gamma].measured()[0] for gamma in (None, 3))
    assert runs[3].complete and runs[3].env["simulated"] is True and runs[3].env["clock"]["round_trip_s"] > 0
    assert plain.stamps == drafted.stamps == "arrival"
    assert [t.id for t in plain.tokens] == [t.id for t in drafted.tokens][:12]
    assert not plain.rounds and drafted.runtime is not None
    assert drafted.runtime.decode_tokens == len(drafted.tokens)
    # Text that comes faster than adb carries it arrives in fewer pieces, and then no round is told of.
    if drafted.runtime.mtp_rounds is None:
        assert not drafted.rounds
    else:
        assert 1 + sum(r.accepted + 1 for r in drafted.rounds) == drafted.runtime.decode_tokens
