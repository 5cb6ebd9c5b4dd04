"""Training of draft heads on stored text of the deployed backbone, with α on held-back texts, resume and early stop.

Teacher forcing over γ steps is exact here: a draft only matters while all drafts before it were accepted, and then
the tokens fed to the head are the backbone's own, which is what the stored text consists of.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F

from mtplab.model.backbone import Backbone
from mtplab.model.checkpoint import Progress, Say
from mtplab.model.deployed import common_prefix
from mtplab.model.distil_data import Sample
from mtplab.model.errors import ModelError
from mtplab.model.evaluate import Acceptance, Round, acceptance, count_rounds
from mtplab.model.heads import Head, TokenConditionedHead, attend_for
from mtplab.model.optim import MuonAdam


class FitRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the trained weights, beside backbone, text and head configuration."""

    seed: int = 31
    steps: int = 1000
    positions_per_step: int = 2048
    muon_rate: float = 0.01
    adam_rate: float = 0.002
    weight_decay: float = 0.05
    position_decay: float = 0.85
    soft_share: float = 0.3
    feature_share: float = 0.3
    negatives: int = 1024
    """Tokens beside the right ones in a step's softmax; the whole draft vocabulary would cost most of a step."""
    warm_up: int = 20
    evaluate_every: int = 50
    patience: int = 8
    """Evaluations without a better mean accepted after which training stops."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Padded texts: positions [B,G] to draft from; tokens, choices [B,n]; hidden [B,n,D]; k, v [B,KV,n,HD]."""

    positions: torch.Tensor
    lengths: torch.Tensor
    tokens: torch.Tensor
    choices: torch.Tensor
    hidden: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def collate(samples: Sequence[Sample]) -> Batch:
    """Pad to the longest text; positions run from each prompt's last token and repeat at the end of short texts."""
    rows = [sample.row for sample in samples]
    longest = max(len(row.tokens) for row in rows)

    def padded(name: str, axis: int) -> torch.Tensor:
        parts = []
        for row in rows:
            value = getattr(row, name)
            gap = [0, 0] * (value.dim() - 1 - axis) + [0, longest - value.shape[axis]]
            parts.append(F.pad(value, gap))
        stacked = torch.stack(parts)
        return stacked.float() if stacked.is_floating_point() else stacked

    lengths = torch.tensor([len(row.tokens) for row in rows])
    starts = torch.tensor([row.prompt_length - 1 for row in rows])
    span = torch.arange(int((lengths - starts).max()))
    positions = torch.minimum(starts[:, None] + span[None], lengths[:, None] - 1)
    return Batch(
        positions=positions,
        lengths=lengths,
        tokens=padded("tokens", 0),
        choices=padded("choices", 0),
        hidden=padded("hidden", 0),
        k=padded("k", 1),
        v=padded("v", 1),
    )


