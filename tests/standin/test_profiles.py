"""Each profile is a phone of its kind, and says that it is a likeness."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplab.standin.files import DeviceFiles
from mtplab.standin.phone import Phone
from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import load_profile, load_scenario, names

KINDS = ("pixel-6", "pixel-8", "pixel-9-pro", "pixel-10-pro", "snapdragon-8-gen-2")


def made(profile: str, root: Path) -> Phone:
    found, scenario = load_profile(profile), load_scenario("normal")
    phone = Phone(DeviceFiles(str(root)), found, scenario, HeatModel.start(found, scenario))
    phone.build("test")
    return phone


def zones(root: Path) -> dict[str, int | None]:
    """Zone type -> milli-degrees, None where the file may not be read."""
    found: dict[str, int | None] = {}
    for folder in (root / "sys/class/thermal").iterdir():
        readable = (folder / "temp").stat().st_mode & 0o444
        found[(folder / "type").read_text().strip()] = int((folder / "temp").read_text()) if readable else None
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_profile_has_all_that_a_phone_has_and_claims_no_more(name: str, tmp_path: Path) -> None:
    assert name in names("profiles")
    phone = made(name, tmp_path)
    properties = (tmp_path / "dev/.sim/props").read_text()
    assert "ro.mtplab.standin=1\n" in properties
    assert "; a likeness, not a measurement\n" in properties
    assert "ro.build.fingerprint=mtplab/standin/" in properties
    assert "\n  level: " in (tmp_path / "dev/.sim/dumpsys/battery").read_text()
    listed = zones(tmp_path)
    assert None in listed.values()
    assert len(listed) == len(phone.profile.zones) >= 20
    for policy in phone.profile.policies:
        limit = (tmp_path / f"sys/devices/system/cpu/cpufreq/{policy.name}/scaling_max_freq").read_text()
        assert int(limit) == policy.max_khz
    assert sorted(cpu for policy in phone.profile.policies for cpu in policy.cpus) == list(
        range(int((tmp_path / "sys/devices/system/cpu/possible").read_text().split("-")[1]) + 1)
    )
    service = (tmp_path / "dev/.sim/dumpsys/thermalservice").read_text()
    assert "mType=3" in service.split("Current temperatures from HAL:")[1]


def test_a_snapdragon_shows_limits_and_dead_sensors_among_its_zones(tmp_path: Path) -> None:
    made("snapdragon-8-gen-2", tmp_path)
    listed = zones(tmp_path)
    assert (listed["cpu-hw-trip-0"], listed["lmh-dcvs-00"], listed["socd"]) == (105000, 75000, 0)
    assert "BIG" not in listed
    assert (tmp_path / "sys/class/kgsl/kgsl-3d0/gpu_model").read_text() == "Adreno740v2\n"
    assert "enabled=3" in (tmp_path / "dev/.sim/dumpsys/package.com.google.android.aicore").read_text()


def test_aicore_has_the_form_of_its_phone(tmp_path: Path) -> None:
    forms = {}
    for name in KINDS:
        made(name, tmp_path / name)
        path = tmp_path / name / "dev/.sim/dumpsys/package.com.google.android.aicore"
        forms[name] = path.read_text().count("  Package [") if path.exists() else 0
    assert forms == {"pixel-6": 0, "pixel-8": 1, "pixel-9-pro": 2, "pixel-10-pro": 2, "snapdragon-8-gen-2": 1}


@pytest.mark.parametrize(("name", "file", "per_khz"), [
    ("pixel-8", "sys/devices/platform/1f000000.mali/cur_freq", 1),
    ("snapdragon-8-gen-2", "sys/class/kgsl/kgsl-3d0/gpuclk", 1000),
])  # fmt: skip
def test_the_gpus_clock_follows_its_load(name: str, file: str, per_khz: int, tmp_path: Path) -> None:
    phone = made(name, tmp_path)
    steps = phone.profile.gpu["steps_khz"]
    assert int((tmp_path / file).read_text()) == steps[0] * per_khz
    phone.model.load = {"G3D": 1.0}
    phone.refresh()
    assert int((tmp_path / file).read_text()) == steps[-1] * per_khz
    phone.model.clock["G3D"] = 0.5
    phone.refresh()
    held = int((tmp_path / file).read_text()) / per_khz
    assert held in steps
    assert held <= steps[-1] * 0.5


def test_load_shows_in_the_kernels_counters_as_in_the_heat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    phone = made("pixel-9-pro", tmp_path)

    def ticks() -> dict[str, tuple[int, int]]:
        rows = [line.split() for line in (tmp_path / "proc/stat").read_text().splitlines() if line.startswith("cpu")]
        return {row[0]: (int(row[1]) + int(row[3]), int(row[4])) for row in rows}

    before = ticks()
    phone.model.load = {"BIG": 1.0}
    now[0] += 10.0
    phone.refresh()
    after = ticks()
    busy = {cpu: after[cpu][0] - before[cpu][0] for cpu in after}
    assert 990 <= busy["cpu7"] <= 1000
    assert busy["cpu0"] == 0
    assert after["cpu0"][1] - before["cpu0"][1] == 1000
    assert float((tmp_path / "proc/loadavg").read_text().split()[0]) > 0.1


def test_memory_that_programs_hold_is_not_available_any_more(tmp_path: Path) -> None:
    phone = made("pixel-8", tmp_path)

    def available() -> int:
        rows = dict(line.split(":") for line in (tmp_path / "proc/meminfo").read_text().splitlines())
        return int(rows["MemAvailable"].split()[0])

    before = available()
    phone.refresh(programs_kib=500_000)
    assert before - available() == 500_000


def test_every_profile_says_so_in_its_file() -> None:
    folder = Path(__file__).resolve().parents[2] / "mtplab" / "standin" / "profiles"
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.toml")}
    silent = [name for name, text in texts.items() if "a likeness, not a measurement" not in text]
    assert silent == []
