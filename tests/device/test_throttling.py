"""Throttling is told by status, by limits on the clocks and by clocks that fall under load; silence tells nothing."""

from __future__ import annotations

from mtplab.device.thermal import Clock, Sensor, StaleWatch, ThermalSample, ThermalService
from mtplab.device.throttling import Change, ThrottleWatch

MAX = 2_400_000


def service(status: int | None, t: float = 0.0, skin: float = 38.5) -> ThermalService:
    sensors = (Sensor("VIRTUAL-SKIN", 3, skin, status),)
    return ThermalService(
        status=status, pinned=status is None, hal_ready=True, hal="2.0", sensors=sensors, hot_thresholds_c={},
        headroom_thresholds=None, complete=True, reason=None, t=t,
    )  # fmt: skip


def sample(t: float, khz: int = MAX, cap: int | None = MAX, load: float | None = None) -> ThermalSample:
    loads = {} if load is None else {"policy4": load}
    return ThermalSample(t, t, {"BIG": 84.0}, {"policy4": Clock(khz, cap, MAX)}, int(t), {}, loads)


def follow(watch: ThrottleWatch, begin: int, end: int, khz: int, load: float | None) -> list[Change]:
    return [change for t in range(begin, end) for change in watch.update(sample(float(t), khz, load=load), None)]


def test_the_status_begins_and_ends_it_and_a_pinned_one_does_neither() -> None:
    watch = ThrottleWatch()
    assert watch.update(sample(0.0), service(0)) == []
    (began,) = watch.update(sample(1.0), service(2))
    assert began == Change("status", True, "Android reports thermal status MODERATE (2), skin 38.5 °C", 1.0)
    assert watch.update(sample(2.0), service(None)) == []
    assert watch.update(sample(3.0), None) == []
    (ended,) = watch.update(sample(4.0), service(0))
    assert (ended.kind, ended.began) == ("status", False)


def test_every_change_of_the_status_is_told_with_both_levels_and_an_error_is_none() -> None:
    watch = ThrottleWatch()
    course = enumerate((1, 1, 3, -1, 1, 0))
    told = [c for t, status in course for c in watch.update(sample(float(t)), service(status))]
    assert [(c.began, c.t) for c in told] == [(True, 0.0), (True, 2.0), (True, 4.0), (False, 5.0)]
    assert told[1].text == "Android reports thermal status SEVERE (3) after LIGHT (1), skin 38.5 °C"
    assert told[2].text == "Android reports thermal status LIGHT (1) after SEVERE (3), skin 38.5 °C"


def test_a_lowered_limit_is_evidence_with_its_circumstances_and_ends_only_when_it_stays_away() -> None:
    watch = ThrottleWatch()
    (began,) = watch.update(sample(0.0, cap=1_200_000), service(0))
    assert began.text == (
        "Clocks are limited: policy4 to 1200000 of 2400000 kHz; hottest die BIG 84.0 °C, status NONE"
    )
    assert watch.update(sample(1.0), None) == []
    assert watch.update(sample(2.0, cap=1_200_000), None) == []  # it flapped
    assert watch.update(sample(3.0, cap=None), None) == []  # an unreadable limit is no end
    assert [c.began for t in range(4, 8) for c in watch.update(sample(float(t)), None)] == [False]


def test_a_gpu_whose_limit_was_always_low_is_not_throttled_by_it() -> None:
    def gpu(t: float, cap: int) -> ThermalSample:
        return ThermalSample(t, t, {}, {"gpu": Clock(200_000, cap, 890_000)}, int(t))

    watch = ThrottleWatch()
    assert watch.update(gpu(0.0, 600_000), None) == []
    assert [c.kind for c in watch.update(gpu(1.0, 400_000), None)] == ["cap"]


def test_a_clock_that_falls_while_its_core_never_rests_is_evidence() -> None:
    watch = ThrottleWatch()
    assert follow(watch, 0, 10, MAX, 0.99) == []
    (began,) = follow(watch, 10, 20, 1_500_000, 0.99)
    assert began.text == "Under load policy4 fell from 2400000 to 1500000 kHz (busiest core 99 % busy)"
    (ended,) = follow(watch, 20, 30, MAX, 0.99)
    assert (ended.kind, ended.began) == ("clock", False)


def test_a_clock_that_falls_without_full_load_is_the_governors_choice() -> None:
    watch = ThrottleWatch()
    assert follow(watch, 0, 10, MAX, 0.99) == []
    assert follow(watch, 10, 30, 500_000, 0.80) == []
    assert follow(watch, 30, 50, 500_000, None) == []  # how busy it is, nobody knows


def test_one_slow_sample_is_no_fall_and_an_idle_minute_ends_what_nobody_can_see() -> None:
    watch = ThrottleWatch()
    for begin, end, khz in ((0, 10, MAX), (10, 11, 500_000), (11, 20, MAX)):
        assert follow(watch, begin, end, khz, 1.0) == []
    assert [c.began for c in follow(watch, 20, 30, 1_000_000, 1.0)] == [True]
    assert follow(watch, 30, 80, 500_000, 0.0) == []  # not seen is not ended
    (ended,) = follow(watch, 80, 120, 500_000, 0.0)
    assert ended.text == "No load to see it by for a minute"


def test_a_hal_that_repeats_itself_while_the_dies_move_is_stale() -> None:
    watch = StaleWatch()
    for t in range(0, 60, 2):
        watch.reading(service(0, float(t)))
        watch.sample(40.0)
    assert watch.why_stale(60.0) is None  # at rest it may repeat itself
    watch.sample(45.0)
    assert str(watch.why_stale(60.0)).startswith("The thermal HAL repeats the same values for 60 s while the hottest")
    watch.reading(service(0, 62.0, skin=38.6))
    assert watch.why_stale(62.0) is None
