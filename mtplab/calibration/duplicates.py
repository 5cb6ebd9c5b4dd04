"""Which prompts say the same again: exactly, or nearly by MinHash over their tokens."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence

NEAR = 0.8
"""Jaccard similarity of token triples from which two prompts count as one."""
_SHINGLE_TOKENS = 3
_PERMUTATIONS = 128
_SEED = 1
_RECALL_MARGIN = 0.1  # the index finds a bit less than it is asked for; what it finds is compared exactly

Progress = Callable[[int, int, str], None]


def fingerprint(text: str) -> str:
    """sha256 of the text without what people do not see: width and form of characters, case, runs of space."""
    plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text)).strip().casefold()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def exact_duplicates(texts: Sequence[str]) -> set[int]:
    """Indices of texts that an earlier one equals."""
    seen: set[str] = set()
    again = set()
    for index, text in enumerate(texts):
        mark = fingerprint(text)
        if mark in seen:
            again.add(index)
        seen.add(mark)
    return again


def near_duplicates(tokens: Sequence[Sequence[int]], threshold: float, progress: Progress) -> set[int]:
    """Indices of prompts whose token triples overlap with an earlier kept one by `threshold` (Jaccard) or more.

    Tokens and not words: scripts without spaces have no words to count. Candidates come from MinHash and its
    locality-sensitive index (Broder 1997; `datasketch`); each is then compared exactly, so nothing is dropped by
    chance.
    """
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=max(0.1, threshold - _RECALL_MARGIN), num_perm=_PERMUTATIONS)
    kept: dict[int, frozenset[tuple[int, ...]]] = {}
    again = set()
    for number, ids in enumerate(tokens):
        if number % 64 == 0:
            progress(number, len(tokens), "looking for near duplicates")
        shingles = _shingles(ids)
        sketch = MinHash(num_perm=_PERMUTATIONS, seed=_SEED)
        sketch.update_batch([repr(one).encode() for one in sorted(shingles)])
        if any(_jaccard(shingles, kept[other]) >= threshold for other in index.query(sketch)):
            again.add(number)
            continue
        kept[number] = shingles
        index.insert(number, sketch)
    return again


def _shingles(ids: Sequence[int]) -> frozenset[tuple[int, ...]]:
    last = max(1, len(ids) - _SHINGLE_TOKENS + 1)
    return frozenset(tuple(ids[at : at + _SHINGLE_TOKENS]) for at in range(last))


def _jaccard(one: frozenset[tuple[int, ...]], other: frozenset[tuple[int, ...]]) -> float:
    return len(one & other) / len(one | other)
