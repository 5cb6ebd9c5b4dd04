"""LiteRT-LM's counts are believed only where its pieces and its printed success rate tell the same story."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mtplab.measure.figures import configuration_figures, run_figures
from mtplab.measure.protocol import ProtocolRun, parse
from mtplab.pipeline.bundle_command import bundle_command, stages_of
from mtplab.pipeline.errors import PipelineError
from mtplab.pipeline.lm_runs import Counts, HostRun, beside, lm_counts, own_counts
from mtplab.pipeline.stage import RunParameters
from mtplab.tokenrunner import litert_lm
from mtplab.tokenrunner.arrivals import Piece, Request, write_prompt
from mtplab.tokenrunner.protocol import ProtocolWriter

GAMMA = 3


class _Letters:
    """A tokenizer of one token a character."""

    def encode(self, text: str, add_special_tokens: bool = True) -> object:
        return SimpleNamespace(ids=[*map(ord, text)], offsets=[(i, i + 1) for i in range(len(text))])


def _protocol(*prompts: tuple[str, list[str], int, int]) -> ProtocolRun:
    """Prompts as (name, pieces, tokens that the runtime counts, output limit)."""
    stream = io.BytesIO()
    writer = ProtocolWriter(stream, "r")
    writer.write("hello")
    for name, texts, decoded, limit in prompts:
        pieces = [Piece(text, 1_000_000 * (i + 2)) for i, text in enumerate(texts)]
        request = Request(prompt=name, klass="code", warmup=False, limit=limit, gamma=GAMMA)
        totals = {"decode_tokens": decoded, "prefill_tokens": 5, "ttft_derived_ms": 1.5}
        write_prompt(writer, _Letters(), request, pieces, 0, 1_000_000 * (len(texts) + 2), totals)
    writer.close()
    return parse(stream.getvalue())


def _run(protocol: ProtocolRun, rate: float | None) -> HostRun:
    log = () if rate is None else (f"I0000 x llm_litert_mtp_drafter.cc:298] MTP Drafter - Success rate: {rate:.6g}",)
    return HostRun(protocol, log, 0)


WHOLE = ("a", ["x", "abcd", "ef", "g"], 8, 8)  # rounds that accepted 0, 3 and 1 of 3
STOPPED = ("b", ["x", "abcd", "ef"], 7, 48)  # the last of three rounds ended at a stop token


def test_a_success_rate_that_fits_the_pieces_confirms_them() -> None:
    protocol = _protocol(WHOLE)
    assert protocol.complete and [r.accepted for r in protocol.prompts[0].rounds] == [0, 3, 1]
    assert lm_counts(_run(protocol, 4 / 9), GAMMA) == Counts(9, 4)
    assert own_counts(_run(protocol, None)) == Counts(9, 4)


def test_rounds_of_text_that_the_tokenizer_would_write_otherwise_still_count() -> None:
    protocol = _protocol(("a", ["x", "abc", "ef", "g"], 8, 8))
    assert not protocol.prompts[0].rounds
    assert lm_counts(_run(protocol, 4 / 9), GAMMA) == Counts(9, 4)
    assert lm_counts(_run(protocol, 5 / 9), GAMMA).drafted is None


def test_what_a_stop_token_hid_comes_from_the_success_rate() -> None:
    protocol = _protocol(WHOLE, STOPPED)
    assert [r.accepted for r in protocol.prompts[1].rounds] == [0, 3]
    assert lm_counts(_run(protocol, 9 / 18), GAMMA) == Counts(18, 9)


@pytest.mark.parametrize(
    ("prompts", "rate", "reason"),
    [
        ((WHOLE,), 5 / 9, "contradict the printed success rate"),
        ((WHOLE,), 0.31, "contradict the printed success rate"),
        ((WHOLE, STOPPED), 17 / 18, "contradict"),  # a round cannot have accepted more than three
        ((("a", ["x", "abcde", "g"], 9, 9),), 4 / 9, "rounds of 1 of 1 prompts cannot be told"),
        ((WHOLE,), None, "holds no success rate"),
    ],
)
def test_counts_that_nothing_confirms_are_unknown_with_the_reason(
    prompts: tuple[tuple[str, list[str], int, int], ...], rate: float | None, reason: str
) -> None:
    counts = lm_counts(_run(_protocol(*prompts), rate), GAMMA)
    assert counts.drafted is None and counts.ratio is None
    assert reason in (counts.reason or "")


def test_figures_of_arrivals_say_so_and_keep_the_derived_time_to_first_token_apart() -> None:
    figures = configuration_figures([run_figures(_protocol(WHOLE))], mtp=True).figures
    assert figures["ttft_ms"].value == 2.0 and figures["ttft_ms"].evidence == "arrivals"
    assert figures["ttft_derived_ms"].value == 1.5 and figures["ttft_derived_ms"].evidence == "totals"
    assert figures["alpha"].evidence == "rounds"


def test_outputs_are_compared_as_far_as_both_go() -> None:
    own, longer = _protocol(("a", ["x", "abc"], 4, 48)), _protocol(WHOLE)
    (row,) = beside(own, longer)
    assert not row.same_text or row.same_rounds
    (same,) = beside(_protocol(("a", ["x", "abcd"], 5, 48)), longer)
    assert same.same_text and same.same_rounds and same.same_input and (same.own_tokens, same.lm_tokens) == (5, 8)


def test_a_head_that_cannot_be_bundled_is_refused_before_anything_is_exported() -> None:
    result = CliRunner().invoke(bundle_command, ["--head", "parallel", "--out", "x.litertlm"])
    assert result.exit_code != 0 and "a parallel head takes no token" in result.output


def test_calibration_is_run_for_a_backbone_that_wants_it_and_refused_for_a_drafter() -> None:
    assert "calibrate" not in stages_of(RunParameters())
    stages = stages_of(RunParameters(recipe="static_int8", head_recipe="dynamic_int8"))
    assert stages.index("calibrate") < stages.index("quantise")
    with pytest.raises(PipelineError, match="give --head-recipe a dynamic one"):
        stages_of(RunParameters(head_recipe="static_int8"))


def test_what_was_not_shown_is_not_called_the_same() -> None:
    whole, silent = _protocol(WHOLE), _protocol(("a", [], 0, 8))
    (row,) = beside(whole, silent)
    assert row.lm_tokens == 0 and not row.same_text and not row.same_rounds


def test_a_prompt_that_carries_its_template_is_not_given_to_a_conversation(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "p", "class": "chat", "text": "<|im_start|>user x", "templated": true}\n')
    argv = ["--bundle=b.litertlm", f"--tokenizer={tmp_path / 'none.json'}", f"--prompts={prompts}"]
    assert litert_lm.main([*argv, "--api=conversation"]) == 1
    assert "carries its chat template already" in capfd.readouterr().err
    assert litert_lm.main([*argv, "--api=session"]) == 1
    assert "none.json cannot be read" in capfd.readouterr().err
