"""A mailed record is drawn as far as it can be, and what cannot be drawn is counted and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtplab.session import events as ev
from mtplab.session.archive import reduce_events
from mtplab.session.record import read_record
from mtplab.tui import texts
from mtplab.tui.unfold import events_of_record


def unfolded(folder: Path, **more: Any) -> list[ev.Event]:
    head = {"format": "mtplab-session", "schema": 1, "session": "x", "created_utc": "2026"}
    path = folder / "session.json"
    path.write_text(json.dumps({**head, **more}))
    return events_of_record(read_record(path))


@pytest.mark.parametrize(
    "more",
    [
        {"configurations": [{"name": "m", "figures": {}, "rounds": [{"prompts": [{"gamma": 10**8}]}]}]},
        {"run": {"t": "never"}},
        {"run": {}, "stages": [{"name": "a", "status": "exploded"}]},
        {"run": {}, "outcome": "glorious"},
        {"artefacts": {"a": {"bytes": "many"}}},
        {"artefacts": {"a": {}}},
        {"throttling": [{"a": "b"}]},
        {"markers": [{"t": None}]},
        {"gaps": [{}]},
    ],
)
def test_an_entry_that_cannot_be_is_left_out_and_said(tmp_path: Path, more: dict[str, Any]) -> None:
    events = unfolded(tmp_path, **more)
    assert [e.text for e in events if isinstance(e, ev.Message)] == [
        "1 entries of this record are damaged and are not shown."
    ]
    reduce_events(events)


def test_a_whole_record_brings_no_such_message(tmp_path: Path) -> None:
    events = unfolded(
        tmp_path,
        duration_s=9.0,
        run={"t": 1.0, "run": "1", "model": "tiny", "head": "h", "recipe": "r"},
        stages=[{"name": "freeze", "status": "done", "seconds": 2.0}],
        outcome="done",
        exit_code=0,
        artefacts={"a": {"sha256": "0", "bytes": 5}},
        configurations=[{"name": "m", "figures": {}, "counts": [1, 2]}],
        conclusion="It pays.",
        pitfalls=[{"pitfall": "p", "text": "t", "evidence": "e"}],
    )
    assert not [e for e in events if isinstance(e, ev.Message)]
    state = reduce_events(events)
    assert state.conclusion is not None and state.conclusion.text == "It pays."
    assert state.configurations["m"].counts == [1, 2] and state.artefacts["a"].size_bytes == 5
    assert state.run is not None and state.run.head == "h" and state.stages["freeze"].status == "done"


@pytest.mark.parametrize("hot", [1e308, -1e308, float("inf"), float("nan")])
def test_a_temperature_that_cannot_be_is_drawn_as_unknown(hot: float) -> None:
    drawn = texts.spark([30.0, hot, 34.0, -hot], 4)
    assert drawn == texts.spark([30.0, None, 34.0, None], 4) and drawn[1] == " "
    assert texts.spark([hot, -hot], 4) == ""


def test_a_time_that_is_none_is_no_crash() -> None:
    assert texts.clock(float("inf")) == "--:--:--"
    assert texts.duration(float("nan")) == ""
    assert texts.clean("a\u2028b\tc\x1b[31m") == "a b c"
