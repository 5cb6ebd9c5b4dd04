"""A long bench under a cable that is pulled at random: are samples true and told once, gaps marked, memory flat?

    python benchmarks/soak.py [--minutes 30] [--speed 6] [--hz 10] [--seed 1] [--scenario normal]

An engine watches a stand-in and benches the tiny model again and again, while the cable is pulled (or only glitches)
at times and for as long as the seed says. `--minutes` are the phone's: with `--speed 6` its heat moves six times as
fast as the clock, so half an hour of it passes in five minutes. Everything is checked twice: as it happens, against
what the stand-in's own sensor file held and against when its cable was out, and again from the sealed session on
disk. Exit code 0 when all of it holds, 4 when not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mtplab.device.standin_host import StandinProcess
from mtplab.engine.options import EngineOptions, RunOptions
from mtplab.engine.service import Engine
from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL, open_session

ZONE, ZONE_FILE = "BIG", "sys/class/thermal/thermal_zone0/temp"  # the first zone of the stand-in's profiles
TRUTH_EVERY_S, TRUTH_SPAN_S = 0.02, 6.0
JUDGED_AFTER_S = 2.0  # when the truth around a sample is complete
AROUND_S, BLIND_S = 0.5, 0.3  # a sample is judged by what was seen this near to it, if nothing was missed
SLACK_C = 0.01  # the session keeps what the file said, not what was rounded
IN_FLIGHT_S = 1.0  # what the cable carried before it was pulled may arrive this much later
SILENCE_S = 6.0  # the sampler itself calls five seconds without a sample a loss
FLAT_FROM_S = 120.0  # in less time the heat's history is still being filled: no growth is judged
GROWTH_LIMIT = 0.05
GROWTH_FLOOR_BYTES = 6 << 20


@dataclass
class Evidence:
    """What was seen. `problems` is empty when everything holds."""

    wall_s: float = 0.0
    phone_minutes: float = 0.0
    unplugs: int = 0
    glitches: int = 0
    out_s: float = 0.0
    samples: int = 0
    untrue: int = 0
    unjudged: int = 0
    while_out: int = 0
    repeated: int = 0
    gaps: int = 0
    gap_s: float = 0.0
    longest_hole_s: float = 0.0
    runs: dict[str, int] = field(default_factory=dict)
    verdicts: int = 0
    journal_bytes: int = 0
    memory: dict[str, tuple[float, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The evidence, a line a matter."""
        yield f"time: {self.wall_s:.0f} s by the clock, {self.phone_minutes:.1f} min of the phone's heat"
        yield f"cable: pulled {self.unplugs} times ({self.out_s:.0f} s in all), {self.glitches} glitches"
        yield f"samples: {self.samples}; {self.untrue} that the sensor file did not hold then, " + (
            f"{self.while_out} while the cable was out, {self.repeated} told twice or out of order"
        )
        yield f"samples that could not be judged, as the file was looked at too late: {self.unjudged}"
        yield f"gaps: {self.gaps} marked ({self.gap_s:.0f} s in all); longest silence not marked " + (
            f"{self.longest_hole_s:.1f} s"
        )
        ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.runs.items()))
        yield f"runs: {ended}; {self.verdicts} final verdicts; journal {self.journal_bytes / 1e6:.1f} MB"
        for name, (before, after) in self.memory.items():
            yield f"memory of the {name}: {before:.1f} MB, at the end {after:.1f} MB"
        yield from (f"PROBLEM: {problem}" for problem in self.problems)