class _Order:
    """Batches of texts of similar length, the same for the same seed and step however often training was resumed."""

    def __init__(self, samples: Sequence[Sample], recipe: FitRecipe) -> None:
        self.samples, self.recipe = samples, recipe
        self.epoch, self.batches, self.before = -1, [], 0  # type: ignore[var-annotated]

    def at(self, step: int) -> list[Sample]:
        while self.epoch < 0 or step >= self.before + len(self.batches):
            self.before += len(self.batches)
            self.epoch += 1
            self.batches = self._shuffle(self.epoch)
        return [self.samples[i] for i in self.batches[step - self.before]]

    def _shuffle(self, epoch: int) -> list[list[int]]:
        chance = random.Random(f"{self.recipe.seed} {epoch}")
        sizes = {i: len(one.row.tokens) - one.row.prompt_length + 1 for i, one in enumerate(self.samples)}
        order = list(sizes)
        chance.shuffle(order)
        order.sort(key=lambda i: sizes[i] // 16)
        batches: list[list[int]] = [[]]
        for i in order:
            if batches[-1] and (len(batches[-1]) + 1) * sizes[i] > self.recipe.positions_per_step:
                batches.append([])
            batches[-1].append(i)
        chance.shuffle(batches)
        return batches


def draft_loss(
    backbone: Backbone, head: Head, batch: Batch, recipe: FitRecipe, generator: torch.Generator
) -> tuple[torch.Tensor, list[float]]:
    """Weighted loss of the γ drafts, and their teacher-forced hit rates among the tokens of this step's softmax.

    Of draft k: cross-entropy with the backbone's choice, by `soft_share` with its distribution, and by
    `feature_share` the distance of the normed states. Targets outside the draft vocabulary teach only through the
    states.
    """
    rows = torch.arange(len(batch.lengths))[:, None]
    at = [(batch.positions + k).clamp(max=batch.tokens.shape[1] - 1) for k in range(head.gamma + 1)]
    real = [batch.positions + k < batch.lengths[:, None] for k in range(head.gamma + 1)]
    # Repeated positions at the end of a short text are padding.
    real[0][:, 1:] &= batch.positions[:, 1:] > batch.positions[:, :-1]
    targets = [batch.choices[rows, at[k]] for k in range(1, head.gamma + 1)]
    subset, place = _subset(head, torch.cat([target.flatten() for target in targets]), recipe, generator)
    student, teacher = head.lm_head.weight[subset], backbone.lm_head.weight[_ids(head, subset)]
    fed = torch.stack([batch.tokens[rows, at[k]] for k in range(1, head.gamma + 1)], dim=-1)
    attend = attend_for(head, (batch.k, batch.v), batch.positions)
    loss, hits = torch.zeros(()), []
    for k, state in enumerate(head.states_given(batch.hidden[rows, at[0]], fed, attend), 1):
        usable = real[0] & real[k]
        x, wanted = head.out_norm(state[usable]), backbone.final_norm(batch.hidden[rows, at[k]][usable])
        loss = loss + recipe.position_decay ** (k - 1) * recipe.feature_share * _distance(x, wanted)
        target = place[targets[k - 1][usable]]
        known = target >= 0
        logits, target = F.linear(x[known], student), target[known]
        with torch.no_grad():
            soft = F.linear(wanted[known], teacher).softmax(-1)
            hits.append((logits.argmax(-1) == target).float().mean().item())
        mixed = (1 - recipe.soft_share) * F.cross_entropy(logits, target)
        mixed = mixed + recipe.soft_share * F.cross_entropy(logits, soft)
        loss = loss + recipe.position_decay ** (k - 1) * mixed
    return loss, hits


def _distance(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x, wanted) / wanted.square().mean()


def _ids(head: Head, places: torch.Tensor) -> torch.Tensor:
    return places if head.draft_ids is None else head.draft_ids[places].long()


def _subset(
    head: Head, targets: torch.Tensor, recipe: FitRecipe, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the head's projection that this step looks at, and where each token of the vocabulary is in them."""
    drafted = head.lm_head.weight.shape[0]
    rows = targets if head.draft_ids is None else head.places.long()[targets]
    others = torch.randint(drafted, (recipe.negatives,), generator=generator)
    subset = torch.cat([rows[rows < drafted], others]).unique()
    place = torch.full((head.config.vocab,), -1, dtype=torch.long)
    place[_ids(head, subset)] = torch.arange(len(subset))
    return subset, place


@torch.no_grad()
def start_by_regression(head: Head, samples: Sequence[Sample], ridge: float = 1e-2) -> bool:
    """Set `join_proj` to the best linear guess of the next normed state from token and state; False for other heads.

    Ridge regression over all positions of `samples`, prompts too: seconds of work in place of hundreds of steps.
    """
    if not isinstance(head, TokenConditionedHead):
        return False
    width = head.config.d_model
    gram, moments, count = torch.zeros(2 * width, 2 * width), torch.zeros(2 * width, width), 0
    shared = common_prefix([sample.row.tokens.tolist() for sample in samples if _opens_as(sample, samples[0])])
    for sample in samples:
        # What every prompt begins with (a system prompt) would count as often as there are texts.
        first, row = shared if _opens_as(sample, samples[0]) else 0, sample.row
        hidden = row.hidden[first:].float()
        token = head.token_norm(head.embedding(row.tokens[first + 1 :]))
        known = torch.cat([token, head.state_norm(hidden[:-1])], dim=-1)
        following = F.rms_norm(hidden[1:], (width,), eps=head.config.norm_eps)
        gram += known.T @ known
        moments += known.T @ following
        count += len(known)
    gram.diagonal().add_(ridge * count)
    head.join_proj.weight.copy_(torch.linalg.solve(gram, moments).T)
    return True


def _opens_as(sample: Sample, other: Sample) -> bool:
    return bool(sample.row.tokens[0] == other.row.tokens[0])


@torch.no_grad()
def sample_rounds(head: Head, sample: Sample) -> list[Round]:
    """The rounds of draft–verify decoding on a stored text, which is its output because decoding is greedy."""
    row = sample.row
    kv = [one[None, :, :-1].float() for one in (row.k, row.v)]
    drafts = head.chain(row.hidden[:-1].float(), row.tokens[1:], attend_for(head, kv))
    return count_rounds(row.tokens.tolist(), drafts.tolist(), row.prompt_length, len(row.tokens) - head.gamma)


def judge(head: Head, samples: Sequence[Sample]) -> dict[str, Acceptance]:
    """Acceptance by class, and under "all" over every round."""
    rounds: dict[str, list[Round]] = {}
    for sample in samples:
        rounds.setdefault(sample.prompt_class, []).extend(sample_rounds(head, sample))
    whole = [one for group in rounds.values() for one in group]
    return {name: acceptance(group, head.gamma) for name, group in {**rounds, "all": whole}.items()}


class _Best:
    """The best weights so far, kept inside the checkpoint beside the current ones."""

    def __init__(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        self.parameters = parameters
        self.tensors = {f"best.{name}": value.detach().clone() for name, value in parameters.items()}
        self.state = torch.tensor([-1.0, 0.0])  # mean accepted, evaluations since

    def stored(self) -> dict[str, torch.Tensor]:
        return {**self.parameters, **self.tensors, "best_state": self.state}

    @torch.no_grad()
    def offer(self, mean_accepted: float) -> None:
        if mean_accepted > float(self.state[0]):
            self.state.copy_(torch.tensor([mean_accepted, 0.0]))
            for name, value in self.parameters.items():
                self.tensors[f"best.{name}"].copy_(value)
        else:
            self.state[1] += 1

    @torch.no_grad()
    def restore(self) -> None:
        for name, value in self.parameters.items():
            value.copy_(self.tensors[f"best.{name}"])


def fit(
    backbone: Backbone,
    head: Head,
    train: Sequence[Sample],
    held_back: Sequence[Sample],
    recipe: FitRecipe,
    checkpoint: Path,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, float | int | str]:
    """Train the head's own parameters in place; keeps those with the best mean accepted on `held_back`.

    `stopped` is asked after every step; training then ends with what is best so far and can be resumed.
    """
    if not train or not held_back:
        raise ModelError("There is no text to train on or none held back; generate more text.")
    for value in (*backbone.parameters(), *head.parameters()):
        value.requires_grad_(False)
    parameters = dict(head.own_parameters())
    for value in parameters.values():
        value.requires_grad_(True)
    optimiser = MuonAdam(
        parameters.items(),
        muon_rate=recipe.muon_rate,
        adam_rate=recipe.adam_rate,
        weight_decay=recipe.weight_decay,
    )
    best, order = _Best(parameters), _Order(train, recipe)
    progress = Progress(checkpoint, best.stored(), optimiser, recipe.steps, say, every=recipe.evaluate_every)
    why = "all steps done"
    for step in progress.steps():
        if best.state[1] >= recipe.patience:
            why = "no better mean accepted for a while"
            break
        generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + step)
        loss, hits = draft_loss(backbone, head, collate(order.at(step)), recipe, generator)
        if not bool(torch.isfinite(loss)):
            raise ModelError(f"The loss is no finite number at step {step}; lower the learning rates and resume.")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimiser.step(min(1.0, (step + 1) / recipe.warm_up, max(0.02, 1.25 * (1 - step / recipe.steps))))
        figures = {f"hit_{k}": round(hit, 3) for k, hit in enumerate(hits, 1)}
        if optimiser.steps % recipe.evaluate_every == 0 or optimiser.steps == recipe.steps:
            figures |= _offer(best, head, held_back)
        progress.done(loss.item(), lambda figures=figures: figures)  # type: ignore[misc]
        if stopped():
            why = "stopped"
            progress.save()
            break
    _offer(best, head, held_back)
    best.restore()
    head.requires_grad_(False).eval()
    return {"steps": optimiser.steps, "seconds": round(progress.seconds), "ended": why}


def _offer(best: _Best, head: Head, held_back: Sequence[Sample]) -> dict[str, float]:
    head.eval()
    found = judge(head, held_back)["all"]
    head.train()
    best.offer(found.mean_accepted or 0.0)
    alphas = {f"alpha_{k}": share.value for k, share in enumerate(found.alpha, 1) if share.value is not None}
    return {**alphas, "accepted": found.mean_accepted or 0.0}
