"""The heat watch posts what the sampler says: heat with its sources, throttling by kind, and what it distrusts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from mtplab.device.standin_host import StandinProcess
from mtplab.device.thermal import Clock, Sensor, ThermalSample, ThermalService
from mtplab.engine.heatwatch import HeatWatch
from mtplab.session import events as ev
from mtplab.session.state import LabState

MAX = 2_400_000


class Watched:
    """A watch without a phone: samples and readings are handed to it as the sampler would."""

    def __init__(self) -> None:
        self.posted: list[ev.Event] = []
        self.watch = HeatWatch(cast(Any, None), 1.0, self.posted.append)

    def service(self, t: float, skin: float, status: int = 0) -> None:
        named = (Sensor("VIRTUAL-SKIN", 3, skin, status), Sensor("BIG", 0, 55.0, 0))
        sensors = (*named, Sensor("ocp_gpu", 7, None, 0, "an electrical value"))
        self.watch._status(ThermalService(
            status=status, pinned=False, hal_ready=True, hal="2.0", sensors=sensors, hot_thresholds_c={},
            headroom_thresholds=None, complete=True, reason=None, t=t,
        ))  # fmt: skip

    def sample(self, t: float, cap: int = MAX, **zones: float | None) -> ev.Heat:
        silent = {name: "denied" for name, value in zones.items() if value is None}
        self.watch._sample(ThermalSample(t, t, zones, {"policy4": Clock(MAX, cap, MAX)}, int(t), silent))
        return next(event for event in reversed(self.posted) if isinstance(event, ev.Heat))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.posted if isinstance(event, kind)]


def test_the_skin_comes_from_the_service_while_it_is_fresh_and_then_from_a_zone_of_that_name() -> None:
    watched = Watched()
    watched.service(0.0, 36.5)
    heat = watched.sample(1.0, BIG=40.0, skin_therm=35.0)
    assert (heat.skin_c, heat.skin_source, heat.status) == (36.5, "thermalservice VIRTUAL-SKIN", 0)
    heat = watched.sample(30.0, BIG=40.0, skin_therm=35.0)
    assert (heat.skin_c, heat.skin_source, heat.status) == (35.0, "zone skin_therm", None)
    heat = watched.sample(31.0, BIG=40.0)
    assert (heat.skin_c, heat.skin_source) == (None, None)


def test_denied_zones_are_replaced_by_the_services_dies() -> None:
    watched = Watched()
    watched.service(0.0, 36.5)
    heat = watched.sample(1.0, BIG=None, zone7=None)
    assert (heat.zones, heat.silent) == ({"BIG": 55.0, "zone7": None, "VIRTUAL-SKIN": 36.5}, {"zone7": "denied"})


def test_why_a_zone_is_dark_is_told_once_and_again_when_it_changes() -> None:
    watched = Watched()
    assert watched.sample(1.0, BIG=40.0, dark=None).silent == {"dark": "denied"}
    assert watched.sample(2.0, BIG=40.0, dark=None).silent is None
    assert watched.sample(3.0, BIG=40.0, dark=30.0).silent == {}


def test_a_hal_that_stands_still_while_the_dies_move_is_not_believed_and_that_is_said_once() -> None:
    watched = Watched()
    for t in range(60):
        watched.service(float(t), 36.5)
        heat = watched.sample(float(t), BIG=40.0 + t / 5)
    assert (heat.skin_c, heat.status) == (None, None)
    (message,) = watched.of(ev.Message)
    assert message.text.startswith("The thermal HAL repeats the same values for")
    watched.service(60.0, 36.6)
    assert watched.sample(60.0, BIG=52.0).skin_c == 36.6
    assert watched.of(ev.Message)[-1].text == "The thermal HAL gives new values again; they are used again."


def test_every_kind_of_throttling_is_an_event_with_evidence_and_a_marker() -> None:
    watched = Watched()
    watched.service(0.0, 41.0, status=2)
    watched.sample(1.0, cap=1_200_000, BIG=84.0)
    watched.sample(2.0, cap=1_200_000, BIG=84.0)
    assert [(event.kind, event.began) for event in watched.of(ev.Throttled)] == [("status", True), ("cap", True)]
    assert all(event.evidence for event in watched.of(ev.Throttled))
    assert [marker.kind for marker in watched.of(ev.Marker)] == ["throttle", "throttle"]


@pytest.mark.e2e
def test_a_hot_stand_in_throttles_and_tells_what_watching_it_costs(places: Path) -> None:
    state = LabState()
    with StandinProcess(scenario="hot") as standin:
        watch = HeatWatch(standin.link(), 10.0, state.apply).start()
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                cost = state.sampler_cost
                if cost is not None and cost.device_ms is not None and {"status", "cap"} <= set(state.throttling):
                    break
                time.sleep(0.1)
        finally:
            watch.close()
    assert {"status", "cap"} <= set(state.throttling)
    assert state.hottest_die is not None
    cost = state.sampler_cost
    assert cost is not None and cost.device_ms is not None and cost.host_ms is not None
    assert cost.device_ms > 0 and cost.host_ms > 0
    assert f"{cost.zones} zones" in cost.text and "ms on the phone" in cost.text
