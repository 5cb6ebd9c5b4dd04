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
    min_khz: int
    max_khz: int

    @property
    def name(self) -> str:
        """The folder's name under /sys/devices/system/cpu/cpufreq."""
        return f"policy{self.cpus[0]}"


@dataclass(frozen=True)
class Profile:
    """A model of phone: what does not change while it runs."""

    name: str
    title: str
    kernel: str
    memory_kib: int
    storage_kib: int
    cpu_parts: tuple[str, ...]
    npu_counter: str
    heat_preset: str
    properties: dict[str, str]
    zones: tuple[Zone, ...]
    policies: tuple[Policy, ...]
    battery: dict[str, int]
    display: dict[str, Any]
    aicore: dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """What happens to the phone: only what a host cannot know by itself."""

    name: str
    description: str
    skin_c: float
    ambient_c: float
    clock: float
    gpu_outcome: str
    gpu_refuses: dict[str, str] = field(default_factory=dict)
    aicore_installed: bool = True
    authorised: bool = True
    heat_preset: str | None = None


def load_profile(name: str) -> Profile:
    """The profile called `name`; UsageError when there is none."""
    raw = _read_named("profiles", name)
    zones = tuple(Zone(**zone) for zone in raw.pop("zones"))
    policies = tuple(Policy(**{**policy, "cpus": tuple(policy["cpus"])}) for policy in raw.pop("policies"))
    return Profile(
        name=name, zones=zones, policies=policies, cpu_parts=tuple(raw.pop("cpu_parts")), **raw
    )


def load_scenario(name: str) -> Scenario:
    """The scenario called `name`; UsageError when there is none."""
    raw = _read_named("scenarios", name)
    start, gpu = raw["start"], raw["gpu"]
    return Scenario(
        name=name,
        description=raw["description"],
        skin_c=start["skin_c"],
        ambient_c=start["ambient_c"],
        clock=start["clock"],
        heat_preset=start.get("heat_preset"),
        gpu_outcome=gpu["outcome"],
        gpu_refuses=gpu.get("refuses", {}),
        aicore_installed=raw.get("aicore", {}).get("installed", True),
        authorised=raw.get("connection", {}).get("authorised", True),
    )
