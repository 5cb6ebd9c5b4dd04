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
    assert evidence.samples > evidence.unjudged
    assert evidence.gaps >= 1
    assert sum(evidence.runs.values()) > 0


def test_the_judge_finds_what_was_invented_repeated_or_told_without_a_cable(soak: ModuleType, tmp_path: Path) -> None:
    evidence, truth = soak.Evidence(), soak.Truth(tmp_path / "none")
    judge = soak.Judge(truth, evidence)
    truth._seen.extend((t / 10, 40.0 + t / 10) for t in range(1000, 1030))  # 40 °C at 100 s, a tenth more each 0.1 s
    judge.outages.append((98.0, 101.6))
    told = [(100.5, 140.5), (100.5, 140.5), (101.0, 142.0), (101.5, 141.5), (102.0, None), (104.0, 144.0)]
    for taken, value in told:
        judge(ev.Heat(t=taken + 0.01, device_uptime_s=taken, zones={"BIG": value}))
    judge.judge(everything=True)
    assert (evidence.samples, evidence.repeated, evidence.untrue, evidence.unjudged) == (6, 1, 2, 1)
    assert evidence.while_out == 4  # what came within a second of the pull may have been on its way
