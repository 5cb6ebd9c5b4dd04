"""The loop's frames beyond temperatures: cores' load, the GPU, and the CPU time the loop itself took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import counters
from mtplab.device.counters import CoreTimes, khz, npu_inferences
from mtplab.device.frames import FrameReader, parse_times
from mtplab.device.thermal import Clock, ThermalSample

HEAD = ["#H 3", "#Z 0 BIG", "#P policy0 1950000 0 1", "#U 150000 890000 400000", "#G read"]


def frame(seq: int, *extra: str) -> list[str]:
    return [f"#B {seq} 1.0", "T 41000", "C 1200000", *extra, f"#E {seq}"]


def read(lines: list[str]) -> tuple[list[ThermalSample], FrameReader]:
    reader = FrameReader()
    found = [sample for line in HEAD + lines if (sample := reader.feed(line, 0.0)) is not None]
    return found, reader


def test_load_is_the_busiest_cores_share_since_the_reading_before() -> None:
    found, _ = read([
        *frame(0, "cpu0 100 0 100 800 0 0 0 0 0 0", "cpu1 0 0 0 1000 0 0 0 0 0 0"),
        *frame(1),
        *frame(2, "cpu0 110 0 110 880 0 0 0 0 0 0", "cpu1 90 0 0 1010 0 0 0 0 0 0"),
    ])  # fmt: skip
    assert [sample.load for sample in found] == [{}, {}, {"policy0": 0.9}]


def test_cores_that_rest_in_no_policy_run_backwards_or_lack_fields_tell_no_load() -> None:
    found, _ = read([
        *frame(0, "cpu0 100 0 0 900 0 0 0", "cpu1 5 0 0 5 0 0 0", "cpu7 1 1 1 1 1 1 1"),
        *frame(1, "cpu0 90 0 0 1500 0 0 0", "cpu1 5 0", "cpu7 900 1 1 1 1 1 1"),
    ])  # fmt: skip
    assert found[1].load == {}


def test_the_gpus_clock_and_use_are_read_in_either_unit() -> None:
    lines = [*frame(0), *frame(1, "U 302000 890000 12"), *frame(2), *frame(3, "U 150000000 400000000 NA")]
    found, _ = read(lines)
    assert [sample.clocks_khz["gpu"] for sample in found] == [
        Clock(None, None, 890_000), Clock(302_000, 890_000, 890_000), Clock(302_000, 890_000, 890_000),
        Clock(150_000, 400_000, 890_000),
    ]  # fmt: skip
    assert [sample.load for sample in found] == [{}, {"gpu": 0.12}, {}, {}]


def test_limits_come_in_some_frames_and_stand_until_the_next() -> None:
    found, _ = read([*frame(0, "K 1950000"), *frame(1), *frame(2, "K 110000"), *frame(3, "K NA"), *frame(4, "K 1 2")])
    assert [sample.clocks_khz["policy0"].cap_khz for sample in found] == [1_950_000, 1_950_000, 110_000, None, None]


@pytest.mark.parametrize(
    ("word", "expected"), [("1950000", 1_950_000), ("890000000", 890_000), ("0", None), ("208", None), ("-1", None)]
)
def test_a_clock_has_its_unit_by_its_size_or_is_none(word: str, expected: int | None) -> None:
    assert khz(word) == expected


def test_the_loops_own_cpu_time_is_told_per_sample_once_the_clock_told_it_apart() -> None:
    lines = ["#T", "0m00.10s 0m00.10s", "0m00.00s 0m00.00s", *[line for n in range(50) for line in frame(n)]]
    _, reader = read(lines)
    assert reader.device_ms is None
    for line in ("#T", "0m00.13s 0m00.12s", "0m00.00s 0m00.01s", *frame(50)):
        reader.feed(line, 0.0)
    assert reader.device_ms == pytest.approx(60 / 50)
    for line in ("#T", "times: not found", *frame(51)):
        reader.feed(line, 0.0)
    assert reader.device_ms == pytest.approx(60 / 50)
    assert reader.rejected == 0


def test_times_of_all_shells_are_read() -> None:
    assert parse_times(["0m01.50s 0m00.00s", "1m00.25s 0m00.00s"]) == 61.75
    assert parse_times(["0m0.123s 0m0.001s", "0m0.000s 0m0.000s"]) == pytest.approx(0.124)  # bash
    assert parse_times(["0m01.50s 0m00.00s"]) is None


@given(st.text(), st.text())
def test_any_lines_in_place_of_times_are_none_or_not_negative(first: str, second: str) -> None:
    seconds = parse_times([first, second])
    assert seconds is None or seconds >= 0


@given(st.lists(st.text(max_size=12) | st.integers(-5, 10**20).map(str), max_size=12))
def test_any_words_in_place_of_counters_are_none_or_possible(words: list[str]) -> None:
    core = CoreTimes.parse(words)
    assert core is None or 0 <= core.busy <= core.total
    count = npu_inferences(" ".join(words))
    assert count is None or count >= 0
    assert all((clock := khz(word)) is None or 10_000 <= clock < 10_000_000 for word in words)


EXTRA = [
    "U 302000 890000 12", "U x y z", "U 302000 890000 999", "K 5", "K 1950000", "",
    "cpu0 1 2 3 4 5 6 7", "cpu0 9 9 9 99 9 9 9", "cpu0",
    "#T", "0m00.10s 0m00.10s",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(EXTRA) | st.text(max_size=20), max_size=5), max_size=6))
def test_any_extra_lines_give_shares_and_clocks_that_can_be_true(extras: list[list[str]]) -> None:
    found, reader = read([line for n, extra in enumerate(extras) for line in frame(n, *extra)])
    for sample in found:
        assert all(0 <= share <= 1 for share in sample.load.values())
        assert all(c.current_khz is None or c.current_khz >= 10_000 for c in sample.clocks_khz.values())
    assert reader.device_ms is None or reader.device_ms > 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8))
def test_load_is_always_a_share(readings: list[tuple[int, int]]) -> None:
    meter = counters.LoadMeter()
    for busy, idle in readings:
        load = meter.feed({"cpu0": CoreTimes(busy, busy + idle)}, {"cpu0": "policy0"})
        assert all(0 <= share <= 1 for share in load.values())
