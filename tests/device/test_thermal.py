"""What the thermal parsers make of captured outputs, and of outputs that make no sense."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import thermal
from mtplab.device.frames import FrameReader
from mtplab.device.thermal import Clock, ThermalSample, parse_thermalservice

PIXEL = "01_dumpsys_thermalservice_pixel_tensor_hal20"


def service(sensors: str, status: str = "0", override: str = "false", ready: str = "true", rest: str = "") -> str:
    return (
        f"IsStatusOverride: {override}\nThermal Status: {status}\nCached temperatures:\n"
        "\tTemperature{mValue=99.0, mType=3, mName=VIRTUAL-SKIN, mStatus=5}\n"
        f"HAL Ready: {ready}\nHAL connection:\n\tThermalHAL AIDL 2  connected: yes\n"
        f"Current temperatures from HAL:\n{sensors}Current cooling devices from HAL:\n{rest}"
    )


SKIN = "\tTemperature{mValue=38.5, mType=3, mName=VIRTUAL-SKIN, mStatus=0}\n"


def test_a_pixel_is_read_from_the_hal_section_and_never_from_the_stale_one(capture: dict[str, str]) -> None:
    read = parse_thermalservice(capture[PIXEL])
    assert (read.status, read.hal, read.complete, read.reason) == (0, "2.0", True, None)
    assert read.skin_c == pytest.approx(24.83324)
    assert read.hottest_die is not None
    assert read.hottest_die.value_c == pytest.approx(27.0)  # the cached section has BIG at 61
    assert len(read.sensors) == 42


def test_electrical_values_differences_and_dead_sensors_are_no_temperatures(capture: dict[str, str]) -> None:
    by_name = {sensor.name: sensor for sensor in parse_thermalservice(capture[PIXEL]).sensors}
    for name in ("ocp_gpu", "smpl_gm", "batoilo", "soc", "battery_cycle", "USB2-MINUS-USB"):
        assert by_name[name].value_c is None
        assert by_name[name].reason == "an electrical value, not a temperature"
    assert by_name["VIRTUAL-USB-UI"].reason == "reads exactly 0: a dead or unused sensor"
    assert all(s.value_c is None or s.value_c < 28 for s in by_name.values())


def test_a_snapdragon_has_another_skin_sensor(capture: dict[str, str]) -> None:
    read = parse_thermalservice(capture["02_dumpsys_thermalservice_snapdragon_hal20"])
    assert read.skin is not None
    assert (read.skin.name, read.skin.value_c) == ("mb-therm-monitor", pytest.approx(30.147001))
    assert read.hottest_die is not None
    assert read.hottest_die.name == "cpu1-silver-usr"


def test_a_samsung_with_empty_last_sections_is_complete(capture: dict[str, str]) -> None:
    read = parse_thermalservice(capture["03_dumpsys_thermalservice_samsung_a52_android12"])
    assert read.skin_c == pytest.approx(24.7)
    assert (read.complete, read.hot_thresholds_c, read.headroom) == (True, {}, None)


def test_a_torn_output_keeps_its_status_but_claims_no_sensor(capture: dict[str, str]) -> None:
    read = parse_thermalservice(capture["04_dumpsys_thermalservice_aidl_status1"])
    assert (read.status, read.hal, read.complete, read.reason) == (1, "AIDL 1", False, "the output breaks off")
    assert (read.sensors, read.skin_c) == ((), None)


def test_thresholds_and_headroom_forms_are_read_with_nan_as_none(capture: dict[str, str]) -> None:
    read = parse_thermalservice(capture["05_thermal_thresholds_and_odd_forms"])
    assert read.hot_thresholds_c["VIRTUAL-SKIN"] == (None, 39.0, 43.0, 45.0, 47.0, 51.5, 56.0)
    assert read.hot_thresholds_c["battery"][3] == 80.0
    assert read.headroom_thresholds == (None, 0.8, 1.0)
    assert read.reason is not None
    assert "Failed transaction (2147483646)" in read.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the service said nothing"),
        ("Failure calling service thermalservice: Failed transaction (2147483646)\n", "the service failed"),
        ("Failed to write while dumping service thermalservice: Broken pipe\n", "the service failed"),
        ("Can't find service: thermalservice\n", "the service failed"),
        (service("", ready="false"), "the thermal HAL is not ready"),
        (service(SKIN, ready="false"), "the thermal HAL is not ready"),
        (service(""), "the HAL section lists no sensor"),
        (service(SKIN, override="true", status="4"), "the thermal status is pinned by an override"),
        (service(SKIN, status="-1"), "no usable thermal status"),
        (service(SKIN, status="7"), "no usable thermal status"),
        (service(SKIN[:-5]), "the output breaks off"),
    ],
)
def test_every_odd_form_has_its_reason_and_no_status_or_skin_is_made_up(text: str, reason: str) -> None:
    read = parse_thermalservice(text)
    assert read.reason is not None
    assert read.reason.startswith(reason)
    assert read.skin_c in (None, 38.5)
    if not reason.startswith(("the HAL section", "the output breaks")):
        assert read.status is None


def test_nan_sensors_and_carriage_returns() -> None:
    text = service("\tTemperature{mValue=nan, mType=-1, mName=disp_therm, mStatus=0}\n" + SKIN).replace("\n", "\r\n")
    read = parse_thermalservice(text)
    assert [sensor.value_c for sensor in read.sensors] == [None, 38.5]
    assert (read.status, read.complete) == (0, True)


def test_headroom_is_one_at_the_severe_limit_and_falls_a_thirtieth_per_degree() -> None:
    limits = "\tTemperatureThreshold{mType=3, mName=VIRTUAL-SKIN, mHotThrottlingThresholds=[NaN, 39.0, 43.0, 45.0], m"
    rest = "Temperature static thresholds from HAL:\n" + limits + "ColdThrottlingThresholds=[NaN]}\n"
    read = parse_thermalservice(service(SKIN, rest=rest))
    assert read.headroom == pytest.approx(1 - (45.0 - 38.5) / 30)
    assert read.skin_thresholds_c == (None, 39.0, 43.0, 45.0)


@given(st.text())
def test_any_text_is_read_without_an_exception_and_without_a_number_from_nowhere(text: str) -> None:
    read = parse_thermalservice(text)
    assert read.status is None or f"{read.status}" in text
    assert all(s.value_c is None or -40 <= s.value_c <= 150 for s in read.sensors)
    if "Current temperatures from HAL:" not in text:
        assert read.sensors == ()
        assert read.reason is not None


@given(st.integers(0, 10_000))
def test_a_cut_anywhere_never_changes_a_reading(cut: int) -> None:
    whole = service(SKIN + "\tTemperature{mValue=55.5, mType=0, mName=BIG, mStatus=0}\n")
    read = parse_thermalservice(whole[: cut % len(whole)])
    assert read.skin_c in (None, 38.5)
    assert read.hottest_die is None or read.hottest_die.value_c == 55.5


# --- kernel zones -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("cpu-0-0-0", "33300", 33.3),
        ("gpuss-2", "41900", 41.9),
        ("skin-msm-therm", "45000", 45.0),
        ("batt-therm", "25470", 25.47),
        ("cpu-hw-trip-0", "105000", None),
        ("lmh-dcvs-00", "75000", None),
        ("socd", "0", None),
        ("ocp_cpu1", "11900", None),
        ("BIG", "-274000", None),
        ("BIG", "NA", None),
        ("BIG", "", None),
        ("BIG", "33", None),
        ("BIG", "0", None),
    ],
)
def test_zone_readings_of_the_capture(name: str, raw: str, expected: float | None) -> None:
    value, reason = thermal.zone_celsius(name, raw)
    assert value == expected
    assert (reason is None) == (value is not None)


@given(st.text(), st.text())
def test_any_zone_reading_is_a_possible_temperature_or_a_reason(name: str, raw: str) -> None:
    value, reason = thermal.zone_celsius(name, raw)
    assert (value is None) == (reason is not None)
    assert value is None or (math.isfinite(value) and -40 <= value <= 150)


# --- frames -----------------------------------------------------------------------------------------------------

HEAD = ["#H 3", "#Z 0 BIG", "#Z 1 ocp_cpu1", "#Z 2 quiet_therm", "#P policy0 1950000", "#G read"]


def frame(seq: int, big: str = "41000", up: str = "12.5") -> list[str]:
    return [f"#B {seq} {up}", f"T {big} 11900 31800", "C 1200000", "K 1950000", f"#E {seq}"]


def samples(lines: list[str]) -> tuple[list[ThermalSample], FrameReader]:
    reader = FrameReader()
    found = [reader.feed(line, float(i)) for i, line in enumerate(lines)]
    return [sample for sample in found if sample is not None], reader


def test_a_whole_frame_gives_a_sample_without_electrical_zones() -> None:
    (sample,), reader = samples(HEAD + frame(0))
    assert sample.zones == {"BIG": 41.0, "quiet_therm": 31.8}
    assert sample.clocks_khz == {"policy0": Clock(1200000, 1950000, 1950000)}
    assert (sample.device_uptime_s, reader.rejected) == (12.5, 0)


def test_torn_foreign_and_repeated_frames_are_counted_and_never_delivered() -> None:
    torn = frame(1)[:2]
    shifted = ["#B 2 1.0", "T 41000 31800", "C 1200000", "#E 2"]
    mixed = ["#B 3 1.0", "T 1 2 3", "C 1", "#E 4"]
    found, reader = samples([*HEAD, *frame(0), *torn, *frame(5), *shifted, *mixed, *frame(5), *frame(6)])
    assert [sample.seq for sample in found] == [0, 5, 6]
    assert (reader.rejected, reader.duplicates) == (3, 1)


def test_unreadable_zones_are_none_in_their_own_place() -> None:
    (sample,), _reader = samples(HEAD + frame(0, big="NA", up="NA"))
    assert sample.zones == {"BIG": None, "quiet_therm": 31.8}
    assert sample.device_uptime_s is None


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(HEAD + frame(0) + frame(1)))))
def test_any_lines_are_survived_and_no_impossible_temperature_appears(lines: list[str]) -> None:
    found, _reader = samples(lines)
    assert all(v is None or -40 <= v <= 150 for sample in found for v in sample.zones.values())
    assert [s.seq for s in found] == sorted({s.seq for s in found})


