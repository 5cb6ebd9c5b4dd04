"""The fault matrix: a scenario of the stand-in against every operation of an engine, read off the session it kept.

    python tests/engine/fault_matrix.py SCENARIO…

prints one JSON line a scenario: its rows, and what was left running. MTPLAB_SESSIONS, MTPLAB_CACHE and MTPLAB_RUNTIME
must name places of this process's own; processes are known by them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import msgspec
import psutil

from mtplab.device.adb import PrivateServer
from mtplab.device.link import disconnect, list_devices
from mtplab.device.standin_host import StandinProcess
from mtplab.engine.errors import EngineError
from mtplab.engine.options import EngineOptions, RunOptions
from mtplab.engine.service import Engine
from mtplab.session import events as ev
from mtplab.session.archive import open_session
from mtplab.standin.settings import read_toml

EXPECTATIONS = Path(__file__).with_suffix(".toml")
OPERATIONS = ("facts", "sample", "push", "bench", "cancel")
SAMPLES = 5
PUSHED_BYTES = 4_000_000  # more than a flaky cable carries at once


def until(happened: Callable[[], bool], complaint: Callable[[], str], patience_s: float = 60.0) -> None:
    """Return when it has happened; AssertionError with the complaint when it does not."""
    deadline = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.05)


@dataclass
class Row:
    """What one operation came to; `exit_code` is None where the run went on after it."""

    operation: str
    outcome: str
    sentence: str = ""
    exit_code: int | None = None
    kept: list[str] = field(default_factory=list)


MARK = "MTPLAB_STANDIN_ID"  # in the environment of everything that runs on the stand-in


class _Seen:
    """Counts what the engine records while it goes on."""

    def __init__(self) -> None:
        self.samples = self.lines = 0

    def __call__(self, event: ev.Event) -> None:
        self.samples += isinstance(event, ev.Heat)
        self.lines += isinstance(event, ev.LogLine)


class Play:
    """One scenario on one stand-in: `rows` is what it came to."""

    def __init__(self, scenario: str, server: PrivateServer) -> None:
        self.scenario, self._server = scenario, server
        self.rows: list[Row] = []
        self._marks: set[str] = set()

    def run(self) -> None:
        """Serve the scenario, do everything, and end it."""
        key = ["--allow-key", str(self._server.public_key_path)]
        with StandinProcess(self.scenario, server=self._server, allow=False, options=key) as phone:
            until(lambda: self._settled(phone), lambda: f"{self.scenario} does not come up")
            try:
                self._all(phone)
            finally:
                for serial in phone.serials:
                    disconnect(self._server, serial)

    def _settled(self, phone: StandinProcess) -> bool:
        states = {entry.serial: entry.state for entry in list_devices(self._server, probe=False)}
        return all(states.get(serial) in ("device", "unauthorized") for serial in phone.serials)

    def _all(self, phone: StandinProcess) -> None:
        seen = _Seen()
        with contextlib.ExitStack() as stack:
            engine, refused = self._open(stack, phone, seen)
            if refused is not None:
                row = Row("facts", "refused", str(refused), refused.exit_code)
                self.rows.append(row)
                if engine is None:
                    self.rows += [Row(name, row.outcome, row.sentence, row.exit_code) for name in OPERATIONS[1:]]
                    return
            assert engine is not None
            until(lambda: seen.samples >= SAMPLES, lambda: f"{self.scenario}: no samples")
            self._only_the_sampler(phone, "sampling")
            engine.start_run(_options(self.scenario, runs=50)).join(90)
            self._only_the_sampler(phone, "a run")
            self._cancelled_run(engine, seen)
            self._only_the_sampler(phone, "a cancelled run")
        until(lambda: not self._on(phone), lambda: f"{_told(self._on(phone))} outlive the engine on the phone")
        self._read(engine.recorder.path, with_facts=refused is None)

    @staticmethod
    def _open(
        stack: contextlib.ExitStack, phone: StandinProcess, seen: _Seen
    ) -> tuple[Engine | None, EngineError | None]:
        """The engine of the only phone or, where that is refused, of the first one; and the refusal."""
        refused: EngineError | None = None
        for serial in (None, phone.serial):
            try:
                options = EngineOptions(serial=serial, sample_hz=10, keep=True)
                return stack.enter_context(Engine(options, listen=seen)), refused
            except EngineError as error:
                refused = refused or error
        return None, refused

    def _cancelled_run(self, engine: Engine, seen: _Seen) -> None:
        """A run that is cancelled when its first log line comes (or that ends before)."""
        before = seen.lines
        run = engine.start_run(_options(self.scenario, runs=100_000))
        until(lambda: seen.lines > before or not run.running, lambda: f"{self.scenario}: the second run says nothing")
        engine.cancel()
        run.join(30)

    def _only_the_sampler(self, phone: StandinProcess, after: str) -> None:
        """The sampler's loop and, now and then, one dumpsys may run; anything more was left by the operation."""
        until(lambda: len(self._on(phone)) <= 1, lambda: f"{_told(self._on(phone))} still run after {after}")

    def _on(self, phone: StandinProcess) -> set[int]:
        """What runs on the phone: what it knows of, and what slipped away from there but carries its mark."""
        prefixes = [""] if len(phone.serials) == 1 else [f"{n + 1} " for n in range(len(phone.serials))]
        known = {pid for prefix in prefixes for pid in phone.control(f"{prefix}status")["processes"]}
        self._marks |= {mark for pid in known if (mark := _environment(pid).get(MARK))}
        return known | {pid for pid in psutil.pids() if _environment(pid).get(MARK) in self._marks}

    def left(self, ours: set[int]) -> list[str]:
        """Command lines of what runs on the host though the scenario has ended; `ours` are the pids that may."""
        deadline = time.monotonic() + 10
        while (found := self._strays(ours)) and time.monotonic() < deadline:
            time.sleep(0.1)  # the last ones may be about to end
        return found

    def _strays(self, ours: set[int]) -> list[str]:
        found = []
        for process in psutil.process_iter():
            own = _environment(process.pid)
            here = own.get("MTPLAB_RUNTIME") == os.environ["MTPLAB_RUNTIME"] or own.get(MARK) in self._marks
            if here and process.pid not in ours:
                with contextlib.suppress(psutil.Error):
                    found.append(" ".join(process.cmdline()) or process.name())
        return found

    # -- the rows, from what was kept ------------------------------------------------------------------------------
    def _read(self, path: Path, with_facts: bool) -> None:
        session = open_session(path)
        events = session.events
        if with_facts:
            self.rows.append(self._facts(session.record.facts))
        self.rows.append(self._sample(events))
        starts = [i for i, event in enumerate(events) if isinstance(event, ev.RunStarted)]
        first, second = events[starts[0] : starts[1]], events[starts[1] :]
        self.rows += [self._push(first), self._bench(first, path), self._cancel(second)]

    def _facts(self, facts: dict[str, ev.Fact]) -> Row:
        unknown = {name: fact.reason or "no reason" for name, fact in facts.items() if fact.value is None}
        aicore = facts["aicore_version"].value
        outcome = f"read; AICore {'absent' if aicore == 'absent' else 'known' if aicore else 'unknown'}"
        sentence = f"{len(facts)} facts; unknown: " + (", ".join(f"{k} ({v})" for k, v in unknown.items()) or "none")
        return Row("facts", outcome, sentence, None, ["identity", "facts"])

    def _sample(self, events: list[ev.Event]) -> Row:
        heat = [event for event in events if isinstance(event, ev.Heat)]
        gaps = [event for event in events if isinstance(event, ev.Gap) and event.what == "heat"]
        zones = any(value is not None for sample in heat for value in sample.zones.values())
        skin = any(sample.skin_c is not None for sample in heat)
        throttled = [event.evidence for event in events if isinstance(event, ev.Throttled) and event.began]
        outcome = f"zones {'known' if zones else 'unknown'} · skin {'known' if skin else 'unknown'}"
        outcome += " · throttled" if throttled else ""
        silent = next((sample.silent for sample in heat if sample.silent), {})
        reasons = [f"{len(silent)} zones silent ({', '.join(sorted(set(silent.values())))})"] if silent else []
        sources = sorted({sample.skin_source for sample in heat if sample.skin_source})
        skins = [f"skin by {' and '.join(sources)}"] if sources else []
        sentence = "; ".join([*skins, *reasons, *throttled[:1], *(gap.reason for gap in gaps[:1])])
        return Row("sample", outcome, sentence, None, ["heat", *(["gap"] if gaps else [])])

    def _push(self, events: list[ev.Event]) -> Row:
        stage = _last_stage(events, "push")
        report = [e for e in events if isinstance(e, ev.StageReport) and e.name == "push"]
        sentence = stage.reason or (report[0].summary if report else "")
        kept = ["hashes"] if report else ["reason"]
        return Row("push", stage.status, sentence, _code(events) if stage.status == "failed" else None, kept)

    def _bench(self, events: list[ev.Event], path: Path) -> Row:
        stage = _last_stage(events, "bench")
        verdicts = [e for e in events if isinstance(e, ev.VerdictReached) and not e.provisional]
        words = {v.requested: sorted({w.verdict for w in verdicts if w.requested == v.requested}) for v in verdicts}
        outcome = " · ".join(f"{asked} {' and '.join(found)}" for asked, found in words.items()) or stage.status
        said = [text for v in verdicts if v.requested != "cpu" for text in (v.reason, *v.findings) if text]
        kept = [word for word, there in (
            ("verdicts", verdicts),
            ("evidence", any(v.evidence for v in verdicts)),
            ("raw logs", list(path.glob("logs/*/bench-*.txt"))),
        ) if there]  # fmt: skip
        sentence = stage.reason or "; ".join(dict.fromkeys(said))  # without repeats
        return Row("bench", outcome, sentence, _code(events), kept or ["reason"])

    def _cancel(self, events: list[ev.Event]) -> Row:
        ended = next(event for event in events if isinstance(event, ev.RunEnded))
        lines = any(isinstance(event, ev.LogLine) for event in events)
        kept = ["outcome", *(["log lines"] if lines else [])]
        return Row("cancel", ended.outcome, ended.reason or "", ended.exit_code, kept)


