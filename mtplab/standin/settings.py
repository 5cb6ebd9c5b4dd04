"""Profiles, scenarios and the heat model's constants: data files, read and checked here."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent


class UsageError(Exception):
    """What the user asked for does not exist; the text is one sentence to show."""


def names(kind: str) -> list[str]:
    """The data files of one kind (`profiles` or `scenarios`) by name."""
    return sorted(path.stem for path in (HERE / kind).glob("*.toml"))


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _read_named(kind: str, name: str) -> dict[str, Any]:
    if name not in names(kind):
        raise UsageError(f"unknown {kind[:-1]} {name!r}: there are {', '.join(names(kind))}")
    return read_toml(HERE / kind / f"{name}.toml")


@dataclass(frozen=True)
class Zone:
    """One thermal zone: it follows a node of the heat model, or holds a constant, or cannot be read."""

    type: str
    follows: str | None = None
    offset_c: float = 0.0
    value_milli: int | None = None
    readable: bool = True


@dataclass(frozen=True)
class Policy:
    """One cpufreq policy: the cores that share a clock, and the die they sit on."""

    cpus: tuple[int, ...]
    die: str
    part: str  # as /proc/cpuinfo names the core
    min_khz: int
    max_khz: int

    @property
    def name(self) -> str:
        """The folder's name under /sys/devices/system/cpu/cpufreq."""
        return f"policy{self.cpus[0]}"


@dataclass(frozen=True)
class Profile:
    """A model of phone: what does not change while it runs. A likeness, never a measurement."""

    name: str
    title: str
    kernel: str
    likeness: str
    memory_kib: int
    storage_kib: int
    governor: str
    npu_counter: str | None
    nnapi_accelerators: tuple[str, ...]
    heat_preset: str
    properties: dict[str, str]
    zones: tuple[Zone, ...]
    policies: tuple[Policy, ...]
    battery: dict[str, int]
    display: dict[str, Any]
    aicore: dict[str, Any]
    gpu: dict[str, Any]
    thermal: dict[str, Any]  # what the thermal service lists: hal, sensors, cooling_devices, thresholds


@dataclass(frozen=True)
class Cable:
    """What the cable does by itself: it is slow, or it is pulled after some bytes or seconds and put back."""

    bytes_per_s: float | None = None
    pull_after_bytes: int | None = None
    pull_after_s: float | None = None
    away_s: float = 2.0
    times: int = 1


@dataclass(frozen=True)
class Scenario:
    """What happens to the phone: only what a host cannot know by itself."""

    name: str
    description: str
    skin_c: float = 30.5
    ambient_c: float = 25.0
    clock: float = 1.0
    heat_preset: str | None = None
    gpu_outcome: str = "full"
    gpu_refuses: dict[str, str] = field(default_factory=dict)
    gpu_overflows: bool = False
    npu_outcome: str = "full"
    aicore_installed: bool = True
    authorised: bool = True
    cable: Cable = Cable()
    free_bytes: int | None = None
    memory_limit_mib: int | None = None
    zones_denied: bool = False
    hal_ready: bool = True
    seed: int = 0
    profiles: tuple[str | None, ...] = (None,)  # one phone each; None is the profile of the command line


def load_profile(name: str) -> Profile:
    """The profile called `name`; UsageError when there is none."""
    raw = _read_named("profiles", name)
    thermal = read_toml(HERE / "thermal" / f"{raw.pop('thermal')}.toml")
    policies = tuple(Policy(**{**policy, "cpus": tuple(policy["cpus"])}) for policy in raw.pop("policies"))
    return Profile(
        name=name,
        zones=tuple(Zone(**zone) for zone in thermal.pop("zones")),
        policies=policies,
        thermal=thermal,
        nnapi_accelerators=tuple(raw.pop("nnapi_accelerators", ())),
        npu_counter=raw.pop("npu_counter", None),
        **raw,
    )


# Where each value of a scenario file goes: table and key -> field.
_SCENARIO_FIELDS = {
    "start": {"skin_c": "skin_c", "ambient_c": "ambient_c", "clock": "clock", "heat_preset": "heat_preset"},
    "gpu": {"outcome": "gpu_outcome", "refuses": "gpu_refuses", "overflows": "gpu_overflows"},
    "npu": {"outcome": "npu_outcome"},
    "aicore": {"installed": "aicore_installed"},
    "connection": {"authorised": "authorised"},
    "storage": {"free_bytes": "free_bytes"},
    "memory": {"limit_mib": "memory_limit_mib"},
    "thermal": {"zones_denied": "zones_denied", "hal_ready": "hal_ready"},
}
GPU_OUTCOMES = ("full", "partial", "none", "dynamic", "crash", "gl", "missing")
NPU_OUTCOMES = ("full", "none", "refused", "missing")


def load_scenario(name: str) -> Scenario:
    """The scenario called `name`; UsageError when there is none, ValueError for a file that cannot be one."""
    raw = _read_named("scenarios", name)
    fields: dict[str, Any] = {"name": name, "description": raw.pop("description")}
    fields["cable"] = Cable(**raw.pop("cable", {}))
    fields["profiles"] = tuple(phone.get("profile") for phone in raw.pop("phones", [{}]))
    for table, values in raw.items():
        for key, value in values.items():
            if key not in _SCENARIO_FIELDS.get(table, {}):
                raise ValueError(f"scenario {name}: nothing is called {table}.{key}")
            fields[_SCENARIO_FIELDS[table][key]] = value
    scenario = Scenario(**fields)
    if scenario.gpu_outcome not in GPU_OUTCOMES or scenario.npu_outcome not in NPU_OUTCOMES:
        raise ValueError(f"scenario {name}: no such outcome")
    return scenario
