"""Replay recorded rounds under another drafting policy: approximate by nature, and said so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat

import msgspec
import numpy as np

from mtplab.speculation.acceptance import AcceptCounts, alpha_mle
from mtplab.speculation.adaptive import OFF, DraftPolicy, Fixed
from mtplab.speculation.intervals import DEFAULT_SEED, Estimate, bootstrap_statistic
from mtplab.speculation.speedup import Cost

CAVEAT = (
    "Approximate: a shorter draft begins its rounds elsewhere, where a head that feeds on its own drafts or on "
    "another hidden state may guess otherwise; only a run of the policy itself is exact."
)


class RecordedPrompt(msgspec.Struct, frozen=True):
    """The accept count of each round of one prompt, all drafted at `gamma`."""

    prompt: str
    klass: str
    gamma: int
    accepts: tuple[int, ...]


class Spent(msgspec.Struct, frozen=True):
    """What a replay of one prompt came to: output tokens, and their cost in plain decode steps."""

    tokens: int
    steps: float
    rounds: int
    plain_steps: int

    @property
    def speedup(self) -> float:
        return self.tokens / self.steps


def match_stream(recorded: RecordedPrompt) -> list[bool | None]:
    """For every output position whether a draft of it matched: known inside rounds, None for a bonus token.

    A round that accepted j < γ tells j matches and one miss (the correction's position); one that accepted all γ
    tells nothing of the position of its bonus token, because nothing drafted it.
    """
    stream: list[bool | None] = []
    for accepted in recorded.accepts:
        stream += [True] * accepted
        stream.append(False if accepted < recorded.gamma else None)
    return stream


def replay(
    stream: Sequence[bool | None], policy: DraftPolicy, cost: Cost, unknown_alpha: float, rng: np.random.Generator
) -> Spent:
    """Walk one match stream under `policy`; positions that were never drafted match with `unknown_alpha`."""
    known = [rng.random() < unknown_alpha if match is None else match for match in stream]
    at, steps, rounds, plain = 0, 0.0, 0, 0
    while at < len(known):
        gamma = policy.next_gamma()
        if gamma == OFF:
            policy.observe(OFF, 0)
            at, steps, plain = at + 1, steps + 1, plain + 1
            continue
        accepted = 0
        while accepted < gamma and at + accepted < len(known) and known[at + accepted]:
            accepted += 1
        policy.observe(gamma, accepted)
        at, steps, rounds = at + accepted + 1, steps + cost.round_cost(gamma), rounds + 1
    # The last round may reach past what was recorded: its tokens there are not counted.
    return Spent(len(known), steps, rounds, plain)


class Gain(msgspec.Struct, frozen=True):
    """One policy beside the best fixed length of the same recorded prompts."""

    klass: str
    prompts: int
    best_fixed_gamma: int
    fixed_speedup: float
    adaptive_speedup: float
    gain: Estimate
    plain_share: float


def compare(
    prompts: Sequence[RecordedPrompt],
    make: Callable[[], DraftPolicy],
    cost: Cost,
    gammas: Iterable[int],
    seed: int = DEFAULT_SEED,
    *,
    carried: bool = True,
) -> list[Gain]:
    """A row for each class, the policy beginning anew, and one for the mixed load, where it goes on through all.

    Unless it is `carried` from prompt to prompt, it begins anew with every prompt, as it does in a run.
    The best fixed length (OFF among them) is chosen on the very prompts it is judged on, which favours it. The gain
    is adaptive ÷ fixed with its interval by a paired bootstrap over prompts.
    """
    lengths = sorted(set(gammas))
    recorded = {p.gamma for p in prompts}
    if not prompts or max(lengths) > min(recorded):
        raise ValueError(f"rounds recorded at γ = {sorted(recorded)} say nothing of lengths {lengths}")
    streams = [match_stream(p) for p in prompts]
    alpha = alpha_mle(_pooled(prompts)).value or 0.0
    by_class: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_class.setdefault(prompt.klass, []).append(index)
    groups = [(klass, indices) for klass, indices in sorted(by_class.items())]
    # A load as a phone sees it: classes in turn, not one after the other.
    mixed = [i for column in _columns([indices for _, indices in groups]) for i in column]
    groups.append(("mixed load", mixed))
    return [
        _gain(klass, [streams[i] for i in indices], make, cost, lengths, alpha, seed, carried)
        for klass, indices in groups
    ]


def _pooled(prompts: Sequence[RecordedPrompt]) -> AcceptCounts:
    gamma = min(p.gamma for p in prompts)
    return AcceptCounts.from_accepts(gamma, (min(a, gamma) for p in prompts for a in p.accepts))


def _columns(lists: Sequence[Sequence[int]]) -> list[list[int]]:
    longest = max(map(len, lists))
    return [[one[i] for one in lists if i < len(one)] for i in range(longest)]


def _gain(
    klass: str,
    streams: Sequence[Sequence[bool | None]],
    make: Callable[[], DraftPolicy],
    cost: Cost,
    lengths: Sequence[int],
    alpha: float,
    seed: int,
    carried: bool,
) -> Gain:
    def spend(policies: Iterable[DraftPolicy]) -> list[Spent]:
        rng = np.random.default_rng(seed)  # the same unknown positions fall the same way for every policy
        return [replay(stream, one, cost, alpha, rng) for stream, one in zip(streams, policies, strict=False)]

    fixed = {g: spend(repeat(Fixed(g))) for g in (OFF, *lengths)}
    best = max(fixed, key=lambda g: _speedup(fixed[g]))
    adaptive = spend(repeat(make()) if carried else (make() for _ in streams))
    rows = [[a.steps, f.steps] for a, f in zip(adaptive, fixed[best], strict=True)]
    kind = "paired_bootstrap_by_prompt"
    gain = bootstrap_statistic(rows, lambda sums: sums[..., 1] / sums[..., 0], kind, seed=seed)
    tokens = sum(one.tokens for one in adaptive)
    return Gain(
        klass=klass,
        prompts=len(streams),
        best_fixed_gamma=best,
        fixed_speedup=_speedup(fixed[best]),
        adaptive_speedup=_speedup(adaptive),
        gain=gain,
        plain_share=sum(one.plain_steps for one in adaptive) / tokens if tokens else 0.0,
    )


def _speedup(spent: Sequence[Spent]) -> float:
    return sum(one.tokens for one in spent) / sum(one.steps for one in spent)


def round_costs(cost: Cost, gammas: Iterable[int]) -> Mapping[int, float]:
    """K(γ) of each length."""
    return {g: cost.round_cost(g) for g in gammas}
