"""`mtplab import-head`: turn MTP weights of another checkpoint into a head file that every other command reads."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("import-head")
@click.option("--model", "spec", required=True, help="The backbone: tiny, smollm2, a folder, or module:factory.")
@click.option("--head", "checkpoint", type=_FILE, required=True, help="The safetensors file with the MTP weights.")
@click.option("--map", "mapping", type=_FILE, required=True, help="TOML: kind, gamma, and [tensors] ours = theirs.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the head goes.")
def import_head_command(spec: str, checkpoint: Path, mapping: Path, out: Path) -> int:
    """Map the MTP weights of a checkpoint onto a head family.

    The layout of the map stands in mtplab/model/head_map.py. Exit codes: 0 written, 1 usage, 2 it does not fit.
    """
    from mtplab.model.errors import ModelError

    try:
        from mtplab.model.head_map import load_mapped_head, read_map
        from mtplab.model.heads import head_cost, save_head
        from mtplab.model.sources import load_model

        model = load_model(spec, from_command_line=True)
        head = load_mapped_head(checkpoint, read_map(mapping), model.backbone)
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"head_{head.config.kind}.safetensors"
        save_head(head, path)
        cost = head_cost(head, model.backbone, bytes_per_parameter=2.0)
    except ModelError as error:
        click.echo(f"mtplab: {error}", err=True)
        return 2
    click.echo(f"{path}: {cost.own_parameters:,} own parameters, {cost.own_share:.1%} of the backbone's")
    if cost.warning:
        click.echo(cost.warning)
    return 0
