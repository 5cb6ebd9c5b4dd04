"""What streamed pieces of text can tell: which tokens came when, and which draft rounds lie behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class Piece(msgspec.Struct, frozen=True):
    """Text that arrived together, and when."""

    text: str
    t_ns: int


class Arrived(msgspec.Struct, frozen=True):
    """One output token by the tokenizer, and the piece (from 0) that brought its last character."""

    id: int
    piece: int


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


def rounds_behind(counts: Sequence[int], gamma: int, decoded: int) -> list[int] | None:
    """Accepted drafts of every round of LiteRT-LM, from the tokens of its pieces; None where they cannot be told.

    Seen on litert-lm 0.18.1: a round's last token, the backbone's own, is handed over with the next piece. So the
    first piece holds the first token and what the first round accepted, every later one the token left over and what
    its round accepted, and the last one only what was left over. `decoded` is the runtime's own count of tokens.
    """
    if len(counts) < 2 or counts[-1] != 1 or sum(counts) != decoded:
        return None
    accepted = [count - 1 for count in counts[:-1]]
    return accepted if all(0 <= one <= gamma for one in accepted) else None
