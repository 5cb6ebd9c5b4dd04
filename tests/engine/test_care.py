"""The engine's care for its phone: what it borrows it gives back, also late; what it finds it says as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from mtplab.device import prepare
from mtplab.device.adb import free_port
from mtplab.device.devices import DeviceEntry, parse_devices
from mtplab.device.errors import DeviceError
from mtplab.device.memory import Need
from mtplab.device.standin_host import StandinProcess
from mtplab.engine.care import PhoneCare
from mtplab.session import events as ev
from mtplab.session.state import LabState

PHONE = "0123456789abcdef"
AIRPLANE = "settings get global airplane_mode_on"


@pytest.fixture(scope="module")
def standin() -> Iterator[StandinProcess]:
    with StandinProcess() as phone:
        yield phone


class Ward:
    """A care, and the state that its events reduce to."""

    def __init__(self, standin: StandinProcess, entry: DeviceEntry | None = None) -> None:
        self.events: list[ev.Event] = []
        self.link = standin.link()
        self.care = PhoneCare(self.link, PHONE, "a-session", self.events.append, simulated=True, entry=entry)

    def facts(self) -> dict[str, object]:
        state = LabState()
        for event in self.events:
            state.apply(event)
        return {name: fact.value for name, fact in state.facts.items()}

    def said(self) -> str:
        return "\n".join(f"{e.level}: {e.text}" for e in self.events if isinstance(e, ev.Message))


@pytest.fixture
def ward(standin: StandinProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    standin.control("plug")
    standin.link().wait_for_return(10)
    yield Ward(standin)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_measurement_leaves_the_whole_course_of_every_setting_in_the_session(ward: Ward) -> None:
    ward.care.open()
    ward.care.prepare("bench")
    assert ward.facts()["prepared_brightness"] == "102 → 25"
    ward.care.put_back()
    facts = ward.facts()
    assert (facts["prepared_brightness"], facts["prepared_airplane_mode"]) == ("102 → 25 → 102", "0 → 1 → 0")
    assert str(facts["prepared_power"]).count("USB at") == 2
    assert (facts["connection"], abs(float(str(facts["clock_offset_s"]))) < 1) == ("loopback", True)
    assert "info: Prepared the phone: " in ward.said()
    count = len(ward.events)
    ward.care.put_back()
    ward.care.close()
    assert len(ward.events) == count  # once is enough


def test_nothing_is_touched_where_nothing_is_asked(ward: Ward) -> None:
    assert ward.care.prepare("none") == []
    ward.care.close()
    assert ward.events == []


def test_what_a_crashed_engine_left_is_put_back_by_the_next_one_first(ward: Ward) -> None:
    prepare.prepare(ward.link, PHONE, ("airplane_mode",), "crashed-session", simulated=True)
    ward.care.open()
    assert ward.link.run(AIRPLANE).stdout == "0\n"
    assert "Put back what an earlier measurement had set: airplane mode: 1 → 0" in ward.said()


def test_a_cable_that_is_out_at_the_end_is_said_and_the_return_puts_back(ward: Ward, standin: StandinProcess) -> None:
    ward.care.measure_clock()
    ward.care.prepare("airplane_mode")
    standin.control("unplug")
    ward.care.put_back()
    assert "warning: The phone's settings are not put back yet" in ward.said()
    assert "mtplab restore" in ward.said()
    standin.control("plug")
    ward.link.wait_for_return(10)
    ward.care.take(ev.LinkChanged(t=time.monotonic(), state="returned"))
    wait_until(lambda: "The phone is back: airplane mode: 1 → 0" in ward.said())
    ward.care.close()
    assert ward.link.run(AIRPLANE).stdout == "0\n"
    assert ward.facts()["prepared_airplane_mode"] == "0 → 1 → 0"
    assert "clock_drift_s" in ward.facts()


def test_a_return_in_the_middle_of_a_measurement_leaves_the_phone_prepared(ward: Ward) -> None:
    ward.care.prepare("airplane_mode")
    ward.care.take(ev.LinkChanged(t=time.monotonic(), state="returned"))
    wait_until(lambda: not any(thread.is_alive() for thread in ward.care._threads))
    assert ward.link.run(AIRPLANE).stdout == "1\n"
    ward.care.close()
    assert ward.link.run(AIRPLANE).stdout == "0\n"


def test_a_phone_that_is_gone_when_it_should_be_prepared_is_said_and_raised(
    ward: Ward, standin: StandinProcess
) -> None:
    standin.control("unplug")
    with pytest.raises(DeviceError):
        ward.care.prepare("bench")
    assert "warning: The phone was not prepared" in ward.said()
    standin.control("plug")
    ward.link.wait_for_return(10)
    ward.care.close()


def test_only_a_wireless_connection_is_warned_about_before_a_measurement(ward: Ward, standin: StandinProcess) -> None:
    ward.care.warn_if_wireless()
    assert ward.events == []
    (entry,) = parse_devices("192.168.1.7:5555 device model:Pixel_9 transport_id:1")
    wireless = Ward(standin, entry)
    wireless.care.warn_if_wireless()
    (found,) = [e for e in wireless.events if isinstance(e, ev.PitfallFound)]
    assert ("wireless" in found.pitfall, "192.168.1.7:5555" in found.evidence) == (True, True)
    assert "warning: 192.168.1.7:5555 is connected without a cable" in wireless.said()


def test_a_restarted_phone_is_told_and_no_drift_is_made_of_it(ward: Ward) -> None:
    ward.care.measure_clock()
    before = ward.care._clock
    assert before is not None
    ward.care._clock = msgspec.structs.replace(before, uptime_s=before.uptime_s + 1000)
    ward.care.measure_clock()
    assert "was restarted while it was away" in ward.said()
    assert "clock_drift_s" not in ward.facts()


def test_memory_is_told_and_only_the_impossible_refused(ward: Ward) -> None:
    assert not ward.care.check_memory(Need(weights_bytes=10**6, caches_bytes=10**6)).refused
    facts = ward.facts()
    assert isinstance(facts["memory_available_bytes"], int)
    assert isinstance(facts["memory_needed_bytes"], int)
    refused = ward.care.check_memory(Need(weights_bytes=10**12, caches_bytes=0))
    assert (refused.refused, "in all" in refused.sentence) == (True, True)
