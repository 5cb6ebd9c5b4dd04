"""Picker, doctor and a pulled cable under the lab in a real terminal, over a real engine and the real adb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from e2e_bench import Bench
from terminal import Terminal

from mtplab.device.standin_host import StandinProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_a_pulled_cable_is_told_and_nothing_is_lost(bench: Bench, size: tuple[int, int]) -> None:
    with StandinProcess() as phone:
        bench.env["ANDROID_ADB_SERVER_PORT"] = str(phone.server.port)
        with Terminal(bench.command("lab"), *size, env=bench.env) as terminal:
            terminal.until(lambda s: "skin " in s and "SIMULATED" in s, 60)
            _pages(terminal, phone.serial)
            terminal.press("m")
            terminal.until(lambda s: "what happened" in s, 20)
            terminal.press("before\r")
            terminal.until(lambda s: "what happened" not in s, 20)
            phone.control("unplug")
            terminal.until(lambda s: "✗ CABLE LOST 1 s" in s or "✗ CABLE LOST 2 s" in s, 60)
            screen = terminal.until(lambda s: "all below is old" in s and "status unknown" in s, 20)
            assert "plug it in; nothing that was recorded is lost" in screen
            assert "No stage runs." in screen and "LINK LOST" in screen
            phone.control("plug")
            terminal.until(lambda s: "✓ cable back after" in s, 60)
            terminal.until(lambda s: "all below is old" not in s and "status NONE" in s, 30)
            session = bench.only_session()
            terminal.press("q")
            assert terminal.wait(40) == 0
    _nothing_was_lost(session)


def _pages(terminal: Terminal, serial: str) -> None:
    """The picker sees the real adb's list; the doctor judges this engine's phone without touching it."""
    terminal.press("w")
    terminal.until(lambda s: f"● {serial}" in s and "this lab shows it" in s, 30)
    terminal.press("q")
    terminal.until(lambda s: "1 Device" in s, 20)
    terminal.press("d")
    terminal.until(lambda s: "READY: " in s, 60)
    terminal.press("\x1b[4~")  # End
    terminal.until(lambda s: "calibration" in s, 20)
    terminal.press("q")
    terminal.until(lambda s: "1 Device" in s, 20)


def _nothing_was_lost(session: Path) -> None:
    """One session with the mark of before, the loss, the gap and the return, in this order, sealed."""
    lines = [json.loads(line) for line in (session / "events.jsonl").read_text().splitlines()[1:]]
    labels = [e["label"] for e in lines if e["k"] == "marker"]
    assert labels[:3] == ["before", "cable lost", "cable returned"]
    states = [e["state"] for e in lines if e["k"] == "link"]
    assert states == ["connected", "lost", "returned", "closed"]
    gap = next(e for e in lines if e["k"] == "gap" and e["what"] == "heat")
    kinds = [e["state"] if e["k"] == "link" else e["k"] for e in lines]
    lost, back = kinds.index("lost"), kinds.index("returned")
    assert gap["seconds"] > 0
    assert "heat" in kinds[:lost] and "heat" in kinds[back:]
    assert "heat" not in kinds[lost:back]  # no sample was invented
    record = json.loads((session / "session.json").read_text())
    assert record["sealed"] is True and record["gaps"]
