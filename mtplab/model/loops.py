"""Whether a text runs in circles: greedy decoding of small models does, and a loop flatters every draft head."""

from __future__ import annotations

import math
from collections.abc import Sequence

NGRAM = 4
LOOP_TOKENS = 12


def ends_in_loop(tokens: Sequence[int]) -> bool:
    """Whether the text ends in a cycle: at least three turns that cover at least LOOP_TOKENS tokens."""
    for period in range(1, len(tokens) // 3 + 1):
        turns = max(3, math.ceil(LOOP_TOKENS / period))
        tail = tokens[len(tokens) - period * turns :]
        if period * turns <= len(tokens) and all(tail[i] == tail[i + period] for i in range(len(tail) - period)):
            return True
    return False
