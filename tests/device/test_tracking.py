"""Phones that come and go are told at once, every state with its cure, and the one that is meant is never guessed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtplab.device import choice
from mtplab.device.adb import AdbServer, free_port
from mtplab.device.choice import choose
from mtplab.device.devices import DeviceEntry, parse_devices, wireless_warning
from mtplab.device.errors import DeviceError
from mtplab.device.link import Link
from mtplab.device.lock import PhoneLock, serial_hash
from mtplab.device.standin_host import StandinProcess
from mtplab.device.tracking import Attached, Tracker

LISTED = """\
14A1FDD4 device usb:1-2 product:caiman model:Pixel_9_Pro device:caiman transport_id:7
192.168.1.7:5555 device product:caiman model:Pixel_9_Pro device:caiman transport_id:8
adb-14A1FDD4-x1y2z3._adb-tls-connect._tcp device model:Pixel_9_Pro transport_id:9
127.0.0.1:40001 device model:Pixel_8 transport_id:10
NEW1 unauthorized usb:1-3 transport_id:11
NOAUTH no permissions (user in plugdev group; are your udev rules wrong?); see [http://d.android.com] usb:1-4
"""


def entries(*serials: str) -> list[DeviceEntry]:
    return [entry for entry in parse_devices(LISTED) if entry.serial in serials]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# --- what a list says -------------------------------------------------------------------------------------------


def test_every_entry_says_how_it_is_connected() -> None:
    assert [(e.serial, e.connection, e.transport_id) for e in parse_devices(LISTED)] == [
        ("14A1FDD4", "usb", 7),
        ("192.168.1.7:5555", "wireless", 8),
        ("adb-14A1FDD4-x1y2z3._adb-tls-connect._tcp", "wireless", 9),
        ("127.0.0.1:40001", "loopback", 10),
        ("NEW1", "usb", 11),
        ("NOAUTH", "usb", None),
    ]


def test_only_wireless_connections_are_warned_about() -> None:
    warned = [e.serial for e in parse_devices(LISTED) if wireless_warning(e) is not None]
    assert warned == ["192.168.1.7:5555", "adb-14A1FDD4-x1y2z3._adb-tls-connect._tcp"]


# --- which one is meant -----------------------------------------------------------------------------------------


def test_of_several_phones_none_is_guessed_and_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    several = entries("14A1FDD4", "127.0.0.1:40001")
    refused = choose(several)
    assert (refused.entry, refused.ambiguous) == (None, True)
    assert "14A1FDD4 (device), 127.0.0.1:40001 (device)" in refused.cause
    assert "--serial" in refused.cure
    monkeypatch.setenv("ANDROID_SERIAL", "127.0.0.1:40001")
    assert choose(several, choice.serial_of(None)).how == "named"
    assert choice.serial_of("14A1FDD4") == "14A1FDD4"


def test_a_phone_on_cable_and_wifi_at_once_is_one_phone_and_measured_by_its_cable() -> None:
    import msgspec

    wired, wireless = entries("14A1FDD4", "192.168.1.7:5555")
    twice = [wired, msgspec.structs.replace(wireless, hardware_serial="14A1FDD4")]
    assert choose(twice).entry == wired
    assert twice[1].phone == twice[0].phone  # so that one lock keeps both
    assert choose([wired, wireless]).ambiguous  # not known to be the same: not assumed


def test_the_remembered_phone_is_taken_of_several_and_no_other_in_its_place() -> None:
    several = entries("14A1FDD4", "127.0.0.1:40001", "NEW1")
    assert choose(several, remembered=serial_hash("127.0.0.1:40001")).how == "remembered"
    unusable = choose(several, remembered=serial_hash("NEW1"))
    assert (unusable.usable, unusable.cure.startswith("Unlock the phone")) == (False, True)
    assert choose(several, remembered=serial_hash("elsewhere")).ambiguous
    assert choose(several[:1], remembered=serial_hash("elsewhere")).how == "only"


def test_a_choice_is_remembered_by_hash_and_forgotten_on_demand() -> None:
    (entry,) = entries("14A1FDD4")
    assert choice.remembered() is None
    choice.remember(entry)
    kept = Path(os.environ["MTPLAB_RUNTIME"]) / "phone.json"
    assert "14A1FDD4" not in kept.read_text()
    assert choice.remembered() == serial_hash("14A1FDD4")
    kept.write_text("{")
    with pytest.raises(DeviceError, match="devices --forget"):
        choice.remembered()
    assert choice.forget() is True
    assert (choice.remembered(), choice.forget()) == (None, False)


# --- as they come and go ----------------------------------------------------------------------------------------


def test_a_pulled_and_returned_cable_is_seen_without_asking(link: Link, standin: StandinProcess) -> None:
    seen: list[Attached] = []
    with Tracker(standin.server, seen.append):
        wait_until(lambda: bool(seen))
        (entry,) = seen[0].devices
        assert (entry.serial, entry.usable, entry.simulated) == (link.serial, True, True)
        standin.control("unplug")
        wait_until(lambda: not any(e.usable for e in seen[-1].devices))
        standin.control("plug")
        link.wait_for_return(10)
        wait_until(lambda: any(e.usable for e in seen[-1].devices))
    assert all(a.devices != b.devices for a, b in itertools.pairwise(seen))
    count = len(seen)
    standin.control("unplug 0.2")
    link.wait_for_return(10)
    assert len(seen) == count  # a closed tracker is silent


def test_a_tracker_with_nothing_to_hear_stops_when_told(standin: StandinProcess, link: Link) -> None:
    seen: list[Attached] = []
    tracker = Tracker(standin.server, seen.append).start()
    wait_until(lambda: bool(seen))
    tracker.close()
    assert not tracker._thread.is_alive()


def test_a_server_that_goes_away_is_told_and_not_started_again() -> None:
    from mtplab.device.adb import PrivateServer

    seen: list[Attached] = []
    with PrivateServer() as server:
        tracker = Tracker(AdbServer(port=server.port), seen.append).start()
        wait_until(lambda: bool(seen))
        assert (seen[0].devices, seen[0].problem) == ((), None)
        port = server.port
    wait_until(lambda: seen[-1].problem is not None)
    assert "adb" in (seen[-1].problem or "")
    time.sleep(1.5)
    tracker.close()
    assert AdbServer(port=port).version() is None


def test_a_failing_callback_reaches_the_one_who_closes(standin: StandinProcess, link: Link) -> None:
    def fail(seen: Attached) -> None:
        raise RuntimeError("no screen")

    tracker = Tracker(standin.server, fail).start()
    wait_until(lambda: tracker.problem is not None)
    with pytest.raises(RuntimeError, match="no screen"):
        tracker.close()


# --- the command ------------------------------------------------------------------------------------------------


def command(*arguments: str, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtplab.cli", "devices", *arguments], capture_output=True, text=True, timeout=60,
        env={**os.environ, "ANDROID_ADB_SERVER_PORT": str(port), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def test_the_list_on_the_command_line_names_the_phone_that_a_run_would_take(
    link: Link, standin: StandinProcess
) -> None:
    with PhoneLock(link.serial, "some-session"):
        done = command("--json", port=standin.server.port)
    value: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, value["chosen"], value["how"]) == (0, link.serial, "only")
    (row,) = value["devices"]
    assert (row["connection"], row["warning"], row["simulated"]) == ("loopback", None, True)
    assert (row["held_by_pid"], row["held_by_session"]) == (os.getpid(), "some-session")
    done = command("--use", link.serial, port=standin.server.port)
    assert (done.returncode, f"A run takes {link.serial}" in done.stdout) == (0, True)
    assert choice.remembered() == serial_hash(link.serial)
    assert command("--use", "NONE", port=standin.server.port).returncode == 1
    done = command("--serial", "NONE", "--forget", port=standin.server.port)
    assert (done.returncode, "NONE is not attached" in done.stdout) == (2, True)
    assert choice.remembered() is None


def test_watching_on_the_command_line_tells_each_change_on_a_line_and_ends_on_a_signal(
    link: Link, standin: StandinProcess
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mtplab.cli", "devices", "--watch", "--json"], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "ANDROID_ADB_SERVER_PORT": str(standin.server.port)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["chosen"] == link.serial
        standin.control("unplug")
        assert json.loads(process.stdout.readline())["chosen"] is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 2  # what was seen last had no usable phone
    standin.control("plug")
    link.wait_for_return(10)


def test_without_a_server_that_can_be_started_the_list_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_ADB", "/nowhere/adb")
    done = command("--json", port=free_port())
    assert (done.returncode, json.loads(done.stdout)["devices"]) == (2, [])
    assert "MTPLAB_ADB names /nowhere/adb" in json.loads(done.stdout)["cause"]
