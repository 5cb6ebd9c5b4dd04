"""What any adb client sees of the device, the same in each backend."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

import pytest

from mtplab.standin.processes import SHELL_BYTES

from .conftest import Device, until

TMP = "/data/local/tmp"


def test_it_says_that_it_is_a_standin_and_which(device: Device) -> None:
    properties = device.out("getprop")
    assert "[ro.mtplab.standin]: [1]" in properties
    assert device.out("getprop ro.build.fingerprint").startswith("mtplab/standin/")
    assert device.out("getprop ro.mtplab.backend").strip() == device.info["backend"]
    assert device.out("getprop ro.product.model") == "Pixel 9 Pro\n"
    assert device.out("getprop no.such") == "\n"


def test_shell_v2_keeps_exit_code_and_stderr_apart(device: Device) -> None:
    assert device.shell("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")


def test_shell_v1_merges_the_streams(device: Device) -> None:
    done = device("shell", "-x", "echo out; echo err >&2; exit 3")
    assert sorted(done.stdout.split()) == [b"err", b"out"]


def test_a_script_on_standard_input_is_run(device: Device) -> None:
    done = device("shell", data=b"read -r line\nfrom the script\necho got $line\nexit 5\n")
    assert (done.returncode, done.stdout) == (5, b"got from the script\n")


def test_input_reaches_the_command_and_its_end_too(device: Device) -> None:
    done = device("exec-in", "cat > /data/local/tmp/in.bin", data=bytes(range(256)) * 40)
    assert done.returncode == 0
    until(lambda: device.out(f"stat -c %s {TMP}/in.bin 2>/dev/null; true") == "10240\n", "the input did not arrive")
    assert device("exec-out", f"cat {TMP}/in.bin").stdout == bytes(range(256)) * 40


def test_the_user_is_the_shell(device: Device) -> None:
    assert device.out("id -u") == "2000\n"


def test_pushed_bytes_come_back_equal_and_hash_alike(device: Device, tmp_path: Path) -> None:
    data = os.urandom(8 << 20)
    (tmp_path / "out").write_bytes(data)
    assert device("push", str(tmp_path / "out"), f"{TMP}/a b.bin").returncode == 0
    assert device.out(f"sha256sum '{TMP}/a b.bin'").split()[0] == hashlib.sha256(data).hexdigest()
    assert device("pull", f"{TMP}/a b.bin", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == data
    assert device.out(f"stat -c '%s %n' '{TMP}/a b.bin'") == f"{len(data)} {TMP}/a b.bin\n"
    device.out(f"rm '{TMP}/a b.bin'")
    assert device("pull", f"{TMP}/a b.bin", str(tmp_path / "none")).returncode != 0


def test_sync_lists_folders(device: Device, tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_text("text")
    assert device("push", str(tmp_path / "folder"), f"{TMP}/").returncode == 0
    listing = device("ls", f"{TMP}/folder").stdout.decode()
    assert re.search(r"^000041[0-9a-f]{2} [0-9a-f]{8} [0-9a-f]{8} inner$", listing, re.MULTILINE)
    assert device("pull", f"{TMP}/folder", str(tmp_path / "again")).returncode == 0
    assert (tmp_path / "again" / "inner" / "file").read_text() == "text"


@pytest.mark.parametrize("where", ["/system/x", "/x", f"{TMP}/../../../etc/x", "/proc/x", "/dev/x"])
def test_a_push_outside_the_users_folders_is_refused(device: Device, tmp_path: Path, where: str) -> None:
    (tmp_path / "f").write_text("x")
    done = device("push", str(tmp_path / "f"), where)
    assert done.returncode != 0
    assert b"couldn't create file" in done.stdout + done.stderr
    assert not list(device.root.rglob("x.adb-part"))


def test_links_do_not_lead_outside(device: Device, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host secret")
    up = "/".join([".."] * 30)
    device.out(f"ln -sf {secret} {TMP}/abs; ln -sf {up}{secret} {TMP}/rel; ln -sf {tmp_path} {TMP}/folder-link")
    for link in ("abs", "rel", "folder-link/secret"):
        assert device("pull", f"{TMP}/{link}", str(tmp_path / "got")).returncode != 0
        assert device.shell(f"cat {TMP}/{link}")[0] != 0
        (tmp_path / "own").write_text("own")
        device("push", str(tmp_path / "own"), f"{TMP}/{link}")
    assert secret.read_text() == "host secret"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "secret"]
    device.out(f"rm -f {TMP}/abs {TMP}/rel; rm -rf {TMP}/folder-link {TMP}{tmp_path}")


def test_device_commands_cannot_touch_the_hosts_files(device: Device, tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("mine")
    device.shell(f"rm -rf {tmp_path} '{tmp_path}' /tmp/*; echo gone > {tmp_path}/keep; cd / && rm -rf ./{tmp_path}")
    assert (tmp_path / "keep").read_text() == "mine"
    assert "root:x:0" in device.out("cat /etc/passwd")
    assert len(device.out("cat /etc/passwd").splitlines()) == 2


def test_host_paths_do_not_show(device: Device) -> None:
    script = "pwd; cd /data/local/tmp; pwd; readlink -f .; echo $PWD $0 $HOME; set -- /data/*; echo $@; ls -d /sys/*"
    out = device.out(script)
    assert str(device.root.parent) not in out
    assert device.out("echo $PATH") == "/system/bin:/vendor/bin\n"
    assert str(device.root.parent) not in device.out("env")
    assert "/data/local/tmp" in out


def test_only_the_users_folders_can_be_written(device: Device) -> None:
    assert device.shell("echo x > /system/x")[0] != 0
    assert device.shell("rm /system/bin/getprop")[0] != 0
    assert device.shell("mkdir /data/local/tmp/../other")[0] != 0
    script = "mkdir -p /sdcard/a/b; echo y > /sdcard/a/b/c; cat /data/media/0/a/b/c; rm -r /sdcard/a"
    assert device.out(script) == "y\n"


def test_thermal_zones_are_all_listed_and_one_cannot_be_read(device: Device) -> None:
    script = (
        "for z in /sys/class/thermal/thermal_zone*;do t=;v=;read -r t<$z/type;read -r v<$z/temp;"
        'echo "Z ${z##*zone} ${v:-NA} ${t:-?}";done 2>/dev/null'
    )
    rows = [line.split() for line in device.out(script).splitlines()]
    assert len(rows) == 32
    readable = {row[3]: row[2] for row in rows if row[2] != "NA"}
    assert len(readable) == 31
    assert all(re.fullmatch(r"-?\d+", value) for value in readable.values())
    assert {"BIG", "MID", "LITTLE", "G3D", "TPU", "battery", "quiet_therm"} <= set(readable)


def test_the_persistent_sampling_loop_gives_whole_frames_and_ends_with_its_input(device: Device) -> None:
    script = (
        "n=0; while :; do read -r up rest </proc/uptime; line=; for z in /sys/class/thermal/thermal_zone*; do v=; "
        'read -r v <$z/temp; line="$line ${v:-NA}"; done; echo "#B $n $up$line #E"; n=$((n+1)); '
        "read -r -t 0.1 _; s=$?; [ $s -gt 128 ] || break; done 2>/dev/null"
    )
    frames = device.out(script).splitlines()
    assert len(frames) == 1  # standard input ended at once
    assert re.fullmatch(r"#B 0 \d+\.\d\d( -?\d+| NA){32} #E", frames[0])


def test_services_have_the_phones_forms(device: Device) -> None:
    thermal = device.out("dumpsys thermalservice")
    assert thermal.startswith("IsStatusOverride: false\n")
    cached, hal = thermal.split("Current temperatures from HAL:")
    skin = re.compile(r"\tTemperature\{mValue=([\d.]+), mType=3, mName=VIRTUAL-SKIN, mStatus=0\}")
    stale, current = (float(skin.search(part).group(1)) for part in (cached, hal))  # type: ignore[union-attr]
    assert current > stale + 5
    assert "mHotThrottlingThresholds=[NaN, 39.0, 43.0, 45.0, 47.0, 52.0, 55.0]" in hal
    assert re.search(r"^  temperature: \d{3}$", device.out("dumpsys battery"), re.MULTILINE)
    assert "\nDisplay Power State:\n  mStopped=false\n  mScreenState=ON\n" in device.out("dumpsys display")
    aicore = device.out("dumpsys package com.google.android.aicore")
    assert "versionCode=494417" in aicore.split("Hidden system packages:")[0]
    assert device.shell("dumpsys package no.such") == (0, "Unable to find package: no.such\n", "")
    assert device.out("dumpsys nothing").startswith("Can't find service: nothing")


def test_the_small_commands_answer(device: Device) -> None:
    assert device.out("nproc") == "8\n"
    assert device.out("uname -m") == "aarch64\n"
    assert device.out("taskset f0 echo run") == "run\n"
    assert device.shell("taskset zz echo run")[0] != 0
    assert re.search(r"^/dev/\S+ +\d+ +\d+ +\d+ +\d+% /data$", device.out("df -k /data"), re.MULTILINE)
    assert device.out("cat /sys/devices/system/cpu/cpufreq/policy7/cpuinfo_max_freq") == "3105000\n"
    assert device.out("pm list packages aicore") == "package:com.google.android.aicore\n"
    assert "MemTotal" in device.out("cat /proc/meminfo")
    assert float(device.out("cat /proc/uptime").split()[0]) > 0
    device.out("logcat -c")
    assert device.out("logcat -d") == ""
    device.out("log -p w -t bench two  'w o r d s'")
    assert re.fullmatch(
        r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +\d+ +\d+ W bench   : two w o r d s\n", device.out("logcat -d")
    )
    assert device.shell("log -p nonsense -t bench word")[0] == 1
    assert device.shell("/data/local/tmp/no_such_tool")[0] == 127
    assert device.out("test -x /data/local/tmp/benchmark_model && command -v sh") == "/system/bin/sh\n"


def test_a_running_shell_is_listed_and_can_be_ended(device: Device) -> None:
    listed = "until [ -s /proc/$$/cmdline ]; do sleep 0.05; done; cat /proc/$$/cmdline"
    assert device.out(listed).startswith("/system/bin/sh\0-c\0until")
    # mksh loses a signal that reaches its child before the child has become `sleep`, so it is sent more than once.
    again = "for i in 1 2 3 4 5; do kill -TERM $!; sleep 0.05; done"
    script = f"sleep 30 & kill -0 $! && echo alive; {again}; wait $!; kill -0 $! || echo gone"
    assert device.out(f"{{ {script}; }} 2>/dev/null") == "alive\ngone\n"


def test_a_big_here_document_and_pipes_survive(device: Device) -> None:
    assert device.out("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done | grep -c line") == "2000\n"


def test_a_terminal_is_given_on_request(device: Device) -> None:
    done = device("shell", "-tt", "test -t 0 && test -t 1 && echo terminal; exit 4")
    assert done.stdout.replace(b"\r", b"") == b"terminal\n"
    assert done.returncode == 4


def test_the_clock_of_the_device_is_the_hosts_and_never_stands(device: Device) -> None:
    script = "for i in 1 2 3 4 5; do read -r up rest </proc/uptime; echo $up; sleep 0.1; done"
    before = time.monotonic()
    stamps = [float(line) for line in device.out(script).splitlines()]
    after = time.monotonic()
    assert stamps == sorted(set(stamps))
    assert before - 0.5 <= stamps[0] <= stamps[-1] <= after + 0.5


def test_settings_are_read_written_and_deleted_as_on_a_phone(device: Device) -> None:
    assert device.out("settings get system screen_brightness") == "102\n"
    assert device.out("settings put system screen_brightness 25; settings get system screen_brightness") == "25\n"
    assert device.out("settings get global no_such_key") == "null\n"
    assert device.out("settings put global a.key 'two words'; settings get global a.key") == "two words\n"
    assert "a.key=two words" in device.out("settings list global")
    assert device.out("settings delete global a.key; settings get global a.key") == "Deleted 1 rows\nnull\n"
    code, _, complaint = device.shell("settings put nowhere key 1")
    assert (code, "nowhere" in complaint) == (255, True)
    assert device.shell("settings put global ../../x 1")[0] == 255


def test_power_airplane_mode_and_the_screen_answer_through_the_settings(device: Device) -> None:
    assert device.out("svc power stayon true; settings get global stay_on_while_plugged_in") == "7\n"
    assert "mStayOnWhilePluggedInSetting=7" in device.out("dumpsys power")
    assert device.out("cmd connectivity airplane-mode enable; settings get global airplane_mode_on") == "1\n"
    assert device.out("cmd connectivity airplane-mode; cmd connectivity airplane-mode disable") == "enabled\n"
    assert device.shell("cmd power set-mode 0") == (0, "", "")
    assert "mScreenState=ON" in device.out("dumpsys display")
    device.out("input keyevent KEYCODE_SLEEP")
    assert "mWakefulness=Asleep" in device.out("dumpsys power")
    assert "mScreenState=OFF" in device.out("dumpsys display")
    device.out("input keyevent 224")
    assert "mWakefulness=Awake" in device.out("dumpsys power")


def test_a_shell_cannot_lift_the_limits_of_its_memory_and_files(device: Device) -> None:
    if device.info["backend"] == "portable":
        pytest.skip("the portable shell starts no programs of the device's")
    _code, said, _ = device.shell("ulimit -Hv; ulimit -Hf; ulimit -v unlimited || echo refused")
    memory, files, word = said.split()
    assert int(memory) << 10 == SHELL_BYTES
    assert int(files) > 0
    assert word == "refused"
