"""`mtplab restore`: puts back by hand what a measurement had set on a phone and could not put back itself."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import click

from mtplab.device import prepare
from mtplab.device.errors import DeviceError
from mtplab.device.prepare import Note, Told
from mtplab.engine.errors import EngineError
from mtplab.engine.options import EngineOptions

EXIT_FINE, EXIT_NOT_READY, EXIT_FAILED = 0, 2, 4


@click.command(
    "restore", epilog="Exit codes: 0 all is as it was, 1 wrong use, 2 no usable phone, 4 something was not put back."
)
@click.option("--serial", metavar="S", help="Which of several attached phones.")
@click.option("--standin", is_flag=True, help="The stand-in phone that `run` and `lab` use.")
@click.option("--list", "only_list", is_flag=True, help="Only say which phones have something to be put back.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def restore_command(serial: str | None, standin: bool, only_list: bool, as_json: bool) -> int:
    """Put back airplane mode, brightness and the like after a measurement that was cut off.

    The next `mtplab run` or `mtplab lab` on that phone does the same by itself.
    """
    told: list[Told] = []
    problem, code = None, EXIT_FINE
    try:
        if not only_list:
            told = _restore(EngineOptions(serial=serial, standin="normal" if standin else None))
            code = EXIT_FAILED if any(one.problem for one in told) else EXIT_FINE
    except EngineError as error:
        problem, code = str(error), error.exit_code
    except DeviceError as error:
        problem, code = str(error), EXIT_NOT_READY
    left, unreadable = prepare.notes()
    if unreadable and (problem is None or problem in unreadable):
        problem, code = unreadable[0], EXIT_FAILED
    if as_json:
        value = {"put_back": [_row(one) for one in told], "left": [_left(note) for note in left], "problem": problem}
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        _show(told, left, problem, only_list)
    return code


def _restore(options: EngineOptions) -> list[Told]:
    from mtplab.engine.phone import connect_phone

    with contextlib.ExitStack() as stack:
        phone = connect_phone(options, stack)
        return prepare.put_back(phone.link, phone.lock.phone_hash)


def _row(one: Told) -> dict[str, Any]:
    return {"name": one.name, "text": one.text, "now": one.now, "source": one.source, "problem": one.problem}


def _left(note: Note) -> dict[str, Any]:
    changes = {change.name: change.before for change in note.changes}
    return {"phone": note.phone, "session": note.about, "since_unix_s": note.since_unix_s, "before": changes}


def _show(told: list[Told], left: list[Note], problem: str | None, only_list: bool) -> None:
    for one in told:
        click.echo(one.sentence)
    if not told and problem is None and not only_list:
        click.echo("Nothing is to be put back on this phone.")
    for note in left:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(note.since_unix_s))
        names = ", ".join(f"{change.name} (was {change.before})" for change in note.changes)
        click.echo(f"To be put back on phone {note.phone}, set by {note.about} at {since}: {names}")
    if only_list and not left and problem is None:
        click.echo("No phone has anything to be put back.")
    if problem is not None:
        click.echo(problem, err=True)
