"""Turns what the thermal sampler says into events: heat, throttling with its evidence, lost and returned cables."""

from __future__ import annotations

import time
from collections.abc import Callable

from mtplab.device import thermal
from mtplab.device.link import Link
from mtplab.device.sampler import Sampler
from mtplab.device.thermal import StaleWatch, ThermalSample, ThermalService
from mtplab.device.throttling import Change, ThrottleWatch
from mtplab.session.events import Event, Gap, Heat, LinkChanged, Marker, Message, Throttled
from mtplab.session.heat import hottest_die
from mtplab.session.text import clean_text

# A reading of the service older than this says nothing about now.
FRESH_S = 10.0
COST_EVERY_S = 2.5


class HeatWatch:
    """Watches one phone until `close`; everything it finds out is posted."""

    def __init__(self, link: Link, hz: float, post: Callable[[Event], None]) -> None:
        self._post = post
        self._service: ThermalService | None = None
        self._stale = StaleWatch()
        self._stale_told = False
        self._throttling = ThrottleWatch()
        self._silent: dict[str, str] | None = None
        self._cost_t = 0.0
        self._sampler = Sampler(link, hz, self._sample, on_gap=self._gap, on_status=self._status, on_lost=self._lost)

    def start(self) -> HeatWatch:
        """Begin sampling."""
        self._sampler.start()
        return self

    def close(self) -> None:
        """Stop sampling; nothing stays on the phone."""
        self._sampler.stop()

    def _status(self, service: ThermalService) -> None:
        self._service = service

    def _sample(self, sample: ThermalSample) -> None:
        service = self._trusted(sample)
        skin = thermal.skin_c(sample, service)
        zones, silent = dict(sample.zones), dict(sample.silent)
        if hottest_die(zones) is None and service is not None:
            # A build that denies the files (or has other names) still tells temperatures by its service.
            zones |= {s.name: s.value_c for s in service.sensors if s.value_c is not None}
            silent = {name: why for name, why in silent.items() if zones.get(name) is None}
        heat = Heat(
            t=sample.t,
            zones=zones,
            device_uptime_s=sample.device_uptime_s,
            skin_c=skin[0] if skin else None,
            skin_source=clean_text(skin[1], 80) if skin else None,
            status=service.status if service is not None else None,
            headroom=service.headroom if service is not None else None,
            clocks_khz={name: (clock.current_khz, clock.max_khz) for name, clock in sample.clocks_khz.items()},
            caps_khz={name: clock.cap_khz for name, clock in sample.clocks_khz.items() if clock.cap_khz is not None},
            load=dict(sample.load),
            silent=silent if silent != self._silent else None,
            cost=self._sampler.cost if sample.t - self._cost_t >= COST_EVERY_S else None,
        )
        self._silent = silent
        if heat.cost is not None:
            self._cost_t = sample.t
        self._post(heat)
        for change in self._throttling.update(sample, service):
            self._tell(change)

    def _trusted(self, sample: ThermalSample) -> ThermalService | None:
        """The last reading of the service if it is fresh and its HAL still measures."""
        service = self._service
        if service is None or service.t is None or sample.t - service.t >= FRESH_S:
            return None
        die = hottest_die(sample.zones)
        self._stale.reading(service)
        self._stale.sample(die[1] if die else None)
        why = self._stale.why_stale(sample.t)
        if (why is not None) != self._stale_told:
            self._stale_told = why is not None
            text = f"{why}." if why else "The thermal HAL gives new values again; they are used again."
            self._post(Message(t=sample.t, text=text, level="warning" if why else "info"))
        return service if why is None else None

    def _tell(self, change: Change) -> None:
        text = clean_text(change.text, 300)
        self._post(Throttled(t=change.t, began=change.began, evidence=text, kind=change.kind))
        word = "throttling" if change.began else "throttling ended"
        self._post(Marker(t=change.t, label=f"{word}: {text}", kind="throttle"))

    def _lost(self, reason: str) -> None:
        self._post(LinkChanged(t=time.monotonic(), state="lost", reason=clean_text(reason, 300)))
        self._post(Marker(t=time.monotonic(), label="cable lost", kind="link"))

    def _gap(self, reason: str, seconds: float) -> None:
        now = time.monotonic()
        self._post(Gap(t=now, what="heat", reason=clean_text(reason, 300), seconds=round(seconds, 2)))
        self._post(LinkChanged(t=now, state="returned", reason=f"after {seconds:.1f} s"))
        self._post(Marker(t=now, label="cable returned", kind="link"))
