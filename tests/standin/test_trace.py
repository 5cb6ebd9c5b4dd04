"""Recorded heat is played as it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import UsageError, load_profile, load_scenario
from mtplab.standin.trace import read_trace

PROFILE = load_profile("pixel-9-pro")


def model() -> HeatModel:
    return HeatModel.start(PROFILE, load_scenario("normal"))


ANY = model()


def test_a_csv_file_is_followed_and_its_end_held(tmp_path: Path) -> None:
    path = tmp_path / "heat.csv"
    path.write_text("t_s,BIG,skin,clock:BIG,status,note\n100,50,35,1.0,0,a\n110,70,39,0.8,1,b\nx,1,1,1,1,torn\n")
    trace, played = read_trace(path, PROFILE), model()
    assert trace.seconds == 10
    seen = []
    for seconds in (0, 5, 10, 99):
        trace.apply(played, seconds)
        seen.append((played.temperature_c["BIG"], played.temperature_c["skin"], played.clock["BIG"], played.status))
    assert seen == [(50, 35, 1.0, 0), (60, 37, pytest.approx(0.9), 0), (70, 39, 0.8, 1), (70, 39, 0.8, 1)]


def test_without_a_recorded_status_the_skin_decides(tmp_path: Path) -> None:
    path = tmp_path / "heat.csv"
    path.write_text("t_s,VIRTUAL-SKIN\n0,30\n1,44\n")
    played = model()
    read_trace(path, PROFILE).apply(played, 1)
    assert (played.temperature_c["skin"], played.status) == (44, 2)


def test_the_heat_of_a_session_is_played(tmp_path: Path) -> None:
    events = [
        {"schema": 1},
        {"k": "note", "t": 1.0, "text": 'the word "heat"'},
        {"k": "heat", "t": 5.0, "zones": {"BIG": 40.0, "TPU": None, "battery": 30.0}, "skin_c": 33.0, "status": 0},
        {"k": "heat", "t": 7.0, "zones": {"BIG": 60.0}, "skin_c": 35.0, "status": 1,
         "clocks_khz": {"policy7": [2000000, 3105000]}, "caps_khz": {"policy7": 1552500}},
    ]  # fmt: skip
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"k":"heat","t":9')
    played = model()
    trace = read_trace(path, PROFILE)
    trace.apply(played, 1.0)
    assert (played.temperature_c["BIG"], played.temperature_c["skin"]) == (50, 34)
    trace.apply(played, 2.0)
    assert (played.clock["BIG"], played.status) == (0.5, 1)


def test_the_demo_sessions_own_heat_can_be_played() -> None:
    path = Path(__file__).resolve().parents[2] / "sessions" / "demo" / "events.jsonl"
    assert read_trace(path, PROFILE).seconds > 10


@given(st.one_of(st.text(), st.text(alphabet='t_s,BIG\n0123456789.{}":khea')))
def test_no_file_is_taken_for_a_recording_that_is_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        read_trace(path, PROFILE).apply(ANY, 1.0)
    except UsageError as error:
        assert "holds no heat" in str(error)
