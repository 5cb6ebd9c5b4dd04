"""`mtplab bundle`: the model and its head as one `.litertlm` file, by the pipeline's own stages and cache."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

STAGES = ("freeze", "export", "align", "calibrate", "quantise", "bundle")
EXIT_FAILED, EXIT_STOPPED = 4, 130


@click.command("bundle")
@click.option("--model", default="tiny", show_default=True, help="As for `mtplab run`.")
@click.option("--head", default="token_conditioned", show_default=True, help="token_conditioned or zero_copy.")
@click.option("--gamma", default=3, show_default=True, type=click.IntRange(1, 16), help="Drafts a round: fixed.")
@click.option("--recipe", default="mixed", show_default=True, help="Quantisation recipe of the backbone.")
@click.option(
    "--head-recipe", help="Quantisation recipe of the drafter [what the backbone's recipe says for a head]."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The .litertlm file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout, nothing else.")
def bundle_command(out: Path, as_json: bool, head_recipe: str | None, **given: Any) -> int:
    """Write a bundle that LiteRT-LM runs with and without speculative decoding.

    The backbone in it is the deployed one, weight for weight. Exit codes: 0 written; 1 usage; 4 a stage failed;
    130 stopped.
    """
    from mtplab.litert.errors import LiteRtError
    from mtplab.model.errors import ModelError
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.errors import PipelineError
    from mtplab.pipeline.headless import run_stages
    from mtplab.pipeline.stage import RunParameters
    from mtplab.session.paths import cache_dir

    parameters = RunParameters(head_recipe=head_recipe, **given)
    try:
        store = Store(cache_dir() / "stages")
        results = run_stages(stages_of(parameters), parameters, store)
    except (ModelError, PipelineError, LiteRtError) as error:
        raise click.UsageError(str(error)) from None
    for result in results:
        click.echo(f"{result.stage:<9} {result.status} {result.seconds:.1f} s  {result.summary}", err=True)
    last = results[-1]
    if last.status not in ("done", "cached"):
        click.echo(f"mtplab: {last.stage}: {last.reason}", err=True)
        return EXIT_STOPPED if last.status == "cancelled" else EXIT_FAILED
    _deliver(store, last.artefacts["model.litertlm"].sha256, out)
    answer = {"file": str(out), "sha256": last.artefacts["model.litertlm"].sha256, **last.figures}
    click.echo(msgspec.json.encode(answer).decode() if as_json else f"{out}: {last.summary}")
    return 0


def stages_of(parameters: Any) -> list[str]:
    """The stages up to the bundle; calibration only for a recipe that wants it. PipelineError: see `check_bundle`."""
    from mtplab.pipeline.stage import check_bundle, chosen_recipes

    check_bundle(parameters)
    calibrated = chosen_recipes(parameters)["backbone"].needs_calibration
    return [name for name in STAGES if name != "calibrate" or calibrated]


def _deliver(store: Any, sha256: str, out: Path) -> None:
    """Copy the artefact under a passing name first: a torn copy must not look like a bundle."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".part")
    shutil.copyfile(store.path(sha256), partial)
    partial.replace(out)
