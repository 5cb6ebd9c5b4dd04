"""`mtplab train-head`: teach a draft head on the frozen backbone's own text, as it will be deployed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from mtplab.model.kinds import KINDS


def say(line: str) -> None:
    """One line of progress, at once."""
    click.echo(line)


_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_POSITIVE = click.IntRange(min=1)


@click.command("train-head")
@click.option("--model", "spec", default="tiny", show_default=True, help="tiny, smollm2, folder, module:factory.")
@click.option("--kind", type=click.Choice(KINDS), default="zero_copy", show_default=True, help="Family of the head.")
@click.option("--gamma", type=click.IntRange(1, 16), default=3, show_default=True, help="Tokens drafted per round.")
@click.option("--draft-vocab", type=_POSITIVE, help="Draft only the N most frequent tokens.")
@click.option("--ff", type=_POSITIVE, help="Width of the head's feed-forward part.")
@click.option("--out", type=_FOLDER, required=True, help="Where the head and its card go.")
@click.option("--work", type=_FOLDER, help="Where text and checkpoints stay [OUT/work].")
@click.option(
    "--states",
    type=click.Choice(["int8", "int8_weights", "float"]),
    default="int8",
    show_default=True,
    help="Arithmetic of text and states: that of the deployed dynamic int8 graph, its weights only, or float.",
)
@click.option("--prompts", "prompt_file", type=_FILE, help="JSON Lines instead of the built-in families of prompts.")
@click.option("--text", "text_file", type=_FILE, help="A text to learn from beside the model's own.")
@click.option("--also", type=_FOLDER, multiple=True, help="Another run's --work, whose text is learned from, too.")
@click.option("--texts", type=click.IntRange(min=8), default=1536, show_default=True, help="Own texts to generate.")
@click.option("--new-tokens", type=click.IntRange(min=8), default=96, show_default=True, help="Length of own texts.")
@click.option("--steps", type=_POSITIVE, default=1000, show_default=True)
@click.option("--held-out", type=click.IntRange(min=4), default=120, show_default=True, help="Prompts to judge by.")
@click.option("--seed", type=int, default=31, show_default=True)
@click.option("--threads", type=_POSITIVE, default=1, show_default=True)
@click.option("--only-text", is_flag=True, help="Generate the text and stop.")
@click.option("--no-more-text", is_flag=True, help="Train on the text that --work holds already.")
def train_head_command(spec: str, **options: Any) -> int:
    """Train a draft head by self-distillation; run the same command again to resume.

    Text and checkpoints are kept in --work. Ctrl-C ends training with a checkpoint. Exit codes: 0 trained, 1 usage,
    2 the model, the head or the text cannot be used, 130 interrupted.
    """
    from mtplab.model.errors import ModelError

    try:
        return _run(spec, options)
    except ModelError as error:
        click.echo(f"mtplab: {error}", err=True)
        return 2


def _run(spec: str, options: dict[str, Any]) -> int:
    import torch

    from mtplab.model import distil_run
    from mtplab.model.sources import load_model

    torch.set_num_threads(options["threads"])
    same = ("kind", "gamma", "draft_vocab", "ff", "states", "texts", "new_tokens", "steps", "held_out", "seed")
    plan = distil_run.Plan(
        **{name: options[name] for name in same},
        also=tuple(map(str, options["also"])),
        prompt_file=options["prompt_file"] and str(options["prompt_file"]),
        text_file=options["text_file"] and str(options["text_file"]),
    )
    out: Path = options["out"]
    work: Path = options["work"] or out / "work"
    model = load_model(spec, from_command_line=True)
    if not options["no_more_text"]:
        distil_run.make_texts(model, plan, work, say)
    if options["only_text"]:
        return 0
    interrupted = _Interrupted()
    ended = distil_run.train(model, plan, work, out, say, interrupted)
    return 130 if ended == "stopped" else 0


class _Interrupted:
    """Whether Ctrl-C was pressed; training asks after every step, so that the checkpoint is whole."""

    def __init__(self) -> None:
        self.pressed = False
        signal.signal(signal.SIGINT, self._press)

    def _press(self, *_: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        say("Stopping after this step; run the same command again to go on.")

    def __call__(self) -> bool:
        return self.pressed

