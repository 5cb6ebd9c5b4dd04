"""What the phone says about heat and clocks: parsers that would rather know nothing than something wrong."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

# android.os.Temperature / hardware TemperatureType. 6, 7 and 8 are battery current limits: volts, amperes, per cent.
SKIN, ELECTRICAL, DIES = 3, frozenset({6, 7, 8}), frozenset({0, 1, 9, 10, 13})
STATUS_NAMES = {
    0: "NONE", 1: "LIGHT", 2: "MODERATE", 3: "SEVERE", 4: "CRITICAL", 5: "EMERGENCY", 6: "SHUTDOWN",
}  # fmt: skip
SEVERE = 3

_COLDEST_C, _HOTTEST_C = -40.0, 150.0
STALE_S, STALE_MOVED_C = 30.0, 4.0
# Kernel zones that carry electrical values, percentages or limits in place of degrees: patterns of the shell.
NO_TEMPERATURE = (
    "ocp_*", "soft_ocp_*", "batoilo*", "vdroop*", "smpl_*", "battery_cycle", "critical-battery-cell", "bcl*",
    "[vi]bat*", "soc", "socd", "*-minus-*", "*-trip-*", "lmh-dcvs*", "flash_led_reduce", "*throttling",
)  # fmt: skip
_NO_TEMPERATURE = re.compile("|".join(map(fnmatch.translate, NO_TEMPERATURE)), re.IGNORECASE)
_NUMBER = r"(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|[-+]?(?:NaN|nan|Infinity|inf))"
_TEMPERATURE = re.compile(
    rf"^Temperature\{{mValue=({_NUMBER}), mType=(-?\d{{1,3}}), mName=([^{{}}]*), mStatus=(-?\d{{1,3}})\}}$"
)
_THRESHOLD = re.compile(
    r"^TemperatureThreshold\{mType=(-?\d{1,3}), mName=([^{}]*), mHotThrottlingThresholds=\[([^\]]*)\]"
)
_HAL = re.compile(r"^ThermalHAL (\S+(?: \S+)?) +connected:")
_FAILURE = re.compile(r"^(Failure calling|Failed to write|Can't find service)")


class Sensor(msgspec.Struct, frozen=True):
    """One line of the HAL's list. `value_c` is None, with a reason, where the number is no temperature."""

    name: str
    kind: int
    value_c: float | None
    status: int | None
    reason: str | None = None


class ThermalService(msgspec.Struct, frozen=True, kw_only=True):
    """`dumpsys thermalservice`, the live HAL section only. `reason` says why anything is missing.

    `status` is None when it is pinned by an override or the HAL is not ready: then it says nothing about heat.
    `complete` is False when the output breaks off. `t` is the host's monotonic time when it arrived (set by the
    sampler).
    """

    status: int | None
    pinned: bool
    hal_ready: bool | None
    hal: str | None
    sensors: tuple[Sensor, ...]
    hot_thresholds_c: Mapping[str, tuple[float | None, ...]]
    headroom_thresholds: tuple[float | None, ...] | None
    complete: bool
    reason: str | None
    t: float | None = None

    @property
    def skin(self) -> Sensor | None:
        """The sensor that drives throttling: VIRTUAL-SKIN where there is one, else the hottest skin sensor."""
        skins = [s for s in self.sensors if s.kind == SKIN and s.value_c is not None]
        named = [s for s in skins if s.name == "VIRTUAL-SKIN"]
        return max(named or skins, key=lambda s: s.value_c or 0.0, default=None)

    @property
    def skin_c(self) -> float | None:
        """The skin temperature, or None."""
        return self.skin.value_c if self.skin else None

    @property
    def hottest_die(self) -> Sensor | None:
        """The hottest of CPU, GPU, NPU, TPU and SoC."""
        dies = [s for s in self.sensors if s.kind in DIES and s.value_c is not None]
        return max(dies, key=lambda s: s.value_c or 0.0, default=None)

    @property
    def skin_thresholds_c(self) -> tuple[float | None, ...]:
        """Limits of the skin sensor by status 0 … 6; empty if unknown."""
        return self.hot_thresholds_c.get(self.skin.name, ()) if self.skin else ()

    @property
    def headroom(self) -> float | None:
        """Android's thermal headroom now: 1.0 is the SEVERE limit, 0.0 thirty degrees below it.

        The formula of AOSP's ThermalManagerService.TemperatureWatcher.normalizeTemperature, forecast 0.
        """
        limits = self.skin_thresholds_c
        severe = limits[SEVERE] if len(limits) > SEVERE else None
        if self.skin_c is None or severe is None:
            return None
        return max(0.0, (self.skin_c - (severe - 30.0)) / 30.0)


