"""`mtplab recipes`: the quantisation recipes, and which weight of a model each rule of one would take."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import click
import msgspec

from mtplab.engine.run_command import Refused
from mtplab.litert.errors import LiteRtError
from mtplab.litert.recipes import Recipe, Rule, head_recipe_for, recipe_named, recipes, user_folder, user_recipes
from mtplab.model.errors import ModelError
from mtplab.pipeline.errors import PipelineError


@click.command("recipes")
@click.argument("recipe", required=False, metavar="[NAME|FILE.toml[:NAME]]")
@click.option("--model", help="Show the map of this model's graphs; they are exported where they are not yet.")
@click.option("--head", default="token_conditioned", show_default=True, help="The head that is exported with it.")
@click.option("--graph", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.tflite",
              help="Show the map of this float graph instead.")  # fmt: skip
@click.option("--modules", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.json",
              help="Names of its weights, as the export stage writes them.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout, nothing else.")
def recipes_command(
    recipe: str | None, model: str | None, head: str, graph: Path | None, modules: Path | None, as_json: bool
) -> None:
    """List the recipes; show one; or, with a model, show which rule takes which weight. Nothing is quantised.

    A user's own are TOML files of the form of recipes.toml, given by path or laid in the folder that is named below
    the list. Exit codes: 0 fine; 1 usage; 4 the model could not be exported.
    """
    try:
        if recipe is None:
            _list(as_json)
            return
        chosen = recipe_named(recipe)
        maps = _maps(chosen, model, head, graph, modules)
    except (LiteRtError, ModelError, PipelineError) as error:
        raise Refused(str(error), 1) from None
    if as_json:
        _print({**_told(chosen), "graphs": maps})
        return
    _say(*_recipe_lines(chosen))
    for name, rows in (maps or {}).items():
        _say("", f"{name}: {sum(row['rule'] is not None for row in rows)} of {len(rows)} weights taken by a rule")
        _say(*map(_row_line, rows))


def _list(as_json: bool) -> None:
    found = {name: (recipe, "shipped") for name, recipe in recipes().items()}
    found |= {name: (recipe, "user") for name, recipe in user_recipes().items()}
    if as_json:
        _print([{**_told(recipe), "from": origin} for recipe, origin in found.values()])
        return
    width = max(map(len, found))
    for name, (recipe, origin) in found.items():
        needs = " (needs calibration)" if recipe.needs_calibration else ""
        _say(f"{name:<{width}}  {recipe.title}{needs}{'' if origin == 'shipped' else ' · yours'}")
    _say("", f"Your own: TOML files in {user_folder()}, or --recipe FILE.toml.")


def _told(recipe: Recipe) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(recipe)
    return {**told, "label": recipe.label, "sha256": recipe.sha256, "needs_calibration": recipe.needs_calibration}


def _recipe_lines(recipe: Recipe) -> list[str]:
    rules = [f"  {number}. {rule}: {how(rule)}" for number, rule in enumerate(recipe.rules, 1)]
    keep = f"  stays float: {', '.join(recipe.keep)}" if recipe.keep else "  nothing is promised to stay float"
    return [f"{recipe.label}: {recipe.title}", *rules, keep, f"  the head gets: {head_recipe_for(recipe).label}"]


def how(rule: Rule) -> str:
    """What a rule does to a weight, in a few words."""
    if rule.bits >= 16:
        return f"float{rule.bits}"
    activations = f", activations int{rule.activation_bits or 8}" if rule.compute == "static" else ""
    algorithm = f", {rule.algorithm}" if rule.algorithm else ""
    return f"int{rule.bits} per {rule.scales}, {rule.compute}{algorithm}{activations}"


def _maps(
    recipe: Recipe, model: str | None, head: str, graph: Path | None, modules: Path | None
) -> dict[str, list[dict[str, Any]]] | None:
    if graph is not None:
        return {graph.name: weight_map(graph, recipe, _names(modules) if modules else {})}
    if model is None:
        return None
    folder = _exported(model, head)
    chosen = {"backbone": recipe, "head": head_recipe_for(recipe)}
    return {
        name: weight_map(folder[f"{name}.tflite"], one, _names(folder[f"{name}_modules.json"]))
        for name, one in chosen.items()
    }


def _names(path: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise LiteRtError(
            f"{path} holds no names of modules ({error}); give the GRAPH_modules.json of the export stage."
        ) from error


def weight_map(graph: Path, recipe: Recipe, modules: dict[str, str]) -> list[dict[str, Any]]:
    """One row a weight and role: its module, one of its output tensors, and the rule that would take it."""
    from mtplab.litert.audit import WEIGHTED, audit
    from mtplab.litert.quantise import role_of, select

    seen = audit(graph, modules)
    wanted = select(seen, recipe)
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for weight in seen.weights:
        for use in weight.uses:
            if use.op not in WEIGHTED:
                continue
            rule = wanted.get(use)
            row = rows.setdefault(
                (weight.sha256, use.op, str(rule)),
                {
                    "module": weight.module,
                    "role": role_of(weight, use),
                    "op": use.op,
                    "output": use.output,
                    "shape": list(weight.shape),
                    "bytes": weight.bytes,
                    "uses": 0,
                    "rule": None if rule is None else recipe.rules.index(rule) + 1,
                    "how": "float32, as it is" if rule is None else how(rule),
                },
            )
            row["uses"] += 1
    return list(rows.values())


def _exported(model: str, head: str) -> dict[str, Path]:
    """The float graphs of a model, out of the stage cache or exported into it."""
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.headless import as_named
    from mtplab.pipeline.host_run import run_host_stage
    from mtplab.pipeline.stage import RunParameters, StageResult, inputs_for, params_for
    from mtplab.session import paths

    run = as_named(RunParameters(model=model, head=head))
    store = Store(paths.cache_dir() / "stages")
    results: dict[str, StageResult] = {}
    for name in ("freeze", "export"):
        click.echo(f"{name} …", err=True)
        results[name] = run_host_stage(
            name, params_for(name, run), inputs_for(name, results), store, lambda event: None, threading.Event()
        )
        if results[name].status not in ("done", "cached"):
            raise Refused(f"The stage {name} of {model} {results[name].status}: {results[name].reason}", 4)
    return {name: store.path(one.sha256) for name, one in results["export"].artefacts.items()}


def _row_line(row: dict[str, Any]) -> str:
    shape = "×".join(map(str, row["shape"]))
    name = row["module"] or row["output"]
    rule = "   " if row["rule"] is None else f"{row['rule']:>2}."
    return f"  {rule} {name:<44} {row['role']:<17} {shape:>12} {row['uses']:>3} uses  {row['how']}"


def _print(value: Any) -> None:
    from mtplab.report.command import print_json

    print_json(value)


def _say(*lines: str) -> None:
    from mtplab.report.text import printable

    click.echo(printable(lines), file=sys.stdout)
