"""Programs of the host behind device paths: arguments mapped, streams passed on, ended with their caller."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import SECRET, Device, StartDevice, read_line, until

TOOLS = "/data/local/tmp/tools"


def test_streams_and_exit_code_pass_through(device: Device) -> None:
    code, out, err = device.shell(f"{TOOLS}/echo_tool --flag=/data/local/tmp/x 'two words' plain/relative /sdcard/y")
    assert (code, err) == (7, "to stderr\n")
    assert out == "['--flag=/data/local/tmp/x', 'two words', '/plain/relative', '/data/media/0/y']\n"


def test_exec_keeps_the_pid_and_the_code(device: Device) -> None:
    code, out, _ = device.shell(f"echo $$; exec {TOOLS}/echo_tool a")
    pid, line = out.splitlines()
    assert code == 7
    assert pid.isdigit()
    assert line == "['a']"


def test_paths_in_arguments_are_the_devices(device: Device, tmp_path: Path) -> None:
    device.out("echo device text > '/data/local/tmp/a b'")
    assert "device text" in device.out(f"{TOOLS}/read_tool --file='/data/local/tmp/a b'")
    assert "device text" in device.out(f"cd /data/local && {TOOLS}/read_tool --file=tmp/'a b'")
    (tmp_path / "secret").write_text("host secret")
    up = "../" * 30
    secret = tmp_path / "secret"
    device.out(f"cd /data/local/tmp; mkdir -p x; ln -sf {secret} points-out; ln -sf {secret} a,b")
    ways = (secret, f"{up}{secret}", f"/data/{up}{secret}", f"x/{up}{secret}", "points-out", "a,b", f"k={secret}")
    for path in ways:
        _code, out, err = device.shell(f"cd /data/local/tmp; {TOOLS}/read_tool --file={path}")
        assert "host secret" not in out
        assert str(device.root) not in out + err


def test_what_lies_on_the_device_never_becomes_code_on_the_host(device: Device) -> None:
    guest = "/data/local/tmp/guest-folder"
    device.out(f"mkdir -p {guest}; echo 'print(\"guest ran\")' > {guest}/guest.py")
    code, out, err = device.shell(f"cd {guest} && {TOOLS}/import_tool")
    assert (code, "guest ran" in out) == (1, False)
    assert "No module named 'guest'" in err


def test_programs_do_not_know_the_owners_environment(device: Device) -> None:
    environment, here = json.loads(device.shell(f"{TOOLS}/import_tool")[1])
    assert SECRET not in environment
    assert {"PATH", "HOME", "TMPDIR"} <= set(environment)
    assert here == []
    for folder in (environment["HOME"], environment["TMPDIR"]):
        assert folder.startswith("/dev/.sim/")  # the root before it was taken out of the output
        assert device.shell(f"echo x > {folder}/guest.py")[0] != 0


def test_a_signal_shows_in_the_exit_code(device: Device) -> None:
    code, out, _ = device.shell(f"{TOOLS}/abort_tool")
    assert (code, out) == (134, "before\n")


def test_output_comes_while_the_program_runs_and_it_ends_with_its_stream(device: Device) -> None:
    before = set(device.control("status")["processes"])
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", f"echo $$; exec {TOOLS}/count_tool"],
        env=device.adb.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert read_line(client).strip().isdigit()
    assert read_line(client) == b"tick 0\n"
    assert set(device.control("status")["processes"]) - before
    client.kill()
    client.wait()
    until(lambda: set(device.control("status")["processes"]) <= before, "the program outlived its client")


def test_kill_ends_the_program_behind_a_pid(device: Device) -> None:
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", f"echo $$; exec {TOOLS}/count_tool"],
        env=device.adb.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    pid = read_line(client).strip().decode()
    read_line(client)
    until(lambda: "count_tool" in device.out(f"cat /proc/{pid}/cmdline; echo"), "the program is not listed")
    device.out(f"kill -0 {pid} && kill -TERM {pid}")
    assert client.wait(20) == 143
    until(lambda: device.shell(f"kill -0 {pid}")[0] != 0, f"{pid} still lives")


def test_a_pushed_arm_binary_keeps_its_bytes_and_runs_as_the_program(device: Device, tmp_path: Path) -> None:
    data = b"\x7fELF" + bytes(200_000)
    (tmp_path / "elf").write_bytes(data)
    where = "/data/local/tmp/mine/benchmark_model"
    device("push", str(tmp_path / "elf"), where)
    assert f" {len(data)} " in device.out(f"chmod 755 {where}; ls -l {where}")
    hashed = device.out(f"sha256sum {where}").split()[0]
    assert device("pull", where, str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == data
    assert hashed == hashlib.sha256(data).hexdigest()
    assert device.shell(where)[1].startswith("INFO: STARTING!\n")


def test_nothing_is_left_when_the_standin_ends(start_device: StartDevice) -> None:
    from .conftest import program_options

    device = start_device("--backend", "portable", *program_options())
    client = subprocess.Popen(
        [device.adb.binary, "-s", device.serial, "shell", f"sleep 77 & {TOOLS}/count_tool"],
        env=device.adb.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    read_line(client)
    pids = device.control("status")["processes"]
    assert len(pids) >= 2
    assert device.stop() == 0
    client.wait(20)
    time.sleep(0.1)
    listed = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    assert not [path for path in listed if path.exists() and path.read_bytes()]
    assert not device.root.exists()
    assert not Path(device.info["control"]).exists()


@pytest.mark.parametrize("work", ["load BIG 1", "load G3D 1"])
def test_load_heats_its_die(start_device: StartDevice, work: str) -> None:
    device = start_device("--backend", "portable", "--speed", "40")
    die = work.split()[1]
    before = device.control("temps")["temperature_c"][die]
    assert device.control(work) == {"ok": True}
    until(lambda: device.control("temps")["temperature_c"][die] > before + 10, "the die stays cool")
    zone = {"BIG": 0, "G3D": 3}[die]
    read = f"cat /sys/class/thermal/thermal_zone{zone}/temp"
    until(lambda: int(device.out(read)) > (before + 8) * 1000, "the zone does not follow")
