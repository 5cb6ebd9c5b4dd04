"""Training of the backbone: plain language modelling with a resumable, step-seeded schedule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F

from mtplab.model.backbone import Backbone, own_state
from mtplab.model.checkpoint import Progress, Say
from mtplab.model.corpus import windows
from mtplab.model.optim import MuonAdam


class BackboneRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the trained weights, beside the corpus."""

    seed: int = 20
    steps: int = 1500
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
    progress = Progress(checkpoint, own_state(backbone), optimiser, recipe.steps, say)
    for step in progress.steps():
        length = recipe.length(step)
        rows = windows(train, recipe.tokens_per_step // length, length + 1, recipe.seed * 1_000_003 + step)
        loss = next_token_loss(backbone, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), 1.0)
        optimiser.step(recipe.rate_scale(step))
        progress.done(loss.item(), lambda: {"held_out": round(mean_loss(backbone, held_out, 2), 4)})
    return {"steps": recipe.steps, "seconds": round(progress.seconds)}
