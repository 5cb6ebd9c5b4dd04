"""`mtplab facts`: everything that is known of a phone, each fact with its source or the reason why it is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from mtplab.device.errors import DeviceError
from mtplab.device.readiness_facts import KnownFact
from mtplab.session.journal import SessionError
from mtplab.session.text import clean_text

EXIT_FINE, EXIT_USAGE, EXIT_NOT_READY = 0, 1, 2


@click.command("facts", epilog="Exit codes: 0 fine, 1 wrong use or no such session, 2 no usable phone.")
@click.option("--serial", metavar="S", help="Which of several attached phones.")
@click.option("--session", metavar="S", help="What a session recorded, also one that is being recorded; `last` too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def facts_command(serial: str | None, session: str | None, as_json: bool) -> int:
    """Print all facts of the attached phone, or of a session's.

    A phone that an engine holds is not asked: what its session recorded is printed.
    """
    try:
        source, facts = _of_session(session) if session else _of_phone(serial)
    except (SessionError, DeviceError) as problem:
        click.echo(clean_text(str(problem), 1000), err=True)
        return EXIT_USAGE if isinstance(problem, SessionError) else EXIT_NOT_READY
    if as_json:
        rows = {name: _row(fact) for name, fact in facts.items()}
        click.echo(json.dumps({"by": source, "facts": rows}, ensure_ascii=False, indent=2))
        return EXIT_FINE
    click.echo(clean_text(f"by {source}", 300))
    for name, fact in sorted(facts.items()):
        row = _row(fact)
        told = f"unknown: {row['reason'] or 'no reason was recorded'}" if row["value"] is None else str(row["value"])
        click.echo(clean_text(f"{name:26} {told}  ({row['source'] or 'source not recorded'})", 1000))
    return EXIT_FINE


def _row(fact: KnownFact) -> dict[str, Any]:
    return {"value": fact.value, "source": getattr(fact, "source", ""), "reason": fact.reason}


def _of_session(name: str) -> tuple[str, Mapping[str, KnownFact]]:
    from mtplab.session import archive

    opened = archive.open_session(name)
    return f"session {opened.record.session}", opened.record.facts


def _of_phone(serial: str | None) -> tuple[str, Mapping[str, KnownFact]]:
    from mtplab.device import choice, lock
    from mtplab.device.adb import AdbServer
    from mtplab.device.facts import read_facts
    from mtplab.device.link import Link, list_devices

    server = AdbServer.users().ensure()
    found = choice.choose(list_devices(server), choice.serial_of(serial), choice.remembered())
    if found.entry is None or not found.usable:
        raise DeviceError(found.sentence)
    owner = lock.holder(found.entry.phone)
    if owner is not None:
        return _of_session(owner.session)
    facts: dict[str, KnownFact] = {fact.name: fact for fact in read_facts(Link(server, found.entry.serial))}
    return f"the phone {found.entry.serial}", facts
