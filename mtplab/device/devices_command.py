"""`mtplab devices`: which phones are attached and which one a run would take, once or as they come and go."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

import click

from mtplab.device import choice, lock
from mtplab.device.adb import AdbServer
from mtplab.device.choice import Choice
from mtplab.device.devices import SILENT, DeviceEntry, wireless_warning
from mtplab.device.errors import DeviceError
from mtplab.device.link import list_devices
from mtplab.device.tracking import Attached, Tracker

EXIT_CHOSEN, EXIT_USAGE, EXIT_NONE = 0, 1, 2
_HOW = {
    "named": "the one that was named",
    "remembered": "the remembered one",
    "only": "the only usable one",
    "cable": "the only phone, by its cable",
}


@click.command("devices", epilog="Exit codes: 0 a run would have its phone, 1 wrong use, 2 it would not.")
@click.option("--serial", metavar="S", help="Which of several phones (else ANDROID_SERIAL, else the remembered one).")
@click.option("--use", metavar="S", help="Remember this phone: it is taken where several are attached.")
@click.option("--forget", is_flag=True, help="Remember no phone any more.")
@click.option("--watch", is_flag=True, help="Go on telling as phones come and go, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value; with --watch one a line.")
def devices_command(serial: str | None, use: str | None, forget: bool, watch: bool, as_json: bool) -> int:
    """List the attached phones: state, cause and cure, connection, owner; and the one that a run would take."""
    if (use and forget) or (watch and (use or forget)):
        raise click.UsageError("--use, --forget and --watch are three different things: give one.")
    show = _Shower(choice.serial_of(serial), as_json, watch)
    try:
        if forget:
            choice.forget()
        if use:
            _use(use)
        if watch:
            return _watch(show)
        server = AdbServer.users().ensure()
        return show(tuple(list_devices(server)), server.mismatch())
    except DeviceError as problem:
        if as_json:
            show.json({"devices": [], "chosen": None, "how": None, "cause": str(problem), "cure": None})
        else:
            click.echo(str(problem), err=True)
        return EXIT_NONE


def _use(serial: str) -> None:
    entries = list_devices(AdbServer.users().ensure())
    found = choice.choose(entries, serial)
    if found.entry is None:
        raise click.UsageError(f"{found.cause}. {found.cure}")
    if found.entry.wireless and found.entry.hardware_serial is None:
        click.echo(f"{serial} does not tell its own serial number: remembered by adb's name of it.", err=True)
    choice.remember(found.entry)


class _Shower:
    """Shows a list of devices as lines or as JSON and returns the exit code that it stands for."""

    def __init__(self, serial: str | None, as_json: bool, watch: bool) -> None:
        self._serial, self._as_json, self._watch = serial, as_json, watch

    def __call__(self, entries: tuple[DeviceEntry, ...], note: str | None) -> int:
        chosen = choice.choose(entries, self._serial, choice.remembered())
        if self._as_json:
            self.json(as_value(entries, chosen, note))
        else:
            for line in lines(entries, chosen, note):
                click.echo(line)
        return EXIT_CHOSEN if chosen.usable else EXIT_NONE

    def json(self, value: dict[str, Any]) -> None:
        """One JSON value; with --watch on one line."""
        click.echo(json.dumps(value, ensure_ascii=False, indent=None if self._watch else 2))


def _watch(show: _Shower) -> int:
    over = threading.Event()
    code = EXIT_NONE

    def tell(seen: Attached) -> None:
        nonlocal code
        code = show(seen.devices, seen.problem)

    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    tracker = Tracker(AdbServer.users(), tell)
    try:
        with tracker:
            while not over.wait(0.2) and tracker.problem is None:
                continue
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code


def as_value(entries: tuple[DeviceEntry, ...], chosen: Choice, note: str | None = None) -> dict[str, Any]:
    """The list as JSON values: `devices`, the serial that is `chosen` and `how`, or `cause` and `cure` why not."""
    return {
        "devices": [_row(entry) for entry in entries],
        "chosen": chosen.entry.serial if chosen.entry is not None and chosen.usable else None,
        "how": chosen.how or None,
        "cause": chosen.cause or None,
        "cure": chosen.cure or None,
        "note": note,
    }


def _row(entry: DeviceEntry) -> dict[str, Any]:
    owner = _owner(entry)
    return {
        "serial": entry.serial,
        "state": entry.state,
        "explanation": entry.explanation,
        "cure": entry.cure or None,
        "connection": entry.connection,
        "warning": wireless_warning(entry),
        "model": entry.model,
        "simulated": entry.simulated,
        "transport_id": entry.transport_id,
        "held_by_pid": owner.pid if owner else None,
        "held_by_session": owner.session if owner else None,
    }


def _owner(entry: DeviceEntry) -> lock.Holder | None:
    with contextlib.suppress(DeviceError):  # without a folder for locks nobody can hold one
        return lock.holder(entry.phone)
    return None


def lines(entries: tuple[DeviceEntry, ...], chosen: Choice, note: str | None = None) -> Iterator[str]:
    """The list for a person."""
    for entry in entries:
        mark = "▸" if chosen.entry is not None and entry.serial == chosen.entry.serial else " "
        name = entry.model or ("model unknown" if entry.usable else "")
        simulated = " SIMULATED" if entry.simulated else ""
        yield f"{mark} {entry.serial}  {entry.state}  {entry.connection}  {name}{simulated}".rstrip()
        if not entry.usable:
            yield f"    {entry.explanation}" + (f" → {entry.cure}" if entry.cure else "")
        elif entry.simulated is None:
            yield f"    ! {SILENT}"
        owner = _owner(entry)
        if owner is not None:
            yield f"    held by process {owner.pid} (session {owner.session})"
        if entry.usable and (warning := wireless_warning(entry)):
            yield f"    ! {warning}"
    if chosen.usable and chosen.entry is not None:
        yield f"A run takes {chosen.entry.serial}: {_HOW[chosen.how]}."
    else:
        yield f"A run would not begin: {chosen.cause}. {chosen.cure}"
    if note:
        yield f"! {note}"
