"""What a measurement borrows of a phone is noted before it is changed, and is put back whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import prepare, readiness_phone
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.link import Link
from mtplab.device.lock import serial_hash
from mtplab.device.prepare import Told, names_of, note_of, put_back, settings
from mtplab.device.standin_host import StandinProcess

ALL = names_of("bench")
FACTORY = {
    "global airplane_mode_on": "0", "global low_power": "0", "global stay_on_while_plugged_in": "0",
    "system screen_brightness": "102", "system screen_brightness_mode": "1",
}  # fmt: skip


def values(link: Link) -> dict[str, str]:
    return {key: link.run(f"settings get {key}").stdout.strip() for key in FACTORY}


def by_name(told: list[Told]) -> dict[str, Told]:
    return {one.name: one for one in told}


@pytest.fixture
def phone(link: Link) -> Iterator[str]:
    """The hash of the stand-in's serial; its settings are as the factory left them, before and after."""
    yield serial_hash(link.serial)
    link.run("; ".join(f"settings put {key} {value}" for key, value in FACTORY.items()) + "; input keyevent WAKEUP")
    (Path(os.environ["MTPLAB_RUNTIME"]) / "restore" / f"{serial_hash(link.serial)}.json").unlink(missing_ok=True)


def test_everything_is_set_told_and_put_back(link: Link, phone: str) -> None:
    link.run("input keyevent SLEEP")
    told = by_name(prepare.prepare(link, phone, ALL, "a-session", simulated=True))
    assert {name: one.text for name, one in told.items()} == {
        "stay_awake": "0 → 7", "screen": "Asleep → Awake", "brightness_mode": "1 → 0", "brightness": "102 → 25",
        "battery_saver": "0", "airplane_mode": "0 → 1",
    }  # fmt: skip
    assert not [one for one in told.values() if one.problem]
    assert told["airplane_mode"].source == "cmd connectivity airplane-mode enable"
    assert values(link)["global airplane_mode_on"] == "1"
    note = note_of(phone)
    assert note is not None
    assert (note.about, len(note.changes)) == ("a-session", 5)
    back = put_back(link, phone)
    assert [one.name for one in back] == ["airplane_mode", "brightness", "brightness_mode", "screen", "stay_awake"]
    assert values(link) == FACTORY
    assert "mWakefulness=Asleep" in link.run(["dumpsys", "power"]).stdout
    assert (note_of(phone), put_back(link, phone)) == (None, [])


