"""The heat of a phone: a small RC network, a governor that trades clock for skin temperature, and a status."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

from mtplab.standin.settings import HERE, Profile, Scenario, UsageError, read_toml

MAX_STEP_S = 0.25
SPREAD = 0.04  # by which specimens of one phone differ
STATUS_NAMES = ("NONE", "LIGHT", "MODERATE", "SEVERE", "CRITICAL", "EMERGENCY", "SHUTDOWN")


@dataclass(frozen=True)
class Constants:
    """The tables of physics.toml with one preset chosen."""

    dies: dict[str, dict[str, float]]
    body: dict[str, float]
    governor: dict[str, Any]
    sustained_w: float
    floor: float


def presets() -> list[str]:
    """The heat presets by name."""
    return sorted(read_toml(HERE / "physics.toml")["presets"])


def load_constants(preset: str, seed: int = 0) -> Constants:
    """The model's constants; UsageError for an unknown preset. Each seed but 0 is another specimen of the phone."""
    raw = read_toml(HERE / "physics.toml")
    if preset not in raw["presets"]:
        raise UsageError(f"unknown heat preset {preset!r}: there are {', '.join(sorted(raw['presets']))}")
    chosen = raw["presets"][preset]
    chance = random.Random(f"specimen {seed}")
    vary = [chance.gauss(1.0, SPREAD) if seed else 1.0 for _ in range(2)]
    body = {**raw["body"], "skin_ambient_k_per_w": chosen["skin_ambient_k_per_w"] * vary[0]}
    return Constants(raw["dies"], body, raw["governor"], chosen["sustained_w"] * vary[1], chosen["floor"])


@dataclass
class HeatModel:
    """Temperatures in °C, loads 0..1, clocks as a share of peak; `step` moves all of them through time."""

    constants: Constants
    ambient_c: float
    temperature_c: dict[str, float]
    clock: dict[str, float]
    load: dict[str, float] = field(default_factory=dict)
    status: int = 0
    integral_ks: float = 0.0
    rest_share: float = 1.0  # of the power at rest, as screen and radios are now

    @property
    def idle_w(self) -> float:
        """What the phone draws besides its dies."""
        return self.constants.body["idle_w"] * self.rest_share

    @classmethod
    def start(cls, profile: Profile, scenario: Scenario) -> HeatModel:
        """The phone as the scenario finds it."""
        constants = load_constants(scenario.heat_preset or profile.heat_preset, scenario.seed)
        skin = scenario.skin_c
        warm = dict.fromkeys(constants.dies, skin + 3.0)
        temperature = {**warm, "soc": skin + 3.0, "skin": skin, "battery": skin - 0.5}
        model = cls(
            constants, scenario.ambient_c, temperature, dict.fromkeys(constants.dies, scenario.clock)
        )
        if scenario.clock < 1.0:
            # The integral that holds the clocks where the scenario says they are.
            model.integral_ks = -constants.sustained_w / constants.governor["integral_w_per_ks"] * 0.4
        model.status = model._status_for(skin)
        return model

    def _status_for(self, skin_c: float) -> int:
        return sum(skin_c >= limit for limit in self.constants.governor["status_skin_c"])

    def power_w(self, die: str) -> float:
        """What a die turns into heat now."""
        body, peak = self.constants.body, self.constants.dies[die]["peak_w"]
        leakage = body["leakage_w"] * math.exp(body["leakage_per_k"] * (self.temperature_c[die] - 40.0))
        return peak * self.load.get(die, 0.0) * self.clock[die] ** body["frequency_exponent"] + leakage

    def total_w(self) -> float:
        """What the whole phone draws."""
        return self.idle_w + sum(self.power_w(die) for die in self.constants.dies)

    def step(self, seconds: float) -> None:
        """Let time pass."""
        count = max(1, math.ceil(seconds / MAX_STEP_S))
        for _ in range(count):
            self._govern(seconds / count)
            self._flow(seconds / count)
        self.follow_skin()

    def _govern(self, dt: float) -> None:
        governor, exponent = self.constants.governor, self.constants.body["frequency_exponent"]
        error = governor["skin_target_c"] - self.temperature_c["skin"]
        self.integral_ks = min(2.0, max(-150.0, self.integral_ks + error * dt))
        budget = self.constants.sustained_w + governor["gain_w_per_k"] * error
        budget = max(0.8, budget + governor["integral_w_per_ks"] * self.integral_ks)
        wanted = sum(die["peak_w"] * self.load.get(name, 0.0) for name, die in self.constants.dies.items())
        # Far from the target nothing is limited; near it an idle phone is capped too, until its skin has cooled.
        cap = 1.0 if error > 1.5 else min(1.0, (budget / max(wanted, 4.8)) ** (1.0 / exponent))
        for name in self.constants.dies:
            target = cap
            if self.temperature_c[name] > governor["die_limit_c"]:
                target = min(target, self.clock[name] - governor["die_step"])
            lowest = self.clock[name] - governor["fall_per_s"] * dt
            highest = self.clock[name] + governor["recover_per_s"] * dt
            self.clock[name] = max(self.constants.floor, min(max(target, lowest), highest, 1.0))

    def _flow(self, dt: float) -> None:
        body, heat = self.constants.body, self.temperature_c
        into_soc = 0.0
        for name, die in self.constants.dies.items():
            flow = (heat[name] - heat["soc"]) / die["k_per_w"]
            heat[name] += dt * (self.power_w(name) - flow) / die["j_per_k"]
            into_soc += flow
        to_skin = (heat["soc"] - heat["skin"]) / body["soc_skin_k_per_w"]
        to_battery = (heat["skin"] - heat["battery"]) / body["skin_battery_k_per_w"]
        to_air = (heat["skin"] - self.ambient_c) / body["skin_ambient_k_per_w"]
        share = body["idle_soc_share"]
        heat["soc"] += dt * (into_soc + share * self.idle_w - to_skin) / body["soc_j_per_k"]
        rest = (1.0 - share) * self.idle_w
        heat["skin"] += dt * (to_skin + rest - to_battery - to_air) / body["skin_j_per_k"]
        heat["battery"] += dt * to_battery / body["battery_j_per_k"]

    def follow_skin(self) -> None:
        """The status as the skin is now; it falls only after the skin has cooled a little more than it had risen."""
        governor, skin = self.constants.governor, self.temperature_c["skin"]
        reached = self._status_for(skin)
        falls_below = governor["status_skin_c"][self.status - 1] - governor["status_hysteresis_c"]
        if reached > self.status or (self.status and skin < falls_below):
            self.status = reached
