"""Each scenario does to the phone what its file says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mtplab.standin.cable import CableKeeper
from mtplab.standin.files import DeviceFiles
from mtplab.standin.phone import Phone
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import Cable, load_profile, load_scenario, names

from .conftest import Device, StartDevice, until

PROMISED = {
    "normal", "cool", "hot", "harsh", "gpu-silent-fallback", "gpu-partial", "gpu-gl-downgrade", "gpu-crash",
    "gpu-fp16-overflow", "dynamic-tensor", "gpu-library-missing", "npu-refused", "no-aicore", "unauthorised",
    "flaky-cable", "slow-usb", "disk-full", "denied-zones", "stale-hal", "two-phones",
}  # fmt: skip


def phone_of(scenario: str, root: Path) -> Phone:
    """The files of a phone in a scenario, without anybody to serve them."""
    profile, found = load_profile("pixel-9-pro"), load_scenario(scenario)
    phone = Phone(DeviceFiles(str(root)), profile, found, HeatModel.start(profile, found))
    phone.build("test")
    return phone


def thermalservice(root: Path) -> str:
    return (root / "dev/.sim/dumpsys/thermalservice").read_text()


def test_every_promised_scenario_is_there_and_says_what_it_is() -> None:
    assert set(names("scenarios")) >= PROMISED
    for name in names("scenarios"):
        assert load_scenario(name).description.endswith("."), name


def test_denied_zones_can_be_read_by_nobody_but_the_service_goes_on(tmp_path: Path) -> None:
    phone_of("denied-zones", tmp_path)
    files = list((tmp_path / "sys/class/thermal").glob("*/*"))
    assert len(files) == 64
    assert all(file.stat().st_mode & 0o777 == 0 for file in files)
    assert "Current temperatures from HAL:\n\tTemperature{" in thermalservice(tmp_path)


def test_a_stale_hal_gives_the_same_cached_temperatures_for_ever(tmp_path: Path) -> None:
    phone = phone_of("stale-hal", tmp_path)
    before = thermalservice(tmp_path)
    assert before.endswith("\nHAL Ready: false\n")
    assert "Current temperatures" not in before
    phone.model.load = {"BIG": 1.0}
    phone.model.step(600)
    phone.refresh()
    assert phone.model.temperature_c["BIG"] > 60
    assert thermalservice(tmp_path) == before


def test_two_phones_are_served_by_one_command(start_device: StartDevice) -> None:
    first = start_device("--backend", "portable", "--scenario", "two-phones")
    about = first.info["phones"]
    assert first.serial == about[0]["serial"] != about[1]["serial"]
    second = Device(first.adb, first.process, about[1], first.errors)
    first.adb("connect", second.serial)
    second.wait_for("device")
    assert first.out("getprop ro.product.model") == "Pixel 9 Pro\n"
    assert second.out("getprop ro.product.model") == "Pixel 8\n"
    first.out("echo mine > /data/local/tmp/which")
    assert second.shell("cat /data/local/tmp/which")[0] != 0
    assert first.control("2 unplug") == {"ok": True}
    until(lambda: second.state() != "device", "the second cable holds")
    assert first.out("echo still") == "still\n"
    second.adb("disconnect", second.serial)


def test_a_full_disk_refuses_a_push_and_df_says_why(start_device: StartDevice, tmp_path: Path) -> None:
    device = start_device("--backend", "portable", "--scenario", "disk-full")
    (tmp_path / "big").write_bytes(os.urandom(400_000))
    (tmp_path / "small").write_bytes(os.urandom(40_000))
    done = device("push", str(tmp_path / "big"), "/data/local/tmp/big")
    assert done.returncode != 0
    assert b"No space left on device" in done.stdout + done.stderr
    assert device("push", str(tmp_path / "small"), "/data/local/tmp/small").returncode == 0
    free_kib = int(device.out("df -k /data/local/tmp").splitlines()[1].split()[3])
    assert 0 < free_kib < 200


def test_a_cable_that_falls_out_within_a_push_is_back_by_itself(start_device: StartDevice, tmp_path: Path) -> None:
    device = start_device("--backend", "portable", "--scenario", "flaky-cable")
    (tmp_path / "big").write_bytes(os.urandom(4_000_000))
    assert device("push", str(tmp_path / "big"), "/data/local/tmp/big").returncode != 0
    device.adb("disconnect", device.serial)
    until(lambda: b"connected" in device.adb("connect", device.serial).stdout, "it did not come back")
    device.wait_for("device")
    assert device.shell("ls /data/local/tmp/big")[0] != 0  # half a file never stands under its name


@pytest.mark.parametrize(
    ("cable", "loads", "expected"),
    [
        (Cable(pull_after_bytes=100), [60, 40, 1, 100, 1], [True, True, False, True, True]),
        (Cable(pull_after_bytes=100, times=2), [101, 101, 101], [False, False, True]),
        (Cable(), [10**9], [True]),
    ],
)
def test_a_cable_is_pulled_within_the_byte_it_was_told(
    cable: Cable, loads: list[int], expected: list[bool]
) -> None:
    async def run() -> tuple[list[bool], list[float | None]]:
        pulled: list[float | None] = []
        keeper = CableKeeper(cable, pulled.append)
        return [await keeper.carry(load) for load in loads], pulled

    carried, pulled = asyncio.run(run())
    assert carried == expected
    assert pulled == [2.0] * expected.count(False)


def test_a_cable_that_is_pulled_after_a_time_counts_from_the_first_client_and_only_as_often_as_told() -> None:
    async def run() -> list[float | None]:
        pulled: list[float | None] = []
        keeper = CableKeeper(Cable(pull_after_s=0.01, away_s=0.5, times=2), pulled.append)
        await asyncio.sleep(0.05)
        assert pulled == []  # nobody is served yet
        for _ in range(4):
            keeper.came_online()
            keeper.came_online()  # a second client does not begin anew
            await asyncio.sleep(0.05)
        return pulled

    assert asyncio.run(run()) == [0.5, 0.5]


def test_a_slow_cable_makes_its_users_wait() -> None:
    async def run() -> float:
        keeper = CableKeeper(Cable(bytes_per_s=1000), lambda seconds: None)
        start = asyncio.get_running_loop().time()
        await asyncio.gather(keeper.carry(100), keeper.carry(100))  # all connections share it
        return asyncio.get_running_loop().time() - start

    assert asyncio.run(run()) >= 0.19


@pytest.mark.parametrize("mode", ["recovery", "sideload", "bootloader", "offline"])
def test_adb_shows_the_state_a_phone_is_in(spare: Device, mode: str) -> None:
    spare.control(f"mode {mode}")
    try:
        spare.adb("connect", spare.serial)
        spare.wait_for(mode)
        if mode != "offline":
            assert b"closed" in spare("shell", "id").stderr
    finally:
        spare.control("mode normal")
        spare.adb("disconnect", spare.serial)
        spare.adb("connect", spare.serial)
        spare.wait_for("device")


def test_a_hung_phone_answers_nothing_and_goes_on_when_it_wakes(spare: Device) -> None:
    import subprocess

    spare.control("mode hung")
    client = subprocess.Popen(
        [spare.adb.binary, "-s", spare.serial, "shell", "echo awake"], env=spare.adb.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait(1.0)
    assert spare.state() == "device"
    spare.control("mode normal")
    assert client.communicate(timeout=30)[0] == b"awake\n"


def test_what_a_user_build_will_not_do_is_said(spare: Device) -> None:
    assert b"cannot run as root in production builds" in spare("root").stdout
    refused = spare("reverse", "tcp:9", "tcp:9")
    assert refused.returncode != 0
    assert b"not supported by the stand-in" in refused.stderr + refused.stdout
    assert spare("exec-out", "true").returncode == 0


def test_a_reboot_ends_every_process_and_leads_into_recovery_and_back(spare: Device) -> None:
    def reboot(*into: str) -> None:
        assert spare("reboot", *into).returncode == 0
        until(lambda: spare.state() not in ("device", "recovery"), "it did not go")
        until(lambda: b"connected" in spare.adb("connect", spare.serial).stdout, "it did not come back")
        spare.adb("disconnect", spare.serial)
        spare.adb("connect", spare.serial)

    reboot("recovery")
    spare.wait_for("recovery")
    assert spare("shell", "id").returncode != 0
    reboot()
    spare.wait_for("device")
    assert spare.control("status")["processes"] == []
