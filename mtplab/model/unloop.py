"""Fine-tuning against loops: sequence-level unlikelihood on the backbone's own greedy text.

Welleck et al. 2019 (arXiv 1908.04319): tokens that complete an n-gram already present in the own greedy
continuation are pushed down by -log(1 - p), while ordinary next-token loss on real text holds the rest.
A looping backbone would flatter every draft head, so this runs before any head is trained.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from mtplab.model.backbone import Backbone, own_state
from mtplab.model.checkpoint import Progress, Say
from mtplab.model.corpus import windows
from mtplab.model.evaluate import repetition, seen_ngrams
from mtplab.model.fit_backbone import next_token_loss
from mtplab.model.generate import greedy
from mtplab.model.optim import MuonAdam


class UnloopRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the fine-tuned weights. n = 8 spares the short repetitions natural in code."""

    seed: int = 21
    steps: int = 120
    ngram: int = 8
    prompts_per_step: int = 12
    prompt_length: int = 32
    new_tokens: int = 72
    real_rows: int = 6
    unlikelihood_weight: float = 1.0
    muon_rate: float = 0.002
    adam_rate: float = 0.0004


def repeated(tokens: torch.Tensor, prompt_length: int, ngram: int) -> torch.Tensor:
    """Mask [B,S] of continuation tokens that complete an n-gram seen before in their row."""
    rows: list[list[int]] = tokens.tolist()
    mask = torch.tensor([seen_ngrams(row, ngram) for row in rows])
    mask[:, :prompt_length] = False
    return mask


def unlikelihood(backbone: Backbone, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of -log(1 - p) over the masked tokens; zero when none is masked."""
    logits, _ = backbone.forward_sequence(tokens[:, :-1])
    p = logits.softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    wanted = mask[:, 1:]
    return -(torch.log1p(-p.clamp(max=0.9999)) * wanted).sum() / wanted.sum().clamp(min=1)


def unloop(
    backbone: Backbone, train: torch.Tensor, recipe: UnloopRecipe, checkpoint: Path, say: Say
) -> dict[str, float]:
    """Fine-tune in place, resuming from `checkpoint` if it exists."""
    optimiser = MuonAdam(backbone.named_parameters(), muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate)
    progress = Progress(checkpoint, own_state(backbone), optimiser, recipe.steps, say)
    looping, length = 0.0, backbone.config.context
    for step in progress.steps():
        seed = recipe.seed * 1_000_003 + step
        prompts = windows(train, recipe.prompts_per_step, recipe.prompt_length, seed)
        tokens = greedy(backbone, prompts, recipe.new_tokens)
        mask = repeated(tokens, recipe.prompt_length, recipe.ngram)
        share = repetition(tokens[:, recipe.prompt_length :].tolist()).looping.value or 0.0
        looping = share if step == progress.first else 0.9 * looping + 0.1 * share
        real = next_token_loss(backbone, windows(train, recipe.real_rows, length, seed + 500_000))
        loss = real + recipe.unlikelihood_weight * unlikelihood(backbone, tokens, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), 1.0)
        optimiser.step(min(1.0, 1.2 * (1 - step / recipe.steps)))
        figures = {"real": round(real.item(), 4), "looping": round(looping, 3)}
        progress.done(loss.item(), lambda figures=figures: figures)  # type: ignore[misc]
    return {"steps": recipe.steps, "seconds": round(progress.seconds)}