def _options(scenario: str, runs: int) -> RunOptions:
    """One round of the bench; what it must be asked so that a scenario shows stands with the expectations."""
    asked = read_toml(EXPECTATIONS).get(scenario, {}).get("run", {})
    wanted = {"to_stage": "bench", "bench_runs": runs, "warmup_runs": 10, "bench_rounds": 1, **asked}
    return msgspec.convert(wanted, RunOptions)


def _last_stage(events: list[ev.Event], name: str) -> ev.StageChanged:
    return [event for event in events if isinstance(event, ev.StageChanged) and event.name == name][-1]


def _code(events: list[ev.Event]) -> int:
    return next(event.exit_code for event in events if isinstance(event, ev.RunEnded))


def _told(pids: set[int]) -> list[str]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(psutil.Process(pid).cmdline())[:80])
    return found


def _environment(pid: int) -> dict[str, str]:
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return {}


def main(scenarios: list[str]) -> None:
    """Play the scenarios one after the other over one private adb server."""
    from prepared import PreparedHost
    from tiny_graph import tflite

    import mtplab.engine.runner

    cache = Path(os.environ["MTPLAB_CACHE"])
    with tempfile.TemporaryDirectory() as scratch, PrivateServer() as server:
        mtplab.engine.runner.run_host_stage = PreparedHost(cache, Path(scratch), tflite, PUSHED_BYTES)  # type: ignore
        os.environ["ANDROID_ADB_SERVER_PORT"] = str(server.port)
        me = psutil.Process()
        ours = {me.pid, *(child.pid for child in me.children(recursive=True))}
        for scenario in scenarios:
            play, problem = Play(scenario, server), None
            try:
                play.run()
            except Exception as error:  # noqa: BLE001 - told in the row's place; the other scenarios go on
                problem = f"{type(error).__name__}: {error}"
            rows = [asdict(row) for row in play.rows]
            print(json.dumps({"scenario": scenario, "rows": rows, "problem": problem, "left": play.left(ours)}))
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
