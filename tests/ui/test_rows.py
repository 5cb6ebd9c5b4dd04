"""What panes say of a state, without any terminal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from synthetic import plain, view_of

from mtplab.session import events as ev
from mtplab.session.archive import reduce_events
from mtplab.session.identity import Policy
from mtplab.session.record import record_of
from mtplab.session.replay import Replay
from mtplab.speculation.measured import CostPoint
from mtplab.tui import plot, texts
from mtplab.tui.reckoning import Numbers, measured_speedup, numbers_of, reckon
from mtplab.tui.screens.sessions import Listed, listed_line
from mtplab.tui.view import View, empty_view
from mtplab.tui.widgets.bars import key_line, replay_line, tab_line
from mtplab.tui.widgets.calculator_rows import answer_rows, class_rows, curve_content, what_if_rows
from mtplab.tui.widgets.device import device_rows
from mtplab.tui.widgets.heat import heat_content
from mtplab.tui.widgets.log import banner_rows
from mtplab.tui.widgets.stages import stage_rows
from mtplab.tui.widgets.strip import results_line


@pytest.fixture(scope="module")
def whole() -> View:
    return view_of(synthetic.whole_run(), place="/sessions/x")


def _running_stage(progress: ev.StageProgress) -> str:
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=["align"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="align", status="running"),
        progress,
    ]
    return plain(stage_rows(view_of(events), 60, 5), 60)


def test_progress_without_a_unit_is_a_percentage_that_reaches_100_only_at_the_end() -> None:
    assert " 53 %" in _running_stage(ev.StageProgress(t=2.0, name="align", done=0.527778, total=1.0))
    assert " 99 %" in _running_stage(ev.StageProgress(t=2.0, name="align", done=0.999, total=1.0))
    assert " 100 %" in _running_stage(ev.StageProgress(t=2.0, name="align", done=1.0, total=1.0))
    assert "5/50 runs" in _running_stage(ev.StageProgress(t=2.0, name="align", done=5, total=50, unit="runs"))


@pytest.mark.parametrize("width", [36, 60, 130])
def test_a_cool_down_counts_down_in_sight_at_every_width(width: int) -> None:
    note = "cooling before round 3 (42 s left): the skin has 41.2 °C"
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=["push", "measure"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="push", status="done", seconds=1.0),
        ev.StageChanged(t=1.0, name="measure", status="running"),
        ev.StageProgress(t=2.0, name="measure", done=3, unit="rounds", note=note),
    ]
    rows = stage_rows(view_of(events), width, 6)
    text = plain(rows, width)
    assert "…" not in text and "3 rounds" in text
    assert " ".join(text.split()).count("cooling before round 3 (42 s left)") == 1


def test_a_cached_stage_says_what_it_took_once_not_now() -> None:
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=["export", "push"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="export", status="running"),
        ev.StageChanged(t=1.2, name="export", status="cached", seconds=105.8),
        ev.StageChanged(t=2.0, name="push", status="running"),
        ev.StageChanged(t=2.4, name="push", status="cached", seconds=0.4),
    ]
    wide, narrow = (plain(stage_rows(view_of(events), width, 5), width) for width in (60, 36))
    assert "0.2 s, was 1 min 45 s" in wide
    assert "was 1 min 45 s" in narrow and "0.2 s" not in narrow
    assert "was 0.4 s" not in wide and "0.4 s" in wide


def test_a_replay_before_the_run_does_not_say_that_nothing_was_run() -> None:
    replay = Replay(synthetic.whole_run())
    replay.seek(1.0)
    text = plain(stage_rows(View(state=replay.state, phase="replay", replay=replay), 60, 5))
    assert "Nothing has run yet at this point." in text
    watched = Replay(synthetic.heat_events(1.0, 5.0))
    text = plain(stage_rows(View(state=watched.state, phase="replay", replay=watched), 60, 5))
    assert "Nothing was run in this session." in text


@pytest.mark.parametrize(("status", "word"), [("cancelled", "? UNKNOWN so far"), ("done", "✓ FULL")])
def test_a_good_verdict_of_an_unfinished_bench_is_not_summed_up_as_good(status: str, word: str) -> None:
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=["bench"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="bench", status="running"),
        *synthetic.log_events(1.0, "a", "gpu", "full_delegate"),
        ev.StageChanged(t=9.0, name="bench", status=status),  # type: ignore[arg-type]
    ]
    view = view_of(events)
    assert f"3 Log {word} " in tab_line(view, "device", 80).plain
    record = record_of(view.state, synthetic.header(1.0), events_sha256=None)
    assert word in listed_line(Listed(Path("x"), record), 120).plain


def test_a_bad_verdict_of_an_unfinished_bench_stands() -> None:
    events = [e for e in synthetic.whole_run() if e.t < 1044]
    assert "◐ PARTIAL" in tab_line(view_of(events), "device", 80).plain


def test_stages_say_glyph_word_seconds_and_the_reason_of_a_failure() -> None:
    events = [
        ev.RunStarted(t=1.0, run="r", stages=["freeze", "align"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="freeze", status="cached", seconds=3.1),
        ev.StageChanged(t=2.0, name="align", status="running"),
        ev.StageChanged(t=3.0, name="align", status="failed", seconds=0.8, reason="top-1 is 0.71, 0.99 is needed"),
        ev.RunEnded(t=3.0, run="r", outcome="failed", exit_code=4),
    ]
    text = plain(stage_rows(view_of(events), 70, 20))
    assert "≡ freeze" in text and "cached" in text and "3.1 s" in text
    assert "✗ align failed: top-1 is 0.71, 0.99 is needed" in text
    assert "run failed, exit code 4" in text


def test_pending_stages_fold_before_what_happened_is_hidden() -> None:
    names = [f"s{i}" for i in range(12)]
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=names, policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="s0", status="done", seconds=1.0),
        ev.StageChanged(t=1.0, name="s1", status="running"),
    ]
    rows = stage_rows(view_of(events), 60, 6)
    text = plain(rows)
    assert len(rows) <= 6
    assert "✓ s0" in text and "▶ s1" in text and "s11" in text


def test_a_failed_stage_is_never_folded_away_by_those_it_made_skip() -> None:
    names = ["freeze", *(f"s{i}" for i in range(9))]
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=names, policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name="freeze", status="failed", reason="weights do not fit"),
        *(ev.StageChanged(t=2.0, name=n, status="skipped", reason="freeze failed") for n in names[1:]),
        ev.RunEnded(t=2.0, run="r", outcome="failed", exit_code=4),
    ]
    text = plain(stage_rows(view_of(events), 40, 8))
    assert "✗ freeze" in text and "– skipped s0 – s1" in text and "exit code 4" in text


def test_an_engine_that_died_in_a_run_is_not_taken_for_a_running_one() -> None:
    view = view_of(synthetic.whole_run()[:60], phase="ended", place="/sessions/x")
    assert "The engine ended in the middle of this run." in plain(stage_rows(view, 60, 20))
    assert "The engine ended; the session is kept at /sessions/x" in plain(device_rows(view, 90, 20))


@pytest.mark.parametrize(
    ("verdict", "word"), [("unknown", "UNKNOWN"), ("fallback_cpu", "FALLBACK"), ("never_heard_of", "NEVER")]
)
def test_unknown_and_foreign_verdicts_are_as_loud_as_a_failure(verdict: str, word: str) -> None:
    rows = banner_rows(reduce_events(synthetic.log_events(1.0, "a", "gpu", verdict)).logs["a"], 100)
    text, style = rows[0][0]
    assert word in text and "FINAL" in text
    assert " on $loud-" in style


def test_a_full_delegate_is_quiet() -> None:
    rows = banner_rows(reduce_events(synthetic.log_events(1.0, "a", "gpu", "full_delegate")).logs["a"], 100)
    assert " on " not in rows[0][0][1]


def test_a_log_that_says_nothing_is_unknown_not_fine() -> None:
    state = reduce_events([ev.LogOpened(t=1.0, log="a", graph="g", requested="gpu", command="")])
    text, style = banner_rows(state.logs["a"], 80)[0][0]
    assert "UNKNOWN so far" in text and "on $loud-unknown" in style


def test_banner_names_provisional_nodes_reason_cure_and_line() -> None:
    events = [e for e in synthetic.log_events(1.0, "a", "gpu", "partial") if getattr(e, "provisional", True)]
    text = plain(banner_rows(reduce_events(events).logs["a"], 100))
    assert "PROVISIONAL: ◐ PARTIAL, 41 of 44 nodes, 2 partitions · requested GPU" in text
    assert "line 7" in text and "GATHER_ND: not supported" in text and "cure: Keep GATHER_ND" in text


def test_results_strip_has_four_figures_marked_rounds_and_scenarios(whole: View) -> None:
    text = results_line(whole, 200).plain
    assert "MTP on · " in text
    assert "TTFT 212 ms [205–219] n 5 · TPOT 8.10 ms [7.90–8.40] · 118 tok/s · α 0.64 [0.58–0.70] γ 3" in text
    assert "4/5 rounds, 1 began-hot (kept apart)" in text
    assert "pays: templated" in text and "costs: chat" in text


def test_results_strip_keeps_intervals_at_120_columns_and_whole_figures_at_80(whole: View) -> None:
    wide, narrow = results_line(whole, 120).plain, results_line(whole, 80).plain
    assert "TTFT 212 ms [205–219]" in wide and "TPOT 8.10 ms [7.90–8.40]" in wide and "α 0.64 [0.58–0.70]" in wide
    assert "MTP on" in wide and "n 5" in wide and "1 began-hot" in wide
    for text in (wide, narrow):
        assert "…" not in text and "118 tok/s" in text and "4/5, 1 " in text


def test_results_strip_names_the_backend_where_the_policy_does() -> None:
    view = view_of(synthetic.whole_run())
    backend = getattr(Policy(), "backend", None)
    said = f"MTP on · on {backend.upper()} ·" if backend else "MTP on · TTFT"
    assert said in results_line(view, 200).plain


def test_the_strip_says_that_it_shows_one_configuration_of_several_or_none_of_many() -> None:
    run = synthetic.whole_run()
    beside = ev.ConfigurationMeasured(t=run[-1].t, name="gamma-1", figures={"tpot_ms": ev.Figure(value=8.0)})
    assert "configurations" not in results_line(view_of(run), 260).plain
    assert " · 1 of 3 configurations" in results_line(view_of([*run, beside]), 260).plain
    many = [ev.ConfigurationMeasured(t=1.0, name=n, figures=beside.figures) for n in ("off-t2", "g1-t2")]
    said = results_line(view_of(many), 160).plain
    assert "2 configurations measured" in said and "off-t2, g1-t2" in said and "TPOT" not in said


def test_a_missing_figure_is_called_incomplete_with_its_reason() -> None:
    figures = {"tpot_ms": ev.Figure(value=8.0, unit="ms"), "ttft_ms": ev.Figure(value=None, reason="no stamps")}
    events: list[ev.Event] = [ev.ConfigurationMeasured(t=1.0, name="mtp-on", figures=figures)]
    assert "TTFT –" in results_line(view_of(events), 160).plain
    assert "INCOMPLETE: ttft_ms no stamps" in results_line(view_of(events), 160).plain


def test_no_engine_says_why_and_which_key_mends_it() -> None:
    view = empty_view("absent", "No phone is attached.")
    for rows in (device_rows(view, 90, 10), stage_rows(view, 90, 10)):
        assert "No phone is attached.  Keys: e try the phone again · t stand-in" in plain(rows)


def test_calculator_takes_the_sessions_counts_and_costs(whole: View) -> None:
    numbers = numbers_of(whole.state)
    assert numbers is not None and numbers.counts == tuple(synthetic.COUNTS) and numbers.costs_measured
    answer = reckon(numbers).answer
    accepted = sum(j * n for j, n in enumerate(synthetic.COUNTS))
    tau = 1 + accepted / sum(synthetic.COUNTS)
    assert answer.expected_tokens == pytest.approx(tau)
    assert answer.speedup == pytest.approx(tau / (3 * 0.056 + 1.5))


def test_the_computed_speedup_is_called_computed_and_the_timed_one_stands_beside_it(whole: View) -> None:
    numbers = numbers_of(whole.state)
    assert numbers is not None
    predicted = {"measured": {"value": 1.214, "low": 1.1, "high": 1.3}}
    timed = measured_speedup(reduce_events([ev.Concluded(t=1.0, text="", scenarios=[], predicted=predicted)]))
    hint = "computed from measured α, c, r · v types"
    for width in (37, 76):
        rows = answer_rows(numbers, reckon(numbers), hint, width, timed)
        assert max(texts.parts_len(row) for row in rows) <= width  # nothing is cut
        text = plain(rows)
        assert "computed from measured α, c, r" in text and "measured decode 1.21× [1.10–1.30]" in text
    assert "measured decode" not in plain(answer_rows(numbers, reckon(numbers), hint, 76))


@pytest.mark.parametrize("told", [None, 1.2, {"value": None}, {"value": "fast"}, {"value": float("nan")}])
def test_no_timed_speedup_is_shown_where_none_was_had(told: object) -> None:
    concluded = ev.Concluded(t=1.0, text="", scenarios=[], predicted={"measured": told})
    assert measured_speedup(reduce_events([concluded])) is None


def test_the_best_draft_length_of_a_recorded_head_is_one_that_was_observed() -> None:
    numbers = Numbers(alpha=None, gamma=3, counts=(2, 2, 2, 94), draft_cost=0.01, verify_cost=1.05)
    answer = reckon(numbers).answer
    assert answer.best_gamma == 3
    text = plain(answer_rows(numbers, reckon(numbers), "", 76))
    assert f"best γ≤3: 3 {answer.best_speedup:.2f}× (longer: not recorded)" in text
    typed = Numbers(alpha=answer.alpha.value, gamma=3, draft_cost=0.01, verify_cost=1.05)
    assert reckon(typed).answer.best_gamma > 3


def test_a_typed_alpha_always_shows_its_other_reading() -> None:
    # The published mistake: 0.263 was accepted ÷ drafted, read as α it gave 0.93×; the right reading is 1.23×.
    numbers = Numbers(alpha=0.263, gamma=3, draft_cost=0.0, verify_cost=1.45)
    for width in (37, 76):
        text = " ".join(plain(answer_rows(numbers, reckon(numbers), "typed by hand", width, None, "hand")).split())
        assert "S 0.93× would cost" in text
        assert "? 0.263 read as accepted÷drafted: α 0.47, τ 1.79, S 1.23× would pay, not 0.93×: which is it?" in text


def test_accepted_over_drafted_may_be_typed_as_what_it_is() -> None:
    numbers = Numbers(alpha=None, totals=(56, 213), gamma=3, draft_cost=0.0, verify_cost=1.45)
    text = plain(answer_rows(numbers, reckon(numbers), "", 76, None, "hand"))
    assert "S 1.23× would pay" in text and "accepted÷drafted 0.26" in text and "α 0.47 [0.44–0.51]" in text
    with pytest.raises(ValueError, match="whole number of rounds"):
        reckon(Numbers(alpha=None, totals=(56, 212), gamma=3))


def test_an_example_claims_nothing() -> None:
    text = plain(answer_rows(Numbers(), reckon(Numbers()), "EXAMPLE, nothing measured", 76, None, "example"))
    assert "for these example numbers" in text
    assert "pays" not in text.replace("would pay", "") and "× costs" not in text


POINTS = (
    CostPoint(1, 1, 0.1, 1.2, plain_step_ms=12.0), CostPoint(3, 1, 0.2, 1.3, plain_step_ms=12.0),
    CostPoint(1, 2, 0.1, 1.3, plain_step_ms=6.0), CostPoint(3, 2, 0.3, 1.5, plain_step_ms=6.0),
)  # fmt: skip
SEVERAL = Numbers(
    alpha=None, gamma=3, counts=(42, 8, 5, 25), classes=(("chat", (40, 6, 3, 1)), ("templated", (2, 2, 2, 24))),
    draft_cost=None, verify_cost=None, points=POINTS, threads=2, exported=(1, 3),
)  # fmt: skip


def test_measured_costs_follow_length_and_threads_and_tell_what_the_others_would_give() -> None:
    answer = reckon(SEVERAL).answer
    assert answer.round_cost == pytest.approx(1.8)
    for changed, cost in (({"gamma": 2}, 0.2 + 1.4), ({"threads": 1}, 1.5), ({"verify_cost": 1.0}, 1.3)):
        assert reckon(msgspec.structs.replace(SEVERAL, **changed)).answer.round_cost == pytest.approx(cost)
    with pytest.raises(ValueError, match="4 threads, only on 1, 2"):
        reckon(msgspec.structs.replace(SEVERAL, threads=4))
    rows = plain(what_if_rows(reckon(SEVERAL), 76))
    assert f"1 thread · γ1 {reckon(SEVERAL).what_if[0].speedups[0][1]:.2f}×" in rows and "plain 83 tok/s" in rows
    assert f"2 threads · γ1 {answer.curve[0].speedup:.2f}× · γ3 {answer.speedup:.2f}×" in rows


def test_classes_are_answered_each_by_its_own_positions() -> None:
    assert [(c.name, c.best_gamma) for c in reckon(SEVERAL).answer.classes] == [("chat", 0), ("templated", 3)]
    assert "chat 0.72× (do not draft) · templated" in plain(class_rows(reckon(SEVERAL), 76))


def test_the_curve_marks_the_current_and_the_best_length_and_those_that_were_not_exported() -> None:
    text = curve_content(msgspec.structs.replace(SEVERAL, gamma=1), reckon(SEVERAL), 76, 14, None).plain
    assert "●" in text and "◆" in text and "(2)" in text and "(3)" not in text


def test_heat_curve_carries_threshold_stages_and_marks(whole: View) -> None:
    text = heat_content(whole, 110, 14).plain
    assert "┈" in text and "measure" in text and "bench" in text
    for glyph in ("▲", "▼", "•", "◆"):
        assert glyph in text
    assert max(len(row) for row in text.split("\n")) <= 110
    assert len(text.split("\n")) <= 14


def test_decimation_keeps_extremes_and_bounds_the_points() -> None:
    points = [(float(i), 1.0) for i in range(10_000)]
    points[4321] = (4321.0, 99.0)
    kept = plot.decimate(points, 100)
    assert len(kept) <= 220
    assert (4321.0, 99.0) in kept
    assert kept == sorted(kept)


def test_replay_bar_shows_state_speed_marks_and_time() -> None:
    events = synthetic.whole_run()
    replay = Replay(events)
    replay.seek(50.0)
    replay.faster(2)
    view = view_of(events, "replay", replay=replay, session="demo")
    text = replay_line(view, 120).plain
    assert "REPLAY" in text and "⏸ paused" in text and "4×" in text and "00:00:50 / 00:01:" in text
    assert "▼" in text and "▲" in text and "●" in text
    assert len(replay_line(view, 80).plain) <= 80


def test_tabs_show_the_worst_verdict_while_another_pane_is_open(whole: View) -> None:
    assert "3 Log ◐ PARTIAL" in tab_line(whole, "device", 80).plain


@pytest.mark.parametrize("phase", ["live", "replay", "absent", "ended", "connecting"])
def test_help_and_quit_stand_in_every_footer(phase: str) -> None:
    text = key_line(empty_view(phase), 80).plain  # type: ignore[arg-type]
    assert "? help" in text and "q quit" in text and len(text) <= 80


def test_foreign_text_loses_breaks_and_escapes() -> None:
    assert texts.clean("a\x1b[2Jb\x1b]0;evil\x07c\u2028d\te\x9b31mf") == "abc d ef"
