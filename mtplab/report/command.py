"""`mtplab sessions`, `show` and `compare`: saved sessions, headless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mtplab.report.contract import run_contract, worst_verdict
from mtplab.report.text import session_text
from mtplab.session import archive
from mtplab.session.journal import SessionError
from mtplab.session.record import SessionRecord


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
    """One JSON value and nothing else on stdout; NaN cannot occur in it."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False))


@click.command("show")
@click.argument("session", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value, nothing else.")
def show_command(session: str, as_json: bool) -> int:
    """Show SESSION: a folder, a session.json, a name or its beginning, or `last`."""
    opened = open_or_refuse(session)
    if as_json:
        print_json(run_contract(opened.record, opened.path))
    else:
        click.echo(session_text(opened.record, opened.path))
    return 0


def _row(path: Path) -> dict[str, Any]:
    try:
        record: SessionRecord = archive.open_session(path).record
    except SessionError as error:
        return {"session": path.name, "path": str(path), "error": str(error)}
    return {
        "session": record.session,
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
    rows = [_row(path) for path in archive.list_sessions()]
    if as_json:
        print_json(rows)
        return 0
    if not rows:
        click.echo("No session was saved yet; `mtplab run` or `mtplab lab` makes one.")
    for row in rows:
        if "error" in row:
            click.echo(f"{row['session']}  cannot be opened: {row['error']}")
            continue
        marks = " ".join(m for m, on in (("SIMULATED", row["simulated"]), ("RECOVERED", row["recovered"])) if on)
        click.echo(f"{row['session']}  {row['outcome'] or 'no run'}  {marks}")
        click.echo(f"    {row['conclusion'] or 'no conclusion'}")
    return 0
