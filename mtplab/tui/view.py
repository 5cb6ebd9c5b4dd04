"""What the panes are given to draw: one session's state and how the lab stands to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mtplab.session.events import Heat
from mtplab.session.replay import Replay
from mtplab.session.state import LabState

Phase = Literal["connecting", "absent", "live", "ended", "replay"]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of the bench. `problem` says why no engine is there, or what the engine refused last."""

    state: LabState
    phase: Phase
    session: str = ""
    place: str = ""
    """Folder of the session, for people; empty where it is gone."""
    t0: float = 0.0
    now: float | None = None
    """Host time of this moment, or of the replay's position; None where only the events' own times are known."""
    trail: Sequence[Heat] = ()
    problem: str | None = None
    paused: bool = False
    behind: bool = False
    record_only: bool = False
    replay: Replay | None = None

    def since(self, t: float) -> float:
        """Seconds from the session's beginning to `t`."""
        return t - self.t0

    def stale(self) -> str | None:
        """Why what is shown of the phone is old; None while it may be current."""
        if self.phase == "ended":
            return "the engine ended"
        return "link lost" if self.state.link == "lost" else None

    def heat_age_s(self) -> float | None:
        """Seconds since the newest heat sample, None without any."""
        heat, now = self.state.heat, self.state.t
        if heat is None or now is None:
            return None
        return max(0.0, max(now, self.now if self.now is not None else now) - heat.t)

    def nothing(self) -> str | None:
        """Why there is nothing to see yet and the key that mends it; None where there is something."""
        if self.phase == "absent":
            keys = "e try the phone again · t stand-in · w which phone · d doctor · s sessions"
            return f"{self.problem or 'No engine runs.'}  Keys: {keys}"
        if self.phase == "connecting":
            return "Starting the engine …"
        if self.phase == "ended" and not self.state.event_count:
            return "The engine ended before it recorded anything.  Keys: e try again · t stand-in"
        return None


def empty_view(phase: Phase, problem: str | None = None) -> View:
    """A bench without a session."""
    return View(state=LabState(), phase=phase, problem=problem)
