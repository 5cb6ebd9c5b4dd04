"""What a token costs with each pair of graphs on this host: pairs take turns, so that its drift hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mtplab.pipeline.judging import Limits, Pair, Told, plain_texts, true_rounds
from mtplab.pipeline.recipe_rows import times
from mtplab.pipeline.stages.loading import Text
from mtplab.session.events import RecipeRow

TURNS = 4  # forwards and backwards twice
TIMED_PROMPTS = 4


class _Seen(msgspec.Struct):
    """Milliseconds of one pair: a row for each turn, of a few prompts each."""

    decode: list[list[float | None]] = []
    draft: list[list[float | None]] = []
    verify: list[list[float | None]] = []
    token: list[list[float | None]] = []


def timed_texts(texts: Sequence[Text]) -> list[Text]:
    """A few prompts, evenly from all."""
    return list(texts[:: max(1, len(texts) // TIMED_PROMPTS)])[:TIMED_PROMPTS]


def steps_to_time(pairs: int, texts: Sequence[Text]) -> int:
    """How many prompts `timed` tells."""
    return 2 * TURNS * pairs * len(timed_texts(texts))


def timed(
    rows: Sequence[RecipeRow], opens: Sequence[Callable[[], Pair]], texts: Sequence[Text], limits: Limits, tell: Told
) -> list[RecipeRow]:
    """The rows with their times; `opens` give the pair of each row, opened anew or held open by the caller."""
    few, seen = timed_texts(texts), [_Seen() for _ in rows]
    for turn in range(TURNS):
        order = range(len(rows)) if turn % 2 == 0 else range(len(rows) - 1, -1, -1)
        for place in order:
            pair = opens[place]()
            plain = plain_texts(pair.backbone, few, limits, tell)
            rounds = true_rounds(pair, few, limits, tell)
            seen[place].decode.append([one.decode_ms for one in plain])
            seen[place].draft.append([one.draft_ms for one in rounds])
            seen[place].verify.append([one.verify_ms for one in rounds])
            seen[place].token.append([one.ms_per_token for one in rounds])
    return [
        msgspec.structs.replace(
            row,
            decode_ms=times(one.decode),
            draft_ms=times(one.draft),
            verify_ms=times(one.verify),
            ms_per_token=times(one.token),
        )
        for row, one in zip(rows, seen, strict=True)
    ]
