"""How soon the α/γ pane shows a changed value: from the key to the new figure on an emulated screen, in a real pty.

    python benchmarks/calculator.py [CHANGES] [--json]

Beside it, in the same process, what of that is calculation and drawing. The aim is a median and a 95th percentile
below 50 ms; the time includes the terminal's own way there and back.
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

import numpy as np
import pexpect
import psutil
import pyte

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from first_paint import LAB

from mtplab.tui.reckoning import Numbers, Reckoned, reckon
from mtplab.tui.widgets.calculator_rows import answer_rows, curve_content

SIZES = ((120, 40), (80, 24))
TIMEOUT_S = 60.0
AIM_MS = 50.0


class Lab:
    """The lab in a pseudo terminal, its calculator's fields open."""

    def __init__(self, columns: int, rows: int, folder: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        env = {**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor", "MTPLAB_SESSIONS": folder}
        size = (rows, columns)
        self.child = pexpect.spawn(sys.executable, ["-c", LAB], dimensions=size, env=env, timeout=TIMEOUT_S)
        self.child.delaybeforesend = None

    def until(self, word: str) -> float:
        """Seconds until the bytes that put `word` onto the screen had arrived; emulating them is not counted."""
        began = arrived = time.perf_counter()
        while word not in "\n".join(self.screen.display):
            if time.perf_counter() - began > TIMEOUT_S:
                raise SystemExit(f"{word!r} never stood on the screen:\n" + "\n".join(self.screen.display))
            data = b""
            try:
                while True:
                    # A repaint comes in pieces: only a gap ends it, and only then is it looked at.
                    data += self.child.read_nonblocking(1 << 16, timeout=0.005)
                    arrived = time.perf_counter()
            except pexpect.TIMEOUT:
                self.stream.feed(data)
        return arrived - began

    def press(self, keys: str) -> None:
        """Type."""
        self.child.send(keys)

    def quiet(self, seconds: float = 0.3) -> None:
        """Take in what still comes."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            try:
                self.stream.feed(self.child.read_nonblocking(1 << 16, timeout=0.02))
            except pexpect.TIMEOUT:
                continue


def key_to_screen_ms(columns: int, rows: int, changes: int) -> tuple[list[float], float]:
    """Milliseconds from ↑ or ↓ in the field α to the new α in the answer below it, once for each change.

    With them the lab's own CPU milliseconds a change, which a busy machine moves less.
    """
    times = []
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(columns, rows, folder)
        try:
            lab.until("engine")
            lab.press("4")
            lab.until("EXAMPLE")
            lab.press("v")
            lab.until("c 0.05 ")
            lab.quiet(1.0)
            process = psutil.Process(lab.child.pid)
            before = sum(process.cpu_times()[:2])
            for change in range(changes):
                up = change // 20 % 2 == 0
                step = change % 20 + 1 if up else 19 - change % 20
                lab.press("\x1b[A" if up else "\x1b[B")
                times.append(lab.until(f"α {0.60 + step / 100:.2f}  γ") * 1000)
                lab.quiet(0.15)
            spent_ms = (sum(process.cpu_times()[:2]) - before) * 1000 / changes
        finally:
            lab.child.close(force=True)
    return times, spent_ms


def drawing_ms(columns: int, rows: int, changes: int) -> list[float]:
    """Milliseconds of calculating and drawing alone, for the pane's size on such a screen."""
    width, height = (37, 12) if columns >= 100 else (columns - 4, rows - 7)
    times = []
    for change in range(changes):
        numbers = Numbers(alpha=0.5 + 0.4 * change / changes)
        began = time.perf_counter()
        reckoned: Reckoned = reckon(numbers)
        above = answer_rows(numbers, reckoned, "", width, None, "hand")
        curve_content(numbers, reckoned, width, max(4, height - len(above)), (120, 160, 200), (90, 90, 90))
        times.append((time.perf_counter() - began) * 1000)
    return times


def spread(times: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {"median_ms": round(statistics.median(times), 1), "p95_ms": round(float(np.quantile(times, 0.95)), 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="?", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    args = parser.parse_args()
    if args.changes < 20:
        parser.error("fewer than 20 changes give no 95th percentile")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for columns, rows in SIZES:
        times, cpu_ms = key_to_screen_ms(columns, rows, args.changes)
        found[f"{columns}x{rows}"] = {
            "key_to_screen": spread(times) | {"lab_cpu_ms": round(cpu_ms, 1)},
            "calculate_and_draw": spread(drawing_ms(columns, rows, args.changes)),
        }
    answer = {"changes": args.changes, "aim_ms": AIM_MS, "cpus": os.cpu_count(), **found}
    if args.json:
        print(json.dumps(answer, indent=1))
        return
    for size, one in found.items():
        for name, value in one.items():
            cpu = f", {value['lab_cpu_ms']} ms of CPU a change" if "lab_cpu_ms" in value else ""
            print(f"{size:7} {name:18} median {value['median_ms']} ms, p95 {value['p95_ms']} ms{cpu}")
    load = os.getloadavg()[0]
    print(f"{args.changes} changes each, {os.cpu_count()} CPUs, load {load:.1f}; aim < {AIM_MS:.0f} ms")


if __name__ == "__main__":
    main()
