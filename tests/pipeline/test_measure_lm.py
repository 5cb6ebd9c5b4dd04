"""The measure stage by LiteRT-LM's own program: on the stand-in, a bundle with speculation off and on."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtplab.device import paths
from mtplab.device.shell import Line
from mtplab.device.standin_host import StandinProcess, litert_lm
from mtplab.engine.errors import EngineError
from mtplab.engine.options import RunOptions
from mtplab.engine.runner import check_run, stages_of
from mtplab.measure.plan import DEPLOYED, PLAIN, plan
from mtplab.measure.rounds import Slot
from mtplab.pipeline import lm_phone
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed
from mtplab.pipeline.lm_phone import known_flags
from mtplab.pipeline.stages import measure
from mtplab.pipeline.stages.measure_lm import LmRounds
from mtplab.session import events as ev
from mtplab.session.identity import Policy

pytestmark = pytest.mark.pipeline
runs_bundles = pytest.mark.skipif(importlib.util.find_spec("litert_lm") is None, reason="litert-lm is not installed")
# As the freeze stage writes them for a model without a chat template.
PROMPTS = [
    {"id": "a", "class": "code", "text": "def add(a, b):"},
    {"id": "b", "class": "chat", "text": "Be kind. Hello", "system": True},
    {"id": "c", "class": "code", "text": "import os\n"},
]


@pytest.fixture(scope="module")
def phone() -> Iterator[StandinProcess]:
    with StandinProcess(programs={paths.LITERT_LM: litert_lm()}) as standin:
        yield standin


def bench(
    phone: StandinProcess, small: Any, lm_bundle: Any, tmp_path: Path, template: bool = False, **changed: Any
) -> tuple[Any, list[Any]]:
    """A measurement of one round, and what it posts."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    pushed = f"{paths.MODELS_DIR}/small.litertlm"
    link, posted = phone.link(), list[Any]()
    link.push(lm_bundle.path, pushed)
    policy = Policy(output_limit=12, threads=1, runtime="litert-lm")
    given = {
        "pushed": {"bundle": pushed}, "files": {"tokenizer": small.tokenizer, "prompts": prompts},
        "cancel": threading.Event(), "essential": frozenset((PLAIN, DEPLOYED)), **changed,
    }  # fmt: skip
    context = DeviceContext(
        link=link, post=posted.append, logs=tmp_path, heat=lambda: ev.Heat(t=1e18, skin_c=30.0, status=0),
        throttled_since=lambda t: False, simulated=True, token_runner="none", policy=policy,
        options=SimpleNamespace(rounds=1, skin_limit_c=37.0, cooldown_timeout_s=0.0, reconnect_s=0.2),
        configurations=plan(policy, 3), figures={"freeze": {"end_tokens": [0], "chat_template": template}}, **given,
    )  # fmt: skip
    return context, posted


@runs_bundles
def test_every_prompt_it_can_be_asked_is_measured_with_speculation_off_and_on(
    phone: StandinProcess, small: Any, lm_bundle: Any, tmp_path: Path
) -> None:
    context, posted = bench(phone, small, lm_bundle, tmp_path)
    outcome = measure.run(context)
    rounds = [event for event in posted if isinstance(event, ev.RoundMeasured)]
    assert [(one.configuration, [p["prompt"] for p in one.prompts]) for one in rounds] == [
        ("mtp-off", ["a", "c"]),
        ("mtp-on", ["a", "c"]),
    ]
    told = [(p["ttft_ms"], p["output_tokens"]) for one in rounds for p in one.prompts]
    # A model that is this small may answer before the phone has sent on that it was asked.
    assert all((ttft is None or ttft > 0) and tokens > 2 for ttft, tokens in told), told
    left_out = [event.text for event in posted if isinstance(event, ev.Message) and event.level == "warning"]
    assert len(left_out) == 1 and left_out[0].startswith("Left out of the measurement: b. ")
    assert outcome.figures["runtime"] == "litert-lm"
    assert (outcome.figures["asked"]["prompts"], outcome.figures["asked"]["left_out"]) == (2, ["b"])
    assert (outcome.figures["exactness"]["compared"], outcome.figures["exactness"]["failures"]) == (2, ())
    assert "Same text as it was heard" in outcome.figures["exactness"]["text"]
    kept = [json.loads(line) for line in (tmp_path / "measure-001-mtp-on.jsonl").read_text().splitlines()]
    assert [one["prompt"] for one in kept if "prompt" in one] == ["a", "a", "c"], "all that was heard is kept"
    assert {"t", "stream", "text"} == set(next(one for one in kept if "prompt" not in one))


