"""A stranger with adb and the lines that `mtplab standin` prints finds a phone that answers as Android does."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import PATIENCE_S, Adb, until

COMMAND = "import sys; from mtplab.cli import main; sys.argv[1:] = ['standin']; main()"
ASKS = "asks to be trusted"


class Terminal:
    """`mtplab standin` on a terminal, as a person sees and types it."""

    def __init__(self) -> None:
        self._main, side = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND], stdin=side, stdout=subprocess.PIPE, stderr=side, start_new_session=True,
        )  # fmt: skip
        os.close(side)
        self.said = ""

    def says(self, pattern: str) -> re.Match[str] | None:
        """Read what has come since, then look for the pattern in all that was said."""
        while select.select([self._main], [], [], 0.05)[0]:
            try:
                self.said += os.read(self._main, 65536).decode().replace("\r\n", "\n")
            except OSError:  # the other side is gone
                break
        return re.search(pattern, self.said)

    def types(self, line: str) -> None:
        os.write(self._main, line.encode() + b"\n")

    def close(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        os.close(self._main)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    until(lambda: opened.says("Ctrl-C ends it") is not None, f"it printed {opened.said!r}")
    yield opened
    assert opened.close() == 0


class Stranger:
    """An adb that does what the printed lines say, and then whatever its user fancies."""

    def __init__(self, adb: Adb, terminal: Terminal) -> None:
        self._adb = adb
        found = terminal.says(r"(?m)^ *adb (connect \S+)( +#.*)?$")
        assert found is not None, terminal.said
        shown = terminal.said.count(ASKS)  # of the strangers before
        adb(*found.group(1).split())
        until(lambda: terminal.says(ASKS) is not None and terminal.said.count(ASKS) > shown, "no key was shown")
        terminal.types("allow")
        until(lambda: b"\tdevice" in adb("devices").stdout, f"it is not let in: {terminal.said}")

    def __call__(self, *words: str) -> tuple[int, str]:
        """Exit code, and both streams of `adb WORDS`; with one device attached nobody needs a serial."""
        done = self._adb(*words)
        return done.returncode, (done.stdout + done.stderr).decode()


@pytest.fixture(scope="module")
def stranger(each_adb: Adb, terminal: Terminal) -> Stranger:
    return Stranger(each_adb, terminal)


# What is typed after `adb`, the exit code, and what the answer looks like on a phone.
ANSWERS = [
    ("get-state", 0, r"\Adevice\n\Z"),
    ("shell getprop ro.product.model", 0, r"\APixel 9 Pro\n\Z"),
    ("shell getprop", 0, r"(?m)^\[ro\.build\.version\.release\]: \[\d+\]$"),
    ("shell dumpsys thermalservice", 0, r"Current temperatures from HAL:\n(\tTemp.*\n)*\tTemperature\{mValue=3\d"),
    ("shell dumpsys battery", 0, r"(?m)\ACurrent Battery Service state:\n(.*\n)*  level: \d+$"),
    ("shell dumpsys package com.google.android.aicore", 0, r"(?m)^    versionCode=\d+ minSdk=\d+"),
    ("shell dumpsys nonsense", 0, r"\ACan't find service: nonsense\n"),
    ("shell settings get global airplane_mode_on", 0, r"\A0\n\Z"),
    ("shell settings get global no_such_setting", 0, r"\Anull\n\Z"),
    ("shell pm list packages", 0, r"(?m)^package:com\.google\.android\.aicore$"),
    ("shell cat /sys/class/thermal/thermal_zone0/temp", 0, r"\A\d{5}\n\Z"),
    ("shell cat /sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", 0, r"\A\d{6,7}\n\Z"),
    ("shell uname -m", 0, r"\Aaarch64\n\Z"),
    ("shell wm size", 0, r"\APhysical size: \d+x\d+\n\Z"),
    ("shell df -k /data", 0, r"(?m)\AFilesystem .*\n/dev/\S+ +\d+ +\d+ +\d+ +\d+% /data$"),
    ("shell ps -A", 0, r"\AUSER +PID .*\n"),
    ("shell ls /sdcard/", 0, r""),
    ("logcat -d", 0, r"\A--------- beginning of main\n"),
    ("forward --list", 0, r"\A\s*\Z"),
    # Refusals are words and an exit code, never silence and never a hang.
    ("shell no_such_command", 127, r"no_such_command: (inaccessible or )?not found"),
    ("shell su -c id", 1, r"(?i)not root|not found|denied|permitted"),
    ("shell cat /data/system/packages.xml", 1, r"(?i)no such file|denied"),
    ("root", None, r"adbd cannot run as root in production builds"),
    ("reverse tcp:6100 tcp:6100", 1, r"(?i)error"),
    ("shell am start -n a/.B", 1, r"(?m)^Error: .* stand-in runs no apps"),
]


@pytest.mark.parametrize(("typed", "code", "looks"), ANSWERS, ids=[row[0] for row in ANSWERS])
def test_commands_are_answered_as_a_phone_would(stranger: Stranger, typed: str, code: int | None, looks: str) -> None:
    found, said = stranger(*shlex.split(typed))
    assert re.search(looks, said), said
    assert code is None or found == code, said


def test_a_pushed_file_is_there_for_the_shell_and_comes_back(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("left by a stranger\n")
    code, said = stranger("push", str(tmp_path / "note.txt"), "/sdcard/Download/note.txt")
    assert code == 0, said
    assert "1 file pushed" in said
    assert stranger("shell", "cat", "/storage/emulated/0/Download/note.txt") == (0, "left by a stranger\n")
    assert stranger("pull", "/sdcard/Download/note.txt", str(tmp_path / "back"))[0] == 0
    assert (tmp_path / "back").read_text() == "left by a stranger\n"
    code, said = stranger("push", str(tmp_path / "note.txt"), "/system/note.txt")
    assert (code, "Read-only" in said or "denied" in said) == (1, True), said


def test_a_bug_report_is_refused_with_a_reason_and_no_file(stranger: Stranger, tmp_path: Path) -> None:
    code, said = stranger("bugreport", str(tmp_path / "report.zip"))
    assert code != 0
    assert "the stand-in makes no bug reports" in said
    assert list(tmp_path.iterdir()) == []


def test_an_app_is_refused(stranger: Stranger, tmp_path: Path) -> None:
    (tmp_path / "app.apk").write_bytes(b"PK\x03\x04")
    code, said = stranger("install", str(tmp_path / "app.apk"))
    assert code != 0
    assert "Success" not in said
    assert said.strip()


def test_a_reboot_goes_away_and_comes_back(stranger: Stranger) -> None:
    assert stranger("reboot")[0] == 0
    assert stranger("shell", "id")[0] != 0
    assert stranger("wait-for-device", "shell", "id", "-u") == (0, "2000\n")
