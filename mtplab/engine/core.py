"""The engine's heart: one queue of events, one journal, one state, one clock tick."""

from __future__ import annotations

import importlib.metadata
import queue
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mtplab import __version__
from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.events import Event, Header
from mtplab.session.journal import JournalWriter, SessionError
from mtplab.session.record import SessionRecord
from mtplab.session.state import LabState

TICK_S = 0.1


def versions() -> dict[str, str]:
    """Versions that stand in every session's header; read from package metadata, nothing is imported."""
    found = {"mtplab": __version__}
    for name in ("ai-edge-litert", "litert-torch", "ai-edge-quantizer", "torch", "adbutils", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Recorder:
    """Takes events from any thread and writes them, in order of arrival, from one thread of its own.

    `state` is reduced from exactly what was written; read it under `lock`. After a failed write (a full disk) the
    recorder stops, keeps what is written and calls `on_failure` once.
    """

    def __init__(self, device: str, purpose: str, on_failure: Callable[[str], None] | None = None) -> None:
        self.path, self.header = archive.new_session(device, purpose, versions())
        try:
            self.journal = JournalWriter(self.path / archive.JOURNAL, self.header)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)  # an empty session could never be opened
            raise SessionError(
                f"The journal in {self.path.parent} cannot be begun ({error.strerror}); make room, "
                "or set MTPLAB_SESSIONS to another folder."
            ) from None
        self.state = LabState()
        self.lock = threading.Lock()
        self.listeners: list[Callable[[Event], None]] = []
        self.failure: str | None = None
        self._on_failure = on_failure
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="recorder", daemon=True)
        self._thread.start()

    def post(self, event: Event) -> None:
        """Hand an event over; never blocks."""
        self._queue.put(event)

    def say(self, text: str, level: ev.Level = "info") -> None:
        """A sentence for the person at the bench."""
        self.post(ev.Message(t=time.monotonic(), text=text, level=level))

    def settle(self, timeout_s: float = 5.0) -> None:
        """Wait until everything posted before this call has been written and applied."""
        done = threading.Event()
        self._queue.put(_Barrier(t=0.0, done=done))
        done.wait(timeout_s)

    def _loop(self) -> None:
        while True:
            try:
                event = self._queue.get(timeout=TICK_S)
            except queue.Empty:
                self._guard(self.journal.tick)
                continue
            if event is None:
                return
            if isinstance(event, _Barrier):
                self._guard(self.journal.tick)
                event.done.set()
                continue
            if self.failure is None:
                self._guard(lambda event=event: self._take(event))  # type: ignore[misc]

    def _take(self, event: Event) -> None:
        self.journal.append(event)
        with self.lock:
            self.state.apply(event)
        for listener in self.listeners:
            listener(event)
        if self._queue.empty() or isinstance(event, ev.VerdictReached | ev.StageChanged | ev.RunEnded):
            self.journal.tick()
        if isinstance(event, ev.StageChanged) and event.status != "running":
            self.journal.sync()

    def _guard(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if self.failure is None:
                self.failure = (
                    f"The journal {self.journal_path} cannot be written ({error.strerror}); "
                    "what was recorded so far is kept. Make room and run again."
                )
                if self._on_failure:
                    self._on_failure(self.failure)

    @property
    def journal_path(self) -> Path:
        """Where the events are."""
        return self.path / archive.JOURNAL

    def seal(self) -> SessionRecord:
        """Stop, write `session.json` and return its content."""
        self._queue.put(None)
        self._thread.join(10.0)
        try:
            sha256 = self.journal.close()
            return archive.seal(self.path, self.state, self.header, sha256)
        except OSError as error:
            raise SessionError(
                f"The session {self.path} could not be sealed ({error.strerror}); "
                "its events are kept and can be recovered."
            ) from None


class _Barrier(Event, frozen=True, kw_only=True, tag="_barrier"):
    """Marks a place in the queue; never written."""

    done: threading.Event


__all__ = ["Header", "Recorder", "versions"]
