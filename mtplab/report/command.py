"""`mtplab sessions`, `show` and `compare`: saved sessions, headless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mtplab.report.contract import deployed, figures_of, run_contract, worst_verdict
from mtplab.report.text import configuration_lines, heading, session_text
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
    subjects = [Subject(r.session, r.identity, r.policy) for r in records]
    try:
        reasons = [reason for other in subjects[1:] for reason in comparable(subjects[0], other, vary)]
    except ValueError as error:
        raise Refusal(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    rows = [{"session": r.session, "simulated": r.simulated, "figures": figures_of(deployed(r), r)} for r in records]
    if as_json:
        print_json({"comparable": not reasons, "reasons": reasons, "sessions": rows if not reasons else []})
    elif reasons:
        click.echo("Not comparable:\n" + "\n".join(f" ! {reason}" for reason in reasons))
    else:
        for record in records:
            click.echo("\n".join([heading(record), *configuration_lines(record.configurations)]))
    return 5 if reasons else 0
