"""The command table: one line per command, each loaded only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

from mtplab import __version__

# name -> (module, attribute, one line of help). The help stands here so that `mtplab --help` loads no room.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "lab": ("mtplab.tui.command", "lab_command", "Open the terminal lab (this is what plain `mtplab` does)."),
    "doctor": ("mtplab.engine.doctor_command", "doctor_command", "Check every precondition; say cause and cure."),
    "devices": ("mtplab.device.devices_command", "devices_command", "List the attached phones; choose one."),
    "facts": ("mtplab.engine.facts_command", "facts_command", "Print all facts of the phone, or of a session's."),
    "run": ("mtplab.engine.run_command", "run_command", "Run the pipeline without a screen."),
    "recipes": ("mtplab.engine.recipes_command", "recipes_command", "List recipes; show which weight a rule takes."),
    "sensitivity": (
        "mtplab.pipeline.sensitivity_command",
        "sensitivity_command",
        "Which layers a recipe hurts, and which to lift.",
    ),
    "restore": ("mtplab.engine.restore_command", "restore_command", "Put back what a cut-off run set on a phone."),
    "tell": ("mtplab.engine.tell_command", "tell_command", "Tell a running engine: cancel, mark, keep, stop."),
    "train-head": (
        "mtplab.model.train_head_command",
        "train_head_command",
        "Train a draft head on the model's own text.",
    ),
    "import-head": (
        "mtplab.model.import_head_command",
        "import_head_command",
        "Take the MTP weights of another checkpoint.",
    ),
    "bundle": ("mtplab.pipeline.bundle_command", "bundle_command", "Pack model and head as .litertlm for LiteRT-LM."),
    "calibrate": (
        "mtplab.pipeline.calibrate_command",
        "calibrate_command",
        "Build a calibration set out of logs; collect ranges.",
    ),
    "log": ("mtplab.benchlog.command", "log_command", "Judge benchmark logs: did the requested delegate run?"),
    "calc": ("mtplab.speculation.command", "calc_command", "Speedup from acceptance, draft length and costs."),
    "adapt": ("mtplab.speculation.adapt_command", "adapt_command", "Recorded rounds under an adaptive draft length."),
    "sessions": ("mtplab.report.command", "sessions_command", "List the saved sessions."),
    "show": ("mtplab.report.command", "show_command", "Show one session."),
    "compare": ("mtplab.report.command", "compare_command", "Compare sessions, or say why they are not comparable."),
    "replay": ("mtplab.tui.command", "replay_command", "Replay a session in the lab."),
    "standin": ("mtplab.standin.command", "standin_command", "Serve the stand-in Pixel to any adb client."),
}


class _ReaderLeft(Exception):
    """Whoever read our output left. A name of our own: click would end a BrokenPipeError with exit code 1."""


@contextlib.contextmanager
def _told_when_the_reader_leaves() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _ReaderLeft from None


class _Table(click.Group):
    """A click group over COMMANDS that imports a command's module only to run it or to show its help."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _told_when_the_reader_leaves():  # --help prints here
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _told_when_the_reader_leaves():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(
    cls=_Table,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="mtplab %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Is a multi-token-prediction draft head worth it on this phone?

    Exit codes: 0 fine; 1 usage; 2 not ready; 3 not what was requested (fallback, partial, downgrade);
    4 failed or crashed; 5 unknown or not comparable.
    """
    if ctx.invoked_subcommand is None and (lab := cli.get_command(ctx, "lab")) is not None:
        ctx.exit(ctx.invoke(lab))


def main() -> None:
    """Entry point: every end is a documented exit code, every bad call one sentence."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name that is no UTF-8, or a terminal that knows no γ
    code = _code_of_call()
    for stream in (sys.stdout, sys.stderr):
        _settle(stream)
    sys.exit(code)


def _code_of_call() -> int:
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        _say("Stopped.")
        return 130
    except click.ClickException as error:
        # click's own code for a bad call is 2, which here means "not ready".
        _say(f"mtplab: {error.format_message()}")
        return 1 if isinstance(error, click.UsageError) else error.exit_code
    except _ReaderLeft:
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        what = f"{error.strerror or type(error).__name__}{where}"
        _say(f"mtplab: the system refused to read or write: {what}; the output is not whole.")
        return 4
    return code if isinstance(code, int) else 0


def _say(text: str) -> None:
    """One sentence on stderr, harmless whatever was typed."""
    from mtplab.session.text import clean_text  # here, so that `mtplab --help` loads no room

    text = clean_text(text, 1000)
    with contextlib.suppress(OSError):  # nobody reads stderr: the exit code still speaks
        click.echo(text, err=True)


def _settle(stream: TextIO | None) -> None:
    """Flush for the last time; what nobody can take any more goes nowhere, and must not change the exit code."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())


if __name__ == "__main__":
    main()
