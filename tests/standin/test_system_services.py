"""Android's commands that the stand-in answers itself: the log, load, and what somebody set by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mtplab.standin.files import DeviceFiles
from mtplab.standin.logcat import LogBook, WishError, read_wish, shown

from .conftest import Device, StartDevice, program_options, until

LINE = "11-29 20:48:33.911  6028  6030 W tflite  : a: b"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-d", LINE),
        ("-v brief", "W/tflite  ( 6028): a: b"),
        ("-vtag", "W/tflite  : a: b"),
        ("-v raw -v color", "a: b"),
        ("--format=time", "11-29 20:48:33.911 W/tflite  ( 6028): a: b"),
        ("-s tflite", LINE),
        ("tflite:W *:S", LINE),
        ("tflite:E *:V", None),
        ("*:E", None),
        ("-s litert:V", None),
        ("-b main", LINE),
        ("-b crash,system", None),
        ("-b all", LINE),
        ("--pid=6028", LINE),
        ("--pid 6030", None),
        ("-e ^a:", LINE),
        ("-e nothing", None),
    ],
)
def test_logcat_shows_what_it_is_asked_for(words: str, expected: str | None) -> None:
    assert shown(LINE, read_wish(words.split())) == expected


@pytest.mark.parametrize("words", ["-b nosuch", "-v nosuch", "-b", "-Z", "-e ("])
def test_logcat_refuses_what_it_does_not_know(words: str) -> None:
    with pytest.raises(WishError):
        read_wish(words.split())


def test_what_a_benchmark_prints_stands_in_the_log_without_its_prefix(tmp_path: Path) -> None:
    (tmp_path / "dev/.sim").mkdir(parents=True)
    (tmp_path / "dev/.sim/logcat").touch()
    book = LogBook(DeviceFiles(str(tmp_path)))
    book.said_by_program("WARNING: slow", 7)
    book.said_by_program("ERROR: [dispatch_delegate.cc:146] Failed", 7)
    book.said_by_program("no line of a library", 7)
    lines = (tmp_path / "dev/.sim/logcat").read_text().splitlines()
    assert [line.split(maxsplit=4)[4] for line in lines] == [
        "W tflite  : slow", "E litert  : [dispatch_delegate.cc:146] Failed",
    ]  # fmt: skip


def test_the_log_forgets_its_older_half_when_it_is_full(tmp_path: Path) -> None:
    (tmp_path / "dev/.sim").mkdir(parents=True)
    path = tmp_path / "dev/.sim/logcat"
    path.write_text("".join(f"line {i}\n" for i in range(150_000)))
    LogBook(DeviceFiles(str(tmp_path))).trim()
    kept = path.read_text().splitlines()
    assert kept[-1] == "line 149999"
    assert kept[0] == f"line {150_000 - len(kept)}"
    assert path.stat().st_size <= 1 << 19


def test_the_log_is_dumped_filtered_and_followed(device: Device) -> None:
    device.out("logcat -c; log -t mine -p w first; log -t other second")
    assert device.out("logcat -d -v brief -s mine").startswith("W/mine    (")
    assert device.out("logcat -d -t 1 -v raw") == "second\n"
    code, _, err = device.shell("logcat -b nosuch -d")
    assert (code, "nosuch" in err) == (1, True)
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "logcat", "-v", "raw", "-s", "mine"], env=device.adb.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == b"first\n"
    device.out("log -t other unseen; log -t mine third")
    assert client.stdout.readline() == b"third\n"
    client.terminate()
    client.wait()
    client.stdout.close()
    until(lambda: not device.control("status")["processes"], "a logcat outlived its reader")


def test_load_is_told_by_the_usual_commands(device: Device) -> None:
    top = device.out("top -b -n 1")
    assert re.search(r"(?m)^Tasks: \d+ total, ", top)
    assert re.search(r"(?m)^ *\d+ shell .* /system/bin/sh -c .*top -b -n 1$", top)
    assert re.search(r" up .*load average: \d+\.\d\d, \d+\.\d\d, \d+\.\d\d\n\Z", device.out("uptime"))
    assert re.search(r"(?m)^\d+\.\d% TOTAL: ", device.out("dumpsys cpuinfo"))
    assert "Total RAM: 15,764,528K" in device.out("dumpsys meminfo")
    assert device.out("cat /proc/loadavg").count(".") == 3


def test_a_pinned_thermal_status_is_shown_as_pinned(device: Device) -> None:
    device.out("cmd thermalservice override-status 3")
    text = device.out("dumpsys thermalservice")
    assert text.startswith("IsStatusOverride: true\n")
    assert "\nThermal Status: 3\n" in text
    assert device.shell("cmd thermalservice override-status 9")[0] != 0
    device.out("cmd thermalservice reset")
    assert device.out("dumpsys thermalservice").startswith("IsStatusOverride: false\n")
    assert "override-status STATUS" in device.out("cmd thermalservice help")


def test_a_battery_set_by_hand_says_so_until_it_is_reset(device: Device) -> None:
    device.out("dumpsys battery set level 7; dumpsys battery unplug")
    text = device.out("dumpsys battery")
    assert "UPDATES STOPPED" in text
    assert "\n  level: 7\n" in text
    assert "powered: true" not in text
    assert "mIsPowered=false" in device.out("dumpsys power")
    assert device.shell("dumpsys battery set nosuch 1")[0] != 0
    device.out("dumpsys battery reset")
    text = device.out("dumpsys battery")
    assert "UPDATES STOPPED" not in text
    assert "USB powered: true" in text


def test_a_program_that_takes_too_much_memory_is_killed_and_the_log_says_by_whom(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", "--scenario", "low-memory", *program_options())
    code, out, _ = device.shell("echo $$; exec /data/local/tmp/tools/grow_tool")
    pid = out.splitlines()[0]
    assert code == 137
    assert re.search(rf" I lowmemorykiller: Kill 'grow_tool' \({pid}\), uid 2000", device.out("logcat -d"))


def test_the_killer_comes_on_request(spare: Device) -> None:
    assert spare.control("low-memory") == {"killed": None}
    client = subprocess.Popen(
        [spare.adb.binary, "-s", spare.serial, "shell", "/data/local/tmp/tools/count_tool"], env=spare.adb.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == b"tick 0\n"
    assert spare.control("low-memory") == {"killed": "count_tool"}
    assert client.wait(30) == 137
    client.stdout.close()


def test_a_crash_leaves_its_signal_in_the_log(spare: Device) -> None:
    assert spare.shell("/data/local/tmp/tools/abort_tool")[0] == 134
    assert "Fatal signal 6 (SIGABRT)" in spare.out("logcat -d -b crash")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits another process")
def test_a_shell_gets_no_more_memory_than_a_phone_gives_it(device: Device) -> None:
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", "echo $$; read line"], env=device.adb.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    allowed = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"(?m)^Max address space +2147483648 ", allowed)
    client.communicate(b"\n", timeout=30)