def plausible_c(value: float) -> tuple[float | None, str | None]:
    """The value if it can be a phone's temperature, else None and why not."""
    if not math.isfinite(value):
        return None, "not a number"
    if value == 0.0:
        return None, "reads exactly 0: a dead or unused sensor"
    if not _COLDEST_C <= value <= _HOTTEST_C:
        return None, f"{value:g} °C is outside what a phone can have"
    return value, None


def zone_celsius(name: str, raw: str) -> tuple[float | None, str | None]:
    """A kernel zone's reading (milli-degrees, as text) in °C, or None and why it is none."""
    if is_no_temperature(name):
        return None, "an electrical value or a limit, not a temperature"
    if not re.fullmatch(r"-?\d{1,9}", raw, re.ASCII):
        return None, "not readable"
    if 0 < abs(int(raw)) < 1000:
        return None, f"{raw} is in an unknown unit"  # milli-degrees would mean within one degree of freezing
    return plausible_c(int(raw) / 1000.0)


def is_no_temperature(zone: str) -> bool:
    """Whether a kernel zone of this name carries something else than a temperature."""
    return bool(_NO_TEMPERATURE.match(zone))


def parse_thermalservice(text: str, t: float | None = None) -> ThermalService:
    """Read `dumpsys thermalservice`. Never raises; the cached section, which may be stale, is never used."""
    lines = [line.strip() for line in text.split("\n")]
    sensors, thresholds, headroom, broken = _sections(lines)
    pinned = _after(lines, "IsStatusOverride:") == "true"
    ready = {"true": True, "false": False}.get(_after(lines, "HAL Ready:") or "")
    failed = next((line for line in lines if _FAILURE.match(line)), None)
    status = _status(_after(lines, "Thermal Status:"))
    reasons = [
        (failed is not None, f"the service failed: {_clean(failed or '', 160)}"),
        (not text.strip(), "the service said nothing"),
        (ready is False, "the thermal HAL is not ready"),
        (broken, "the output breaks off"),
        (not sensors, "the HAL section lists no sensor"),
        (pinned, "the thermal status is pinned by an override"),
        (status is None, "no usable thermal status"),
    ]
    return ThermalService(
        # Without its HAL the service never hears of heat: its status stays what it was at boot.
        status=None if pinned or ready is False else status, pinned=pinned, hal_ready=ready,
        hal=next((_clean(m.group(1)) for line in lines if (m := _HAL.match(line))), None),
        sensors=tuple(sensors) if ready is not False else (), hot_thresholds_c=thresholds,
        headroom_thresholds=headroom, complete=not broken and failed is None and bool(text.strip()),
        reason=next((why for wrong, why in reasons if wrong), None), t=t,
    )  # fmt: skip


def _sections(
    lines: Sequence[str],
) -> tuple[list[Sensor], dict[str, tuple[float | None, ...]], tuple[float | None, ...] | None, bool]:
    """Sensors of the HAL section, thresholds by name, headroom thresholds, and whether a sensor line is torn."""
    sensors: list[Sensor] = []
    thresholds: dict[str, tuple[float | None, ...]] = {}
    headroom: tuple[float | None, ...] | None = None
    section, broken = "", False
    for line in lines:
        if line.endswith(":") and "{" not in line:
            section = line
        elif section == "Current temperatures from HAL:" and line.startswith("Temperature{"):
            sensor = _sensor(line)
            broken = broken or sensor is None
            sensors.extend([sensor] if sensor else [])
        elif match := _THRESHOLD.match(line):
            thresholds[_clean(match.group(2))] = _numbers(match.group(3))
        elif section.startswith("Temperature headroom") and (inner := re.fullmatch(r"\[([^\]]*)\]", line)):
            headroom = _numbers(inner.group(1))
    return sensors, thresholds, headroom, broken


