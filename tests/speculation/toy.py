"""A toy backbone with a real cache to spoil, and drafters from perfect to useless, all in numpy."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np


class ToyBackbone:
    """Logits are a hash of the whole prefix in the cache, so one stale or misplaced entry changes everything."""

    def __init__(
        self, vocab: int = 7, context_limit: int = 32, gamma: int = 3, seed: int = 0, ladder: Sequence[int] = ()
    ) -> None:
        self.vocab, self.context_limit, self.seed = vocab, context_limit, seed
        self.gammas = tuple(ladder) or (gamma,)
        self.cache = np.full(context_limit, -1, dtype=np.int32)
        self.calls: list[str] = []

    def logits_after(self, prefix: Sequence[int]) -> np.ndarray:
        key = zlib.crc32(np.asarray(prefix, dtype=np.int32).tobytes())
        return np.random.default_rng((self.seed, key)).normal(size=self.vocab).astype(np.float32)

    def _step(self, token: int, pos: int) -> tuple[np.ndarray, np.ndarray]:
        self.cache[pos] = token  # numpy refuses a position behind the end
        return self.logits_after(self.cache[: pos + 1]), np.array([pos, self.seed], dtype=np.float32)

    def prefill(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append("prefill")
        self.cache[:] = -1
        for pos, token in enumerate(tokens):
            out = self._step(token, pos)
        return out

    def decode(self, token: int, pos: int) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append("decode")
        return self._step(token, pos)

    def verify(self, tokens: Sequence[int], pos: int) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append("verify")
        assert len(tokens) - 1 in self.gammas
        rows = [self._step(token, pos + i) for i, token in enumerate(tokens)]
        return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


class ToyDrafter:
    """Drafts what the backbone would say, spoilt wherever `wrong(position)` says so."""

    def __init__(self, backbone: ToyBackbone, wrong: Callable[[int], bool]) -> None:
        self.backbone, self.wrong, self.gamma = backbone, wrong, backbone.gammas[-1]

    def choices(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> list[int] | None:
        return None

    def draft(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> np.ndarray:
        prefix = [*self.backbone.cache[: int(hidden[0]) + 1].tolist(), token]
        rows = []
        for _ in range(gamma):
            row = self.backbone.logits_after(prefix)
            if self.wrong(len(prefix)):
                row = -row
            rows.append(row)
            prefix.append(int(np.argmax(row)))
        return np.stack(rows)


def perfect(backbone: ToyBackbone) -> ToyDrafter:
    return ToyDrafter(backbone, lambda _pos: False)


def useless(backbone: ToyBackbone) -> ToyDrafter:
    return ToyDrafter(backbone, lambda _pos: True)


def half_right(backbone: ToyBackbone) -> ToyDrafter:
    return ToyDrafter(backbone, lambda pos: zlib.crc32(bytes([pos % 256])) % 2 == 0)
