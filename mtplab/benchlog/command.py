"""The command `mtplab log`: judges logs in files, folders or a pipe, for people and for scripts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from .compose import counted
from .files import GLYPHS, contract, exit_code_of, read_log, table
from .lines import strip_controls
from .reading import BACKENDS, Reading

SUFFIXES = (".txt", ".log")


@click.command("log")
@click.argument("files", nargs=-1, metavar="FILE…|-")
@click.option("--requested", metavar="cpu|gpu|nnapi|npu", help="The backend that was wanted (overrides the log).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, or an array for several logs.")
@click.pass_context
def log_command(context: click.Context, files: tuple[str, ...], requested: str | None, as_json: bool) -> None:
    """Judge benchmark logs: did the requested delegate really run?

    FILE may be a folder (its *.txt and *.log) or - for a pipe, whose verdict is shown as it forms.

    Exit code: 0 as requested · 1 usage · 3 fallback, partial or downgrade · 4 failed or crashed · 5 unknown, also
    where the verdict is good but the log was cut before any inference (a finding says so).
    """
    if not files:
        raise click.ClickException("no log was named: give a file, a folder, or - to read a pipe.")
    if requested not in (None, *BACKENDS):
        given = strip_controls(requested or "")
        raise click.ClickException(f"--requested takes cpu, gpu, nnapi or npu, not {given!r}.")
    readings = [(name, _read(name, requested)) for name in _expand(files)]
    if as_json:
        objects = [contract(reading, name) for name, reading in readings]
        one = len(objects) == 1 and not Path(files[0]).is_dir()
        click.echo(msgspec.json.encode(objects[0] if one else objects).decode())
    else:
        click.echo(table(readings))
    context.exit(exit_code_of(counted(reading) for _, reading in readings))


def _expand(files: tuple[str, ...]) -> Iterator[str]:
    for name in files:
        if not name:  # a script's empty variable, which a path would take for the folder it stands in
            raise click.ClickException("an empty name was given for a log: name a file, a folder, or - for a pipe.")
        path = Path(name)
        if name == "-" or not path.is_dir():
            yield name
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
        if not inside:
            raise click.ClickException(f"{strip_controls(name)} holds no *.txt or *.log: name the log's file.")
        yield from map(str, inside)


def _read(name: str, requested: str | None) -> Reading:
    if name == "-":
        if sys.stdin is None:
            raise click.ClickException("the standard input is closed: pipe a log into it, or name a file.")
        return read_log(sys.stdin.buffer, requested, _show)
    try:
        return read_log(name, requested)
    except OSError as error:
        why = error.strerror or type(error).__name__
        text = f"{strip_controls(name)} cannot be read ({why}): check the path."
        raise click.ClickException(text) from error


def _show(reading: Reading) -> None:
    """A verdict as it forms: on stderr, so that stdout stays the result."""
    proof = f"  line {reading.evidence[0].line}: {reading.evidence[0].text}" if reading.evidence else ""
    with contextlib.suppress(OSError):  # whoever read stderr left: the verdict on stdout is still owed
        click.echo(f"{GLYPHS[reading.verdict]} {reading.verdict} (provisional){proof}", err=True)
