"""Saved sessions through the same panes: seek, step, speed, marks, and back to the live bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic
from bench_driver import SMALL, FakeEngine, drive, log_text, running, shown, until

from mtplab.tui import LabOptions
from mtplab.tui.app import LabApp
from mtplab.tui.connect import Connected
from mtplab.tui.screens.sessions import SessionsScreen


@pytest.fixture
def saved(places: Path) -> Path:
    return synthetic.write_session(places / "sessions" / "20261129T101500Z-pixel-9-pro-saved", synthetic.whole_run())


def _never(_: LabOptions) -> Connected:
    raise AssertionError("a replay starts no engine")


def test_tabs_and_the_replays_track_can_be_clicked(saved: Path) -> None:
    app = LabApp(LabOptions(replay=saved, at_s=20.0), _never)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: "REPLAY" in shown(app, "ReplayBar"))
        bar = shown(app, "ReplayBar")
        await pilot.click("ReplayBar", offset=(bar.index("├") + 1, 0))
        assert app.replay is not None and app.replay.replay.position_s < 10
        await until(pilot, lambda: "acceptance" not in shown(app, "TabBar"))
        await pilot.click("TabBar", offset=(shown(app, "TabBar").index("Log"), 0))
        await until(pilot, lambda: app.bench.active == "log")
        keys = shown(app, "KeyBar")
        await pilot.click("KeyBar", offset=(keys.index("faster"), 0))
        await until(pilot, lambda: app.replay is not None and app.replay.replay.speed == 2.0)

    drive(app, steps, SMALL)


def test_replay_seeks_steps_and_changes_speed_through_the_same_panes(saved: Path) -> None:
    app = LabApp(LabOptions(replay=saved, at_s=20.0), _never)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: app.replay is not None)
        assert app.replay is not None
        clock = app.replay.replay
        await until(pilot, lambda: "REPLAY" in shown(app, "HeaderLine") and "⏸ paused" in shown(app, "ReplayBar"))
        await until(pilot, lambda: "▶ acceptance" in shown(app, "#stages"))
        await pilot.press("right")
        assert clock.position_s == pytest.approx(25.0)
        await pilot.press("left", "left")
        assert clock.position_s == pytest.approx(15.0)
        await until(pilot, lambda: "▶ quantise" in shown(app, "#stages"))
        index = clock.index
        await pilot.press("full_stop")
        assert clock.index == index + 1
        await pilot.press("comma")
        assert clock.index == index
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "2×" in shown(app, "ReplayBar"))
        await pilot.press("left_square_bracket", "left_square_bracket")
        await until(pilot, lambda: "0.5×" in shown(app, "ReplayBar"))
        before = clock.position_s
        await pilot.press("n")
        assert clock.position_s > before
        await pilot.press("p", "p")
        assert clock.position_s < before + 5
        await pilot.press("space")
        before = clock.position_s
        await until(pilot, lambda: clock.position_s > before + 0.2)
        await pilot.press("space")
        assert not clock.playing

    drive(app, steps)


def test_seeking_back_before_a_log_takes_its_lines_away(saved: Path) -> None:
    app = LabApp(LabOptions(replay=saved, at_s=60.0), _never)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: "inference 60" in log_text(app))
        app.bench.seek_to(38.5)
        await until(pilot, lambda: "inference 60" not in log_text(app) and "inference 5 " in log_text(app))
        app.bench.seek_to(0.0)
        await until(pilot, lambda: "inference" not in log_text(app))
        assert "PARTIAL" not in shown(app, "#banner")

    drive(app, steps)


def test_sessions_screen_opens_one_and_b_goes_back_to_the_live_bench(
    saved: Path, engine: FakeEngine, live_app: LabApp
) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.running)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(live_app.screen, SessionsScreen) and bool(live_app.screen.found))
        names = [listed.path.name for listed in live_app.screen.found]  # type: ignore[attr-defined]
        await pilot.press(*["down"] * names.index(saved.name), "enter")
        await until(pilot, lambda: live_app.replay is not None)
        await until(pilot, lambda: "REPLAY" in shown(live_app, "HeaderLine"))
        assert not engine.commands and live_app.live is not None
        await pilot.press("b")
        await until(pilot, lambda: "REPLAY" not in shown(live_app, "HeaderLine"))

    drive(live_app, steps)


def test_a_record_without_its_journal_is_shown_by_the_same_panes(saved: Path) -> None:
    (saved / "events.jsonl").unlink()
    app = LabApp(LabOptions(replay=saved), _never)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: "✓ measure" in shown(app, "#stages"))
        await until(pilot, lambda: "RECORD ONLY" in shown(app, "HeaderLine"))
        assert "◐ PARTIAL" in shown(app, "#banner")
        await until(pilot, lambda: "TTFT 212 ms" in shown(app, "ResultsStrip"))
        await until(pilot, lambda: "computed from measured α, c, r" in shown(app, "#calculator-body"))

    drive(app, steps)


def test_a_foreign_session_closes_the_lab_with_a_sentence(places: Path) -> None:
    folder = places / "sessions" / "foreign"
    folder.mkdir()
    (folder / "session.json").write_text("[]")
    app = LabApp(LabOptions(replay=folder), _never)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: app.return_code is not None)

    drive(app, steps)
    assert app.return_code == 1
