"""Makers of token-protocol output and of prompt figures, so that tests state only what matters to them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest

from mtplab.measure.conclude import MeasuredRound
from mtplab.measure.figures import prompt_figures
from mtplab.measure.protocol import PromptRun, RoundSeen, TokenSeen, output_sha256
from mtplab.speculation.decode import decode_speculative

MS = 1_000_000


class Lines:
    """Writes the protocol the way the token runner does: numbered, hashed, closed by done."""

    def __init__(self, run: str = "r1") -> None:
        self.run, self.lines = run, []

    def add(self, kind: str, t_ns: int, **fields) -> Lines:
        line = {"v": 1, "run": self.run, "seq": len(self.lines), "type": kind, "t_ns": t_ns, **fields}
        self.lines.append(json.dumps(line).encode())
        return self

    def prompt(
        self, name="p1", klass="templated", begin_ms=0, token_ms=(20, 30, 30, 40), end_ms=41, **begin
    ) -> Lines:
        """One prompt: its first token from prefill, the rest from rounds (those that share a stamp)."""
        self.add("begin", begin_ms * MS, prompt=name, input_tokens=5, warmup=False, **{"class": klass})
        ids, index = [], -1
        for i, at in enumerate(token_ms):
            if i and at != token_ms[i - 1]:
                index += 1
                emitted = token_ms[1:].count(at)
                self.add(
                    "round", (begin_ms + at) * MS, round=index, gamma=3, accepted=emitted - 1, emitted=emitted,
                    ranks=[0] * (emitted - 1) + ([4] if emitted < 4 else []) + [None] * (3 - emitted),
                    draft_ns=2 * MS, verify_ns=7 * MS,
                )  # fmt: skip
            ids.append(100 + i)
            self.add("token", (begin_ms + at) * MS, id=100 + i, round=index if i else None)
        return self.add(
            "end", (begin_ms + end_ms) * MS, reason="limit", output_tokens=len(ids), output_sha256=output_sha256(ids)
        )

    def closed(self) -> bytes:
        body = b"".join(line + b"\n" for line in self.lines)
        done = {
            "v": 1, "run": self.run, "seq": len(self.lines), "type": "done", "t_ns": 10**12,
            "count": len(self.lines), "sha256": hashlib.sha256(body).hexdigest(),
        }  # fmt: skip
        return body + json.dumps(done).encode() + b"\n"


@pytest.fixture
def lines():
    return Lines


def _run(name, tokens, *, klass="templated", margins=None, accepts=(), step_ms=10.0, ttft_ms=20.0, problem=None):
    """A PromptRun with evenly spaced tokens and rounds of 3 drafts that accepted `accepts`."""
    stamps = [int((ttft_ms + i * step_ms) * MS) for i in range(len(tokens))]
    margins = margins or [None] * len(tokens)
    seen = tuple(
        TokenSeen(t, 0 if accepts and i else None, at, m)
        for i, (t, at, m) in enumerate(zip(tokens, stamps, margins, strict=True))
    )
    rounds = tuple(
        RoundSeen(i, 3, a, a + 1, (0,) * a + (5,) * (a < 3) + (None,) * (2 - a), 2 * MS, 11 * MS)
        for i, a in enumerate(accepts)
    )
    return PromptRun(
        prompt=name, klass=klass, input_tokens=8, warmup=False, begin_ns=0, tokens=seen, rounds=rounds,
        end_ns=(stamps[-1] if stamps else 0) + MS, reason="limit", output_sha256=None, problem=problem,
    )  # fmt: skip


@pytest.fixture
def run():
    return _run


@pytest.fixture
def rounds_at():
    """Rounds of several prompts of one class at a step time, each prompt a little different."""

    def make(step_ms, *, klass="templated", accepts=(), rounds=5, prompts=5, marks=(), tokens=11, ttft_ms=20.0):
        return [
            MeasuredRound(
                tuple(marks),
                tuple(
                    prompt_figures(
                        _run(
                            f"{klass}-{p}", list(range(tokens)), klass=klass, accepts=accepts,
                            step_ms=step_ms * (1 + 0.01 * p) * (1 + 0.002 * r), ttft_ms=ttft_ms,
                        )
                    )
                    for p in range(prompts)
                ),
            )
            for r in range(rounds)
        ]  # fmt: skip

    return make


@pytest.fixture
def toy_records():
    """What really decoding a toy model with a half-right drafter yields."""
    spec = importlib.util.spec_from_file_location("toy", Path(__file__).parents[1] / "speculation" / "toy.py")
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    model = toy.ToyBackbone(context_limit=64)
    return list(decode_speculative(model, toy.half_right(model), [1, 2], limit=20))
