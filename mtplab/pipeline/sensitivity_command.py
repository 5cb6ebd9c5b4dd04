"""`mtplab sensitivity`: which layers a recipe hurts, by lifting one group at a time, and what to lift."""

from __future__ import annotations

from typing import Any

import click

_STAGES = ("freeze", "export", "sensitivity")
_CALIBRATING = ("freeze", "export", "calibrate", "sensitivity")
_EXIT_USAGE, _EXIT_FAILED, _EXIT_STOPPED = 1, 4, 130


class _Refused(click.ClickException):
    """A sentence and the exit code it stands for."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


@click.command("sensitivity")
@click.option("--model", default="tiny", show_default=True)
@click.option("--head", default="token_conditioned", show_default=True)
@click.option("--recipe", required=True, metavar="NAME|FILE.toml[:NAME]", help="`mtplab recipes` lists them.")
@click.option("--head-recipe", metavar="NAME|FILE.toml[:NAME]", help="Default: what the recipe says for a head.")
@click.option("--gamma", default=3, show_default=True, type=click.IntRange(1, 8), help="Draft length that is judged.")
@click.option("--alpha-drop-limit", default=0.02, show_default=True, type=click.FloatRange(0, 1),
              help="A recipe passes unless the 95 % lower bound of the change in α is below minus this.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout, nothing else.")
def sensitivity_command(as_json: bool, **given: Any) -> int:
    """Lift one group of layers at a time (int8 where the recipe went lower, else float), and see what α gains.

    Then the best are lifted together, one, two, four …, until the acceptance gate would let them pass; the rules to
    add to the recipe are printed. No phone is needed; the float graphs come from the stage cache or are exported.
    Exit codes: 0 fine; 1 usage; 4 a stage failed; 130 stopped.
    """
    from mtplab.litert.errors import LiteRtError
    from mtplab.model.errors import ModelError
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.errors import PipelineError
    from mtplab.pipeline.headless import run_stages
    from mtplab.pipeline.stage import RunParameters, chosen_recipes
    from mtplab.report.command import print_json
    from mtplab.report.text import printable
    from mtplab.session.paths import cache_dir

    try:
        run = RunParameters(**given)
        calibrated = any(recipe.needs_calibration for recipe in chosen_recipes(run).values())
        last = run_stages(_CALIBRATING if calibrated else _STAGES, run, Store(cache_dir() / "stages"))[-1]
    except (LiteRtError, ModelError, PipelineError) as error:
        raise _Refused(str(error), _EXIT_USAGE) from None
    if last.status == "failed":
        raise _Refused(f"{last.stage}: {last.reason}", _EXIT_FAILED)
    if last.status == "cancelled":
        click.echo(f"Stopped in {last.stage}; stages that had ended stay cached.", err=True)
        return _EXIT_STOPPED
    if as_json:
        print_json(last.figures)
    else:
        click.echo(printable(sensitivity_lines(last.figures)))
    return 0


def sensitivity_lines(figures: dict[str, Any]) -> list[str]:
    """The figures of the stage for people: the recipe, every lift, what was tried together, the rules to add."""
    recipe, head = figures["recipes"]
    lines = [f"{recipe}, head {head}, {figures['prompts']} prompts: {_change(figures['as_is'])} on equal text", ""]
    lines.append("lifted alone, the greatest gain of α on the float text first")
    for one in figures["lifts"]:
        group = f"{one['graph']:<8} {one['group']:<28} → {one['to']:<5}"
        lines.append(f"  {group} {_change(one['gain'])}  {one['bytes_added'] / 1e3:+.0f} kB")
    if figures["proposals"]:
        lines += ["", "lifted together, judged as the acceptance gate judges"]
    for tried in figures["proposals"]:
        passes = "passes" if tried["passes"] else "does not pass"
        groups = ", ".join(tried["groups"])
        lines.append(f"  {_change(tried['delta_alpha'])}  {tried['bytes_added'] / 1e3:+.0f} kB  {passes}: {groups}")
    cure = next((tried for tried in figures["proposals"] if tried["passes"]), None)
    lines += ["", f"{figures['sentence'][:1].upper()}{figures['sentence'][1:]}."]
    for graph, rules in (cure["rules"] if cure and not figures["passes"] else {}).items():
        if rules:
            lines += ["", f"rules to add at the end of the {graph}'s recipe:", *map(_toml, rules)]
    return lines


def _change(estimate: dict[str, Any]) -> str:
    if estimate["value"] is None:
        return f"unknown ({estimate['reason']})"
    if estimate["low"] is None:
        return f"α {estimate['value']:+.4f}"
    return f"α {estimate['value']:+.4f} [{estimate['low']:+.4f} {estimate['high']:+.4f}]"


def _toml(rule: dict[str, Any]) -> str:
    """A rule as it stands in recipes.toml; a literal string, for its backslashes."""
    how = f'bits = {rule["bits"]}, compute = "{rule["compute"]}", if_present = true'
    return f"  {{ match = '{rule['match']}', {how} }},"
