"""The lab in a real terminal over a real engine, the real adb and the stand-in."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_bench import Bench
from terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.pipeline, pytest.mark.timeout(900)]


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def lab(bench: Bench, *arguments: str, size: tuple[int, int] = (120, 40)) -> Terminal:
    return Terminal(bench.command("lab", *arguments), *size, env=bench.env)


def temperatures(screen: str) -> list[str]:
    return re.findall(r"\d\d\.\d", screen)


def test_a_run_from_the_lab_verdict_banner_cancel_and_a_clean_end(bench: Bench) -> None:
    with lab(bench, "--standin", "gpu-silent-fallback") as terminal:
        first = terminal.until(lambda s: "SIMULATED" in s and len(temperatures(s)) > 2, 60)
        terminal.until(lambda s: temperatures(s) != temperatures(first), 30)
        terminal.press("r")
        terminal.until(lambda s: "recipe:" in s, 20)
        terminal.press("\r")
        terminal.until(lambda s: "FALLBACK TO CPU" in s, 600)
        terminal.press("c")
        cancelled_at = time.monotonic()
        terminal.until(lambda s: "cancelled" in s, 20)
        print(f"cancelled on screen after {time.monotonic() - cancelled_at:.2f} s")
        # The run itself ends when the phone's settings are put back; until then q asks what to do with it.
        terminal.until(lambda s: "run cancelled" in s, 60)
        terminal.press("q")
        assert terminal.wait(30) == 0
    wait_for(lambda: bench.strays() == [])
    # The terminal is given back as it was: the alternate screen was left and the cursor shown.
    assert b"\x1b[?1049l" in terminal.raw and b"\x1b[?25h" in terminal.raw


def test_a_killed_lab_leaves_the_run_and_attach_finds_it(bench: Bench, few_prompts: Path) -> None:
    with lab(bench, "--standin", size=(80, 24)) as terminal:
        terminal.until(lambda s: "SIMULATED" in s, 60)
        terminal.press("r")
        terminal.until(lambda s: "recipe:" in s, 20)
        terminal.press("\r")
        terminal.until(lambda s: "recipe:" not in s, 20)
        terminal.press("2")
        terminal.until(lambda s: "freeze" in s, 60)
        os.kill(terminal.child.pid, signal.SIGKILL)
    session = bench.only_session()
    before = (session / "events.jsonl").stat().st_size
    wait_for(lambda: (session / "events.jsonl").stat().st_size > before)
    with lab(bench, "--attach", session.name, size=(80, 24)) as again:
        again.press("2")
        again.until(lambda s: "freeze" in s and "SIMULATED" in s, 60)
        again.press("q")
        again.until(lambda s: "stop" in s.lower() and "leav" in s.lower(), 20)
        again.press("s")
        assert again.wait(40) == 0
    wait_for(lambda: bench.strays() == [])
    assert (session / "session.json").is_file()
