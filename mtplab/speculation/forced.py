"""Count drafts against a text that is given: hits at every position, and the rounds that decoding would go through.

Notation of the house: with the text read up to p, the token at p+1 is known and draft k = 1..γ is for p+1+k.
`drafts[p]` are the γ drafts made at p (so there are n−1 of them for a text of n tokens), `choices[p]` is the
backbone's own choice for p+1.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from mtplab.speculation.intervals import Estimate, unknown, wilson
from mtplab.speculation.sampling import accepted_prefix

Ids = NDArray[np.int32]


class Hits(msgspec.Struct, frozen=True):
    """Teacher-forced: in `hits[k-1]` of `positions` the draft k was the backbone's own choice there.

    Not what decoding reaches: every position counts, also those where no round would begin, and draft k counts even
    where an earlier draft of it was wrong.
    """

    hits: tuple[int, ...]
    positions: int

    def __add__(self, other: Hits) -> Hits:
        if len(self.hits) != len(other.hits):
            raise ValueError("hits of different draft lengths cannot be added")
        both = zip(self.hits, other.hits, strict=True)
        return Hits(tuple(a + b for a, b in both), self.positions + other.positions)

    def rates(self) -> list[Estimate]:
        """Per draft position the hit rate with Wilson's interval, over positions."""
        if not self.positions:
            return [unknown("teacher_forced_wilson", "no position had room for a whole draft") for _ in self.hits]
        return [
            Estimate(n / self.positions, *wilson(n, self.positions), self.positions, "teacher_forced_wilson")
            for n in self.hits
        ]


def hits(choices: Ids, drafts: Ids, start: int) -> Hits:
    """Over the positions from `start` on that leave room for whole drafts; `start` is the prompt's last position."""
    n, gamma = len(choices), drafts.shape[1]
    count = max(0, n - gamma - start)
    wanted = np.stack([choices[start + k : start + k + count] for k in range(1, gamma + 1)], axis=1)
    equal = drafts[start : start + count] == wanted
    return Hits(tuple(int(x) for x in equal.sum(axis=0)), count)


def rounds_on(tokens: Sequence[int], drafts: Ids, start: int) -> list[int]:
    """Accepted drafts of every whole round over a text that is taken for the truth, from position `start` on.

    On a pair's own greedy text these are the rounds that draft–verify decoding goes through, but the last ones,
    which the text's end leaves no room to judge.
    """
    gamma = drafts.shape[1]
    found, position = [], start
    while position + 1 + gamma < len(tokens):
        accepted = accepted_prefix([int(d) for d in drafts[position]], tokens[position + 2 : position + 2 + gamma])
        found.append(accepted)
        position += accepted + 1
    return found
