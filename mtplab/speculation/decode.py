"""Decode plainly or by draft and verify, over any runtime, and record what happened as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np

from mtplab.speculation.adaptive import OFF, DraftPolicy, Fixed
from mtplab.speculation.sampling import Chooser, Greedy

EndReason = Literal["stop", "limit", "context"]
Clock = Callable[[], int]


class BackboneRuntime(Protocol):
    """A backbone with its KV cache inside. Positions count from 0; logits at p choose the token at p+1.

    `prefill` starts a new sequence and handles prompts longer than any one signature itself. `decode` and
    `verify` overwrite the cache at the positions they are given; what lies behind the last given position is
    stale and must not be attended to (the causal mask sees to it), so a rejected draft needs no rollback.
    """

    @property
    def context_limit(self) -> int:
        """T: the number of positions the cache holds."""

    @property
    def gammas(self) -> Sequence[int]:
        """Draft lengths that verify signatures were exported for, ascending."""

    def prefill(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Consume positions 0..n−1; give logits[V] and hidden[D] of the last."""

    def decode(self, token: int, pos: int) -> tuple[np.ndarray, np.ndarray]:
        """Consume one token at `pos`; give logits[V] and hidden[D]."""

    def verify(self, tokens: Sequence[int], pos: int) -> tuple[np.ndarray, np.ndarray]:
        """Consume γ+1 tokens at pos..pos+γ, γ one of `gammas`; give logits[γ+1,V] and hidden[γ+1,D]."""


