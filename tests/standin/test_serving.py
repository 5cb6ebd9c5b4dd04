"""Starting, trusting, unplugging and ending a stand-in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mtplab.standin import serve
from mtplab.standin.settings import names

from .conftest import PATIENCE_S, Adb, StartDevice, read_line, start_adb, until


def test_the_line_on_stdout_says_where_everything_is(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", "--scenario", "cool", "--profile", "pixel-8")
    assert {"scenario": "cool", "profile": "pixel-8", "backend": "portable"}.items() <= device.info.items()
    host, port = device.serial.split(":")
    assert host == "127.0.0.1"
    assert not 5554 <= int(port) <= 5585
    assert stat.S_IMODE(Path(device.info["control"]).stat().st_mode) == 0o600
    assert device.info["pid"] == device.process.pid
    assert device.out("getprop ro.product.model") == "Pixel 8\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--scenario", "nope"], "gpu-silent-fallback"),
        (["--profile", "nope"], "pixel-9-pro"),
        (["--backend", "nope"], "portable"),
        (["--port", "5555"], "emulator"),
        (["--port", "99999999"], "0 to 65535"),
        (["--port", "-1"], "0 to 65535"),
        (["--port", "x"], "--port"),
        (["--speed", "nan"], "--speed"),
        (["--speed", "inf"], "--speed"),
        (["--speed", "-1"], "--speed"),
        (["--speed", "0"], "--speed"),
        (["--max-bytes", "-1"], "--max-bytes"),
        (["--max-bytes", "9" * 30], "--max-bytes"),
        (["--max-processes", "0"], "--max-processes"),
        (["--program", "/system/x=[]"], "--program"),
        (["--allow-key", "/no/such/key"], "--allow-key"),
        (["--what"], "--what"),
    ],
)
def test_what_does_not_exist_gets_one_sentence_and_exit_1(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(options) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert named in said.err


def test_a_folder_with_other_things_is_not_taken_as_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("x")
    assert serve(["--root", str(tmp_path)]) == 1
    assert "something else" in capsys.readouterr().err


def test_pushed_files_survive_in_a_root_of_ones_own_and_only_one_may_serve_it(
    start_device: StartDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "kept"
    first = start_device("--backend", "auto", "--root", str(root))
    first.out("mkdir -p /data/local/tmp/mtplab; echo kept > /data/local/tmp/mtplab/f")
    assert serve(["--root", str(root)]) == 1
    assert "another stand-in" in capsys.readouterr().err
    first.stop()
    second = start_device("--backend", "portable", "--root", str(root))
    assert second.out("cat /data/local/tmp/mtplab/f; echo more >> /data/local/tmp/mtplab/f") == "kept\n"


def test_it_ends_with_its_parent(adb: Adb) -> None:
    words = [sys.executable, "-m", "mtplab.standin", "--backend", "portable", "--exit-with-parent"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=adb.env)
    info = json.loads(read_line(process))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    assert not Path(info["root"]).exists()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mksh") or not shutil.which("toybox"), reason="no chroot")
def test_a_process_that_hides_from_its_owner_ends_with_the_phone(start_device: StartDevice) -> None:
    device = start_device("--backend", "chroot")
    hidden = "env -i /system/bin/setsid /system/bin/sleep 497 >/dev/null 2>&1 </dev/null & echo $!"
    process = Path("/proc", device.out(hidden).strip(), "root")
    until(lambda: str(process.readlink()) == device.info["root"], "it did not start")
    device.stop()
    until(lambda: not process.parent.exists() or b"497" not in process.with_name("cmdline").read_bytes(), "it lives")


def test_an_unknown_computer_stays_unauthorised_until_it_is_allowed(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", trusted=False)
    assert device.shell("id")[0] != 0
    assert len(device.control("allow")["allowed"]) == 1
    device.wait_for("device")
    assert device.out("id -u") == "2000\n"


def test_the_scenario_unauthorised_asks_even_a_known_computer(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", "--scenario", "unauthorised", connect=False)
    device.adb("connect", device.serial)
    device.wait_for("unauthorized")
    device.control("allow")
    device.wait_for("device")


def test_another_key_than_the_allowed_one_is_not_trusted(start_device: StartDevice, tmp_path: Path) -> None:
    device = start_device("--backend", "portable", connect=False)
    with contextlib.contextmanager(start_adb)(device.adb.binary, tmp_path / "stranger") as stranger:
        stranger("connect", device.serial)
        until(lambda: b"unauthorized" in stranger("devices").stdout, "the stranger was not refused")
        assert stranger("-s", device.serial, "shell", "id").returncode != 0


def test_a_cable_pulled_in_the_middle_of_a_shell(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable")
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", "echo begun; sleep 60; echo ended"],
        env=device.adb.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert read_line(client) == b"begun\n"
    assert device.control("unplug") == {"ok": True}
    client.wait(PATIENCE_S)  # with which code depends on the adb: that is why no code proves an end
    assert b"ended" not in client.communicate()[0]
    until(lambda: not device.control("status")["processes"], "the shell outlived its cable")
    assert device.shell("id")[0] != 0
    device.control("plug")
    device.adb("disconnect", device.serial)
    device.adb("connect", device.serial)
    device.wait_for("device")
    assert device.out("id -u") == "2000\n"


def test_the_control_socket_answers_nonsense_with_an_error(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", connect=False)
    for command in ("nonsense", "", "load NOPE 1", "load BIG", "load BIG x", "load BIG nan", "mode nope"):
        assert "error" in device.control(command), command
    for command in ("unplug x", "unplug nan", "unplug -1"):
        assert "error" in device.control(command), command
    assert device.control("temps")["status"] == "NONE"


def test_a_push_beyond_the_storage_fails_and_leaves_nothing(start_device: StartDevice, tmp_path: Path) -> None:
    device = start_device("--backend", "portable", "--max-bytes", str(1 << 20))
    (tmp_path / "big").write_bytes(bytes(2 << 20))
    done = device("push", str(tmp_path / "big"), "/data/local/tmp/big")
    assert done.returncode != 0
    assert b"No space left on device" in done.stdout + done.stderr
    assert "big" not in device.out("ls /data/local/tmp")


def test_too_many_processes_are_refused(start_device: StartDevice) -> None:
    device = start_device("--backend", "portable", "--max-processes", "1")
    holding = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", "echo up; sleep 60"],
        env=device.adb.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert read_line(holding) == b"up\n"
    code, _out, err = device.shell("echo second")
    assert code != 0
    assert "Resource temporarily unavailable" in err
    holding.kill()
    holding.wait()


def test_every_scenario_and_profile_can_be_served(start_device: StartDevice) -> None:
    assert {"normal", "hot", "cool", "gpu-silent-fallback", "gpu-partial", "gpu-crash", "dynamic-tensor", "no-aicore",
            "unauthorised"} <= set(names("scenarios"))  # fmt: skip
    device = start_device("--backend", "portable", "--scenario", "no-aicore", "--profile", "pixel-8")
    assert device.out("dumpsys package com.google.android.aicore") == (
        "Unable to find package: com.google.android.aicore\n"
    )
    hot = start_device("--backend", "portable", "--scenario", "hot")
    assert hot.control("temps")["status"] in ("LIGHT", "MODERATE")
    assert hot.control("temps")["clock"]["BIG"] < 0.8
    assert "Thermal Status: 1" in hot.out("dumpsys thermalservice")
