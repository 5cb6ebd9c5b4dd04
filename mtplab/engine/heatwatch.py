"""Turns what the thermal sampler says into events: heat, throttling with its evidence, lost and returned cables."""

from __future__ import annotations

import time
from collections.abc import Callable

from mtplab.device.link import Link
from mtplab.device.sampler import Sampler
from mtplab.device.thermal import STATUS_NAMES, ThermalSample, ThermalService, throttle_evidence
from mtplab.session.events import Event, Gap, Heat, LinkChanged, Marker, Throttled
from mtplab.session.text import clean_text


class HeatWatch:
    """Turns the sampler's callbacks into events: heat, throttling with its evidence, lost and returned cables."""

    def __init__(self, link: Link, hz: float, post: Callable[[Event], None]) -> None:
        self._post = post
        self._previous: ThermalSample | None = None
        self._service: ThermalService | None = None
        self._throttled = False
        self._sampler = Sampler(link, hz, self._sample, on_gap=self._gap, on_status=self._status, on_lost=self._lost)

    def start(self) -> HeatWatch:
        """Begin sampling."""
        self._sampler.start()
        return self

    def close(self) -> None:
        """Stop sampling; nothing stays on the phone."""
        self._sampler.stop()

    def cost_text(self) -> str:
        """What sampling costs, in words."""
        cost = self._sampler.cost
        rate = f"{1 / cost.interval_median_s:.1f} Hz" if cost.interval_median_s else "rate unknown"
        return f"{cost.samples} samples at {rate}, {cost.frames_rejected} frames rejected"

    def _status(self, service: ThermalService) -> None:
        self._service = service

    def _sample(self, sample: ThermalSample) -> None:
        service = self._service
        fresh = service is not None and service.t is not None and sample.t - service.t < 10
        self._post(
            Heat(
                t=sample.t,
                zones=dict(sample.zones),
                skin_c=service.skin_c if service is not None and fresh else None,
                status=service.status if service is not None and fresh and not service.pinned else None,
                headroom=service.headroom if service is not None and fresh else None,
                clocks_khz={name: (clock.current_khz, clock.max_khz) for name, clock in sample.clocks_khz.items()},
            )
        )
        self._throttle(sample, service if fresh else None)
        self._previous = sample

    def _throttle(self, sample: ThermalSample, service: ThermalService | None) -> None:
        # Nobody here knows how busy a core is, and a governor that idles between two processes lowers its clock as
        # throttling does: only what Android says and caps on the clocks count.
        evidence = throttle_evidence(self._previous, sample, service, under_load=False)
        if bool(evidence) == self._throttled:
            return
        if not evidence and (service is None or service.status is None):
            return  # not seeing the evidence any more is not the end of throttling
        self._throttled = bool(evidence)
        text = "; ".join(e.text for e in evidence) or f"status {STATUS_NAMES[0]}, no clock is capped"
        self._post(Throttled(t=sample.t, began=self._throttled, evidence=text))
        word = "throttling" if self._throttled else "throttling ended"
        self._post(Marker(t=sample.t, label=f"{word}: {text}", kind="throttle"))

    def _lost(self, reason: str) -> None:
        self._post(LinkChanged(t=time.monotonic(), state="lost", reason=clean_text(reason, 300)))
        self._post(Marker(t=time.monotonic(), label="cable lost", kind="link"))

    def _gap(self, reason: str, seconds: float) -> None:
        now = time.monotonic()
        self._post(Gap(t=now, what="heat", reason=clean_text(reason, 300), seconds=round(seconds, 2)))
        self._post(LinkChanged(t=now, state="returned", reason=f"after {seconds:.1f} s"))
        self._post(Marker(t=now, label="cable returned", kind="link"))
