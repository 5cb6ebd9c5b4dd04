"""`mtplab doctor`: the checklist on the command line, as a table for people or as JSON for scripts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import click
import msgspec

from mtplab.device.readiness import Item, Options, check, ready

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "unknown": ("?", "yellow")}
EXIT_READY, EXIT_NOT_READY = 0, 2


@click.command("doctor", epilog="Exit codes: 0 ready, 1 wrong use, 2 not ready.")
@click.option(
    "--standin", is_flag=False, flag_value="normal", default=None, metavar="[SCENARIO]",
    help="Check against the stand-in phone instead of an attached one.",
)  # fmt: skip
@click.option("--serial", metavar="S", help="Which of several attached phones.")
@click.option("--deep", is_flag=True, help="Really import the converters and convert a toy (many seconds).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def doctor_command(standin: str | None, serial: str | None, deep: bool, as_json: bool) -> int:
    """Check every precondition; say cause and cure. Safe to run at any time."""
    options = Options(serial=serial)
    items = check(None, options, deep) if standin is None else _check_standin(standin, options, deep)
    if as_json:
        value = {"items": [msgspec.to_builtins(item) for item in items], "ready": ready(items)}
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        for line in table(items):
            click.echo(line)
    return EXIT_READY if ready(items) else EXIT_NOT_READY


def _check_standin(scenario: str, options: Options, deep: bool) -> list[Item]:
    from mtplab.device import paths
    from mtplab.device.errors import DeviceError
    from mtplab.device.standin_host import StandinProcess, token_runner

    programs = {paths.TOKEN_RUNNER: token_runner()}
    with contextlib.ExitStack() as stack:
        try:
            phone = stack.enter_context(StandinProcess(scenario, programs=programs))
        except DeviceError as problem:
            raise click.UsageError(str(problem)) from None
        return check(phone.link(), options, deep)


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
    verdict = "ready" if failed == 0 else "not ready"
    yield f"{verdict}: {failed} failed, {unknown} unknown, {len(items) - failed - unknown} passed"
