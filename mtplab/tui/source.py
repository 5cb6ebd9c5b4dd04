"""Where a bench's events come from: a journal that still grows, or a saved session that is played."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol

from mtplab.session.archive import JOURNAL, OpenSession
from mtplab.session.events import Event, Header, Heat
from mtplab.session.journal import JournalReader
from mtplab.session.replay import Replay
from mtplab.session.state import LabState
from mtplab.tui.unfold import events_of_record

POLL_BUDGET_S = 0.04
CHUNK_BYTES = 1 << 17
SILENT_CHECKS = 3
TRAIL_S = 60.0
TRAIL_SAMPLES = 600


class Engine(Protocol):
    """What the lab needs of an engine's handle (`mtplab.engine.client.EngineHandle`)."""

    @property
    def session_dir(self) -> Path:
        """Folder of the session it records."""

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command, return its reply within a second."""

    def alive(self) -> bool:
        """Whether its process still runs."""


class Source(Protocol):
    """One session as a viewer sees it; `state` always is the reduction of the events polled so far."""

    live: bool

    @property
    def session_dir(self) -> Path:
        """Where the session is kept."""

    @property
    def header(self) -> Header | None:
        """The journal's header, None before it was read."""

    @property
    def state(self) -> LabState:
        """The state as of now, or as of the replay's position."""

    def poll(self) -> list[Event]:
        """Take in what is new."""

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command to the engine behind it, if there is one."""

    def trail(self) -> list[Heat]:
        """The heat samples of the last minute."""

    def close(self) -> None:
        """Let go of files."""


class LiveSource:
    """Follows the journal of a running engine."""

    live = True

    def __init__(self, engine: Engine, *, owned: bool = False) -> None:
        self.engine = engine
        self.owned = owned
        """Whether this lab started the engine, so that closing the lab ends it."""
        self.state = LabState()
        self.ended = False
        self._silent = 0
        self.caught_up = False
        """Whether everything that was there at the beginning has been taken in."""
        self.behind = False
        """Whether the journal holds more than could be taken in so far."""
        self._reader: JournalReader | None = None
        self._trail: deque[Heat] = deque(maxlen=TRAIL_SAMPLES)

    @property
    def session_dir(self) -> Path:
        return self.engine.session_dir

    @property
    def header(self) -> Header | None:
        return self._reader.header if self._reader else None

    def poll(self) -> list[Event]:
        """New events, for at most POLL_BUDGET_S seconds a call: a long journal is caught up with in slices."""
        if self._reader is None:
            path = self.session_dir / JOURNAL
            if not path.is_file():
                return []
            self._reader = JournalReader(path)
        found: list[Event] = []
        until = time.monotonic() + POLL_BUDGET_S
        while True:
            events = self._reader.poll(CHUNK_BYTES)
            for event in events:
                self.state.apply(event)
                if isinstance(event, Heat):
                    self._trail.append(event)
            found += events
            self.behind = bool(events) and time.monotonic() >= until
            if not events or self.behind:
                self.caught_up = self.caught_up or not self.behind
                return found

    def check(self) -> None:
        """Ask whether the engine lives. A busy one may miss a second: only SILENT_CHECKS in a row mean its end."""
        self._silent = 0 if self.engine.alive() else self._silent + 1
        self.ended = self._silent >= SILENT_CHECKS

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        return self.engine.send(command)

    def trail(self) -> list[Heat]:
        newest = self._trail[-1].t if self._trail else 0.0
        return [h for h in self._trail if h.t >= newest - TRAIL_S]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class ReplaySource:
    """Plays a saved session; one of which only `session.json` is left shows how it ended."""

    live = False

    def __init__(self, opened: OpenSession, at_s: float | None = None) -> None:
        self.record = opened.record
        self.path = opened.path
        self.header = opened.header
        self.record_only = not opened.replayable()
        events = events_of_record(opened.record) if self.record_only else opened.events
        self.replay = Replay(events, opened.header.t0 if opened.header else None)
        if at_s is not None:
            self.replay.seek(at_s)
        elif self.record_only:
            self.replay.seek(self.replay.duration_s)
        else:
            self.replay.playing = True
        self._polled_at = time.monotonic()

    @property
    def session_dir(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def state(self) -> LabState:
        return self.replay.state

    def poll(self) -> list[Event]:
        """Let the time since the last call pass; gives the events that it brought."""
        now = time.monotonic()
        passed, self._polled_at = now - self._polled_at, now
        before = self.replay.index
        self.replay.advance(passed)
        return self.replay.events[before : self.replay.index]

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"ok": False, "error": "This is a replay: no engine listens. b goes back to the live bench."}

    def trail(self) -> list[Heat]:
        replay = self.replay
        found: list[Heat] = []
        for event in reversed(replay.events[max(0, replay.index - 20_000) : replay.index]):
            if event.t < replay.t0 + replay.position_s - TRAIL_S or len(found) >= TRAIL_SAMPLES:
                break
            if isinstance(event, Heat):
                found.append(event)
        return found[::-1]

    def close(self) -> None:
        """Nothing is held open."""
