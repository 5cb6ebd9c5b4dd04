"""First paint of the lab beside a bare Textual application, interleaved in one run, in a real pseudo terminal.

    python benchmarks/first_paint.py [REPETITIONS] [--json]

From spawning the interpreter to the moment the terminal shows a known word, whatever the machine does meanwhile:
only the ratio of the two is worth remembering. The aim is at most 2.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pexpect
import pyte

COLUMNS, ROWS = 120, 40
TIMEOUT_S = 60.0
BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("bare application")

Bare().run()
"""
# The lab with an engine that never comes: what is timed is the lab, not how long a phone takes.
LAB = """
import threading
from mtplab.tui import LabOptions
from mtplab.tui.app import LabApp

def never(options):
    threading.Event().wait(3600)

threading.Thread.daemon = True
LabApp(LabOptions(), never).run()
"""
PROGRAMS = {"bare": (BARE, "bare application"), "lab": (LAB, "Starting the engine")}


def first_paint_s(code: str, word: str, env: dict[str, str]) -> float:
    """Seconds from spawning Python to the word standing on the emulated screen."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    began = time.perf_counter()
    child = pexpect.spawn(sys.executable, ["-c", code], dimensions=(ROWS, COLUMNS), env=env, timeout=TIMEOUT_S)
    try:
        while time.perf_counter() - began < TIMEOUT_S:
            try:
                stream.feed(child.read_nonblocking(1 << 16, timeout=0.005))
            except pexpect.TIMEOUT:
                continue
            if word in "\n".join(screen.display):
                return time.perf_counter() - began
        raise SystemExit(f"{word!r} never stood on the screen:\n" + "\n".join(screen.display))
    finally:
        child.close(force=True)


def measure(repetitions: int) -> dict[str, list[float]]:
    """Both programs in turn, after one run of each that only warms the disk's cache."""
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        env = {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", "MTPLAB_SESSIONS": folder}
        for repetition in range(repetitions + 1):
            for name, (code, word) in PROGRAMS.items():
                seconds = first_paint_s(code, word, env)
                if repetition:
                    times[name].append(seconds)
    return times


def summary(times: dict[str, list[float]]) -> dict[str, object]:
    """Medians with their range, and the ratio pair by pair."""
    ratios = [lab / bare for lab, bare in zip(times["lab"], times["bare"], strict=True)]

    def spread(values: list[float], digits: int) -> dict[str, float]:
        return {
            "median": round(statistics.median(values), digits),
            "low": round(min(values), digits),
            "high": round(max(values), digits),
        }

    return {
        "repetitions": len(ratios),
        "bare_s": spread(times["bare"], 3),
        "lab_s": spread(times["lab"], 3),
        "ratio": spread(ratios, 2),
        "aim": 2.0,
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repetitions", nargs="?", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    args = parser.parse_args()
    if args.repetitions < 5:
        parser.error("fewer than 5 repetitions say nothing on a noisy machine")
    found = summary(measure(args.repetitions))
    if args.json:
        print(json.dumps(found, indent=1))
        return
    for name in ("bare_s", "lab_s", "ratio"):
        value = found[name]
        assert isinstance(value, dict)
        print(f"{name:7} {value['median']} [{value['low']}–{value['high']}]")
    print(f"{found['repetitions']} interleaved repetitions, Python {found['python']}, {found['cpus']} CPUs; aim ≤ 2×")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
