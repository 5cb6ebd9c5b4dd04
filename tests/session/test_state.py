"""One reducer serves live, replay and the record: the same events always give the same state."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.session import events as ev
from mtplab.session.events import AnyEvent, Header
from mtplab.session.heat import MAX_POINTS, HeatHistory
from mtplab.session.identity import Identity, Policy
from mtplab.session.record import read_record, record_of, write_record
from mtplab.session.replay import SPEEDS, Replay
from mtplab.session.state import _REDUCERS, LabState
from mtplab.session.text import clean_text

HEADER = Header(schema=1, session="s", created_utc="2026-01-01T00:00:00+00:00", t0=100.0)


def a_run(t: float = 100.0, heat: int = 50) -> list[ev.Event]:
    return [
        ev.DeviceSeen(t=t, identity=Identity(device_model="Pixel 9 Pro", simulated=True)),
        ev.RunStarted(
            t=t + 1, run="r", stages=["freeze", "bench"], policy=Policy(), model="tiny", head="h", recipe="mixed"
        ),
        ev.StageChanged(t=t + 1, name="freeze", status="cached", seconds=2.0),
        ev.StageChanged(t=t + 2, name="bench", status="running"),
        ev.LogOpened(t=t + 2, log="1", graph="head.tflite", requested="gpu", command="benchmark_model"),
        *[ev.Heat(t=t + 2 + i / 10, zones={"BIG": 40.0 + i}, skin_c=30.0, status=0) for i in range(heat)],
        ev.LogLine(t=t + 8, log="1", n=1, text="INFO: STARTING!"),
        ev.VerdictReached(
            t=t + 8, log="1", graph="head.tflite", requested="gpu", verdict="unknown", provisional=False
        ),
        ev.Marker(t=t + 9, label="fan on"),
        ev.StageChanged(t=t + 10, name="bench", status="done", seconds=8.0),
        ev.RunEnded(t=t + 10, run="r", outcome="done", exit_code=5),
    ]


def summary(state: LabState) -> bytes:
    return msgspec.json.encode(record_of(state, HEADER, events_sha256=None))


def reduce(events: list[ev.Event]) -> LabState:
    state = LabState()
    for event in events:
        state.apply(event)
    return state


def test_every_event_kind_has_a_reducer() -> None:
    kinds = set(AnyEvent.__args__)
    assert kinds == set(_REDUCERS)


def test_a_new_run_forgets_the_figures_of_the_earlier_policy() -> None:
    events = a_run()
    events.append(ev.ConfigurationMeasured(t=120, name="mtp-on", figures={}))
    state = reduce([*events, *a_run(200.0)[1:2]])
    assert state.configurations == {} and state.verdicts == [] and state.run_end is None


def test_a_second_run_keeps_what_the_first_came_to() -> None:
    first = [
        *a_run(),
        ev.ConfigurationMeasured(t=111, name="mtp-on", figures={"ttft_ms": ev.Figure(value=10.0)}),
        ev.Concluded(t=112, text="SIMULATED: MTP pays."),
    ]
    record = record_of(reduce([*first, *a_run(200.0)]), HEADER, events_sha256=None)
    assert record.conclusion is None
    [earlier] = record.earlier_runs
    assert earlier.conclusion == "SIMULATED: MTP pays." and earlier.outcome == "done"
    assert earlier.figures["mtp-on"]["ttft_ms"].value == 10.0
    assert earlier.verdicts == ["head.tflite asked gpu: unknown"]


@given(seconds=st.lists(st.floats(-5, 20), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_replay_at_any_time_equals_the_events_up_to_it(seconds: list[float]) -> None:
    events = a_run()
    replay = Replay(events, HEADER.t0)
    for position in seconds:
        replay.seek(position)
        until = [e for e in events if e.t - HEADER.t0 <= replay.position_s]
        assert summary(replay.state) == summary(reduce(until))


def test_stepping_back_and_forth_lands_on_the_same_state() -> None:
    replay = Replay(a_run(), HEADER.t0)
    replay.step(30)
    middle = summary(replay.state)
    replay.step(20)
    replay.step(-20)
    assert summary(replay.state) == middle and not replay.playing


def test_play_honours_speed_and_stops_at_the_end() -> None:
    replay = Replay(a_run(), HEADER.t0)
    replay.toggle()
    replay.faster(2)
    assert replay.speed == SPEEDS[SPEEDS.index(1.0) + 2]
    replay.advance(1.0)
    assert replay.position_s == pytest.approx(4.0)
    replay.advance(1000.0)
    assert replay.position_s == replay.duration_s and not replay.playing


def test_markers_are_found_in_both_directions() -> None:
    replay = Replay(a_run(), HEADER.t0)
    seen = []
    while (mark := replay.seek_marker(1)) is not None:
        seen.append(type(mark).__name__)
    assert seen == ["StageChanged", "VerdictReached", "Marker"]
    assert isinstance(replay.seek_marker(-1), ev.VerdictReached)


@given(st.lists(st.one_of(st.none(), st.floats(20, 90)), max_size=4 * MAX_POINTS))
@settings(max_examples=20, deadline=None)
def test_heat_history_is_bounded_and_keeps_the_extremes(skins: list[float | None]) -> None:
    history = HeatHistory()
    for i, skin in enumerate(skins):
        history.add(ev.Heat(t=float(i), skin_c=skin, status=None), None)
    known = [s for s in skins if s is not None]
    kept = [p.skin_high_c for p in history.points if p.skin_high_c is not None]
    assert len(history.points) <= MAX_POINTS
    assert max(kept, default=None) == max(known, default=None)
    assert [p.t for p in history.points] == sorted(p.t for p in history.points)


def test_the_record_round_trips_and_shows_what_is_missing(tmp_path: Path) -> None:
    record = record_of(reduce(a_run()), HEADER, events_sha256="0" * 64)
    write_record(tmp_path / "session.json", record)
    assert read_record(tmp_path / "session.json") == record
    assert record.outcome == "done" and record.exit_code == 5
    assert record.verdicts[0].verdict == "unknown" and "aicore_version" in record.identity_missing


@given(st.text())
def test_cleaned_text_holds_no_control_characters(text: str) -> None:
    assert all(c == "\t" or (c.isprintable() or c.isspace()) or ord(c) > 0x9F for c in clean_text(text))
    assert "\x1b" not in clean_text(text)


def test_escape_sequences_vanish_whole() -> None:
    assert clean_text("a\x1b[31mred\x1b[0m\x1b]0;title\x07b\r") == "aredb"
    assert clean_text("x\x1b]8;;http://evil\x1b\\link") == "xlink"
