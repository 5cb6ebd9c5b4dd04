"""`mtplab sessions`, `show` and `compare`: saved sessions, headless."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from mtplab.report.contract import deployed, figures_of, run_contract, worst_verdict
from mtplab.report.text import configuration_lines, has_figures, heading, printable, session_text
from mtplab.session import archive
from mtplab.session.journal import SessionError
from mtplab.session.record import SessionRecord

# What JSON may hold raw but a terminal or a strict parser takes badly; half surrogates are bytes that are no UTF-8.
_HALF = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class Refusal(click.ClickException):
    """Bad input: one sentence and exit code 1."""

    exit_code = 1


def open_or_refuse(name: str) -> archive.OpenSession:
    """Open a session for a command; a session that cannot be opened is bad input: exit code 1."""
    try:
        return archive.open_session(name)
    except SessionError as error:
        raise Refusal(str(error)) from None


def print_json(value: Any) -> None:
    """One JSON value and nothing else on stdout: always valid UTF-8, and harmless where it is shown."""
    text = _HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False))
    click.echo(_UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


@click.command("show")
@click.argument("session", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, nothing else.")
def show_command(session: str, as_json: bool) -> int:
    """Show SESSION: a folder, a session.json, a name or its beginning, or `last`."""
    opened = open_or_refuse(session)
    notes = [opened.journal_note] if opened.journal_note else []
    if as_json:
        print_json({**run_contract(opened.record, opened.path), "notes": notes})
    else:
        click.echo(session_text(opened.record, opened.path, notes))
    return 0


def _row(path: Path) -> dict[str, Any]:
    try:
        return _told(archive.open_session(path).record, path)
    except SessionError as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - one bad session must not hide all the others, whatever is wrong
        why = f"{path} is a damaged session ({type(error).__name__}: {error})."
    return {"session": path.name, "path": str(path), "error": why}


def _told(record: SessionRecord, path: Path) -> dict[str, Any]:
    return {
        # The folder's name is what opens it; a session that was renamed keeps its own name inside.
        "session": path.name,
        "recorded_as": record.session,
        "path": str(path),
        "created_utc": record.created_utc,
        "device_model": record.identity.device_model,
        "simulated": record.simulated,
        "recovered": record.recovered,
        "outcome": record.outcome,
        "verdict": worst_verdict(record),
        "conclusion": record.conclusion,
    }


@click.command("sessions")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, nothing else.")
def sessions_command(as_json: bool) -> int:
    """List the saved sessions, oldest first; a session that cannot be opened is listed with the reason."""
    try:
        rows = [_row(path) for path in archive.list_sessions()]
    except SessionError as error:
        raise Refusal(str(error)) from None
    if as_json:
        print_json(rows)
    elif rows:
        click.echo(printable(line for row in rows for line in _row_lines(row)))
    else:
        click.echo("No session was saved yet; `mtplab run` or `mtplab lab` makes one.")
    return 0


def _row_lines(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [f"{row['session']}  cannot be opened: {row['error']}"]
    marks = " ".join(m for m, on in (("SIMULATED", row["simulated"]), ("RECOVERED", row["recovered"])) if on)
    return [f"{row['session']}  {row['outcome'] or 'no run'}  {marks}", f"    {row['conclusion'] or 'no conclusion'}"]


@click.command("compare")
@click.argument("sessions", nargs=-1, required=True)
@click.option("--vary", multiple=True, help="What may differ: mtp, recipe, device, prompts, or a field by name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, nothing else.")
def compare_command(sessions: tuple[str, ...], vary: tuple[str, ...], as_json: bool) -> int:
    """Set SESSIONS beside the first one, or say why they are not comparable (exit code 5)."""
    from mtplab.measure.compare import Subject, comparable

    if len(sessions) < 2:
        raise Refusal("A comparison needs at least two sessions.")
    records = [open_or_refuse(name).record for name in sessions]
    subjects = [Subject(r.session, r.identity, r.policy, has_figures(r)) for r in records]
    try:
        reasons = [reason for other in subjects[1:] for reason in comparable(subjects[0], other, vary)]
    except ValueError as error:
        raise Refusal(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    rows = [{"session": r.session, "simulated": r.simulated, "figures": figures_of(deployed(r), r)} for r in records]
    if as_json:
        print_json({"comparable": not reasons, "reasons": reasons, "sessions": rows if not reasons else []})
    elif reasons:
        click.echo(printable(["Not comparable:", *[f" ! {reason}" for reason in reasons]]))
    else:
        for record in records:
            click.echo(printable([heading(record), *configuration_lines(record.configurations)]))
    return 5 if reasons else 0