class Truth:
    """What the stand-in's sensor file held lately, read from outside the phone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: deque[tuple[float, float]] = deque()
        self._lock = threading.Lock()

    def look(self) -> None:
        """Read the file once."""
        with contextlib.suppress(OSError, ValueError):
            value = int(self._path.read_text()) / 1000
            with self._lock:
                self._seen.append((time.monotonic(), value))
                while self._seen[-1][0] - self._seen[0][0] > TRUTH_SPAN_S:
                    self._seen.popleft()

    def had(self, value: float, t: float) -> bool | None:
        """Whether the file can have held this about then, by its least and its greatest value; None if not seen."""
        with self._lock:
            around = [seen for seen in self._seen if abs(seen[0] - t) <= AROUND_S]
        times = [t - AROUND_S, *(when for when, _ in around), t + AROUND_S]
        if max(later - earlier for earlier, later in itertools.pairwise(times)) > BLIND_S:
            return None
        values = [value for _, value in around]
        return min(values) - SLACK_C <= value <= max(values) + SLACK_C


class Judge:
    """Hears every event of the engine and holds it against the truth."""

    def __init__(self, truth: Truth, evidence: Evidence) -> None:
        self._truth, self._evidence = truth, evidence
        self._waiting: deque[ev.Heat] = deque()
        self._last_taken_s = 0.0
        self.outages: list[tuple[float, float]] = []  # the cable was certainly out from … to

    def __call__(self, event: ev.Event) -> None:
        if not isinstance(event, ev.Heat):
            return
        # By the phone's own clock: what arrives in one packet arrives at one time.
        taken_s = event.device_uptime_s
        if taken_s is None or taken_s <= self._last_taken_s:
            self._evidence.repeated += 1
            self._complain(f"a sample taken at {taken_s} s came after one taken at {self._last_taken_s} s")
        self._last_taken_s = taken_s or self._last_taken_s
        self._evidence.samples += 1
        self._waiting.append(event)

    def judge(self, everything: bool = False) -> None:
        """Judge the samples around which the truth is complete by now."""
        while self._waiting and (everything or time.monotonic() - self._waiting[0].t > JUDGED_AFTER_S):
            heat = self._waiting.popleft()
            value, taken_s = heat.zones.get(ZONE), heat.device_uptime_s
            # The stand-in's clock is this machine's own.
            true = value is not None and taken_s is not None and self._truth.had(value, taken_s)
            self._evidence.unjudged += true is None
            if true is False:
                self._evidence.untrue += 1
                self._complain(f"the sample at {heat.t:.3f} s says {value} °C, which the phone did not")
            if any(out + IN_FLIGHT_S < heat.t < back for out, back in self.outages):
                self._evidence.while_out += 1
                self._complain(f"a sample came at {heat.t:.3f} s while the cable was out")

    def _complain(self, text: str) -> None:
        if len(self._evidence.problems) < 20:
            self._evidence.problems.append(text)


class Memory:
    """The resident memory of the processes at work, sampled now and then."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._sizes: dict[str, list[int]] = {name: [] for name in pids}

    def look(self) -> None:
        """Sample once."""
        for name, process in self._processes.items():
            self._sizes[name].append(process.memory_info().rss)

    def told(self) -> Iterator[tuple[str, float, float, bool]]:
        """(name, bytes in the first third, bytes in the last, whether that is growth) of each process."""
        for name, sizes in self._sizes.items():
            third = max(1, len(sizes) // 3)
            before, after = statistics.median(sizes[:third]), statistics.median(sizes[-third:])
            yield name, before, after, after - before > max(GROWTH_LIMIT * before, GROWTH_FLOOR_BYTES)


def _pull_at_random(phone: StandinProcess, judge: Judge, evidence: Evidence, dice: random.Random,
                    over: threading.Event, pause_s: tuple[float, float]) -> None:  # fmt: skip
    """Pull the cable, put it back, or let it glitch, until it is over; the cable is in at the end."""
    while not over.wait(dice.uniform(*pause_s)):
        if dice.random() < 0.25:
            phone.control("drop")
            evidence.glitches += 1
            continue
        phone.control("unplug")
        out = time.monotonic()
        over.wait(dice.choice((0.2, 1.0, 3.0, 6.0)) * dice.uniform(0.5, 1.5))
        back = time.monotonic()
        phone.control("plug")
        judge.outages.append((out, back))
        evidence.unplugs += 1
        evidence.out_s += back - out


def soak(
    wall_s: float, speed: float, options: RunOptions, hz: float = 10.0, seed: int = 1, scenario: str = "normal",
    pause_s: tuple[float, float] = (5.0, 45.0),
) -> Evidence:  # fmt: skip
    """Bench for so long, and say what was seen. Sessions go where MTPLAB_SESSIONS says; the last one stays there."""
    evidence, dice, over = Evidence(phone_minutes=wall_s * speed / 60), random.Random(seed), threading.Event()
    with StandinProcess(scenario, speed=speed) as phone, _server(phone):
        truth = Truth(Path(phone.about["root"]) / ZONE_FILE)
        judge = Judge(truth, evidence)
        truth.look()
        with Engine(EngineOptions(serial=phone.serial, sample_hz=hz, keep=True), listen=judge) as engine:
            # One whole run first: what it loads and exports once is no growth, and no cable is pulled in it.
            engine.start_run(options).join()
            began = time.monotonic()
            memory = Memory({"engine": os.getpid(), "stand-in": phone.pid or 0, "adb server": phone.server.pid or 0})
            watcher = threading.Thread(target=_watch, args=(truth, judge, memory, over))
            puller = threading.Thread(target=_pull_at_random, args=(phone, judge, evidence, dice, over, pause_s))
            for thread in (watcher, puller):
                thread.start()
            try:
                _bench(engine, options, evidence, began + wall_s)
            finally:
                over.set()
                for thread in (watcher, puller):
                    thread.join()
            engine.cancel()
            phone.link().wait_for_return(20)
            time.sleep(3 / hz)  # samples come again, so that the last gap has an end
        evidence.wall_s = time.monotonic() - began
        _nothing_left(phone, evidence)
    judge.judge(everything=True)
    evidence.memory, grown = {}, []
    for name, before, after, grew in memory.told():
        evidence.memory[name] = (before / 1e6, after / 1e6)
        grown += [name] if grew and wall_s >= FLAT_FROM_S else []
    evidence.problems += [f"the memory of the {name} grows" for name in grown]
    _read_back(engine.recorder.path, judge, evidence)
    return evidence


@contextlib.contextmanager
def _server(phone: StandinProcess) -> Iterator[None]:
    """Let the engine find the stand-in's private server as if it were the user's own."""
    before = os.environ.get("ANDROID_ADB_SERVER_PORT")
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(phone.server.port)
    try:
        yield
    finally:
        del os.environ["ANDROID_ADB_SERVER_PORT"]
        if before is not None:
            os.environ["ANDROID_ADB_SERVER_PORT"] = before


def _watch(truth: Truth, judge: Judge, memory: Memory, over: threading.Event) -> None:
    looked = 0.0
    while not over.wait(TRUTH_EVERY_S):
        truth.look()
        judge.judge()
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            memory.look()


def _bench(engine: Engine, options: RunOptions, evidence: Evidence, until: float) -> None:
    """Run after run; one that the cable cuts off has failed, and the next begins."""
    while (left := until - time.monotonic()) > 0:
        run = engine.start_run(options)
        run.join(left)
        if run.running:
            engine.cancel()
            run.join(30)
        outcome = {0: "done", 130: "cancelled"}.get(run.code if run.code is not None else -1, "cut off or failed")
        evidence.runs[outcome] = evidence.runs.get(outcome, 0) + 1
        if outcome == "cut off or failed":
            time.sleep(min(0.5, max(0.0, until - time.monotonic())))


def _nothing_left(phone: StandinProcess, evidence: Evidence) -> None:
    deadline = time.monotonic() + 10
    while (left := phone.control("status")["processes"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        evidence.problems.append(f"processes {left} were left on the phone")


def _read_back(path: Path, judge: Judge, evidence: Evidence) -> None:
    """The sealed session must hold exactly what was heard, with every outage inside a marked gap."""
    session, problems = open_session(path), evidence.problems
    samples = [event for event in session.events if isinstance(event, ev.Heat)]
    heat = [sample.t for sample in samples]
    gaps = [(e.t - e.seconds, e.t) for e in session.events if isinstance(e, ev.Gap) and e.what == "heat"]
    evidence.gaps, evidence.gap_s = len(gaps), sum(end - start for start, end in gaps)
    evidence.verdicts = sum(isinstance(e, ev.VerdictReached) and not e.provisional for e in session.events)
    evidence.journal_bytes = (path / JOURNAL).stat().st_size
    if not session.record.sealed or session.journal_note:
        problems.append(f"the session is not sealed and whole ({session.journal_note})")
    if len(heat) != evidence.samples:
        problems.append(f"{evidence.samples} samples were heard, {len(heat)} are in the journal")
    taken = [sample.device_uptime_s or 0.0 for sample in samples]
    if any(later <= earlier for earlier, later in itertools.pairwise(taken)):
        problems.append("the journal tells a sample twice or out of order")
    for out, back in judge.outages:
        if not any(start - IN_FLIGHT_S <= out and back <= end for start, end in gaps):
            problems.append(f"the cable was out from {out:.2f} to {back:.2f} s, and no gap says so")
    for earlier, later in itertools.pairwise(heat):
        if not any(start < later and earlier < end + 0.5 for start, end in gaps):
            evidence.longest_hole_s = max(evidence.longest_hole_s, later - earlier)
    if evidence.longest_hole_s > SILENCE_S:
        problems.append(f"{evidence.longest_hole_s:.1f} s without a sample are not marked as a gap")


def main() -> int:
    """Parse, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of the phone's time")
    parser.add_argument("--speed", type=float, default=6.0, help="how much faster the phone's heat moves")
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", default="normal")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mtplab-soak-") as folder:
        os.environ.setdefault("MTPLAB_SESSIONS", f"{folder}/sessions")
        os.environ["MTPLAB_RUNTIME"] = folder
        options = RunOptions(to_stage="bench", bench_rounds=1)  # short enough to end well now and then
        evidence = soak(given.minutes * 60 / given.speed, given.speed, options, given.hz, given.seed, given.scenario)
    for line in evidence.lines():
        print(line)
    print(f"SIMULATED: a stand-in, no phone. {'It does not hold.' if evidence.problems else 'Everything holds.'}")
    return 4 if evidence.problems else 0


if __name__ == "__main__":
    sys.exit(main())
