"""How long a large session takes to be summarised: figures and conclusion from its rounds, then opened and told.

    python benchmarks/summarise.py [--rounds 10000] [--repeats 5]

A session with so many draft rounds is made (three classes of prompts, plain decoding, two draft lengths and an
adaptive one, five interleaved rounds of each), concluded, written, opened again and told as text and JSON. Seconds
are the processor's, the median of the repeats, each in the same process after one that warms up.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mtplab.measure.compared import compare_configurations
from mtplab.measure.conclude import MeasuredRound, conclude
from mtplab.measure.figures import PromptFigures, configuration_figures, prompt_figures, to_builtins
from mtplab.measure.plan import plan
from mtplab.measure.protocol import PromptRun, RoundSeen, TokenSeen
from mtplab.report.contract import run_contract
from mtplab.report.text import session_text
from mtplab.session.archive import open_session
from mtplab.session.configuration import Configuration
from mtplab.session.identity import Identity, Policy
from mtplab.session.record import ConfigurationRecord, SessionRecord, write_record

MS = 1_000_000
CLASSES = ("templated", "code", "chat")
OUTPUT_TOKENS, MEASURED_ROUNDS = 64, 5
ALPHA = 0.6


def prompt(name: str, klass: str, configuration: Configuration, rng: np.random.Generator) -> PromptFigures:
    """One decoded prompt: stamps and draft rounds as a runner would tell them."""
    at, made, rounds = 20 * MS, 1, []
    tokens = [TokenSeen(1, None, at, 2.0)]
    while made < OUTPUT_TOKENS:
        gamma = configuration.gamma or int(rng.integers(1, 4))
        accepted = int((rng.random(gamma) < ALPHA).cumprod().sum()) if configuration.mtp else 0
        emitted = min(accepted + 1, OUTPUT_TOKENS - made)
        at += int((12 if configuration.mtp else 8) * MS * rng.normal(1.0, 0.02))
        if configuration.mtp:
            ranks = (0,) * accepted + (3,) * (accepted < gamma) + (None,) * max(0, gamma - accepted - 1)
            rounds.append(RoundSeen(len(rounds), gamma, accepted, emitted, ranks, 2 * MS, 9 * MS, MS // 10))
        index = len(rounds) - 1 if configuration.mtp else None
        tokens += [TokenSeen(i, index, at, None) for i in range(emitted)]
        made += emitted
    run = PromptRun(name, klass, 12, False, 0, tuple(tokens), tuple(rounds), at + MS, "limit", None, None)
    return prompt_figures(run)


def session(wanted: int) -> tuple[list[Configuration], dict[str, list[MeasuredRound]], int]:
    """Rounds of every configuration, with at least `wanted` draft rounds in all; how many there are."""
    planned = plan(Policy(), 3, gammas=(1,), policies=("additive",))
    rng = np.random.default_rng(1)
    of_one = sum(len(prompt("p", "code", c, rng).accepts) for c in planned for _ in range(MEASURED_ROUNDS))
    prompts = [(f"{klass}-{i}", klass) for i in range(wanted // of_one // 3 + 1) for klass in CLASSES]
    rounds = {
        c.name: [
            MeasuredRound((), tuple(prompt(name, klass, c, rng) for name, klass in prompts))
            for _ in range(MEASURED_ROUNDS)
        ]
        for c in planned
    }
    drafted = sum(len(p.accepts) for own in rounds.values() for one in own for p in one.prompts)
    return planned, rounds, drafted


def record(planned: list[Configuration], rounds: dict[str, list[MeasuredRound]]) -> SessionRecord:
    """The session as its file holds it."""
    configurations = []
    for c in planned:
        told = configuration_figures([r.prompts for r in rounds[c.name]], mtp=c.mtp)
        entries: list[dict[str, Any]] = [
            {"t": 0.0, "configuration": c.name, "index": i, "order": i, "prompts": to_builtins(r.prompts)}
            for i, r in enumerate(rounds[c.name])
        ]
        configurations.append(
            ConfigurationRecord(
                name=c.name, figures=told.figures, per_class=told.per_class, counts=told.counts,
                counts_per_class=told.counts_per_class, rounds=entries, setting=c,
            )
        )  # fmt: skip
    identity = Identity(device_model="made up", simulated=True, gamma=3)
    return SessionRecord(
        schema=1, session="made-up", created_utc="2026-01-01T00:00:00+00:00", simulated=True, identity=identity,
        configurations=configurations,
    )  # fmt: skip


def timed(work: Callable[[], object], repeats: int) -> float:
    """Median processor seconds."""
    work()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def main() -> None:
    """Make the session and time the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    planned, rounds, drafted = session(options.rounds)
    prompts = sum(len(one.prompts) for own in rounds.values() for one in own)
    print(f"{drafted} draft rounds in {prompts} decoded prompts of {len(planned)} configurations")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        made = record(planned, rounds)
        write_record(path, made)
        print(f"session.json: {path.stat().st_size / 1e6:.1f} MB")
        off, on = rounds["mtp-off"], rounds["mtp-on"]
        parts: dict[str, Callable[[], object]] = {
            "figures": lambda: [
                configuration_figures([r.prompts for r in rounds[c.name]], mtp=c.mtp) for c in planned
            ],
            "conclusion": lambda: conclude(off, on, simulated=True),
            "comparisons": lambda: compare_configurations(planned, rounds, {}),
            "open session.json": lambda: open_session(path),
            "text and JSON": lambda: (session_text(made), run_contract(made, path)),
        }
        total = 0.0
        for name, work in parts.items():
            seconds = timed(work, options.repeats)
            total += seconds
            print(f"{name:<20} {seconds:7.3f} s")
        print(f"{'all of it':<20} {total:7.3f} s")


if __name__ == "__main__":
    main()
