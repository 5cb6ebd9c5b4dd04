"""The replay clock: any place in a session's events, at any speed, in both directions."""

from __future__ import annotations

import copy
from bisect import bisect_right

from mtplab.session.events import (
    Event,
    LinkChanged,
    Marker,
    RoundMeasured,
    StageChanged,
    Throttled,
    VerdictReached,
)
from mtplab.session.state import LabState

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
SNAPSHOT_EVERY = 2000


class Replay:
    """Plays the events of a session into a LabState; `state` always is the state at `position_s`.

    `position_s` is seconds since the session began, between 0 and `duration_s`.
    """

    def __init__(self, events: list[Event], t0: float | None = None) -> None:
        self.events = events
        self.t0 = t0 if t0 is not None else (events[0].t if events else 0.0)
        self._times = [e.t - self.t0 for e in events]
        self.duration_s = max(0.0, self._times[-1]) if events else 0.0
        self.position_s = 0.0
        self.playing = False
        self.speed = 1.0
        self.index = 0
        self.state = LabState()
        self._snapshots: dict[int, LabState] = {}
        self._go_to_index(self._index_at(0.0))

    # -- the clock ----------------------------------------------------------
    def toggle(self) -> None:
        """Pause, or play on; at the end play starts again from the beginning."""
        if not self.playing and self.position_s >= self.duration_s:
            self.seek(0.0)
        self.playing = not self.playing

    def faster(self, steps: int = 1) -> None:
        """Change the speed by `steps` places along SPEEDS."""
        place = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[min(max(place, 0), len(SPEEDS) - 1)]

    def advance(self, wall_s: float) -> bool:
        """Let `wall_s` seconds of wall time pass; True where the state changed."""
        if not self.playing:
            return False
        before = self.index
        self.seek(self.position_s + wall_s * self.speed)
        if self.position_s >= self.duration_s:
            self.playing = False
        return self.index != before

    def seek(self, position_s: float) -> None:
        """Go to a time, forwards or backwards."""
        self.position_s = min(max(position_s, 0.0), self.duration_s)
        self._go_to_index(self._index_at(self.position_s))

    def step(self, count: int = 1) -> None:
        """Go `count` events forwards (or backwards when negative) and pause."""
        self.playing = False
        index = min(max(self.index + count, 0), len(self.events))
        self._go_to_index(index)
        self.position_s = min(max(self._times[index - 1], 0.0), self.duration_s) if index else 0.0

    def seek_marker(self, direction: int) -> Event | None:
        """Go to the next (1) or previous (-1) event worth stopping at; None where there is none."""
        marks = self.markers()
        ahead = [m for m in marks if m.t - self.t0 > self.position_s + 1e-6]
        behind = [m for m in marks if m.t - self.t0 < self.position_s - 1e-6]
        target = (ahead[0] if ahead else None) if direction > 0 else (behind[-1] if behind else None)
        if target is not None:
            self.seek(target.t - self.t0)
        return target

    def markers(self) -> list[Event]:
        """Events worth stopping at: markers, throttling, verdicts, lost cables, stages that began, rounds."""
        return [e for e in self.events if _worth_stopping(e)]

    # -- places -------------------------------------------------------------
    def _index_at(self, position_s: float) -> int:
        return bisect_right(self._times, position_s)

    def _go_to_index(self, index: int) -> None:
        if index < self.index:
            base = max((i for i in self._snapshots if i <= index), default=0)
            self.state = copy.deepcopy(self._snapshots[base]) if base else LabState()
            self.index = base
        while self.index < index:
            self.state.apply(self.events[self.index])
            self.index += 1
            if self.index % SNAPSHOT_EVERY == 0 and self.index not in self._snapshots:
                self._snapshots[self.index] = copy.deepcopy(self.state)


def _worth_stopping(event: Event) -> bool:
    if isinstance(event, (Marker, Throttled, RoundMeasured)):
        return True
    if isinstance(event, VerdictReached):
        return not event.provisional
    if isinstance(event, LinkChanged):
        return event.state in ("lost", "returned")
    return isinstance(event, StageChanged) and event.status in ("running", "failed")
