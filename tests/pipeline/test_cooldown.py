"""The gate holds rounds back while the phone is hot, counts down, gives up once, never waits for the unknowable."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from mtplab.measure.rounds import HeatLimits, HeatSample
from mtplab.pipeline import cooldown
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled
from mtplab.session import events as ev
from mtplab.session.heat import Trend


class Bench:
    """A gate whose phone is scripted: each look at it takes the next (skin, status); the last one stays."""

    def __init__(self, *heats: tuple[float | None, int | None], timeout_s: float = 60.0, age_s: float = 0.0) -> None:
        self.heats, self.age_s = list(heats), age_s
        self.posted: list[ev.Event] = []
        self.cancel = threading.Event()
        context = DeviceContext(
            link=cast(Any, None), post=self.posted.append, cancel=self.cancel, logs=Path("unused"), heat=self.heat,
            throttled_since=lambda t: False, simulated=True, token_runner="", options=None,
        )  # fmt: skip
        self.gate = CoolDown(context, "measure", HeatLimits(skin_c=37.0), timeout_s)

    def heat(self) -> ev.Heat | None:
        if not self.heats:
            return None
        skin, status = self.heats.pop(0) if len(self.heats) > 1 else self.heats[0]
        return ev.Heat(t=time.monotonic() - self.age_s, skin_c=skin, status=status)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.posted if isinstance(event, kind)]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooldown, "POLL_S", 0.01)
    monkeypatch.setattr(cooldown, "FIRST_SAMPLE_S", 0.05)


def test_a_cool_phone_waits_for_nothing_and_says_nothing() -> None:
    bench = Bench((31.0, 0))
    assert (bench.gate.wait("round 1", 0, 10), bench.posted) == (0.0, [])


def test_a_hot_phone_is_waited_for_with_a_countdown_on_skin_and_status() -> None:
    bench = Bench(*[(42.0, 1)] * 8, (36.5, 1), (36.5, 0))
    assert bench.gate.wait("round 1, mtp-off", 0, 10) > 0
    notes = [event.note for event in bench.of(ev.StageProgress)]
    assert notes[0].startswith(
        "cooling before round 1, mtp-off: skin 42.0 °C, needs less than 37.0; status LIGHT, needs NONE · gives up in"
    )
    assert notes[-1].startswith("cooling before round 1, mtp-off: status LIGHT, needs NONE")
    assert {event.total for event in bench.of(ev.StageProgress)} == {10}
    assert all(0 < event.eta_s <= 60 for event in bench.of(ev.StageProgress))
    first, last = (event.text for event in bench.of(ev.Message))
    assert first.startswith("The skin is at 42.0 °C; rounds begin below 37.0 °C. Waiting for it before round 1")
    assert "cool enough after" in last


def test_the_patience_is_spent_once_and_the_warning_given_once() -> None:
    bench = Bench((42.0, None), timeout_s=0.1)
    assert bench.gate.wait("round 1", 0, 10) >= 0.1
    assert bench.gate.wait("round 2", 1, 10) < 0.1
    warnings = [event.text for event in bench.of(ev.Message) if event.level == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith("The phone did not cool down in 0 s: The skin is at 42.0 °C")


@pytest.mark.parametrize("bench", [Bench(), Bench((None, None)), Bench((50.0, 3), age_s=60.0)])
def test_what_cannot_be_read_is_not_waited_for_but_told(bench: Bench) -> None:
    assert bench.gate.wait("round 1", 0, 10) == 0.0
    assert bench.gate.sample() == HeatSample(None, None)
    (warning,) = bench.of(ev.Message)
    assert "nobody can say that the phone is cool" in warning.text


def test_a_cancelled_run_does_not_wait_for_the_phone_to_cool() -> None:
    bench = Bench((42.0, 1))
    threading.Timer(0.05, bench.cancel.set).start()
    with pytest.raises(StageCancelled):
        bench.gate.wait("round 1", 0, 10)


def test_the_time_until_cool_is_told_from_the_trend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooldown, "trend_of", lambda points: Trend(-3.0))
    bench = Bench((40.0, 0), timeout_s=0.05)
    bench.gate.wait("round 1", 0, 10)
    assert "needs less than 37.0 · about 60 s at -3.0 °C/min · gives up in" in bench.of(ev.StageProgress)[0].note
