"""The measure stage: every configuration in turn, lost cables kept and repeated, what cannot run left out by name."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtplab.device.errors import DeviceGone
from mtplab.measure.plan import DEPLOYED, PLAIN, plan
from mtplab.pipeline.device_stage import DeviceContext, StageFailed
from mtplab.pipeline.stages import measure
from mtplab.session import events as ev
from mtplab.session.identity import Policy

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from fake_runner import FakeLink, Flags, fine, said  # noqa: E402


class Bench:
    def __init__(self, tmp_path: Path, answer: Callable[[Flags], Iterator[str]], **planned: Any) -> None:
        self.link, self.posted = FakeLink(answer), list[Any]()
        policy = planned.pop("policy", Policy(output_limit=9))
        options = SimpleNamespace(rounds=5, skin_limit_c=37.0, cooldown_timeout_s=0.0, reconnect_s=0.2)
        self.context = DeviceContext(
            link=cast(Any, self.link), post=self.posted.append, cancel=threading.Event(), logs=tmp_path,
            heat=lambda: ev.Heat(t=1e18, skin_c=30.0, status=0), throttled_since=lambda t: False, simulated=True,
            token_runner="runner", options=options,
            pushed=dict.fromkeys(("backbone", "head", "tokenizer", "prompts"), "x"),
            policy=policy, configurations=plan(policy, 3, **planned), essential=frozenset((PLAIN, DEPLOYED)),
            figures={"freeze": {"end_tokens": [0]}},
        )  # fmt: skip

    def run(self) -> Any:
        return measure.run(self.context)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.posted if isinstance(event, kind)]


def test_every_configuration_is_measured_in_turn_and_compile_times_stand_apart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fine, gammas=(1,), policies=("additive", "tiers"), head_threads=(1,))
    outcome = bench.run()
    rounds = bench.of(ev.RoundMeasured)
    order = [r.configuration for r in rounds]
    first = ["mtp-off", "mtp-on", "gamma-1", "head-threads-1", "adaptive-additive", "adaptive-tiers"]
    assert order[:12] == [*first, *reversed(first)] and len(order) == 30
    assert {(r.init_ms, r.first_runs_ms) for r in rounds} == {(13.0, 3.0)}
    told = {c.name: c for c in bench.of(ev.ConfigurationMeasured)}
    assert list(told) == first and told["head-threads-1"].setting.head_threads == 1
    assert "after 5 rounds" in told["mtp-on"].advice
    assert outcome.figures["exactness"]["equal"] == 3
    adaptive = [c for c in bench.link.commands if c.get("draft-length") == "adaptive:tiers"]
    # K = draft and verify, in plain steps of 10 ms, and what the round took besides.
    assert {c["draft-lengths"] for c in adaptive} == {"1,3"}
    assert {c["round-costs"] for c in adaptive} == {"1:0.5,3:0.5"}


def test_sampling_counts_its_seed_up_and_asks_no_equality(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fine, policy=Policy(temperature=0.7, top_k=40, seed=7, output_limit=9))
    outcome = bench.run()
    assert outcome.figures["exactness"] is None
    assert {(c["temperature"], c["top-k"]) for c in bench.link.commands} == {("0.7", "40")}
    assert sorted({int(c["seed"]) for c in bench.link.commands}) == [7, 8, 9, 10, 11]


def test_a_round_that_loses_the_cable_is_kept_marked_and_measured_again(tmp_path: Path) -> None:
    pulled: list[int] = []

    def answer(flags: Flags) -> Iterator[str]:
        lines = said(flags)
        if flags["run"] == "mtp-on-1" and not pulled:
            pulled.append(1)
            yield from lines[: len(lines) // 2]
            raise DeviceGone("The connection broke: check the cable.")
        yield from lines

    bench = Bench(tmp_path, answer)
    outcome = bench.run()
    lost = [r for r in bench.of(ev.RoundMeasured) if "cable-lost" in r.marks]
    assert [(r.configuration, r.index, len(r.prompts)) for r in lost] == [("mtp-on", 1, 1)]
    assert "check the cable" in lost[0].reason and bench.link.tidied == 1
    assert outcome.figures["mtp-on"]["rounds"] == 6 and outcome.figures["mtp-on"]["cold_rounds"] == 5
    assert len(list(tmp_path.glob("measure-*.jsonl"))) == 11


def test_a_phone_that_stays_away_ends_the_stage_and_keeps_its_rounds(tmp_path: Path) -> None:
    def answer(flags: Flags) -> Iterator[str]:
        if flags["run"] == "mtp-on-1":
            raise DeviceGone("The connection broke: check the cable.")
        yield from said(flags)

    bench = Bench(tmp_path, answer)
    bench.link.returns = False
    with pytest.raises(StageFailed, match=r"did not return within 0 s .* are kept"):
        bench.run()
    assert len(bench.of(ev.RoundMeasured)) == 3


def test_a_cable_that_is_lost_in_every_attempt_ends_the_stage(tmp_path: Path) -> None:
    def answer(flags: Flags) -> Iterator[str]:
        yield said(flags)[0]
        raise DeviceGone("The connection broke: check the cable.")

    bench = Bench(tmp_path, answer)
    with pytest.raises(StageFailed, match="lost 3 times in round 1, mtp-off"):
        bench.run()


def test_what_the_runner_cannot_do_is_left_out_by_name_and_the_rest_is_measured(tmp_path: Path) -> None:
    def answer(flags: Flags) -> Iterator[str]:
        if flags.get("head-backend") == "npu":
            yield "!The graph head does not run on the NPU here; use the CPU."
            yield "exit 1"
        else:
            yield from said(flags)

    bench = Bench(tmp_path, answer, head_backends=("npu",))
    outcome = bench.run()
    told = {c.name: c for c in bench.of(ev.ConfigurationMeasured)}
    assert "does not run on the NPU" in told["head-on-npu"].reason and told["mtp-on"].reason is None
    assert told["head-on-npu"].figures["ttft_ms"].value is None
    assert outcome.summary.endswith("left out: head-on-npu")
    assert sum("npu" in str(c) for c in bench.link.commands) == 1, "what cannot run is tried once"


def test_without_the_deployed_configuration_there_is_nothing_to_say(tmp_path: Path) -> None:
    def answer(flags: Flags) -> Iterator[str]:
        yield from said(flags) if flags["mtp"] == "off" else ["!no such head", "exit 4"]

    with pytest.raises(StageFailed, match=r"exit code 4: !no such head"):
        Bench(tmp_path, answer).run()


def test_rounds_of_an_interrupted_run_are_told_again_and_not_measured_again(tmp_path: Path) -> None:
    first = Bench(tmp_path / "a", fine, policies=("tiers",))
    first.run()
    kept = first.of(ev.RoundMeasured)[:4]
    second = Bench(tmp_path / "b", fine, policies=("tiers",))
    second.context.earlier = [
        measure.Measured(event, measure.from_builtins(event.prompts), None) for event in kept
    ]
    second.run()
    rounds = second.of(ev.RoundMeasured)
    assert len(rounds) == 15 and len(second.link.commands) == 11
    assert [(r.configuration, r.index) for r in rounds[:4]] == [(r.configuration, r.index) for r in kept]
    costs = {c["round-costs"] for b in (first, second) for c in b.link.commands if "round-costs" in c}
    assert len(costs) == 1, "the costs a policy weighs come from the same first round"


def test_the_raw_lines_are_on_the_disk(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fine)
    bench.run()
    lines = sorted(tmp_path.glob("measure-*.jsonl"))[0].read_text().splitlines()
    assert json.loads(lines[-1])["type"] == "done"
