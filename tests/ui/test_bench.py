"""The bench driven by keys, live over a growing journal."""

from __future__ import annotations

from typing import Any

import pytest
import synthetic
from bench_driver import BIG, SMALL, FakeEngine, drive, log_text, running, shown, until
from textual import events
from textual.widgets import Input

from mtplab.engine.errors import EngineError
from mtplab.session import events as ev
from mtplab.tui import LabOptions
from mtplab.tui.app import LabApp
from mtplab.tui.connect import Connected
from mtplab.tui.screens.ask import AskScreen
from mtplab.tui.screens.choice import ChoiceScreen


# -- live ---------------------------------------------------------------------------
def test_live_panes_show_what_the_journal_says(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "▶ measure" in shown(live_app, "#stages"))
        await until(pilot, lambda: "Pixel 9 Pro" in shown(live_app, "#device"))
        assert "SIMULATED" in shown(live_app, "HeaderLine")
        assert "FINAL: ◐ PARTIAL, 41 of 44 nodes" in shown(live_app, "#banner")
        assert "Replacing 41 out of 44 node(s)" in log_text(live_app)
        for pane in live_app.bench.panes.values():
            assert pane.border_subtitle == "SIMULATED"
        engine.write(ev.Heat(t=1056.0, skin_c=41.5, status=1, zones={"BIG": 80.0}))
        await until(pilot, lambda: "skin 41.5 °C" in shown(live_app, "#device"))

    drive(live_app, steps)


def test_run_asks_and_enter_takes_the_defaults(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None)
        await pilot.press("r")
        await pilot.press("enter")
        await until(pilot, lambda: bool(engine.commands))

    drive(live_app, steps)
    command = engine.commands[0]
    assert command["cmd"] == "run"
    defaults = {"model": "tiny", "recipe": "mixed", "rounds": 5}  # the head is the model's own
    assert command["options"] == {**defaults, "cooldown_timeout_s": 60.0, "prepare": "bench"}


