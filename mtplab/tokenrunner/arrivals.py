"""Token records out of streamed text: which tokens came when, and which draft rounds of LiteRT-LM lie behind them.

How LiteRT-LM hands tokens over with speculation on (seen on litert-lm 0.18.1): a round's last token, the backbone's
own, comes with the next piece. So the first piece holds the first token and what the first round accepted, every
later one the token left over and what its round accepted; at the output limit a last piece brings what was left over.
A stop token and all behind it in its round are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mtplab.tokenrunner.protocol import ProtocolWriter, output_sha256

STAMPS = "arrival"


class Piece(msgspec.Struct, frozen=True):
    """Text that arrived together, and when."""

    text: str
    t_ns: int


class Arrived(msgspec.Struct, frozen=True):
    """One output token by the tokenizer, and the piece (from 0) that brought its last character."""

    id: int
    piece: int


class Behind(msgspec.Struct, frozen=True):
    """Rounds behind pieces: how many, and the accepted drafts of those that were shown whole."""

    rounds: int
    accepted: tuple[int, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as it was asked; `gamma` only where speculation was on and the bundle's draft length is known."""

    prompt: str
    klass: str
    warmup: bool
    limit: int
    gamma: int | None


def arrived_tokens(tokenizer: Any, pieces: Sequence[Piece]) -> list[Arrived]:
    """The tokens of the whole text, each with the piece that completed it.

    The text is cut by the tokenizer as a whole, never piece by piece: a piece may end inside a character.
    """
    ends, length = [], 0
    for piece in pieces:
        length += len(piece.text)
        ends.append(length)
    encoding = tokenizer.encode("".join(piece.text for piece in pieces), add_special_tokens=False)
    found, at = [], 0
    for token, (_, end) in zip(encoding.ids, encoding.offsets, strict=True):
        while at < len(ends) - 1 and ends[at] < end:
            at += 1
        found.append(Arrived(token, at))
    return found


def rounds_behind(counts: Sequence[int], gamma: int, decoded: int | None, limit: int) -> Behind | None:
    """The rounds behind pieces of so many tokens each; None where they cannot be told.

    `decoded` is the runtime's own count of output tokens. Where the tokenizer counts others (a model need not write
    as the tokenizer would), the rounds are counted and what each accepted is not told.
    """
    if decoded is None or not all(1 <= count <= gamma + 1 for count in counts):
        return None
    stopped = decoded < limit  # a stop token cut the last round, and how much of it was accepted is not shown
    if not stopped and (len(counts) < 2 or counts[-1] != 1):
        return None
    rounds = max(1, len(counts)) if stopped else len(counts) - 1
    told = sum(counts) == decoded
    return Behind(rounds, tuple(count - 1 for count in counts[:-1]) if told else ())


def write_prompt(
    writer: ProtocolWriter,
    tokenizer: Any,
    request: Request,
    pieces: Sequence[Piece],
    began_ns: int,
    ended_ns: int,
    totals: dict[str, float],
) -> None:
    """Write begin, rounds, tokens and end of one prompt; `totals` are the runtime's own (see `measure.protocol`)."""
    writer.write(
        "begin", began_ns, prompt=request.prompt, **{"class": request.klass}, warmup=request.warmup, stamps=STAMPS,
        input_tokens=totals.get("prefill_tokens"),
    )  # fmt: skip
    tokens = arrived_tokens(tokenizer, pieces)
    by_piece: list[list[Arrived]] = [[] for _ in pieces]
    for token in tokens:
        by_piece[token.piece].append(token)
    counts = [len(own) for own in by_piece]
    decoded = totals.get("decode_tokens")
    gamma = request.gamma
    behind = (
        None
        if gamma is None
        else rounds_behind(counts, gamma, None if decoded is None else int(decoded), request.limit)
    )
    for index, piece in enumerate(pieces):
        if behind is not None and index < len(behind.accepted):
            accepted = behind.accepted[index]
            writer.write(
                "round", piece.t_ns, round=index, gamma=gamma, accepted=accepted, emitted=accepted + 1, ranks=[]
            )
        for place, token in enumerate(by_piece[index]):
            writer.write("token", piece.t_ns, id=token.id, round=_round_of(index, place, behind))
    ids = [token.id for token in tokens]
    reason = "limit" if (decoded if decoded is not None else len(ids)) >= request.limit else "stop"
    rounds = {} if behind is None else {"mtp_rounds": behind.rounds}
    writer.write(
        "end", ended_ns, reason=reason, output_tokens=len(ids), output_sha256=output_sha256(ids),
        runtime={**totals, **rounds},
    )  # fmt: skip
    writer.flush()


def _round_of(piece: int, place: int, behind: Behind | None) -> int | None:
    """The round that made the `place`-th token of a piece; the first token of all is made by no round."""
    if behind is None or not behind.accepted:
        return None
    if place == 0:
        return piece - 1 if piece else None
    return piece
