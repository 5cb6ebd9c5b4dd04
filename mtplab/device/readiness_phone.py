"""Preconditions of the phone: attached, allowed, by cable, free; what it is and holds stands in `readiness_facts`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from mtplab.device import choice, lock, prepare, readiness_facts, readiness_held
from mtplab.device.adb import AdbServer
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.facts import Fact, read_facts
from mtplab.device.link import DeviceEntry, Link, list_devices, probed
from mtplab.device.readiness import Item, Options
from mtplab.device.readiness_facts import Seen, Warmth
from mtplab.device.thermal import ThermalService, parse_thermalservice

T = TypeVar("T")
# Facts take well under a second; a phone that needs this long is not fit to measure on.
ANSWER_S = 8.0


def phone(link: Link | None, options: Options, server: AdbServer | None) -> Iterator[Item]:
    """Everything about the phone; without a usable one only the reason why not."""
    if options.session is not None:
        yield from readiness_held.of_session(options.session, own=options.own)
        return
    try:
        chosen = link.server if link else server or AdbServer.users().ensure()
        # Not asked anything yet: one of them may be measuring.
        entries = list_devices(chosen, probe=False)
    except DeviceError as problem:
        yield Item("device.attached", "device", "unknown", f"cannot be seen: {problem}", "adb start-server")
        yield from readiness_held.others(None)
        return
    remembered = None
    try:
        remembered = None if link else choice.remembered()
    except DeviceError as problem:
        yield Item("device.remembered", "device", "unknown", str(problem), "mtplab devices --forget")
    entry, item = choose(entries, link.serial if link else choice.serial_of(options.serial), remembered)
    yield item
    if entry is None or not entry.usable:
        yield from readiness_held.others(None)
        return
    yield readiness_facts.cable(entry.wireless, entry.connection, entry.serial)
    yield from _whoever_holds(entry, link or Link(chosen, entry.serial))


def _whoever_holds(entry: DeviceEntry, target: Link) -> Iterator[Item]:
    # A wireless phone is locked by its own serial, which only it can tell: one short question.
    named = probed(target.server, entry) if entry.wireless else entry
    owner = lock.holder(named.phone)
    yield from readiness_held.others(owner)
    if owner is not None:
        yield readiness_held.taken(owner)
        yield from readiness_held.judged(owner)
        return
    yield Item("device.free", "device", "pass", "no other lab holds it")
    yield _left_behind(named.phone)
    yield from _asked(target)


def _left_behind(serial: str) -> Item:
    """Settings that a measurement borrowed of this phone and could not put back."""
    try:
        note = prepare.note_of(lock.serial_hash(serial))
    except DeviceError as problem:
        return Item("device.settings", "device", "unknown", str(problem))
    if note is None:
        return Item("device.settings", "device", "pass", "nothing of an earlier measurement is to be put back")
    names = ", ".join(change.name for change in note.changes)
    cause = f"session {note.about} was cut off and left {names} as it had set them"
    return Item("device.settings", "device", "fail", cause, "mtplab restore  (the next run does it by itself, too)")


def choose(
    entries: list[DeviceEntry], serial: str | None, remembered: str | None = None
) -> tuple[DeviceEntry | None, Item]:
    """The phone that is meant, and what is to be said about that."""
    chosen = choice.choose(entries, serial, remembered)
    if chosen.entry is None or not chosen.usable:
        return chosen.entry, Item("device.attached", "device", "fail", chosen.cause, chosen.cure)
    cause = f"{chosen.entry.serial} is attached and allows this computer"
    if chosen.how == "remembered":
        cause += " (of several it is the remembered one)"
    return chosen.entry, Item("device.attached", "device", "pass", cause)


def _asked(target: Link) -> Iterator[Item]:
    """Ask the phone itself."""
    try:
        facts, heat = _in_time(lambda: _read(target), target.serial)
    except DeviceError as problem:
        yield Item("device.answers", "device", "fail", str(problem), "Replug the cable, then look again.")
        return
    yield from readiness_facts.judged(Seen(facts, Warmth(heat.skin_c, heat.status, heat.reason)))


def _read(target: Link) -> tuple[dict[str, Fact], ThermalService]:
    facts = {fact.name: fact for fact in read_facts(target)}
    return facts, parse_thermalservice(target.run(["dumpsys", "thermalservice"], timeout_s=ANSWER_S).stdout)


def _in_time(ask: Callable[[], T], serial: str) -> T:
    """What a phone answers, unless that takes longer than anybody waits for a doctor; then DeviceGone."""
    found: list[T] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            found.append(ask())
        except Exception as problem:  # noqa: BLE001 - handed to the caller, below
            problems.append(problem)

    # A thread that the phone keeps hanging ends by the time limits of its own requests.
    thread = threading.Thread(target=work, name="doctor asks", daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    if problems:
        raise problems[0]
    if not found:
        raise DeviceGone(f"{serial} is attached but did not answer within {ANSWER_S:g} s: it hangs, or is very busy.")
    return found[0]
