"""Command line that trains the shipped tiny model: `python -m mtplab.model.train backbone|heads|card`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec
import torch

from mtplab.model import corpus
from mtplab.model.backbone import Backbone, BackboneConfig
from mtplab.model.fit_backbone import BackboneRecipe, fit_backbone, load_checkpoint

DEFAULT_WORK = Path("build/model")


def say(line: str) -> None:
    """One line of progress, at once."""
    print(line, flush=True)


@click.group()
@click.option("--work", type=click.Path(path_type=Path), default=DEFAULT_WORK, show_default=True)
@click.option("--threads", type=int, default=2, show_default=True)
@click.pass_context
def main(context: click.Context, work: Path, threads: int) -> None:
    """Train the tiny model from the standard library's own text; every step is seeded and resumable."""
    torch.set_num_threads(threads)
    work.mkdir(parents=True, exist_ok=True)
    context.obj = work


def prepare(work: Path, config: BackboneConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokenizer and token streams (train, held out), made once and kept in `work`."""
    documents = corpus.library_documents()
    path = work / "tokenizer.json"
    if not path.exists():
        corpus.train_tokenizer(documents, config.vocab).save(str(path))
        (work / "corpus.json").write_bytes(msgspec.json.encode(corpus.corpus_facts(documents)))
    tokenizer = corpus.Tokenizer.from_file(str(path))
    train = corpus.token_stream(tokenizer, documents, held_out=False)
    held_out = corpus.token_stream(tokenizer, documents, held_out=True)
    return train, held_out


@main.command()
@click.option("--steps", type=int, default=BackboneRecipe().steps, show_default=True)
@click.option("--seed", type=int, default=BackboneRecipe().seed, show_default=True)
@click.pass_obj
def backbone(work: Path, steps: int, seed: int) -> None:
    """Train tokenizer and backbone."""
    config = BackboneConfig.small()
    train, held_out = prepare(work, config)
    say(f"train {len(train)} tokens, held out {len(held_out)}")
    torch.manual_seed(seed)
    model = Backbone(config)
    recipe = BackboneRecipe(steps=steps, seed=seed)
    result = fit_backbone(model, train, held_out, recipe, work / "backbone.ckpt.safetensors", say)
    (work / "config.json").write_text(config.to_json() + "\n")
    facts = {"recipe": msgspec.to_builtins(recipe), **result}
    (work / "backbone_run.json").write_bytes(msgspec.json.encode(facts))


def trained(work: Path) -> Backbone:
    """The backbone as last checkpointed."""
    model = Backbone(BackboneConfig.small())
    load_checkpoint(work / "backbone.ckpt.safetensors", model)
    return model.eval()


if __name__ == "__main__":
    sys.exit(main())