def _sensor(line: str) -> Sensor | None:
    match = _TEMPERATURE.match(line)
    if match is None:
        return None
    name, kind, status = _clean(match.group(3)), int(match.group(2)), int(match.group(4))
    value, reason = plausible_c(float(match.group(1)))
    if kind in ELECTRICAL or is_no_temperature(name):
        value, reason = None, "an electrical value, not a temperature"
    return Sensor(name, kind, value, status if status in STATUS_NAMES else None, reason)


def _after(lines: Iterable[str], label: str) -> str | None:
    return next((line[len(label) :].strip() for line in lines if line.startswith(label)), None)


def _status(word: str | None) -> int | None:
    if word is None or not re.fullmatch(r"-?\d{1,2}", word, re.ASCII):
        return None
    return int(word) if int(word) in STATUS_NAMES else None


def _numbers(inner: str) -> tuple[float | None, ...]:
    words = [word.strip() for word in inner.split(",")]
    values = [float(word) if re.fullmatch(_NUMBER, word, re.ASCII) else math.nan for word in words]
    return tuple(value if math.isfinite(value) else None for value in values)


def _clean(name: str, longest: int = 64) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", name.strip())[:longest]


# --- samples and what follows from them -------------------------------------------------------------------------


class Clock(msgspec.Struct, frozen=True):
    """One CPU policy's clock: now, the cap in force, and what the hardware can."""

    current_khz: int | None
    cap_khz: int | None
    max_khz: int | None


class ThermalSample(msgspec.Struct, frozen=True):
    """One whole frame of the sampler. `t` is the host's monotonic time of arrival, zones are °C or None.

    `silent` says of each None why it is one. `load` is the busy share (0..1) of the busiest core by CPU policy, and
    the GPU's as `gpu`, only in samples in which it was read.
    """

    t: float
    device_uptime_s: float | None
    zones: Mapping[str, float | None]
    clocks_khz: Mapping[str, Clock]
    seq: int
    silent: Mapping[str, str] = {}
    load: Mapping[str, float] = {}


def skin_c(sample: ThermalSample | None, service: ThermalService | None) -> tuple[float, str] | None:
    """The skin temperature and where it comes from: thermalservice first, else a kernel zone named skin."""
    if service is not None and service.skin is not None and service.skin.value_c is not None:
        return service.skin.value_c, f"thermalservice {service.skin.name}"
    zones = sample.zones if sample is not None else {}
    skins = [(v, f"zone {name}") for name, v in zones.items() if v is not None and "skin" in name.lower()]
    named = [pair for pair in skins if pair[1] == "zone VIRTUAL-SKIN"]
    return max(named or skins, default=None)


class StaleWatch:
    """Finds a thermal HAL that no longer measures: every sensor stands still while the kernel's dies move.

    A real sensor list changes in some digit within seconds.
    """

    def __init__(self) -> None:
        self._sensors: tuple[Sensor, ...] = ()
        self._since_t = 0.0
        self._low_c, self._high_c = math.inf, -math.inf

    def reading(self, service: ThermalService) -> None:
        """Take one reading of the service in."""
        if service.sensors != self._sensors and service.t is not None:
            self._sensors, self._since_t = service.sensors, service.t
            self._low_c, self._high_c = math.inf, -math.inf

    def sample(self, die_c: float | None) -> None:
        """Take the hottest die of a kernel sample in."""
        if die_c is not None:
            self._low_c, self._high_c = min(self._low_c, die_c), max(self._high_c, die_c)

    def why_stale(self, t: float) -> str | None:
        """Why the HAL's values are not to be used at time `t`; None while nothing speaks against them."""
        lasted_s, moved_c = t - self._since_t, self._high_c - self._low_c
        if not self._sensors or lasted_s < STALE_S or moved_c < STALE_MOVED_C:
            return None
        return (
            f"The thermal HAL repeats the same values for {lasted_s:.0f} s while the hottest die moved by "
            f"{moved_c:.0f} °C, so they are not used"
        )
