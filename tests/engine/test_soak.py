"""The short form of benchmarks/soak.py: a bench under a cable that is pulled at random."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mtplab.engine import runner
from mtplab.engine.options import RunOptions
from mtplab.session import events as ev

from .prepared import PreparedHost

SECONDS = 15.0

pytestmark = pytest.mark.pipeline


@pytest.fixture
def soak() -> Iterator[ModuleType]:
    """The benchmark as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    spec = importlib.util.spec_from_file_location("mtplab_soak", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_bench_under_a_flaky_cable_invents_nothing_repeats_nothing_and_marks_its_gaps(
    soak: ModuleType, places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    tiny_tflite: Callable[[dict[str, list[str]]], bytes],
) -> None:  # fmt: skip
    monkeypatch.setattr(runner, "run_host_stage", PreparedHost(places / "cache", tmp_path, tiny_tflite, 100_000))
    options = RunOptions(to_stage="bench")
    evidence = soak.soak(SECONDS, speed=30.0, options=options, seed=7, pause_s=(0.5, 4.0))
    assert evidence.problems == []
    assert evidence.unplugs > 0
    assert evidence.samples > 0
    assert evidence.gaps >= 1
    assert sum(evidence.runs.values()) > 0


def test_the_judge_finds_what_was_invented_repeated_or_told_without_a_cable(soak: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "temp").write_text("40000\n")
    evidence, truth = soak.Evidence(), soak.Truth(tmp_path / "temp")
    judge = soak.Judge(truth, evidence)
    truth.look()
    now = truth._seen[0][0]
    judge.outages.append((now - 1.0, now + 0.5))
    for t, value in ((now, 40.0), (now, 40.0), (now + 0.1, 41.0), (now + 0.3, 40.0), (now + 0.6, None)):
        judge(ev.Heat(t=t, zones={"BIG": value}))
    judge.judge(everything=True)
    assert (evidence.samples, evidence.repeated, evidence.untrue, evidence.while_out) == (5, 1, 2, 2)
