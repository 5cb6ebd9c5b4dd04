"""The lab in a real pseudo terminal: what a person sees, types and gets back."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import synthetic
from terminal import Terminal

HERE = Path(__file__).parent


@pytest.fixture
def lab(places: Path):  # type: ignore[no-untyped-def]
    """Start the lab over a journal that grows as told."""

    def start(what: str, columns: int, rows: int, **env: str) -> Terminal:
        folder = places / "sessions" / "20261129T101500Z-pixel-9-pro-pty"
        command = [sys.executable, str(HERE / "lab_process.py"), str(folder), what]
        return Terminal(command, columns, rows, env)

    return start


def quit_and_stop(terminal: Terminal) -> int | None:
    terminal.press("q")
    terminal.until(lambda s: "A run goes on." in s)
    terminal.press("s")
    return terminal.wait()


def test_all_panes_at_120_by_40_survive_80_by_24_and_back(lab) -> None:  # type: ignore[no-untyped-def]
    with lab("run", 120, 40) as terminal:
        words = ("skin ", "▶ measure", "S 1.61×", "PARTIAL, 41 of 44", "threshold")
        terminal.until(lambda s: all(word in s for word in words))
        terminal.until(lambda s: s.count("SIMULATED") == 6)  # the header and each of the five panes
        terminal.resize(80, 24)
        terminal.until(lambda s: "1 Device" in s and "3 Log ◐ PARTIAL" in s and "4 α/γ" in s)
        terminal.until(lambda s: "no figures yet" in s.split("\n")[22] and "q quit" in s.split("\n")[23])
        terminal.press("4")
        terminal.until(lambda s: "break-even" in s)
        terminal.press("5")
        terminal.until(lambda s: "lower skin" in s)
        terminal.press("3")
        terminal.until(lambda s: "FINAL: ◐ PARTIAL, 41 of 44" in s)
        terminal.resize(120, 40)
        terminal.until(lambda s: "▶ measure" in s and "lower skin" in s and s.count("SIMULATED") == 6)
        assert quit_and_stop(terminal) == 0


def test_cancel_shows_within_moments_and_quitting_then_does_not_ask(lab) -> None:  # type: ignore[no-untyped-def]
    with lab("run", 80, 24) as terminal:
        terminal.until(lambda s: "2 Stages ▶ measure" in s)
        terminal.press("2")
        terminal.until(lambda s: "▶ measure" in s.replace("2 Stages ▶ measure", ""))
        terminal.press("c")
        terminal.until(lambda s: "■ run cancelled" in s)
        terminal.press("q")
        assert terminal.wait() == 0


def test_the_log_still_repaints_once_it_drops_old_lines(lab) -> None:  # type: ignore[no-untyped-def]
    with lab("flood", 100, 30) as terminal:
        terminal.until(lambda s: "1 Device" in s)
        terminal.press("3")
        seen: list[int] = []

        def three_late_lines(screen: str) -> bool:
            found = [int(n) for n in re.findall(r"late (\d+)", screen)]
            if found and (not seen or found[-1] != seen[-1]):
                seen.append(found[-1])
            return len(seen) >= 3

        terminal.until(three_late_lines, 30)
        assert seen == sorted(seen)
        terminal.until(lambda s: "older" in s)
        assert quit_and_stop(terminal) == 0


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24)])
def test_nothing_hostile_reaches_the_terminal(lab, columns: int, rows: int) -> None:  # type: ignore[no-untyped-def]
    with lab("hostile", columns, rows) as terminal:
        terminal.until(lambda s: "Pixel red" in s)
        for key in "12345":
            terminal.press(key)
            for _ in range(3):
                terminal.read(0.1)
        terminal.press("?")
        terminal.until(lambda s: "Signs" in s or "Run" in s)
        terminal.press("\x1b")
        terminal.until(lambda s: "[red]not markup[/red]" in s)
        raw = bytes(terminal.raw)
        assert b"\x1b]0;" not in raw and b"\x1b]52;" not in raw and b"pwned" not in raw and b"cHduZWQ" not in raw
        assert "\u202e".encode() not in raw and b"\x9b5m" not in raw


def test_no_color_still_says_everything_in_words(lab) -> None:  # type: ignore[no-untyped-def]
    with lab("run", 120, 40, NO_COLOR="1") as terminal:
        screen = terminal.until(lambda s: "FINAL: ◐ PARTIAL" in s and "▶ measure" in s and "status NONE" in s)
        assert "SIMULATED" in screen
        colours = {cell.fg for row in terminal.screen.buffer.values() for cell in row.values()}
        greys = {c for c in colours if re.fullmatch(r"([0-9a-f]{2})\1\1|default|black|white", c)}
        assert colours == greys


def test_a_saved_session_replays_from_the_command_line(places: Path) -> None:
    saved = synthetic.write_session(places / "sessions" / "20261129T101500Z-pixel-9-pro-saved", synthetic.whole_run())
    command = [sys.executable, "-m", "mtplab.cli", "replay", saved.name[:20], "--at", "60"]
    with Terminal(command, 120, 40) as terminal:
        screen = terminal.until(lambda s: "REPLAY" in s and "▶ measure" in s and "⏸ paused" in s)
        assert "00:01:00 / 00:01:37" in screen
        terminal.press("\x1b[C")
        terminal.until(lambda s: "00:01:05 / 00:01:37" in s)
        terminal.press("n")
        terminal.until(lambda s: "00:01:05 / " not in s)
        terminal.press("q")
        assert terminal.wait() == 0
