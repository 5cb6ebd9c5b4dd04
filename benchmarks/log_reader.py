"""How fast the log reader is: lines/s beside a bare loop and `grep -cE` over the same lines, in one run.

    python benchmarks/log_reader.py [--lines 200000] [--repeats 7] [--megabytes 200]

Three logs are made from the captured ones in tests/data/benchlogs: `noise` (a busy logcat that says nothing of a
delegate), `mixed` (every 20th line is from a captured log) and `dense` (captured logs only). The three programs take
turns within each repeat, so that a busy machine slows all of them; the ratio is taken within a repeat. Seconds are
those of the processor (own and children's), not of the clock: other work on the machine does not count.

After the table a log of --megabytes (0: none) and one line of a quarter of that are read once, in a process of their
own each, whose largest memory is printed beside that of a process that reads one captured log.
"""

from __future__ import annotations

import argparse
import io
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mtplab.benchlog.files import read_log
from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.rules import load_rules

SAMPLES = Path(__file__).parents[1] / "tests" / "data" / "benchlogs"
NOISE = (
    "07-19 14:10:{s:02d}.{ms:03d}  1637  {n:5d} I ActivityManager: Start proc {n}:com.example.app/u0a123 for service",
    "07-19 14:10:{s:02d}.{ms:03d}   789  {n:5d} D SurfaceFlinger: layer {n} (com.example.app{n}) took {ms} us",
    "07-19 14:10:{s:02d}.{ms:03d}  1022  {n:5d} W ThermalHAL: sensor VIRTUAL-SKIN at {s}.{ms} C, level {n}",
)


def make_logs(lines: int) -> dict[str, str]:
    """The three logs as text, `lines` lines each."""
    captured = [
        line for path in sorted(SAMPLES.glob("*.txt")) for line in path.read_text(encoding="utf-8").splitlines()
    ]
    noise = [NOISE[i % 3].format(s=i // 1000 % 60, ms=i % 1000, n=i % 99991) for i in range(lines)]
    mixed = [captured[i // 20 % len(captured)] if i % 20 == 0 else line for i, line in enumerate(noise)]
    dense = [captured[i % len(captured)] for i in range(lines)]
    return {"noise": "\n".join(noise), "mixed": "\n".join(mixed), "dense": "\n".join(dense)}


def bare_loop(text: str) -> None:
    """The least that a Python program can do with each line."""
    characters = 0
    for line in text.split("\n"):
        characters += len(line)


def live(text: str) -> None:
    """The reader fed one line at a time, as a log arrives from a phone."""
    reader = LogReader()
    for line in text.split("\n"):
        reader.feed(line)
    reader.finish()


def measure(text: str, repeats: int, words: Path) -> dict[str, list[float]]:
    """Seconds per program and repeat."""
    data = text.encode()
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        log.write(data)
        log.flush()
        grep = ["grep", "-cE", "-f", str(words), log.name]
        programs: dict[str, Callable[[], object]] = {
            "bare loop": lambda: bare_loop(text),
            "grep -cE": lambda: subprocess.run(grep, capture_output=True, check=False),
            "reader, file": lambda: read_log(io.BytesIO(data)),
            "reader, live": lambda: live(text),
        }
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(repeats):
            for name, program in programs.items():
                start = processor_seconds()
                program()
                seconds[name].append(processor_seconds() - start)
    return seconds


def processor_seconds() -> float:
    """Processor time that this process and its ended children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    """Measures and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    rules = load_rules()
    with tempfile.NamedTemporaryFile("w", suffix=".words") as words:
        # What the reader's quick look searches for: the words and parts of its rules.
        parts = sorted(rules.words) + [part for part in rules.parts if part.isprintable()]
        words.write("".join(re.sub(r"([][\\.^$*+?(){}|])", r"\\\1", part) + "\n" for part in parts))
        words.flush()
        print(f"{options.lines} lines, {options.repeats} repeats, {len(rules.by_id)} rules; median (lowest–highest)")
        print(f"{'log':8}{'program':16}{'thousand lines/s':>28}{'time / bare loop':>26}")
        for log, text in make_logs(options.lines).items():
            seconds = measure(text, options.repeats, Path(words.name))
            for program, times in seconds.items():
                rates = [options.lines / t / 1000 for t in times]
                ratios = [t / bare for t, bare in zip(times, seconds["bare loop"], strict=True)]
                print(f"{log:8}{program:16}{spread(rates, 0):>28}{spread(ratios, 1):>26}")
    if options.megabytes:
        read_large(options.megabytes)


LARGE = """
import resource, sys, time
from mtplab.benchlog.files import read_log
before = time.process_time()
reading = read_log(sys.argv[1], "gpu")
used = time.process_time() - before
print(f"{used:.1f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} {reading.verdict}")
"""


def read_large(megabytes: int) -> None:
    """Prints time and memory for one captured log, for a large log and for one long line."""
    proof = b"I0000 00:00:1758744860.457295   56310 main.cc:193] Falling back to OpenGL\n"
    noise = (NOISE[0].format(s=1, ms=1, n=1) + "\n").encode()
    with tempfile.TemporaryDirectory() as folder:
        logs = {"one captured log": sorted(SAMPLES.glob("*.txt"))[0]}
        for name, unit, size in (
            (f"{megabytes} MB in lines", noise, megabytes),
            (f"{megabytes // 4} MB in one line", b"word ", megabytes // 4),
        ):
            logs[name] = Path(folder) / f"{size}.log"
            with logs[name].open("wb") as file:
                for _ in range(size):
                    file.write(unit * (1_000_000 // len(unit)))
                file.write(proof)
        print(f"{'large input':24}{'processor s':>12}{'peak MB':>10}  verdict")
        for name, path in logs.items():
            command = [sys.executable, "-c", LARGE, str(path)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            print(f"{name:24}{told[0]:>12}{told[1]:>10}  {told[2]}")


def spread(values: list[float], digits: int) -> str:
    """Median with the lowest and the highest value."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


if __name__ == "__main__":
    main()
