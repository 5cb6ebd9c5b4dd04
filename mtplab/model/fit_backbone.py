"""Training of the backbone: plain language modelling with a resumable, step-seeded schedule."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from mtplab.model.backbone import Backbone, own_state
from mtplab.model.corpus import windows
from mtplab.model.optim import MuonAdam

Say = Callable[[str], None]


class BackboneRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the trained weights, beside the corpus."""

    seed: int = 20
    steps: int = 2800
    tokens_per_step: int = 2048
    short_length: int = 128
    long_length: int = 256
    short_share: float = 0.5
    warmup_steps: int = 80
    decay_share: float = 0.45
    muon_rate: float = 0.015
    adam_rate: float = 0.003
    weight_decay: float = 0.1

    def rate_scale(self, step: int) -> float:
        """Warm up, hold, then fall linearly to almost nothing."""
        decay_from = self.steps * (1 - self.decay_share)
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if step < decay_from:
            return 1.0
        return max(0.01, (self.steps - step) / (self.steps - decay_from))

    def length(self, step: int) -> int:
        return self.short_length if step < self.short_share * self.steps else self.long_length


def next_token_loss(backbone: Backbone, rows: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats per token of rows[B,S+1]."""
    logits, _ = backbone.forward_sequence(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def mean_loss(backbone: Backbone, stream: torch.Tensor, batches: int = 12, seed: int = 7) -> float:
    """Mean nats per token over fixed random windows of a token stream."""
    length = backbone.config.context
    losses = [next_token_loss(backbone, windows(stream, 8, length, seed * 1000 + i)).item() for i in range(batches)]
    return sum(losses) / len(losses)


def save_checkpoint(path: Path, backbone: Backbone, optimiser: MuonAdam, seconds: float) -> None:
    """Write weights and optimiser state as one safetensors file, replaced at once."""
    tensors = {f"model.{name}": value.contiguous() for name, value in own_state(backbone).items()}
    tensors |= {f"optim.{name}": value.contiguous() for name, value in optimiser.state.items()}
    partial = path.with_suffix(".part")
    save_file(tensors, partial, metadata={"step": str(optimiser.steps), "seconds": repr(seconds)})
    partial.replace(path)


def load_checkpoint(path: Path, backbone: Backbone, optimiser: MuonAdam | None = None) -> tuple[int, float]:
    """Restore a checkpoint; returns the steps done and the seconds they took."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state = {n.removeprefix("model."): v for n, v in tensors.items() if n.startswith("model.")}
    backbone.load_state_dict({**state, "lm_head.weight": state["embedding.weight"]})
    if optimiser is not None:
        for name, value in optimiser.state.items():
            value.copy_(tensors[f"optim.{name}"])
        optimiser.steps = int(metadata["step"])
    return int(metadata["step"]), float(metadata["seconds"])


def fit_backbone(
    backbone: Backbone,
    train: torch.Tensor,
    held_out: torch.Tensor,
    recipe: BackboneRecipe,
    checkpoint: Path,
    say: Say,
) -> dict[str, float]:
    """Train in place, resuming from `checkpoint` if it exists; every batch depends on (seed, step) alone."""
    optimiser = MuonAdam(
        backbone.named_parameters(),
        muon_rate=recipe.muon_rate,
        adam_rate=recipe.adam_rate,
        weight_decay=recipe.weight_decay,
    )
    done, before = 0, 0.0
    if checkpoint.exists():
        done, before = load_checkpoint(checkpoint, backbone, optimiser)
        say(f"resumed after step {done}")
    started, running = time.monotonic(), 0.0
    for step in range(done, recipe.steps):
        length = recipe.length(step)
        rows = windows(train, recipe.tokens_per_step // length, length + 1, recipe.seed * 1_000_003 + step)
        loss = next_token_loss(backbone, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), 1.0)
        optimiser.step(recipe.rate_scale(step))
        running = loss.item() if not running else 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 50 == 0 or step + 1 == recipe.steps:
            seconds = time.monotonic() - started
            left = seconds / (step + 1 - done) * (recipe.steps - step - 1)
            held = mean_loss(backbone, held_out, 4) if (step + 1) % 200 == 0 else None
            say(
                json.dumps(
                    {"step": step + 1, "of": recipe.steps, "loss": round(running, 4), "held_out": held}
                    | {"seconds": round(before + seconds), "eta_s": round(left)}
                )
            )
            save_checkpoint(checkpoint, backbone, optimiser, before + seconds)
    return {"steps": recipe.steps, "seconds": before + time.monotonic() - started}
