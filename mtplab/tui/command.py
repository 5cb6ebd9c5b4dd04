"""`mtplab lab` and `mtplab replay`: open the lab, or say in a sentence and an exit code why not."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mtplab.tui import LabOptions, run


class Refused(click.ClickException):
    """A sentence and the exit code it stands for."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


def open_lab(options: LabOptions) -> int:
    """Open the lab; what is wrong before it opens is a sentence and an exit code."""
    from mtplab.engine.errors import EngineError
    from mtplab.session import archive
    from mtplab.session.journal import SessionError

    try:
        if options.replay is not None:
            archive.find(options.replay)
    except SessionError as error:
        raise Refused(str(error), 1) from None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused("The lab needs a terminal; `mtplab run` and `mtplab show` work without one.", 1)
    try:
        return run(options)
    except EngineError as error:
        raise Refused(str(error), error.exit_code) from None
    except SessionError as error:
        raise Refused(str(error), 1) from None


@click.command("lab")
@click.option("--standin", is_flag=False, flag_value="normal", default=None, metavar="[SCENARIO]",
              help="Use the stand-in Pixel (SIMULATED) instead of a phone.")  # fmt: skip
@click.option("--or-standin", is_flag=True, help="Use the stand-in where no phone is ready, and say so.")
@click.option("--attach", is_flag=False, flag_value="", default=None, metavar="[SESSION]",
              help="Show the engine that runs, or that of SESSION.")  # fmt: skip
@click.option("--serial", default=None, help="Serial of the phone, where several are attached.")
@click.option("--theme", default=None, help="A theme by name; themes are files.")
def lab_command(
    standin: str | None, or_standin: bool, attach: str | None, serial: str | None, theme: str | None
) -> int:
    """Open the terminal lab: watch the phone, run the pipeline, replay sessions.

    Exit codes: 0 fine; 1 usage; 2 no phone or no engine.
    """
    from mtplab.engine.errors import EngineError
    from mtplab.engine.options import check_scenario

    try:
        check_scenario(standin)
    except EngineError as error:
        raise Refused(str(error), error.exit_code) from None
    return open_lab(LabOptions(standin=standin, or_standin=or_standin, attach=attach, serial=serial, theme=theme))


@click.command("replay")
@click.argument("session")
@click.option("--at", "at_s", type=click.FloatRange(0), default=None, help="Begin there, paused (seconds).")
@click.option("--theme", default=None, help="A theme by name; themes are files.")
def replay_command(session: str, at_s: float | None, theme: str | None) -> int:
    """Replay SESSION in the lab: a folder, a session.json, a name or its beginning, or `last`.

    Exit codes: 0 fine; 1 the session cannot be opened.
    """
    return open_lab(LabOptions(replay=Path(session), at_s=at_s, theme=theme))