def _burst(app: LabApp, keys: list[str]) -> None:
    """Type faster than anything is handled, as a paste or a slow link does."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


def test_keys_typed_in_one_burst_go_where_they_were_meant_to_go(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None)
        await pilot.press("r")
        await until(pilot, lambda: live_app.focused is not None and isinstance(live_app.screen, AskScreen))
        _burst(live_app, ["tab", "tab", "tab", *"34a", "enter"])
        await until(pilot, lambda: len(live_app._notifications) > 0)
        assert [n.message for n in live_app._notifications] == ["'34a' is no number of rounds."]
        assert not engine.commands
        await pilot.press("r")
        await until(pilot, lambda: live_app.focused is not None and isinstance(live_app.screen, AskScreen))
        _burst(live_app, [*"small", "tab", "tab", "tab", *"12", "enter"])
        await until(pilot, lambda: bool(engine.commands))
        options = engine.commands[0]["options"]
        assert (options["model"], options["rounds"]) == ("small", 12)

    drive(live_app, steps)


def test_cancel_mark_and_keep_reach_the_engine(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.running)
        await pilot.press("c")
        await pilot.press("m", "f", "a", "n", "enter")
        await pilot.press("o", "k")
        await until(pilot, lambda: len(engine.commands) == 3)

    drive(live_app, steps)
    assert {"cmd": "cancel"} in engine.commands
    assert {"cmd": "mark", "label": "fan"} in engine.commands
    assert {"cmd": "keep"} in engine.commands


def test_what_the_engine_refuses_stays_in_sight(engine: FakeEngine, live_app: LabApp) -> None:
    engine.refuse = "The model tiny is not installed."

    async def steps(pilot: Any) -> None:
        engine.write(*synthetic.whole_run()[:2])
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.event_count == 2)
        await pilot.press("r", "enter")
        await until(pilot, lambda: "✗ The model tiny is not installed." in shown(live_app, "#stages"))

    drive(live_app, steps)


def test_pause_holds_the_display_but_not_the_reader(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "▶ measure" in shown(live_app, "#stages"))
        await until(pilot, lambda: "skin" in shown(live_app, "#device"))
        await pilot.press("space")
        await until(pilot, lambda: "PAUSED" in shown(live_app, "HeaderLine"))
        engine.write(ev.Heat(t=1056.0, skin_c=55.5))
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.heat.skin_c == 55.5)  # type: ignore[union-attr]
        await pilot.pause(0.7)
        assert "55.5" not in shown(live_app, "#device")
        await pilot.press("space")
        await until(pilot, lambda: "55.5" in shown(live_app, "#device"))

    drive(live_app, steps)


def test_an_engine_that_ends_is_noticed_and_says_where_the_session_is(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.running)
        engine.living = False
        await until(pilot, lambda: "The engine ended" in shown(live_app, "#device"))
        await until(pilot, lambda: "ENGINE ENDED" in shown(live_app, "HeaderLine"))
        assert "in the middle of this run" in shown(live_app, "#stages").replace("\n", " ")

    drive(live_app, steps)


def test_one_missed_answer_is_not_the_end_of_an_engine(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None)
        assert live_app.live is not None
        engine.living = False
        live_app.live.check()
        engine.living = True
        live_app.live.check()
        engine.living = False
        live_app.live.check()
        assert not live_app.live.ended
        engine.living = True

    drive(live_app, steps)


def test_no_phone_says_why_and_t_opens_the_stand_in(engine: FakeEngine) -> None:
    asked: list[LabOptions] = []

    def connector(options: LabOptions) -> Connected:
        asked.append(options)
        if options.standin is None:
            raise EngineError("No phone is attached.", 2)
        return Connected(engine, owned=True)

    app = LabApp(LabOptions(), connector)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: "No phone is attached." in shown(app, "#device"))
        assert "NO ENGINE" in shown(app, "HeaderLine")
        await pilot.press("t")
        running(engine)
        await until(pilot, lambda: "Pixel 9 Pro" in shown(app, "#device"))

    drive(app, steps)
    assert [o.standin for o in asked] == [None, "normal"]


def test_of_several_phones_the_user_chooses_one_and_the_lab_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def connector(_: LabOptions) -> Connected:
        raise EngineError("2 devices are attached: A (device), B (device). Choose one with --serial.", 1)

    opened: list[bool] = []
    monkeypatch.setattr(LabApp, "open_devices", lambda app: opened.append(app.is_running))
    app = LabApp(LabOptions(), connector)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: bool(opened))
        await until(pilot, lambda: "2 devices are attached" in shown(app, "#device"))

    drive(app, steps)
    assert opened == [True]


def test_closing_a_lab_without_engine_gives_the_reason_and_its_exit_code() -> None:
    def connector(_: LabOptions) -> Connected:
        raise EngineError("No phone is attached.", 2)

    app = LabApp(LabOptions(), connector)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: app.problem is not None)
        await pilot.press("q")

    drive(app, steps)
    assert app.return_code == 2


# -- quitting -------------------------------------------------------------------------
@pytest.mark.parametrize(("key", "stopped"), [("s", True), ("l", False)])
def test_quitting_in_a_run_asks_and_does_what_is_answered(
    engine: FakeEngine, live_app: LabApp, key: str, stopped: bool
) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.running)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(live_app.screen, ChoiceScreen))
        await pilot.press("escape")
        await until(pilot, lambda: live_app.screen is live_app.bench)
        assert not engine.commands
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(live_app.screen, ChoiceScreen))
        await pilot.press(key)
        await until(pilot, lambda: live_app.return_code is not None)

    drive(live_app, steps)
    assert engine.commands == ([{"cmd": "stop"}] if stopped else [])
    assert live_app.return_code == 0


def test_quitting_while_only_watching_ends_an_own_engine_and_spares_a_foreign_one(engine: FakeEngine) -> None:
    for owned in (False, True):
        app = LabApp(LabOptions(), lambda _, owned=owned: Connected(engine, owned=owned))  # type: ignore[misc]

        async def steps(pilot: Any, app: LabApp = app) -> None:
            await until(pilot, lambda: app.live is not None)
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None)

        drive(app, steps)
        assert engine.commands == ([{"cmd": "stop"}] if owned else [])


# -- the log ------------------------------------------------------------------------------
def test_filter_hides_and_counts_and_escape_brings_all_back(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "inference 60" in log_text(live_app))
        await pilot.press("slash")
        await until(pilot, lambda: live_app.bench.log_pane.filter_input.has_focus)
        await pilot.press(*"Replacing", "enter")
        await until(pilot, lambda: "inference 60" not in log_text(live_app))
        assert "Replacing 41" in log_text(live_app)
        await until(pilot, lambda: "59 hidden by “replacing”" in str(live_app.bench.log_pane.border_title))
        await pilot.press("slash")
        await until(pilot, lambda: live_app.bench.log_pane.filter_input.has_focus)
        await pilot.press("escape")
        await until(pilot, lambda: "inference 60" in log_text(live_app))

    drive(live_app, steps)


def test_jump_shows_and_marks_the_proving_line_and_stops_following(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "inference 60" in log_text(live_app))
        await pilot.press("j")
        pane = live_app.bench.log_pane
        await until(pilot, lambda: not pane.following)
        top = pane.text.scroll_offset.y
        assert top <= 6 < top + pane.text.size.height
        assert pane.text.lines[6].startswith("▶    7 ")
        engine.write(ev.LogLine(t=1054.5, log="bench-gpu", n=61, text="one more"))
        await until(pilot, lambda: "1 new below" in str(pane.border_title))
        await pilot.press("f")
        await until(pilot, lambda: "one more" in log_text(live_app))

    drive(live_app, steps)


def test_l_shows_the_other_log_with_its_own_verdict(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "PARTIAL" in shown(live_app, "#banner"))
        await pilot.press("l")
        await until(pilot, lambda: "CPU BASELINE" in shown(live_app, "#banner"))

    drive(live_app, steps)


def test_twenty_thousand_lines_leave_the_lab_responsive(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: "inference 60" in log_text(live_app))
        lines = [ev.LogLine(t=1053.0, log="bench-gpu", n=61 + i, text=f"flood {i}") for i in range(20_000)]
        engine.write(*lines)
        await pilot.press("4")
        await until(pilot, lambda: live_app.bench.active == "calculator")
        await until(pilot, lambda: "flood 19999" in log_text(live_app))
        pane = live_app.bench.log_pane
        assert pane.text.line_count == 5000
        assert "20,060 lines" in str(pane.border_title) and "15,060 older" in str(pane.border_title)
        assert pane.text.scroll_offset.y == pane.text.max_scroll_y

    drive(live_app, steps)


def test_warnings_of_the_engine_become_toasts_but_not_those_of_before(engine: FakeEngine, live_app: LabApp) -> None:
    engine.write(ev.Message(t=1000.0, text="old news", level="warning"))

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None and live_app.live.caught_up)
        await until(pilot, lambda: live_app.live.state.event_count == 1)  # type: ignore[union-attr]
        engine.write(ev.Message(t=1001.0, text="[bold]the host is busy[/bold]", level="warning"))
        await until(pilot, lambda: len(live_app._notifications) > 0)
        assert [n.message for n in live_app._notifications] == ["[bold]the host is busy[/bold]"]
        assert all(not n.markup for n in live_app._notifications)

    drive(live_app, steps)


# -- layout -----------------------------------------------------------------------------
def test_a_small_terminal_shows_one_pane_and_a_large_one_all_of_them(engine: FakeEngine, live_app: LabApp) -> None:
    def visible() -> list[str]:
        return [name for name, pane in live_app.bench.panes.items() if pane.size.height > 0 and pane.display]

    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: len(visible()) == 5)
        for _ in range(2):
            await pilot.resize_terminal(*SMALL)
            await until(pilot, lambda: len(visible()) == 1)
            await pilot.press("3")
            await until(pilot, lambda: visible() == ["log"])
            await pilot.press("5")
            await until(pilot, lambda: visible() == ["heat"])
            await until(pilot, lambda: "threshold" in shown(live_app, "#heat"))
            await pilot.resize_terminal(*BIG)
            await until(pilot, lambda: len(visible()) == 5)
        await pilot.press("z")
        await until(pilot, lambda: visible() == ["heat"])
        await pilot.press("z")
        await until(pilot, lambda: len(visible()) == 5)

    drive(live_app, steps)


# -- the calculator -----------------------------------------------------------------------
def test_typed_values_answer_at_once_and_u_takes_the_sessions_again(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        engine.write(*synthetic.whole_run())
        body = "#calculator-body"
        await until(pilot, lambda: "computed from measured α, c, r" in shown(live_app, body))
        assert "108 rounds" in shown(live_app, body)
        await pilot.press("v")
        await until(pilot, lambda: len(live_app.bench.calculator.query("Input")) == 4)
        await until(pilot, lambda: live_app.focused is not None)
        await pilot.press("home", "ctrl+k", *"0.263")
        await until(pilot, lambda: "read as accepted÷drafted" in shown(live_app, body).replace("\n", " "))
        assert "typed by hand" in shown(live_app, body)
        await pilot.press("up")
        await until(pilot, lambda: live_app.bench.calculator.numbers.alpha == pytest.approx(0.273))
        await pilot.press("home", "ctrl+k", *"56/213")
        await until(pilot, lambda: "accepted÷drafted 0.26" in shown(live_app, body))
        assert "is no number" not in shown(live_app, body)
        await pilot.press("escape", "u")
        await until(pilot, lambda: "computed from measured α, c, r" in shown(live_app, body))

    drive(live_app, steps)


def test_a_fast_burst_of_keys_arrives_in_its_order(engine: FakeEngine, live_app: LabApp) -> None:
    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None)
        await pilot.press("v")
        await until(pilot, lambda: isinstance(live_app.focused, Input))
        _burst(live_app, ["home", "ctrl+k", *"56/213"])
        await until(pilot, lambda: live_app.bench.calculator.numbers.totals == (56, 213))
        await pilot.pause()
        field = live_app.focused
        assert isinstance(field, Input) and field.value == "56/213"
        assert "is no number" not in shown(live_app, "#calculator-body")

    drive(live_app, steps)


def test_what_is_no_number_is_refused_in_a_sentence_and_the_old_value_stays(
    engine: FakeEngine, live_app: LabApp
) -> None:
    def body() -> str:
        return " ".join(shown(live_app, "#calculator-body").split())

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None and "α 0.60" in body())
        await pilot.press("v")
        await until(pilot, lambda: len(live_app.bench.calculator.query("Input")) == 4)
        await until(pilot, lambda: live_app.focused is not None)
        await pilot.press("home", "ctrl+k", *"abc")
        await until(pilot, lambda: "α: 'abc' is no number; 0.6 still counts." in body())
        assert "α 0.60" in body()
        await pilot.press("home", "ctrl+k", *"0.5")
        await until(pilot, lambda: "is no number" not in body() and "α 0.50" in body())
        await pilot.press("tab", "home", "ctrl+k", *"2.5", "escape")
        await until(pilot, lambda: len(live_app._notifications) > 0)
        assert [n.message for n in live_app._notifications] == ["γ: '2.5' is no whole number; 2 still counts."]

    drive(live_app, steps)


@pytest.mark.parametrize("size", [BIG, SMALL])
def test_no_row_of_the_calculator_is_cut(engine: FakeEngine, live_app: LabApp, size: tuple[int, int]) -> None:
    async def steps(pilot: Any) -> None:
        engine.write(*synthetic.whole_run())
        await pilot.press("4")
        await until(pilot, lambda: "computed from measured" in shown(live_app, "#calculator-body"))
        text = shown(live_app, "#calculator-body")
        assert "…" not in text
        assert "K 1.67" in text and "break-even α" in text and "γ1" in text  # the curve is there too

    drive(live_app, steps, size)