class Drafter(Protocol):
    """A draft head: from hidden[p] and the already chosen token at p+1 to logits for p+2..p+1+γ."""

    @property
    def gamma(self) -> int:
        """The longest draft it can make."""

    def draft(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> np.ndarray:
        """Give logits[γ,V]; a head that is not token-conditioned ignores `token`.

        `pos` is where the token stands (p+1); a zero-copy head reads the backbone's cache before it.
        """

    def choices(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> Sequence[int] | None:
        """The likeliest token of each of these drafts, where the head can tell them without its logits; else None."""


class TokenRecord(msgspec.Struct, frozen=True, tag="token"):
    """One output token. `round` is None where no draft round made it (prefill, plain decoding).

    `t_ns` is when the token became known; all tokens of a round become known together. `margin` is the
    backbone's top-1 − top-2 logit, recorded by plain decoding only.
    """

    id: int
    round: int | None
    t_ns: int
    margin: float | None = None


class RoundRecord(msgspec.Struct, frozen=True, tag="round"):
    """One draft–verify round.

    `accepted` is what verification found; `emitted` is how many tokens the output took, fewer than accepted+1
    only when a stop token or the output limit cut the last round. `ranks[k]` is the rank (0 = its first choice)
    of the backbone's own token in draft k's logits, up to and including the first rejected position; behind it
    the ranks are None, because those drafts and the backbone's answers to them continue a wrong prefix. Where the
    head gave its choices without logits, the rank of the first rejected one is not known and None too.
    `handover_ns` is the part of both times that went into passing data between backbone and head, where the
    runtimes tell it.
    """

    round: int
    gamma: int
    accepted: int
    emitted: int
    ranks: tuple[int | None, ...]
    draft_ns: int
    verify_ns: int
    t_ns: int
    handover_ns: int | None = None


class EndRecord(msgspec.Struct, frozen=True, tag="end"):
    """How decoding ended: a stop token (it is the last output token), the output limit, or the context."""

    reason: EndReason
    output_tokens: int
    rounds: int
    plain_steps: int
    t_ns: int


Record = TokenRecord | RoundRecord | EndRecord


def decode_plain(
    backbone: BackboneRuntime,
    prompt: Sequence[int],
    *,
    limit: int,
    stop: frozenset[int] = frozenset(),
    clock: Clock = time.monotonic_ns,
    chooser: Chooser | None = None,
) -> Iterator[Record]:
    """One token a step, greedily unless a `chooser` is given, with the margin of every choice.

    Yields a TokenRecord for each of at most `limit` tokens, then one EndRecord. A stop token is output and ends.
    """
    _check_request(backbone, prompt, limit)
    chooser = chooser or Greedy()
    logits, _ = backbone.prefill(prompt)
    pos, steps = len(prompt), 0
    while True:
        token = chooser.choose(logits)
        made = steps + 1
        yield TokenRecord(token, None, clock(), margin(logits))
        reason = _reason(token, made, pos, limit, stop, backbone.context_limit)
        if reason is not None:
            yield EndRecord(reason, made, 0, steps, clock())
            return
        logits, _ = backbone.decode(token, pos)
        pos, steps = pos + 1, steps + 1


def decode_speculative(
    backbone: BackboneRuntime,
    drafter: Drafter,
    prompt: Sequence[int],
    *,
    limit: int,
    stop: frozenset[int] = frozenset(),
    clock: Clock = time.monotonic_ns,
    policy: DraftPolicy | None = None,
    chooser: Chooser | None = None,
) -> Iterator[Record]:
    """Draft–verify decoding; greedy output is `decode_plain`'s, token for token, whatever the policy.

    `policy` chooses each round's draft length among the exported ones (the longest, if not given); a chooser that
    samples keeps plain sampling's distribution. Yields each RoundRecord before the TokenRecords of that round, then
    one EndRecord. Where the context has no room left for γ+1 positions it goes on by single steps.
    """
    _check_request(backbone, prompt, limit)
    chooser = chooser or Greedy()
    policy = policy or _longest(backbone, drafter)
    logits, hidden = backbone.prefill(prompt)
    token, pos = chooser.choose(logits), len(prompt)
    made, rounds, steps = 1, 0, 0
    yield TokenRecord(token, None, clock())
    reason = _reason(token, made, pos, limit, stop, backbone.context_limit)
    while reason is None:
        gamma = policy.next_gamma()
        if gamma != OFF and pos + gamma < backbone.context_limit:
            record, chosen, hidden = _round(backbone, drafter, chooser, hidden, token, pos, gamma, rounds, clock)
            policy.observe(gamma, record.accepted)
            kept, reason = _cut(chosen, made, pos, limit, stop, backbone.context_limit)
            record = msgspec.structs.replace(record, emitted=len(kept))
            yield record
            for token in kept:
                yield TokenRecord(token, rounds, record.t_ns)
            rounds += 1
        else:
            logits, hidden = backbone.decode(token, pos)
            policy.observe(OFF, 0)
            kept, reason = _cut([chooser.choose(logits)], made, pos, limit, stop, backbone.context_limit)
            token = kept[0]
            yield TokenRecord(token, None, clock())
            steps += 1
        made, pos = made + len(kept), pos + len(kept)
    yield EndRecord(reason, made, rounds, steps, clock())


def _longest(backbone: BackboneRuntime, drafter: Drafter) -> DraftPolicy:
    """The longest draft that both sides can make."""
    if drafter.gamma not in backbone.gammas:
        exported = ", ".join(map(str, backbone.gammas))
        raise ValueError(
            f"the head drafts {drafter.gamma} tokens but the backbone verifies {exported}; "
            "export both with the same gamma"
        )
    return Fixed(drafter.gamma)


def _round(
    backbone: BackboneRuntime,
    drafter: Drafter,
    chooser: Chooser,
    hidden: np.ndarray,
    token: int,
    pos: int,
    gamma: int,
    index: int,
    clock: Clock,
) -> tuple[RoundRecord, list[int], np.ndarray]:
    """One round: the record, the accepted drafts with the backbone's next choice, and the hidden state there.

    `token` stands at `pos` and is not consumed yet; `hidden` is the state at pos−1 that chose it.
    """
    began = clock()
    known = drafter.choices(hidden, token, gamma, pos)
    draft_logits = drafter.draft(hidden, token, gamma, pos) if known is None else None
    drafts = chooser.draft(draft_logits) if draft_logits is not None else list(known or ())
    drafted = clock()
    logits, states = backbone.verify([token, *drafts], pos)
    accepted, chosen = chooser.verify(drafts, logits)
    verified = clock()
    record = RoundRecord(
        round=index,
        gamma=gamma,
        accepted=accepted,
        emitted=accepted + 1,
        ranks=_ranks(drafts, draft_logits, chosen),
        draft_ns=drafted - began,
        verify_ns=verified - drafted,
        t_ns=verified,
        handover_ns=_handover_ns(backbone, drafter),
    )
    return record, chosen, states[accepted]


def _ranks(drafts: Sequence[int], logits: np.ndarray | None, chosen: Sequence[int]) -> tuple[int | None, ...]:
    """The rank of the backbone's token up to the first rejected draft; without logits only hits are known."""
    ranks: list[int | None] = [None] * len(drafts)
    for k, (draft, token) in enumerate(zip(drafts, chosen, strict=False)):
        ranks[k] = rank(logits[k], token) if logits is not None else 0 if draft == token else None
    return tuple(ranks)


def _handover_ns(backbone: BackboneRuntime, drafter: Drafter) -> int | None:
    """What both sides told of passing data in this round; None where one of them tells nothing."""
    told = [t for side in (backbone, drafter) if (t := getattr(side, "handover_ns", None)) is not None]
    return sum(told) if len(told) == 2 else None


def margin(logits: np.ndarray) -> float | None:
    """Top-1 − top-2 of logits[V]; None where there is only one token to choose from."""
    if logits.size < 2:
        return None
    # Two walks to the greatest are several times as fast as a partition, and this is paid for every plain token.
    best = int(np.argmax(logits))
    others = [part.max() for part in (logits[:best], logits[best + 1 :]) if part.size]
    return float(logits[best]) - float(max(others))


def rank(logits: np.ndarray, token: int) -> int:
    """Place of `token` in logits[V], 0 the first choice; equals are ordered as `greedy` would take them."""
    value = logits[token]
    return int(np.count_nonzero(logits > value)) + int(np.count_nonzero(logits[:token] == value))


def _cut(
    chosen: list[int], made: int, pos: int, limit: int, stop: frozenset[int], context: int
) -> tuple[list[int], EndReason | None]:
    """What plain decoding would have kept of `chosen`, and why it would have ended there, if it would."""
    for i, token in enumerate(chosen):
        reason = _reason(token, made + i + 1, pos + i + 1, limit, stop, context)
        if reason is not None:
            return chosen[: i + 1], reason
    return chosen, None


def _reason(token: int, made: int, pos: int, limit: int, stop: frozenset[int], context: int) -> EndReason | None:
    """Why decoding ends after `token`, the `made`-th, standing at `pos`; None if it goes on."""
    if token in stop:
        return "stop"
    if made >= limit:
        return "limit"
    return "context" if pos >= context else None


def _check_request(backbone: BackboneRuntime, prompt: Sequence[int], limit: int) -> None:
    if not prompt:
        raise ValueError("an empty prompt has no last position to decode from; give at least one token")
    if limit < 1:
        raise ValueError(f"an output limit of {limit} asks for no token; ask for at least one")
    if len(prompt) > backbone.context_limit:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens but the exported cache holds {backbone.context_limit}; "
            "shorten it or export a longer context"
        )
