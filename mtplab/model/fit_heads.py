"""Training of draft heads on the frozen backbone, by self-distillation on its own greedy text.

Teacher forcing over γ steps is exact here: a draft only matters while all drafts before it were accepted,
that is while the fed tokens are the backbone's own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F

from mtplab.model.backbone import Backbone
from mtplab.model.checkpoint import Progress, Say
from mtplab.model.corpus import windows
from mtplab.model.generate import greedy_with_hidden
from mtplab.model.heads import Head
from mtplab.model.optim import MuonAdam


class HeadRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the trained heads, beside backbone and corpus."""

    seed: int = 22
    steps: int = 800
    pool_rows: int = 1024
    row_length: int = 160
    prompt_lengths: tuple[int, ...] = (24, 48, 72, 96)
    positions_per_step: int = 1024
    real_share: float = 0.25
    muon_rate: float = 0.02
    adam_rate: float = 0.002
    position_decay: float = 0.85
    soft_share: float = 0.5


class Pool(msgspec.Struct, frozen=True):
    """Text rows [N,L], the hidden state of every token [N,L-1,D], and the usable positions [M,2] (row, p)."""

    rows: torch.Tensor
    hidden: torch.Tensor
    positions: torch.Tensor


def _positions(starts: torch.Tensor, last: int) -> torch.Tensor:
    """All (row, p) with starts[row] <= p < last."""
    usable = torch.arange(last)[None] >= starts[:, None]
    return usable.nonzero()


def own_text_pool(backbone: Backbone, train: torch.Tensor, recipe: HeadRecipe, gamma: int, say: Say) -> Pool:
    """Greedy continuations of random training windows of several lengths; the backbone runs only here."""
    rows, states, starts, batch = [], [], [], 64
    per_length = recipe.pool_rows // len(recipe.prompt_lengths)
    for length in recipe.prompt_lengths:
        for index in range(0, per_length, batch):
            seed = recipe.seed * 1_000_003 + length * 10_007 + index
            prompts = windows(train, min(batch, per_length - index), length, seed)
            tokens, hidden = greedy_with_hidden(backbone, prompts, recipe.row_length - length)
            rows.append(tokens)
            states.append(hidden)
            starts.append(torch.full((len(tokens),), length - 1))
        say(f"own text after prompts of {length} tokens: {sum(map(len, rows))} rows so far")
    positions = _positions(torch.cat(starts), recipe.row_length - gamma - 1)
    return Pool(torch.cat(rows), torch.cat(states), positions)


@torch.no_grad()
def real_pool(backbone: Backbone, train: torch.Tensor, recipe: HeadRecipe, gamma: int) -> Pool:
    """Rows of real text, for heads that are told the token they condition on."""
    count = int(recipe.pool_rows * recipe.real_share)
    rows = windows(train, count, recipe.row_length, recipe.seed * 31)
    hidden = torch.cat([backbone.hidden_sequence(part[:, :-1]) for part in rows.split(32)])
    starts = torch.zeros(count, dtype=torch.long)
    return Pool(rows, hidden, _positions(starts, recipe.row_length - gamma - 1))


def draft_loss(
    backbone: Backbone, head: Head, pool: Pool, chosen: torch.Tensor, recipe: HeadRecipe
) -> tuple[torch.Tensor, list[float]]:
    """Weighted cross-entropy of the γ drafts from the positions pool.positions[chosen]; and hit rates.

    The target of draft k is the backbone's own choice, and by `soft_share` its whole distribution, at p+k.
    """
    row, p = pool.positions[chosen].unbind(1)
    fed = torch.stack([pool.rows[row, p + k] for k in range(1, head.gamma + 1)], dim=-1)
    loss, hits = torch.zeros(()), []
    for k, drafted in enumerate(head.drafts_given(pool.hidden[row, p], fed), 1):
        with torch.no_grad():
            wanted = backbone.logits(pool.hidden[row, p + k])
        choice = wanted.argmax(-1)
        hard = F.cross_entropy(drafted, choice)
        soft = F.cross_entropy(drafted, wanted.softmax(-1))
        mixed = (1 - recipe.soft_share) * hard + recipe.soft_share * soft
        loss = loss + recipe.position_decay ** (k - 1) * mixed
        hits.append((drafted.argmax(-1) == choice).float().mean().item())
    return loss, hits


def fit_head(
    backbone: Backbone, head: Head, own: Pool, real: Pool, recipe: HeadRecipe, checkpoint: Path, say: Say
) -> dict[str, float]:
    """Train the head's own parameters in place; the backbone is frozen and stays as it is."""
    backbone.requires_grad_(False)
    parameters = head.own_parameters()
    optimiser = MuonAdam(parameters, muon_rate=recipe.muon_rate, adam_rate=recipe.adam_rate)
    progress = Progress(checkpoint, dict(parameters), optimiser, recipe.steps, say)
    for step in progress.steps():
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        # A head without tokens cannot know a real text's next token, so it learns from greedy text alone.
        from_real = head.takes_token and torch.rand((), generator=generator).item() < recipe.real_share
        pool = real if from_real else own
        chosen = torch.randint(len(pool.positions), (recipe.positions_per_step,), generator=generator)
        loss, hits = draft_loss(backbone, head, pool, chosen, recipe)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([value for _, value in parameters], 1.0)
        optimiser.step(min(1.0, (step + 1) / 30, max(0.02, 1.25 * (1 - step / recipe.steps))))
        figures = {f"hit_{k}": round(hit, 3) for k, hit in enumerate(hits, 1)}
        progress.done(loss.item(), lambda figures=figures: figures)  # type: ignore[misc]
    head.eval()
    return {"steps": recipe.steps, "seconds": round(progress.seconds)}
