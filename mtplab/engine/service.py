"""The engine: opens a phone, keeps its session, runs pipelines on command, and ends tidily."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mtplab.engine.care import PhoneCare
from mtplab.engine.client import Hello
from mtplab.engine.control import CommandServer, socket_path
from mtplab.engine.core import Recorder
from mtplab.engine.errors import EngineError
from mtplab.engine.heatwatch import HeatWatch
from mtplab.engine.host import HostSampler
from mtplab.engine.measuring import MeasurePlan
from mtplab.engine.options import EngineOptions, RunOptions
from mtplab.engine.phone import Phone, fact_events, open_phone
from mtplab.engine.runner import PipelineRun
from mtplab.session import archive, paths
from mtplab.session.atomic import write_atomic
from mtplab.session.events import DeviceSeen, Event, LinkChanged, Marker
from mtplab.session.journal import SessionError
from mtplab.session.record import SessionRecord, record_of, write_record

# With no run going on and no viewer asking for this long, an engine gives the phone back.
IDLE_END_S = 60.0


class Engine:
    """One phone, one session. Use as a context manager: leaving it seals the session and frees the phone."""

    def __init__(self, options: EngineOptions, listen: Callable[[Event], None] | None = None) -> None:
        self.options = options
        self.stopping = threading.Event()
        self._listen = listen
        self._stack = contextlib.ExitStack()
        self._run: PipelineRun | None = None
        self._run_lock = threading.Lock()
        self._ran = False
        self._marked = False
        self._asked_at = time.monotonic()
        self.record: SessionRecord | None = None
        self.dropped = False

    # -- life ---------------------------------------------------------------
    def __enter__(self) -> Engine:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        # The session's folder is named after the phone, so the phone is opened first.
        self.phone: Phone = open_phone(self.options, self._stack)
        device = self.phone.identity.device_model or "unknown-device"
        purpose = self.options.purpose or ("standin" if self.phone.simulated else "bench")
        try:
            self.recorder = Recorder(device, purpose, on_failure=self._journal_failed)
        except (OSError, SessionError) as error:
            raise EngineError(str(error), 4) from error
        self.phone.lock.name_session(self.recorder.path.name)
        self._stack.callback(self._seal)
        if self._listen:
            self.recorder.listeners.append(self._listen)
        now = time.monotonic()
        self.recorder.post(LinkChanged(t=now, state="connected"))
        self.recorder.post(
            DeviceSeen(t=now, identity=self.phone.identity, facts=fact_events(self.phone.facts, self.phone.thermal))
        )
        self.care = PhoneCare(
            self.phone.link, self.phone.lock.phone_hash, self.recorder.path.name, self.recorder.post,
            simulated=self.phone.facts.get("simulated") is True, entry=self.phone.entry, how=self.phone.how,
        )  # fmt: skip
        self._stack.callback(self.care.close)
        self.care.open()
        self.recorder.listeners.append(self.care.take)
        self.heat = HeatWatch(self.phone.link, self.options.sample_hz, self.recorder.post).start()
        self._stack.callback(self.heat.close)
        host = HostSampler(self.recorder.post)
        self._stack.callback(host.close)
        self._announce()

    def _announce(self) -> None:
        server = CommandServer(self.recorder.path, self.handle)
        self._stack.callback(server.close)
        note = socket_path(self.recorder.path).with_suffix(".json")
        hello = Hello(session=str(self.recorder.path), pid=os.getpid())
        write_atomic(note, msgspec.json.encode(hello), mode=0o600)
        self._stack.callback(lambda: note.unlink(missing_ok=True))

    def __exit__(self, *error: object) -> None:
        self.cancel()
        self._join_run(10.0)
        self._stack.close()

    def _seal(self) -> None:
        self.recorder.post(LinkChanged(t=time.monotonic(), state="closed", reason="the session ended"))
        self.record = self.recorder.seal()
        if not (self._ran or self._marked or self.options.keep):
            # Nothing but watching happened: there is nothing to keep.
            shutil.rmtree(self.recorder.path)
            self.dropped = True

    def _journal_failed(self, sentence: str) -> None:
        sys.stderr.write(f"mtplab: {sentence}\n")
        self.cancel()
        self.stopping.set()

    # -- runs ---------------------------------------------------------------
    def start_run(
        self, options: RunOptions, measure: MeasurePlan | None = None, *, from_command_line: bool = False
    ) -> PipelineRun:
        """Begin a pipeline run, measuring what `measure` says where it is given.

        EngineError where one goes on or the options make no sense.
        """
        with self._run_lock:
            if self._run is not None and self._run.running:
                raise EngineError("A run goes on already: cancel it first, or wait for its end.", 1)
            run = PipelineRun(
                options, self.phone, self.recorder, self.care, measure, from_command_line=from_command_line
            )
            self._ran = True
            self._run = run
        run.start(self._snapshot)
        return run

    def cancel(self) -> bool:
        """Cancel the run that goes on; False where there is none."""
        with self._run_lock:
            run = self._run
        if run is None or not run.running:
            return False
        run.cancel()
        return True

    def _join_run(self, timeout_s: float) -> None:
        if self._run is not None:
            self._run.join(timeout_s)

    def _snapshot(self) -> None:
        """Write session.json after a run, so that it can be opened while the engine lingers."""
        self.recorder.settle()
        with self.recorder.lock:
            record = record_of(self.recorder.state, self.recorder.header, events_sha256=None, sealed=False)
        try:
            write_record(self.recorder.path / archive.RECORD, record)
        except OSError as error:
            self.recorder.say(f"session.json could not be written yet ({error.strerror}).", "warning")

    # -- commands -----------------------------------------------------------
    def handle(self, command: dict[str, Any]) -> dict[str, Any]:
        """Answer one command of a viewer."""
        self._asked_at = time.monotonic()
        known: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "status": lambda _: {"running": self._run is not None and self._run.running},
            "run": self._command_run,
            "cancel": lambda _: {"cancelled": self.cancel()},
            "mark": self._command_mark,
            "keep": self._command_keep,
            "stop": self._command_stop,
        }
        name = command.get("cmd")
        if not isinstance(name, str) or name not in known:
            return {"ok": False, "error": f"The engine knows no command {str(name)[:40]!r}: {', '.join(known)}."}
        try:
            return {"ok": True, "error": None, **known[name](command)}
        except (EngineError, msgspec.ValidationError) as error:
            return {"ok": False, "error": str(error)}

    def _command_run(self, command: dict[str, Any]) -> dict[str, Any]:
        options = msgspec.convert(command.get("options") or {}, RunOptions)
        return {"run": self.start_run(options).run_id}

    def _command_mark(self, command: dict[str, Any]) -> dict[str, Any]:
        from mtplab.session.text import clean_text

        label = clean_text(str(command.get("label") or "mark"), 200)
        self._marked = True
        self.recorder.post(Marker(t=time.monotonic(), label=label, kind="user"))
        return {}

    def _command_keep(self, _: dict[str, Any]) -> dict[str, Any]:
        self._marked = True
        return {}

    def _command_stop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.cancel()
        self.stopping.set()
        return {"session": str(self.recorder.path)}

    def serve(self) -> None:
        """Answer viewers until told to stop, or until nothing runs and nobody has asked for IDLE_END_S."""
        while not self.stopping.wait(0.2):
            busy = self._run is not None and self._run.running
            if busy:
                self._asked_at = max(self._asked_at, time.monotonic() - IDLE_END_S / 2)
            elif time.monotonic() - self._asked_at > IDLE_END_S:
                return


def serve_detached(options: EngineOptions) -> int:
    """An engine for viewers: one line on stdout (Hello), then silence until the end."""
    paths.sessions_dir().mkdir(parents=True, exist_ok=True)
    engine = Engine(options)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: engine.stopping.set())
    try:
        with engine:
            _say(Hello(session=str(engine.recorder.path), pid=os.getpid()))
            _detach_output(engine.recorder.path)
            if options.run is not None:
                engine.start_run(options.run)
            engine.serve()
    except EngineError as error:
        _say(Hello(error=str(error), exit_code=error.exit_code))
        return error.exit_code
    return 0


def _say(hello: Hello) -> None:
    with contextlib.suppress(BrokenPipeError):  # a viewer that died while we started is attached to later
        sys.stdout.write(msgspec.json.encode(hello).decode() + "\n")
        sys.stdout.flush()


def _detach_output(session: Path) -> None:
    """Let stdout and stderr go to the session's own log: the viewer that started us may end before us."""
    log = os.open(session / "logs" / "engine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
