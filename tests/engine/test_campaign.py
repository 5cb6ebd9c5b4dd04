"""An experiment is worked off cell by cell; whatever ends it, what was measured is kept and never measured again."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from mtplab.device.errors import DeviceGone
from mtplab.engine import campaign
from mtplab.engine.campaign import Campaign
from mtplab.engine.core import Recorder
from mtplab.engine.errors import EngineError
from mtplab.engine.experiment import read_experiment
from mtplab.engine.experiment_command import contract
from mtplab.engine.experiment_store import Store
from mtplab.engine.measuring import MeasurePlan
from mtplab.engine.options import EngineOptions, RunOptions
from mtplab.pipeline.device_stage import DeviceContext, StageFailed
from mtplab.pipeline.stages import conclude, measure
from mtplab.report.command import compare_command
from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.identity import Identity, Policy

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from fake_runner import FakeLink, Flags, fine, said  # noqa: E402

ADDITIVE = 'name = "try"\nprompts = "{prompts}"\n[axes]\ngammas = [3]\npolicies = ["additive"]\nclasses = ["code"]\n'
IDENTITY = Identity(
    device_model="Pixel Test", os_version="Android 16", aicore_version="absent", quantisation="mixed", gamma=3,
    temperature=0.0, simulated=True, serial_hash="s",
)  # fmt: skip


class Killed(BaseException):
    """The engine's process was killed."""


class FakeRun:
    running = False

    def __init__(self) -> None:
        self.measured: dict[str, Any] = {}
        self.code = 0


class Phone:
    """The phone of a test: its runner, the hash of what is deployed, and whether it is there at all."""

    def __init__(self, answer: Callable[[Flags], Iterator[str]] = fine) -> None:
        self.link, self.sha256, self.there = FakeLink(answer), "aa", True
        self.delegate: str | None = None
        """The verdict of its bench on the GPU."""


class FakeEngine:
    """An engine whose run consists of the real measure and conclude stages over a scripted phone."""

    phone: Phone

    def __init__(self, options: EngineOptions, listen: Callable[[ev.Event], None]) -> None:
        self._listen, self._purpose = listen, options.purpose

    def __enter__(self) -> FakeEngine:
        if not self.phone.there:
            raise EngineError("No phone is attached: plug it in.", 2)
        self.recorder = Recorder("Pixel Test", self._purpose or "standin")
        self.recorder.listeners.append(self._listen)
        self.recorder.post(ev.DeviceSeen(t=time.monotonic(), identity=IDENTITY))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.recorder.settle()
        if kind is not Killed:
            self.recorder.seal()

    def start_run(self, options: RunOptions, plan: MeasurePlan) -> FakeRun:
        post, run = self.recorder.post, FakeRun()
        policy = Policy(output_limit=9, prompt_set="few", prompt_set_sha256="p")
        started = {"run": "r", "stages": ["measure"], "model": "tiny", "head": "h", "recipe": options.recipe}
        post(ev.RunStarted(t=time.monotonic(), policy=policy, experiment=plan.experiment, **cast(Any, started)))
        post(ev.Artefact(t=time.monotonic(), name="quantise/head.tflite", sha256=self.phone.sha256, size_bytes=1))
        if self.phone.delegate is not None:
            t, graph = time.monotonic(), "backbone/decode"
            post(ev.LogOpened(t=t, log="b", graph=graph, requested="gpu", command="benchmark_model"))
            post(
                ev.VerdictReached(
                    t=t, log="b", graph=graph, requested="gpu", verdict=self.phone.delegate, provisional=False,
                    complete=True,
                )
            )  # fmt: skip
        options = cast(Any, options)
        context = DeviceContext(
            link=cast(Any, self.phone.link), post=post, cancel=threading.Event(),
            logs=self.recorder.path / "logs" / "r",
            heat=lambda: ev.Heat(t=1e18, skin_c=30.0, status=0), throttled_since=lambda t: False, simulated=True,
            token_runner="runner", options=options, policy=policy, configurations=plan.configurations,
            pushed=dict.fromkeys(("backbone", "head", "tokenizer", "prompts"), "x"), classes=plan.classes,
            earlier=plan.earlier({"quantise/head.tflite": self.phone.sha256}),
            figures={"freeze": {"end_tokens": [0]}},
        )  # fmt: skip
        outcome, reason = "done", None
        try:
            measure.run(context)
            self.recorder.settle()
            conclude.run(context, self.recorder.state)
        except StageFailed as error:
            outcome, reason, run.code = "failed", f"measure: {error}", 4
        run.measured = context.measured
        post(ev.RunEnded(t=time.monotonic(), run="r", outcome=cast(Any, outcome), exit_code=run.code, reason=reason))
        return run


