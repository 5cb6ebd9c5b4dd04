"""Preconditions of a phone that an engine holds: judged by what it recorded, so that nothing is disturbed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mtplab.device import lock, readiness_facts
from mtplab.device.errors import DeviceError
from mtplab.device.readiness import Item
from mtplab.device.readiness_facts import Seen, Warmth
from mtplab.session import archive, paths
from mtplab.session import events as ev
from mtplab.session.journal import JournalReader, SessionError
from mtplab.session.state import LabState

# A journal may hold a million events: the phone is described at its beginning, how it is now stands at its end.
_HEAD_BYTES, _TAIL_BYTES = 1 << 18, 1 << 19
_FRESH_S = 15.0


def others(chosen: lock.Holder | None) -> Iterator[Item]:
    """The engines that hold other phones than the chosen one; also those that no adb server lists."""
    try:
        holders = lock.all_holders()
    except DeviceError as problem:
        yield Item("device.engines", "device", "unknown", str(problem), "Set MTPLAB_RUNTIME to a folder of yours.")
        return
    rest = [holder for holder in holders if holder != chosen]
    for number, holder in enumerate(rest, 1):
        cause = f"{_what(holder)} is held by process {holder.pid} for session {holder.session}"
        identifier = "device.engine" if len(rest) == 1 else f"device.engine.{number}"
        yield Item(identifier, "device", "pass", cause, f"mtplab lab --attach {holder.session}")


def _what(holder: lock.Holder) -> str:
    try:
        identity = _recorded(holder).identity
    except SessionError:
        return "a phone"
    scenario = f", scenario {identity.scenario}" if identity.scenario else ""
    name = identity.device_model or "a phone"
    return f"the stand-in {name} (SIMULATED{scenario})" if identity.simulated else name


def standin_session() -> str | None:
    """The session of the engine that holds this user's stand-in, None where it is free."""
    owner = lock.holder(lock.standin_key(paths.cache_dir() / "standin"))
    return owner.session if owner is not None else None


def taken(holder: lock.Holder) -> Item:
    """That somebody else holds the phone."""
    cause = f"process {holder.pid} holds it (session {holder.session})"
    cure = f"mtplab lab --attach {holder.session}  (to watch it), or end that process"
    return Item("device.free", "device", "fail", cause, cure)


def of_session(session: str, *, own: bool) -> Iterator[Item]:
    """The phone of the engine that records `session`."""
    holder = next((h for h in lock.all_holders() if h.session == session), None)
    if holder is None:
        cause = f"the engine of session {session} holds no phone any more"
        yield Item("device.attached", "device", "fail", cause, "Start an engine: mtplab lab")
        return
    yield from judged(holder, attached=True)
    if own:
        yield Item("device.free", "device", "pass", "held by this lab's own engine")
    else:
        yield taken(holder)


def judged(holder: lock.Holder, *, attached: bool = False) -> Iterator[Item]:
    """What the holder's journal says of the phone; with `attached` also whether it is there, and how."""
    try:
        state = _recorded(holder)
    except SessionError as problem:
        yield Item("device.recorded", "device", "unknown", str(problem), "Look again when that engine has ended.")
        return
    cause = f"what follows was recorded by session {holder.session}; the phone itself was not asked"
    yield Item("device.recorded", "device", "pass", cause)
    if attached:
        yield _attached(holder, state)
    heat, now = state.heat, time.monotonic()
    warmth = Warmth(None, None, f"session {holder.session} recorded no temperature lately")
    if heat is not None and now - heat.t < _FRESH_S:
        warmth = Warmth(heat.skin_c, heat.status)
    yield from readiness_facts.judged(Seen(state.facts, warmth))


def _attached(holder: lock.Holder, state: LabState) -> Item:
    heat = state.heat
    cure = "Plug the cable in again; the engine reconnects by itself."
    if state.link == "lost":
        cause = f"the cable is out, says session {holder.session}: {state.link_reason or 'no reason was recorded'}"
        return Item("device.attached", "device", "fail", cause, cure)
    if heat is None or time.monotonic() - heat.t > _FRESH_S:
        cause = f"session {holder.session} has recorded no temperature lately"
        return Item("device.attached", "device", "unknown", cause, cure)
    cause = f"{state.identity.device_model or 'the phone'} answers the engine of session {holder.session}"
    return Item("device.attached", "device", "pass", cause)


def _recorded(holder: lock.Holder) -> LabState:
    """The state of a session that is being recorded, from the two ends of its journal."""
    name = Path(holder.session).name
    journal = paths.sessions_dir() / name / archive.JOURNAL
    state = LabState()
    for event in _ends(journal):
        state.apply(event)
    return state


def _ends(journal: Path) -> Iterator[ev.Event]:
    reader = JournalReader(journal)
    try:
        yield from reader.poll(_HEAD_BYTES)
        yield from reader.poll_tail(_TAIL_BYTES)
    finally:
        reader.close()
