"""What the panes say of heat follows from the samples alone: trend, next threshold, dead zones, throttling."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.session import events as ev
from mtplab.session.heat import NextThreshold, hottest_die, slope_c_per_min
from mtplab.session.identity import Identity
from mtplab.session.state import LabState

LIMITS = ev.Fact(value="nan,39,43,45", source="dumpsys thermalservice")


def warming(c_per_min: float, seconds: int = 30, skin: float = 36.0, facts: bool = True) -> LabState:
    state = LabState()
    if facts:
        state.apply(ev.DeviceSeen(t=0.0, identity=Identity(), facts={"skin_thresholds_c": LIMITS}))
    for t in range(seconds):
        value = skin + c_per_min * t / 60
        state.apply(ev.Heat(t=float(t), skin_c=value, zones={"BIG": value + 20}, skin_source="zone skin"))
    return state


def test_a_warming_skin_names_its_next_limit_and_the_time_left() -> None:
    state = warming(2.0)
    assert state.skin_trend.c_per_min == pytest.approx(2.0)
    assert state.die_trend.c_per_min == pytest.approx(2.0)
    following = state.next_threshold
    now = 36.0 + 2.0 * 29 / 60
    assert (following.name, following.limit_c) == ("LIGHT", 39.0)
    assert following.distance_c == pytest.approx(39.0 - now)
    assert following.seconds == pytest.approx(30 * (39.0 - now))
    assert warming(2.0, skin=39.0).next_threshold.name == "MODERATE"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (warming(0.0), "the skin is not warming"),
        (warming(-3.0), "the skin is not warming"),
        (warming(2.0, seconds=5), "fewer than 10 s of samples"),
        (warming(2.0, facts=False), "the skin's limits are not known"),
        (warming(2.0, skin=50.0), "there is no limit above the skin's temperature"),
        (warming(2.0, skin=math.nan), "there is no limit above the skin's temperature"),
        (LabState(), "the skin's temperature is not known"),
    ],
)
def test_where_no_time_can_be_told_the_reason_is(state: LabState, reason: str) -> None:
    assert (state.next_threshold.seconds, state.next_threshold.reason) == (None, reason)


def test_a_gap_or_another_sensor_begins_the_trend_anew() -> None:
    state = warming(6.0)
    state.apply(ev.Heat(t=60.0, skin_c=30.0, skin_source="zone skin"))
    assert state.skin_trend.reason == "fewer than 10 s of samples"
    state = warming(6.0)
    state.apply(ev.Heat(t=30.0, skin_c=30.0, skin_source="thermalservice SKIN"))
    assert state.skin_trend.c_per_min is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_absurd_temperatures_give_no_slope_and_no_exception(values: list[float]) -> None:
    slope = slope_c_per_min(list(enumerate(values)))
    assert slope is None or math.isfinite(slope)
    state = LabState()
    for t, value in enumerate(values):
        state.apply(ev.Heat(t=float(t), skin_c=value, zones={"BIG": value, "MID": value}))
    assert isinstance(state.next_threshold, NextThreshold)


def zones(t: int, big: float, **others: float | None) -> ev.Heat:
    return ev.Heat(t=float(t), zones={"BIG": big, "MID": big - 1, **others})


def test_a_constant_die_sensor_is_found_out_once_the_others_moved() -> None:
    state = LabState()
    for t in range(61):
        state.apply(zones(t, 40.0, **{"cpu-1-1-1": 75.0, "battery": 30.0}))
    assert state.silent_zones == {}  # a phone at rest proves nothing
    assert state.hottest_die == ("cpu-1-1-1", 75.0)
    for t in range(61, 100):
        state.apply(zones(t, 40.0 + t / 4, **{"cpu-1-1-1": 75.0, "battery": 30.0}))
    assert list(state.silent_zones) == ["cpu-1-1-1"]  # a battery may stand still that long
    assert state.silent_zones["cpu-1-1-1"].startswith("constant at 75 °C for 99 s while the dies moved by")
    assert state.hottest_die == ("BIG", 40.0 + 99 / 4)
    state.apply(zones(100, 65.0, **{"cpu-1-1-1": 74.9}))
    assert state.silent_zones == {}  # it lives after all


def test_a_zone_of_limits_and_dark_zones_are_marked_from_the_first_sample_on() -> None:
    state = LabState()
    first = zones(0, 40.0, **{"cpu-0-1": 105.0, "dark": None})
    state.apply(msgspec.structs.replace(first, silent={"dark": "denied"}))
    assert state.hottest_die == ("BIG", 40.0)
    assert state.silent_zones == {
        "cpu-0-1": "reads exactly 105 °C since the first sample, as limits do",
        "dark": "denied",
    }
    state.apply(zones(1, 40.0, **{"cpu-0-1": 105.0, "dark": None}))
    assert state.silent_zones["dark"] == "denied"  # told once, true until told otherwise


def test_a_denied_zone_does_not_make_the_others_look_as_if_they_had_moved() -> None:
    state = LabState()
    for t in range(200):
        state.apply(ev.Heat(t=float(t), zones={"BIG": 80.0, "MID": 40.0 if t < 100 else None, "LITTLE": 40.0}))
    assert list(state.silent_zones) == ["MID"]


def test_trip_points_are_no_dies() -> None:
    read = {"cpu-hw-trip-0": 105.0, "cpu-0-0-0": 33.3, "BIG": None, "battery": 60.0}
    assert hottest_die(read) == ("cpu-0-0-0", 33.3)


def test_throttling_ends_by_kind_and_the_oldest_that_lasts_is_named() -> None:
    state = LabState()

    def say(t: float, kind: str, began: bool) -> None:
        state.apply(ev.Throttled(t=t, began=began, evidence=f"{kind} at {t}", kind=kind))

    say(1.0, "cap", True)
    say(2.0, "status", True)
    say(3.0, "cap", False)
    assert state.throttled is not None
    assert state.throttled.evidence == "status at 2.0"
    say(4.0, "status", False)
    assert state.throttled is None
    assert len(state.throttle_events) == 4


def test_a_sample_of_an_older_lab_is_still_read_and_the_cost_is_kept() -> None:
    old = b'{"k":"heat","t":1.0,"zones":{"BIG":40.0},"skin_c":null,"status":null,"headroom":null,"clocks_khz":{}}'
    assert ev.decoder.decode(old) == ev.Heat(t=1.0, zones={"BIG": 40.0})
    state = LabState()
    cost = ev.SamplerCost(zones=32, samples=100, rate_hz=10.0, device_ms=1.2)
    state.apply(ev.Heat(t=1.0, cost=cost))
    state.apply(ev.Heat(t=2.0))
    assert state.sampler_cost == cost
    assert cost.text == "32 zones · 10.0 Hz · 1.2 ms on the phone"
