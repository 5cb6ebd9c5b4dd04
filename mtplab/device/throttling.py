"""Says when a phone throttles: by Android's status, by limits on its clocks, by clocks that fall under load."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

import msgspec

from mtplab.device.thermal import STATUS_NAMES, Clock, ThermalSample, ThermalService
from mtplab.session.heat import hottest_die

# A governor raises the clock of a core that never rests to its limit: only then is a lower clock not its choice.
FULLY_BUSY = 0.95
FALL, RECOVERED = 0.15, 0.08
SPAN_S, LEAST_SPAN_S = 3.0, 2.0
LOAD_LASTS_S = 2.5  # how long a reading of the load stands for the samples after it
FORGET_S = 60.0  # without load nobody can see whether clocks still fall
UNCAPPED_S = 3.0  # a limit that is gone for less than this flaps


class Change(msgspec.Struct, frozen=True):
    """Throttling of one kind (`status`, `cap`, `clock`) began or ended; `text` is the evidence with its numbers.

    A status that goes from one level to another begins anew, so that what is told last is what is so.
    """

    kind: str
    began: bool
    text: str
    t: float


class ThrottleWatch:
    """Follows samples and service readings. Not seen is not ended: an end needs evidence of its own."""

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._level = 0
        self._uncapped_since: float | None = None
        self._gpu_cap_khz = 0
        self._clocks: dict[str, _BusyClock] = {}

    def update(self, sample: ThermalSample, service: ThermalService | None) -> list[Change]:
        """What began or ended with this sample; `service` only if it is fresh and may be trusted."""
        found = [*self._status(sample, service), *self._caps(sample, service), *self._falls(sample)]
        for change in found:
            (self._active.add if change.began else self._active.discard)(change.kind)
        return found

    def _status(self, sample: ThermalSample, service: ThermalService | None) -> list[Change]:
        status = service.status if service is not None else None
        if service is None or status is None or status < 0 or status == self._level:
            return []
        before, self._level = self._level, status
        was = f" after {STATUS_NAMES[before]} ({before})" if before >= 1 and status >= 1 else ""
        skin = f", skin {service.skin_c:.1f} °C" if service.skin_c is not None else ""
        text = f"Android reports thermal status {STATUS_NAMES[status]} ({status}){was}{skin}"
        return [Change("status", status >= 1, text, sample.t)]

    def _caps(self, sample: ThermalSample, service: ThermalService | None) -> list[Change]:
        gpu = sample.clocks_khz.get("gpu")
        self._gpu_cap_khz = max(self._gpu_cap_khz, gpu.cap_khz or 0 if gpu is not None else 0)
        capped = {name: clock for name, clock in sample.clocks_khz.items() if self._is_capped(name, clock)}
        if capped:
            self._uncapped_since = None
            if "cap" in self._active:
                return []
            said = ", ".join(f"{name} to {c.cap_khz} of {c.max_khz} kHz" for name, c in capped.items())
            return [Change("cap", True, f"Clocks are limited: {said}{_circumstances(sample, service)}", sample.t)]
        if "cap" not in self._active or not any(c.cap_khz is not None for c in sample.clocks_khz.values()):
            return []
        if self._uncapped_since is None:
            self._uncapped_since = sample.t
        if sample.t - self._uncapped_since < UNCAPPED_S:
            return []
        return [Change("cap", False, f"No clock is limited for {UNCAPPED_S:.0f} s", sample.t)]

    def _is_capped(self, name: str, clock: Clock) -> bool:
        if clock.cap_khz is None or clock.max_khz is None:
            return False
        # A GPU's limit may stand below its highest step for good: there only a fall during the session counts.
        return clock.cap_khz < (min(self._gpu_cap_khz, clock.max_khz) if name == "gpu" else clock.max_khz)

    def _falls(self, sample: ThermalSample) -> list[Change]:
        for name, clock in sample.clocks_khz.items():
            if name != "gpu":  # a GPU's load is told as an average that its governor itself steers by
                self._clocks.setdefault(name, _BusyClock(name)).add(sample.t, clock, sample.load.get(name))
        fallen = [text for busy in self._clocks.values() if (text := busy.fallen) is not None]
        if fallen and "clock" not in self._active:
            return [Change("clock", True, f"Under load {', '.join(fallen)}", sample.t)]
        if "clock" in self._active and not fallen:
            unseen = all(busy.idle_s(sample.t) >= FORGET_S for busy in self._clocks.values())
            text = "No load to see it by for a minute" if unseen else "Clocks under load are back where they were"
            return [Change("clock", False, text, sample.t)]
        return []


class _BusyClock:
    """One policy's clock while its busiest core never rests: the level now and the best level seen."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._points: deque[tuple[float, int]] = deque()
        self._load: float | None = None
        self._load_t = self._busy_t = float("-inf")
        self._best_khz = 0
        self.fallen: str | None = None

    def add(self, t: float, clock: Clock, load: float | None) -> None:
        """One sample; `load` only in samples in which it was read."""
        if load is not None:
            self._load, self._load_t = load, t
        busy = self._load is not None and self._load >= FULLY_BUSY and t - self._load_t <= LOAD_LASTS_S
        if not busy or clock.current_khz is None:
            self._points.clear()
            if self.idle_s(t) >= FORGET_S:
                self.fallen = None
            return
        self._busy_t = t
        self._points.append((t, clock.current_khz))
        while t - self._points[0][0] > SPAN_S:
            self._points.popleft()
        if t - self._points[0][0] >= LEAST_SPAN_S:
            self._judge(statistics.median_low(khz for _, khz in self._points))

    def _judge(self, level_khz: int) -> None:
        self._best_khz = max(self._best_khz, level_khz)
        if level_khz < self._best_khz * (1.0 - FALL):
            self.fallen = (
                f"{self._name} fell from {self._best_khz} to {level_khz} kHz "
                f"(busiest core {100 * (self._load or 0.0):.0f} % busy)"
            )
        elif level_khz >= self._best_khz * (1.0 - RECOVERED):
            self.fallen = None

    def idle_s(self, t: float) -> float:
        """Seconds since it was last fully busy."""
        return t - self._busy_t


def _circumstances(sample: ThermalSample, service: ThermalService | None) -> str:
    die = hottest_die(sample.zones)
    heat = f"; hottest die {die[0]} {die[1]:.1f} °C" if die is not None else ""
    status: Mapping[int, str] = STATUS_NAMES
    said = f", status {status[service.status]}" if service is not None and service.status is not None else ""
    return heat + said
