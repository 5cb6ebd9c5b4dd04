"""Logs of other runtimes are read as totals, ratios or lengths, each under its own name and none as α."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given as forall
from hypothesis import strategies as st

from mtplab.speculation.acceptance import AcceptCounts, marginal
from mtplab.speculation.command import calc_command
from mtplab.speculation.runtime_logs import given_of, read_totals

LITERT_LM = ["I0000 drafter.cc:151] Num drafted tokens: 213", "Num verified tokens: 56", "Success rate: 0.262911"]
LLAMA_REQUEST = "slot print_timing: id  3 | task 0 | draft acceptance = 0.68831 ( 2703 accepted /  3927 generated)"
LLAMA_TOTALS = (
    "statistics        draft-mtp: #calls(b,g,a) =    1   1309   1309, #gen drafts =   1309, #acc drafts =  1120, "
    "#gen tokens =   3927, #acc tokens =  2703, dur(b,g,a) = 0.002, 28395.226, 1.373 ms"
)
SGLANG = (
    "[TP0] Decode batch. #running-req: 1, #token: 123, token usage: 0.01, accept len: 2.31, accept rate: 0.44, "
    "cuda graph: True, gen throughput (token/s): 88.10, #queue-req: 0"
)


def vllm(counts: AcceptCounts) -> str:
    """The line that vLLM prints for rounds with these counts."""
    shares = marginal(counts)
    assert shares is not None
    return (
        "INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + counts.accepted / counts.rounds:.2f}, Accepted throughput: 0.12 tokens/s, "
        f"Drafted throughput: 0.34 tokens/s, Accepted: {counts.accepted} tokens, Drafted: {counts.drafted} tokens, "
        f"Per-position acceptance rate: {', '.join(f'{share:.3f}' for share in shares)}, "
        f"Avg Draft acceptance rate: {100 * counts.accepted / counts.drafted:.1f}%"
    )


def test_litert_lm_prints_totals_whose_alpha_is_only_bounded() -> None:
    found, notes = given_of(read_totals(LITERT_LM), 3)
    assert found.source == "totals"
    assert (round(found.alpha.low or 0, 3), round(found.alpha.high or 0, 3)) == (0.441, 0.514)
    assert notes == ["Totals of litert-lm."]


def test_several_engines_in_one_log_are_summed() -> None:
    totals = read_totals([*LITERT_LM, *LITERT_LM])
    assert (totals.drafted, totals.accepted) == (426, 112)


def test_a_success_rate_alone_is_a_ratio_and_never_alpha() -> None:
    found, notes = given_of(read_totals(["MTP Drafter - Success rate: 0.262911"]), 3)
    assert found.source == "ratio"
    assert found.tau.value == pytest.approx(1.789, abs=1e-3)
    assert found.alpha.value == pytest.approx(0.468, abs=1e-3)
    assert "not taken for α" in notes[0]


@forall(st.lists(st.integers(0, 99), min_size=2, max_size=9).filter(any))
def test_vllm_per_position_shares_lead_back_to_the_very_counts(numbers: list[int]) -> None:
    counts = AcceptCounts(tuple(numbers))
    totals = read_totals([vllm(counts)])
    assert totals.counts == counts


def test_vllm_intervals_are_merged_and_kept_apart_from_shares_that_do_not_add_up() -> None:
    one, two = AcceptCounts((5, 3, 2)), AcceptCounts((1, 0, 9))
    assert read_totals([vllm(one), vllm(two)]).counts == AcceptCounts((6, 3, 11))
    wrong = vllm(one).replace("Accepted: 7 ", "Accepted: 8 ")
    totals = read_totals([wrong])
    assert totals.counts is None
    assert "only totals" in totals.notes[0]
    assert given_of(totals, None)[0].source == "totals"


def test_a_real_line_of_vllm_gives_its_37_rounds() -> None:
    line = (
        "(APIServer pid=347228) INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: "
        "3.49, Accepted throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: 92 tokens, Drafted: "
        "259 tokens, Per-position acceptance rate: 0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054, Avg Draft "
        "acceptance rate: 35.5%"
    )
    counts = read_totals([line]).counts
    assert counts is not None
    assert (counts.rounds, counts.accepted, counts.gamma) == (37, 92, 7)


def test_vllm_counters_of_a_metrics_page_are_read() -> None:
    page = [
        "# HELP vllm:spec_decode_num_drafts_total drafts",
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 71.0',
        'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 213.0',
        'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 56.0',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 30.0',
    ]
    found, _ = given_of(read_totals(page), None)
    assert found.gamma == 3
    assert found.tau.value == pytest.approx(1 + 56 / 71)


def test_llama_statistics_since_the_start_are_not_added_to_requests_or_to_themselves() -> None:
    totals = read_totals([LLAMA_REQUEST, LLAMA_TOTALS, LLAMA_REQUEST, LLAMA_TOTALS])
    assert (totals.rounds, totals.drafted, totals.accepted, totals.some) == (1309, 3927, 2703, 1120)
    found, _ = given_of(totals, None)
    assert found.gamma == 3
    assert found.acceptance is not None
    assert found.acceptance["conditional_1"]["value"] == pytest.approx(1120 / 1309)


def test_a_drafter_that_stops_early_gives_tokens_a_round_and_no_alpha_from_totals() -> None:
    early = LLAMA_TOTALS.replace("3927", "3926")
    found, notes = given_of(read_totals([early]), 3)
    assert found.source == "length"
    assert found.tau.value == pytest.approx(1 + 2703 / 1309)
    assert "stops early" in notes[0]
    with pytest.raises(ValueError, match="stops early"):
        given_of(read_totals([LLAMA_REQUEST.replace("3927", "3926")]), 3)


def test_two_drafters_that_took_turns_make_no_one_alpha() -> None:
    with pytest.raises(ValueError, match="draft-mtp, ngram_mod"):
        read_totals([LLAMA_TOTALS, LLAMA_TOTALS.replace("draft-mtp", "ngram_mod")])


def test_sglang_prints_a_mean_length_that_holds_the_bonus_token() -> None:
    found, notes = given_of(read_totals([SGLANG, SGLANG.replace("2.31", "2.51")]), 3)
    assert found.source == "length"
    assert found.tau.value == pytest.approx(2.41)
    assert "unweighted" in notes[0]


def test_a_length_that_no_round_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="1\\.\\.2 tokens"):
        given_of(read_totals([SGLANG]), 1)


def test_logs_of_two_runtimes_and_logs_of_none_are_refused() -> None:
    with pytest.raises(ValueError, match="litert-lm and sglang"):
        read_totals([*LITERT_LM, SGLANG])
    with pytest.raises(ValueError, match="no line in it"):
        read_totals(["Num drafted tokens: many", "accept len: 3"])


@forall(st.lists(st.text(max_size=200), max_size=20))
def test_no_text_is_taken_for_figures_or_raises_anything_but_a_sentence(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="no line in it"):
        read_totals(lines)


def test_calc_reads_a_log_from_a_pipe_and_names_what_it_was() -> None:
    result = CliRunner().invoke(
        calc_command, ["--log", "-", "--gamma", "3", "--verify-cost", "1.45", "--json"], input="\n".join(LITERT_LM)
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert answer["source"] == "totals"
    assert round(answer["speedup"], 2) == 1.23
    assert answer["alpha"]["kind"] == "moment_within_totals"


def test_calc_asks_for_gamma_where_the_log_does_not_tell() -> None:
    result = CliRunner().invoke(calc_command, ["--log", "-"], input="\n".join(LITERT_LM))
    assert result.exit_code == 1
    assert "give --gamma" in result.output
