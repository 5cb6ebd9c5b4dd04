"""Figures come from stamps and rounds alone; what cannot be had is None with its reason."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from mtplab.measure.figures import (
    configuration_figures,
    figure_text,
    from_builtins,
    prompt_figures,
    run_figures,
    step_times_by_position,
    to_builtins,
    totals_figures,
)
from mtplab.measure.predict import decode_speedup
from mtplab.measure.protocol import parse
from mtplab.tokenrunner.arrivals import Piece, Request, write_prompt
from mtplab.tokenrunner.protocol import ProtocolWriter


def test_the_four_figures_of_one_prompt(lines):
    [figures] = run_figures(parse(lines().prompt(token_ms=(20, 30, 30, 40), end_ms=41).closed()))
    assert figures.ttft_ms == 20
    assert figures.tpot_ms == pytest.approx(20 / 3)
    assert figures.tokens_per_s == pytest.approx(4 / 0.041)
    assert (figures.gamma, figures.accepts, figures.ranks) == (3, [1, 0], [[0, 4, None], [4, None, None]])
    assert (figures.draft_us, figures.verify_us, figures.decode_us) == (4000, 14000, 20000)
    assert (figures.evidence, figures.plain_steps, figures.klass) == ("rounds", 0, "templated")
    assert figures.stamps_us == [20000, 30000, 30000, 40000] and figures.reasons == {}


@pytest.mark.parametrize(("pieces", "decoded"), [([3, 3, 3, 3, 1], 13), ([3, 3, 3, 2], 11)])
def test_text_that_arrives_by_rounds_is_timed_over_the_tokens_of_the_timed_rounds(pieces, decoded):
    """Prefill 30 ms, a plain step 20 ms, a round of three tokens 24 ms: 2.5 times as fast, to the limit or a stop."""
    plain = heard_run([1] * 13, [30 + 20 * i for i in range(13)], gamma=None, decoded=13)
    stamps = [54, 78, 102, 126, 126][: len(pieces)]
    drafted = heard_run(pieces, stamps, gamma=2, decoded=decoded)
    assert plain.tpot_ms == 20 and drafted.accepts[:3] == [2, 2, 2]
    if sum(pieces) == 13:
        assert drafted.tpot_ms == 8
        assert decode_speedup([plain, plain], [drafted, drafted]).value == pytest.approx(2.5)
    else:  # the last round ended by a stop token that is not shown
        assert drafted.tpot_ms == pytest.approx(3 * 24 / 8)


def test_text_that_arrives_with_its_request_or_at_once_gives_no_time():
    early = heard_run([1, 1, 1], [0, 20, 40], gamma=None, decoded=3)
    assert early.ttft_ms is early.tokens_per_s is None and early.tpot_ms == 20
    assert "arrived at once" in early.reasons["ttft_ms"] and "arrived at once" in early.reasons["tokens_per_s"]
    at_once = heard_run([4], [54], gamma=None, decoded=4)
    assert at_once.tpot_ms is None and "arrived at once" in at_once.reasons["tpot_ms"]


class Letters:
    """A tokenizer of one token a letter."""

    def encode(self, text, add_special_tokens):
        ids, offsets = [ord(letter) for letter in text], [(i, i + 1) for i in range(len(text))]
        return SimpleNamespace(ids=ids, offsets=offsets)


def heard_run(pieces, stamps_ms, *, gamma, decoded):
    """The figures of a prompt whose text arrived in pieces of so many tokens, by the records that are made of it."""
    stream = io.BytesIO()
    writer = ProtocolWriter(stream, "r")
    writer.write("hello", program="p")
    writer.write("env", mtp="off" if gamma is None else "on", gamma=gamma)
    arrived = [Piece("x" * n, ms * 1_000_000) for n, ms in zip(pieces, stamps_ms, strict=True)]
    request = Request(prompt="p", klass="c", warmup=False, limit=13, gamma=gamma)
    ended = stamps_ms[-1] * 1_000_000 + 1
    write_prompt(writer, Letters(), request, arrived, 0, ended, {"decode_tokens": decoded})
    writer.close()
    [figures] = run_figures(parse(stream.getvalue()))
    return figures


def test_one_token_has_a_first_but_no_next(run):
    figures = prompt_figures(run("p", [7]))
    assert figures.ttft_ms == 20 and figures.tpot_ms is None and "fewer than two" in figures.reasons["tpot_ms"]
    nothing = prompt_figures(run("p", []))
    assert nothing.ttft_ms is nothing.tokens_per_s is None
    assert "no output token" in nothing.reasons["ttft_ms"] and "no output token" in nothing.reasons["tokens_per_s"]


def test_a_prompt_that_cannot_be_trusted_gives_no_figure_but_its_reason(run):
    figures = prompt_figures(run("p", [1, 2, 3], accepts=(1,), problem="its end was never seen"))
    assert figures.ttft_ms is figures.tpot_ms is figures.tokens_per_s is figures.counts is None
    assert "its end was never seen" in figures.reasons["ttft_ms"]
    result = configuration_figures([[figures]], mtp=True)
    assert result.figures["ttft_ms"].value is None and "never seen" in result.figures["ttft_ms"].reason


def test_plain_decoding_has_stamps_and_no_alpha(rounds_at):
    plain = configuration_figures([r.prompts for r in rounds_at(10)], mtp=False)
    assert plain.figures["tpot_ms"].evidence == "stamps"
    assert plain.figures["alpha"].value is None and "MTP was off" in plain.figures["alpha"].reason
    assert plain.counts == []


def test_a_configuration_is_the_median_over_prompts_with_an_interval(rounds_at):
    on = configuration_figures([r.prompts for r in rounds_at(10, accepts=(3, 0, 1))], mtp=True)
    tpot = on.figures["tpot_ms"]
    assert tpot.value == pytest.approx(10 * 1.02 * 1.004)
    assert tpot.low <= tpot.value <= tpot.high and tpot.n == 5, "five rounds of five prompts are five prompts"
    alpha, ratio = on.figures["alpha"], on.figures["accepted_ratio"]
    assert (alpha.value, alpha.n, alpha.evidence) == (pytest.approx(4 / 6), 5, "rounds")
    assert ratio.value == pytest.approx(4 / 9) and ratio.value != alpha.value
    assert on.figures["mean_acceptance_length"].value == pytest.approx(1 + 4 / 3)
    assert on.figures["gamma"].value == 3 and on.figures["n"].value == 5
    assert on.counts == [25, 25, 0, 25]
    low, high = on.spread["tpot_ms"]
    assert low < tpot.value < high


def test_classes_stand_apart(rounds_at):
    rounds = [
        a.prompts + b.prompts
        for a, b in zip(rounds_at(10, accepts=(3,)), rounds_at(20, klass="chat", accepts=(0,)), strict=True)
    ]
    result = configuration_figures(rounds, mtp=True)
    assert result.per_class["templated"]["alpha"].value == 1 and result.per_class["chat"]["alpha"].value == 0
    assert result.counts_per_class == {"chat": [25, 0, 0, 0], "templated": [0, 0, 0, 25]}


def test_totals_give_bounds_for_alpha_and_no_ttft():
    figures = totals_figures(output_tokens=127, wall_s=2.0, gamma=3, drafted=213, accepted=56, ttft_derived_ms=12.0)
    assert figures["tokens_per_s"].value == 63.5 and figures["tokens_per_s"].evidence == "totals"
    assert figures["alpha"].value == pytest.approx(0.468, abs=0.0005) and figures["alpha"].evidence == "totals"
    assert figures["ttft_ms"].value is None and figures["ttft_derived_ms"].value == 12
    assert figures["mean_acceptance_length"].value == pytest.approx(1.789, abs=0.0005)


def test_characters_are_never_tokens():
    figures = totals_figures(output_tokens=None, output_characters=900, wall_s=2.0)
    assert figures["tokens_per_s"].value is None
    assert "characters are not tokens" in figures["tokens_per_s"].reason


def test_figures_travel_through_a_journal_unchanged(rounds_at):
    prompts = list(rounds_at(10, accepts=(2,))[0].prompts)
    carried = to_builtins(prompts)
    assert carried[0]["class"] == "templated"
    assert from_builtins(carried) == prompts


def test_step_times_follow_the_position(run):
    windows = step_times_by_position([prompt_figures(run("p", list(range(20)), step_ms=5))], width=8)
    assert [position for position, _ in windows] == [8, 16, 24]
    assert [ms for _, ms in windows] == pytest.approx([5, 5, 5])


def test_a_figure_for_people_says_why_it_is_unknown(rounds_at):
    on = configuration_figures([r.prompts for r in rounds_at(10, accepts=(3, 0, 1))], mtp=True)
    assert figure_text("TTFT", on.figures["ttft_ms"]) == "TTFT 20 ms [20–20], n 5"
    off = configuration_figures([], mtp=False)
    assert figure_text("α", off.figures["alpha"]) == "α unknown (MTP was off in this configuration)"
    assert "no values" in figure_text("TTFT", off.figures["ttft_ms"])
