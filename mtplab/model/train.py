"""Command line that trains the shipped tiny model: `python -m mtplab.model.train backbone|heads|card`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import torch

from mtplab.model import card as cards
from mtplab.model import corpus, held_out_prompts, prompts
from mtplab.model.backbone import Backbone, BackboneConfig, own_state
from mtplab.model.checkpoint import load_checkpoint
from mtplab.model.errors import ModelError
from mtplab.model.files import BACKBONE, CONFIG, TOKENIZER, model_files
from mtplab.model.fit_backbone import BackboneRecipe, fit_backbone
from mtplab.model.fit_heads import HeadRecipe, fit_head, own_text_pool, real_pool
from mtplab.model.heads import build_head, save_head
from mtplab.model.kinds import TINY_KINDS
from mtplab.model.sources import load_folder
from mtplab.model.unloop import UnloopRecipe, unloop
from mtplab.model.weights import load_backbone, save_backbone

DEFAULT_WORK = Path("build/model")
SHIPPED = Path(__file__).parent / "tiny"
_LEARNED, _UNLOOPED = "backbone.ckpt.safetensors", "unloop.ckpt.safetensors"


def say(line: str) -> None:
    """One line of progress, at once."""
    print(line, flush=True)


@click.group()
@click.option("--work", type=click.Path(path_type=Path), default=DEFAULT_WORK, show_default=True)
@click.option("--threads", type=int, default=2, show_default=True)
@click.pass_context
def cli(context: click.Context, work: Path, threads: int) -> None:
    """Train the tiny model from the standard library's own text; every step is seeded and resumable."""
    torch.set_num_threads(threads)
    work.mkdir(parents=True, exist_ok=True)
    context.obj = work


def streams(work: Path, config: BackboneConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Token streams (train, held out); the tokenizer is made once and kept in `work`."""
    documents = corpus.library_documents()
    path = work / TOKENIZER
    if not path.exists():
        corpus.train_tokenizer(documents, config.vocab).save(str(path))
        (work / "corpus.json").write_bytes(msgspec.json.encode(corpus.corpus_facts(documents)))
    tokenizer = corpus.Tokenizer.from_file(str(path))
    train = corpus.token_stream(tokenizer, documents, held_out=False)
    return train, corpus.token_stream(tokenizer, documents, held_out=True)


def note_run(work: Path, name: str, recipe: msgspec.Struct, result: dict[str, float]) -> None:
    """Keep what a run was and how long it took, for the card."""
    facts = {"recipe": msgspec.to_builtins(recipe), **result}
    (work / f"run_{name}.json").write_bytes(msgspec.json.encode(facts))


@cli.command()
@click.option("--steps", type=int, default=BackboneRecipe().steps, show_default=True)
@click.option("--unloop-steps", type=int, default=UnloopRecipe().steps, show_default=True)
@click.pass_obj
def backbone(work: Path, steps: int, unloop_steps: int) -> None:
    """Train tokenizer and backbone, then fine-tune against loops."""
    config = BackboneConfig.small()
    train, held_out = streams(work, config)
    say(f"train {len(train)} tokens, held out {len(held_out)}")
    recipe = BackboneRecipe(steps=steps)
    torch.manual_seed(recipe.seed)
    model = Backbone(config)
    note_run(work, "backbone", recipe, fit_backbone(model, train, held_out, recipe, work / _LEARNED, say))
    against = UnloopRecipe(steps=unloop_steps)
    note_run(work, "unloop", against, unloop(model, train, against, work / _UNLOOPED, say))
    (work / CONFIG).write_text(config.to_json() + "\n")
    save_backbone(model, work / BACKBONE)


@cli.command()
@click.option("--gamma", type=int, default=3, show_default=True)
@click.option("--steps", type=int, default=HeadRecipe().steps, show_default=True)
@click.option("--pool-rows", type=int, default=HeadRecipe().pool_rows, show_default=True)
@click.pass_obj
def heads(work: Path, gamma: int, steps: int, pool_rows: int) -> None:
    """Train both draft heads on the frozen backbone, in the precision in which it is shipped."""
    config = BackboneConfig.load(work / CONFIG)
    model = load_backbone(work / BACKBONE, config).requires_grad_(False)
    train, _ = streams(work, config)
    recipe = HeadRecipe(steps=steps, pool_rows=pool_rows)
    own = own_text_pool(model, train, recipe, gamma, say)
    real = real_pool(model, train, recipe, gamma)
    for kind in TINY_KINDS:
        say(f"head {kind}")
        torch.manual_seed(recipe.seed)
        head = build_head(kind, model, gamma)
        checkpoint = work / f"{kind}.ckpt.safetensors"
        note_run(work, f"head_{kind}", recipe, fit_head(model, head, own, real, recipe, checkpoint, say))
        save_head(head, work / f"head_{kind}.safetensors")


@cli.command(name="prompts")
def make_prompts() -> None:
    """Write the acceptance prompt set anew from the held-out modules."""
    rows = held_out_prompts.build(corpus.library_documents())
    held_out_prompts.write(rows, Path(prompts.__file__).parent / "acceptance.jsonl")


@cli.command()
@click.option("--out", type=click.Path(path_type=Path), default=SHIPPED, show_default=True)
@click.pass_obj
def card(work: Path, out: Path) -> None:
    """Copy the trained files to OUT, measure them there and write the card."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, TOKENIZER, BACKBONE, *(f"head_{kind}.safetensors" for kind in TINY_KINDS)):
        if not (work / name).exists():
            raise ModelError(f"{name} is not in {work.name}; run the commands backbone and heads first.")
        shutil.copyfile(work / name, out / name)
    model = load_folder(out, "tiny", model_files(out))
    before = Backbone(model.config)
    load_checkpoint(work / _LEARNED, own_state(before))
    _, held_out = streams(work, model.config)
    cards.write(cards.measure(model, before.eval(), held_out, _facts(work)), out)
    say(f"card written to {out / 'MODEL_CARD.md'}")


def _facts(work: Path) -> dict[str, Any]:
    names = ("backbone", "unloop", *(f"head_{kind}" for kind in TINY_KINDS))
    runs = {name: msgspec.json.decode((work / f"run_{name}.json").read_bytes()) for name in names}
    known = msgspec.json.decode((work / "corpus.json").read_bytes())
    return {"corpus": known, "runs": runs, "torch": str(torch.__version__)}


def main() -> int:
    """Run the command; a `ModelError` ends it with its sentence and exit code 2."""
    try:
        cli(standalone_mode=False)
    except ModelError as error:
        click.echo(str(error), err=True)
        return 2
    except click.ClickException as error:
        error.show()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