def test_the_note_stands_before_anything_is_changed(link: Link, phone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine dies between the note and the first change: the next one finds nothing to do, and knows it."""

    def dies(*arguments: Any) -> None:
        assert note_of(phone) is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "_write", dies)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(link, phone, ALL, "a-session", simulated=True)
    monkeypatch.undo()
    assert values(link) == FACTORY
    assert not [one for one in put_back(link, phone) if one.problem]
    assert (values(link), note_of(phone)) == (FACTORY, None)


def test_without_a_place_for_the_note_nothing_is_changed(
    link: Link, phone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare, "write_atomic", full)
    with pytest.raises(DeviceError, match="cannot be noted"):
        prepare.prepare(link, phone, ALL, "a-session", simulated=True)
    assert values(link) == FACTORY


def test_a_crash_and_a_second_measurement_do_not_lose_what_was_there_first(link: Link, phone: str) -> None:
    prepare.prepare(link, phone, ALL, "crashed", simulated=True)
    prepare.prepare(link, phone, ALL, "the next", simulated=True)  # nobody put back in between
    put_back(link, phone)
    assert values(link) == FACTORY


def test_a_pulled_cable_keeps_the_note_and_the_return_puts_back(
    link: Link, phone: str, standin: StandinProcess
) -> None:
    prepare.prepare(link, phone, ("airplane_mode",), "a-session", simulated=True)
    standin.control("unplug")
    with pytest.raises(DeviceGone):
        put_back(link, phone)
    assert note_of(phone) is not None
    standin.control("plug")
    link.wait_for_return(10)
    assert [one.text for one in put_back(link, phone)] == ["1 → 0"]


def test_what_somebody_changed_meanwhile_is_left_and_said(link: Link, phone: str) -> None:
    prepare.prepare(link, phone, ("brightness",), "a-session")
    link.run("settings put system screen_brightness 200")
    (told,) = put_back(link, phone)
    assert "somebody changed it meanwhile (it was 102" in (told.problem or "")
    assert values(link)["system screen_brightness"] == "200"


def test_a_setting_without_a_value_has_none_again(link: Link, phone: str) -> None:
    link.run("settings delete global stay_on_while_plugged_in")
    (told,) = prepare.prepare(link, phone, ("stay_awake",), "a-session")
    assert told.text == "null → 7"
    put_back(link, phone)
    assert values(link)["global stay_on_while_plugged_in"] == "null"


def test_what_the_phone_refuses_is_said_once_with_the_command_to_try_by_hand(link: Link, phone: str) -> None:
    link.run("settings put global low_power 1")  # Android itself turns the saver on only without a cable
    prepare.prepare(link, phone, ("battery_saver",), "a-session")
    (told,) = put_back(link, phone)
    assert "not put back to 1" in (told.problem or "")
    assert "adb shell cmd power set-mode 1" in (told.problem or "")
    assert note_of(phone) is None


def test_what_cannot_be_read_is_not_changed(link: Link, phone: str) -> None:
    link.run(r"settings put system screen_brightness 'bri\033[31mght'")
    (told,) = prepare.prepare(link, phone, ("brightness",), "a-session")
    assert told.text == "unknown"
    assert "could not be read" in (told.problem or "")
    assert note_of(phone) is None
    assert "bri" in values(link)["system screen_brightness"]


def test_airplane_mode_never_cuts_adb_off(link: Link, phone: str) -> None:
    told = by_name(prepare.prepare(link, phone, ALL, "a-session", simulated=False))
    assert "not on a cable" in (told["airplane_mode"].problem or "")
    assert values(link)["global airplane_mode_on"] == "0"
    assert told["brightness"].problem is None
    put_back(link, phone)


def test_a_policy_names_all_none_or_some_and_nothing_unknown() -> None:
    assert names_of("none") == ()
    assert names_of("brightness, stay_awake") == ("stay_awake", "brightness")
    with pytest.raises(ValueError, match=r"no setting 'brigthness'.*brightness"):
        names_of("stay_awake,brigthness")


def test_a_damaged_note_is_a_sentence_and_not_passed_over(link: Link, phone: str) -> None:
    folder = Path(os.environ["MTPLAB_RUNTIME"]) / "restore"
    folder.mkdir(exist_ok=True)
    (folder / f"{phone}.json").write_text('{"phone": 3}')
    with pytest.raises(DeviceError, match="cannot be read"):
        put_back(link, phone)
    found, unreadable = prepare.notes()
    assert (found, [f"{phone}.json" in said for said in unreadable]) == ([], [True])


def test_a_phone_whose_services_do_not_answer_yet_keeps_its_note(link: Link, phone: str) -> None:
    """As after a reboot: adb answers before Android does."""
    prepare.prepare(link, phone, ("brightness", "airplane_mode"), "a-session", simulated=True)
    link.run("settings put system screen_brightness ''")
    told = by_name(put_back(link, phone))
    assert "`mtplab restore` tries again" in (told["brightness"].problem or "")
    note = note_of(phone)
    assert note is not None
    assert [(change.name, change.before) for change in note.changes] == [("brightness", "102")]
    link.run("settings put system screen_brightness 25")
    assert [one.text for one in put_back(link, phone)] == ["25 → 102"]
    assert note_of(phone) is None


def test_the_doctor_names_what_was_left_behind(link: Link, phone: str) -> None:
    prepare.prepare(link, phone, ("airplane_mode",), "a-session", simulated=True)
    item = readiness_phone._left_behind(link.serial)
    assert (item.status, "a-session" in item.cause, "mtplab restore" in item.cure) == ("fail", True, True)
    put_back(link, phone)
    assert readiness_phone._left_behind(link.serial).status == "pass"


@given(st.text() | st.sampled_from(["null", "7\r\n", "0\n1\n", "mWakefulness=Awake\nmWakefulness=Asleep"]))
def test_whatever_a_phone_prints_is_a_value_of_the_known_form_or_unknown(text: str) -> None:
    for row in settings():
        value = row.value_in(text)
        assert value is None or (value.isascii() and value.isalnum())
        if value is not None:
            assert row.command(value) is not None  # what can be read can be put back