@runs_bundles
def test_a_bundle_that_does_not_load_ends_the_stage_with_the_programs_own_word(
    phone: StandinProcess, small: Any, lm_bundle: Any, tmp_path: Path
) -> None:
    context, _ = bench(phone, small, lm_bundle, tmp_path, pushed={"bundle": "/data/local/tmp/none"})
    with pytest.raises(StageFailed, match=r"Round 1 of mtp-off: litert_lm_advanced_main ended with exit code 1"):
        measure.run(context)


@runs_bundles
def test_raw_texts_cannot_be_asked_of_a_bundle_with_a_chat_template(
    phone: StandinProcess, small: Any, lm_bundle: Any, tmp_path: Path
) -> None:
    context, _ = bench(phone, small, lm_bundle, tmp_path, template=True)
    with pytest.raises(StageFailed, match="None of the prompts can be measured"):
        measure.run(context)


def test_a_phone_without_the_program_is_told_how_to_get_it_before_anything_begins(phone: StandinProcess) -> None:
    assert "benchmark" in known_flags(phone.link(), paths.LITERT_LM)
    with pytest.raises(StageFailed, match=r"no litert_lm_advanced_main at .*none.* adb push litert_lm_advanced_main"):
        known_flags(phone.link(), "/data/local/tmp/none")


@runs_bundles
def test_a_cancelled_run_ends_the_program_while_it_writes(
    phone: StandinProcess, small: Any, lm_bundle: Any, tmp_path: Path
) -> None:
    context, _ = bench(phone, small, lm_bundle, tmp_path)
    rounds, streams = LmRounds(context), []
    cool = SimpleNamespace(sample=lambda: context.cancel.set())
    began = time.monotonic()
    ended_by = context.ended_by_cancel

    def watched(stream: Any) -> Any:
        streams.append(stream)
        return ended_by(stream)

    context.ended_by_cancel = watched
    with pytest.raises(StageCancelled):
        rounds.run_once(context.configurations[0], Slot(0, 0, "mtp-off"), cool, (), {}, 0)
    assert time.monotonic() - began < 30 and len(streams) == 1, "the first process was the last"
    pid = streams[0].pid
    assert pid is not None and "No such" in phone.link().run(["kill", "-0", str(pid)]).stderr


def test_text_without_end_is_cut_off(tmp_path: Path) -> None:
    cancelled = []

    class Endless:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def __iter__(self) -> Iterator[Line]:
            while True:
                yield Line("stdout", "x" * 100_000, 1.0)

        def cancel(self) -> None:
            cancelled.append(True)

    link = SimpleNamespace(stream=lambda command, whole_lines: Endless(), run=None)
    with pytest.raises(StageFailed, match="wrote more than 1000 characters"):
        lm_phone._process(cast(Any, link), [], contextlib.nullcontext, lambda line: None, 1000)
    assert cancelled


def test_a_run_by_it_makes_a_bundle_and_refuses_what_a_bundle_cannot_do() -> None:
    stages = stages_of(RunOptions(runtime="litert-lm"))
    assert stages.index("acceptance") < stages.index("bundle") < stages.index("push")
    assert "bundle" not in stages_of(RunOptions()) and stages_of(RunOptions(to_stage="bundle"))[-1] == "bundle"
    assert check_run(RunOptions(runtime="litert-lm"))[1].policy.runtime == "litert-lm"
    for refused, sentence in (
        (RunOptions(runtime="litert-lm", policies=("additive",)), "--policies needs the token runner"),
        (RunOptions(runtime="litert-lm", temperature=0.7), "--temperature needs the token runner"),
        (RunOptions(runtime="litert-lm", head="recurrent_residual"), "cannot be bundled"),
        (RunOptions(runtime="litert-lm", head_recipe="static_int8"), "which no drafter of a bundle gets"),
        (RunOptions(runtime="other"), "The runtime is token-runner or litert-lm, not 'other'"),
    ):
        with pytest.raises(EngineError, match=sentence):
            check_run(refused)
