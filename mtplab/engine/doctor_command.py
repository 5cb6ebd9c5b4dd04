"""`mtplab doctor`: the checklist on the command line, as a table for people or as JSON for scripts."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from mtplab.device.readiness import Item, Options, check, in_groups, ready

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "unknown": ("?", "yellow")}
EXIT_READY, EXIT_NOT_READY, EXIT_CANCELLED = 0, 2, 130
_FILE = click.Path(path_type=Path)


@click.command("doctor", epilog="Exit codes: 0 ready, 1 wrong use, 2 not ready, 130 the deep look was cancelled.")
@click.option(
    "--standin", is_flag=False, flag_value="normal", default=None, metavar="[SCENARIO]",
    help="Check against the stand-in phone instead of an attached one.",
)  # fmt: skip
@click.option("--serial", metavar="S", help="Which of several attached phones.")
@click.option("--model", "model_dir", type=_FILE, metavar="DIR", help="A model's folder, instead of the shipped one.")
@click.option("--prompts", type=_FILE, metavar="FILE", help="The prompt set to measure with (JSON lines).")
@click.option("--calibration", type=_FILE, metavar="FILE", help="The calibration set (JSON lines, 200–1000 prompts).")
@click.option("--deep", is_flag=True, help="Really convert, quantise and run a toy (many seconds, Ctrl+C ends it).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def doctor_command(
    standin: str | None, serial: str | None, model_dir: Path | None, prompts: Path | None, calibration: Path | None,
    deep: bool, as_json: bool,
) -> int:  # fmt: skip
    """Check every precondition; say cause and cure. Safe to run at any time, also beside a measurement."""
    options = Options(serial=serial, model_dir=model_dir, prompts=prompts, calibration=calibration)
    items = check(None, options) if standin is None else _check_standin(standin, options)
    code = None
    if deep:
        item, code = _deep_look()
        items.append(item)
    items = in_groups(items)
    if as_json:
        value = {"items": [msgspec.to_builtins(item) for item in items], "ready": ready(items)}
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        for line in table(items):
            click.echo(line)
    return code or (EXIT_READY if ready(items) else EXIT_NOT_READY)


def _check_standin(scenario: str, options: Options) -> list[Item]:
    from mtplab.device import paths, readiness_held
    from mtplab.device.errors import DeviceError
    from mtplab.device.standin_host import StandinProcess, token_runner
    from mtplab.engine.errors import EngineError
    from mtplab.engine.options import check_scenario

    try:
        check_scenario(scenario)
    except EngineError as problem:
        raise click.UsageError(str(problem)) from None
    held = readiness_held.standin_session()
    if held is not None:  # a second stand-in would only warm the machine on which the first one measures
        return check(None, msgspec.structs.replace(options, session=held))
    programs = {paths.TOKEN_RUNNER: token_runner()}
    with contextlib.ExitStack() as stack:
        try:
            phone = stack.enter_context(StandinProcess(scenario, programs=programs))
        except DeviceError as problem:
            raise click.UsageError(str(problem)) from None
        return check(phone.link(), options)


def _deep_look() -> tuple[Item, int | None]:
    """The toy's item, and 130 where Ctrl+C ended it. Steps go to stderr with the seconds so far."""
    from mtplab.engine.deep import ID, deep_check

    began, cancel, ended, found = time.monotonic(), threading.Event(), threading.Event(), list[Item]()

    def tell(step: str) -> None:
        click.echo(f"  {time.monotonic() - began:5.1f} s  {step} …", err=True)

    def work() -> None:
        try:
            found.append(deep_check(tell, cancel))
        finally:
            ended.set()

    # A handler and no exception: that could come between any two lines here, and leave the worker behind.
    before = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        threading.Thread(target=work, name="deep look").start()
        while not ended.wait(0.2):
            continue
    finally:
        signal.signal(signal.SIGINT, before)
    if not found:
        cause = "the deep look itself failed; its trace stands above"
        found.append(Item(ID, "toolchain", "unknown", cause, "Report this as a fault of mtplab."))
    return found[0], EXIT_CANCELLED if cancel.is_set() else None


def table(items: list[Item]) -> Iterator[str]:
    """Lines for a terminal, grouped, with what failed and how to cure it under each item."""
    group = ""
    for item in items:
        if item.group != group:
            group = item.group
            yield click.style(group, bold=True)
        mark, colour = _MARKS[item.status]
        yield f"  {click.style(mark, fg=colour)} {item.id}: {item.cause}"
        if item.cure and item.status != "pass":
            yield f"      → {item.cure}"
    failed = sum(item.status == "fail" for item in items)
    unknown = sum(item.status == "unknown" for item in items)
    verdict = "ready" if ready(items) else "not ready"
    yield f"{verdict}: {failed} failed, {unknown} unknown, {len(items) - failed - unknown} passed"