class Bench:
    """Runs the same experiment again and again, each time as a new process would."""

    def __init__(self, folder: Path) -> None:
        rows = [{"id": f"p{i}", "class": "code" if i < 4 else "prose", "text": "x"} for i in range(1, 7)]
        (folder / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.file = folder / "experiment.toml"
        self.write(ADDITIVE)
        self.told: list[str] = []

    def write(self, text: str) -> None:
        limits = "[limits]\nreconnect_s = 0.1\ncool_down_s = 0\n"
        self.file.write_text(text.replace("{prompts}", str(self.file.parent / "few.jsonl")) + limits)

    def run(self, phone: Phone, *, again: bool = False) -> tuple[int, dict[str, Any]]:
        FakeEngine.phone = phone
        experiment = read_experiment(self.file)
        listen = lambda event: None  # noqa: E731
        one = Campaign(
            experiment, EngineOptions(), Store(experiment, again=again), listen=listen, tell=self.told.append
        )
        one.check()
        code = one.run()
        return code, contract(one, {}, code)


@pytest.fixture
def bench(places: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(campaign, "Engine", FakeEngine)
    monkeypatch.setattr(campaign, "RETRY_S", 0.01)
    return Bench(places)


def statuses(told: dict[str, Any]) -> dict[str, str]:
    return {row["cell"]: row["status"] for row in told["cells"]}


def test_every_cell_becomes_a_session_that_opens_and_compares_by_itself(bench: Bench) -> None:
    phone = Phone()
    code, told = bench.run(phone)
    assert code == 0 and statuses(told) == {"mixed/g3-t2/code": "done", "mixed/additive-t2/code": "done"}
    assert told["left"] == told["rounds_left"] == 0 and len(phone.link.commands) == 15
    assert all(command["class"] == "code" for command in phone.link.commands)
    fixed, adaptive = (row["session"] for row in told["cells"])
    assert fixed.endswith("try-mixed-g3-t2-code")
    assert told["parts"]["mixed"][0].endswith("try-mixed")
    record = archive.open_session(fixed).record
    assert [c.name for c in record.configurations] == ["mtp-off", "mtp-on"] and record.sealed
    assert record.identity.gamma == 3 and record.policy is not None and record.policy.prompt_set == "few/code"
    assert record.comparisons[0]["rows"][0]["decode_speedup"]["value"] == pytest.approx(2.0)
    other = archive.open_session(adaptive).record
    assert other.identity.gamma is None and other.identity.missing() == []
    assert CliRunner().invoke(compare_command, [fixed, adaptive]).output.startswith("Not comparable")
    allowed = CliRunner().invoke(compare_command, [fixed, adaptive, "--vary", "mtp"])
    assert "Not comparable" not in allowed.output and "mtp-on" in allowed.output


def test_a_cell_ends_with_the_code_of_what_the_bench_saw(bench: Bench) -> None:
    phone = Phone()
    phone.delegate = "fallback_cpu"
    _, told = bench.run(phone)
    assert {archive.open_session(row["session"]).record.exit_code for row in told["cells"]} == {3}


def test_classes_are_measured_together_and_each_cell_holds_its_own(bench: Bench) -> None:
    bench.write(ADDITIVE.replace('["code"]', '["code", "prose"]'))
    phone = Phone()
    code, told = bench.run(phone)
    assert code == 0 and len(told["cells"]) == 4 and len(phone.link.commands) == 15
    for row in told["cells"]:
        record = archive.open_session(row["session"]).record
        prompts = [p for c in record.configurations for r in c.rounds for p in r["prompts"]]
        assert {p["class"] for p in prompts} == {row["class"]} and len(prompts) == 30
        assert record.exactness["compared"] == 3 and [s["class"] for s in record.scenarios] == [row["class"]]


def test_a_killed_engine_loses_no_round_that_was_told(bench: Bench) -> None:
    def dying(flags: Flags) -> Iterator[str]:
        if flags["run"] == "additive-t2-1":
            raise Killed
        yield from said(flags)

    with pytest.raises(Killed):
        bench.run(Phone(dying))
    again = Phone()
    code, told = bench.run(again)
    assert code == 0 and told["left"] == 0
    # Three rounds of the first turn were kept; of the second none had been measured.
    assert len(again.link.commands) == 12
    record = archive.open_session(told["cells"][1]["session"]).record
    kept = [r["resumed_from"] is not None for c in record.configurations for r in c.rounds]
    assert kept == [True, *[False] * 4] * 2
    assert record.exactness["compared"] == 3 and not record.exactness["failures"]
    third = Phone()
    assert bench.run(third)[0] == 0 and third.link.commands == []


def test_a_lost_phone_leaves_cells_with_the_reason_and_they_go_on_later(bench: Bench) -> None:
    def pulled(flags: Flags) -> Iterator[str]:
        if flags["run"] == "g3-t2-2":
            raise DeviceGone("The connection broke: check the cable.")
        yield from said(flags)

    phone = Phone(pulled)
    phone.link.returns = False
    code, told = bench.run(phone)
    assert code == 4 and set(statuses(told).values()) == {"left"}
    assert "did not return" in told["cells"][0]["reason"] and told["rounds_left"] > 0 and told["eta_s"] is not None
    absent = Phone()
    absent.there = False
    code, told = bench.run(absent)
    assert code == 4 and "No phone is attached" in told["cells"][0]["reason"]
    back = Phone()
    code, told = bench.run(back)
    assert code == 0 and len(back.link.commands) == 15 - 7


def test_a_cell_that_cannot_be_measured_is_a_row_with_its_reason_and_tried_again_later(bench: Bench) -> None:
    def no_npu(flags: Flags) -> Iterator[str]:
        yield from said(flags) if "backend" not in flags else ["!The graph does not run on the NPU here.", "exit 1"]

    bench.write(ADDITIVE.replace("gammas", 'backends = ["cpu", "npu"]\ngammas'))
    code, told = bench.run(Phone(no_npu))
    assert code == 4
    assert statuses(told) == {
        "mixed/g3-t2/code": "done", "mixed/additive-t2/code": "done",
        "mixed/g3-t2-npu/code": "failed", "mixed/additive-t2-npu/code": "failed",
    }  # fmt: skip
    assert all("does not run on the NPU" in row["reason"] for row in told["cells"][2:])
    phone = Phone()
    code, told = bench.run(phone)
    assert code == 0 and {c.get("backend") for c in phone.link.commands} == {"npu"}


def test_more_rounds_add_to_those_that_there_are(bench: Bench) -> None:
    bench.run(Phone())
    bench.write("rounds = 6\n" + ADDITIVE)
    phone = Phone()
    code, told = bench.run(phone)
    assert code == 0 and len(phone.link.commands) == 3
    assert {row["rounds"] for row in told["cells"]} == {6}


def test_rounds_of_other_graphs_are_not_taken_for_these(bench: Bench) -> None:
    first = Phone(lambda flags: iter(()) if flags["run"] == "additive-t2-0" else fine(flags))
    code, told = bench.run(first)
    assert code == 4 and statuses(told)["mixed/additive-t2/code"] == "failed"
    second = Phone()
    second.sha256 = "bb"
    code, _ = bench.run(second)
    assert code == 0 and len(second.link.commands) == 15


def test_to_begin_anew_is_to_be_asked_for(bench: Bench) -> None:
    bench.run(Phone())
    anew = Phone()
    assert bench.run(anew, again=True)[0] == 0 and len(anew.link.commands) == 15


def test_a_damaged_ledger_is_refused_with_the_cure(bench: Bench) -> None:
    bench.run(Phone())
    Store(read_experiment(bench.file)).path.write_text('{"experiment": 3}')
    with pytest.raises(EngineError, match=r"damaged .* --again"):
        bench.run(Phone())


def test_what_is_left_is_told_while_it_runs(bench: Bench) -> None:
    bench.run(Phone())
    progress = [line for line in bench.told if "rounds · " in line]
    assert len(progress) == 15 and "of 15 rounds · about" in progress[0] and progress[-1].count("15 of 15") == 1
