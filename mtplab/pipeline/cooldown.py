"""The cool-down gate (R16): what is timed begins on a cool phone, or carries a mark once the patience is spent."""

from __future__ import annotations

import time

from mtplab.measure.rounds import HeatLimits, HeatSample, gate
from mtplab.pipeline.device_stage import DeviceContext
from mtplab.session import events as ev
from mtplab.session.heat import STATUS_NAMES, Trend, trend_of

POLL_S = 0.5
# The first samples of a session may still be on their way: so long they are waited for before heat is unknown.
FIRST_SAMPLE_S = 5.0
# A sample older than this is no word about now: the cable may be out.
FRESH_S = 10.0


class CoolDown:
    """The gate of one stage. `timeout_s` is its patience in all: a phone that stays hot costs it once only."""

    def __init__(self, context: DeviceContext, stage: str, limits: HeatLimits, timeout_s: float) -> None:
        self._context, self._stage, self._limits = context, stage, limits
        self._timeout_s = self._left_s = timeout_s
        self._warned: set[str] = set()

    def sample(self) -> HeatSample:
        """Skin and status now; unknown where the last sample is old."""
        heat = self._context.heat()
        if heat is None or time.monotonic() - heat.t > FRESH_S:
            return HeatSample(None, None)
        return HeatSample(heat.skin_c, heat.status)

    def wait(self, before: str, done: float, total: float) -> float:
        """Wait while the phone is hot; `before` names what is to begin. Returns the seconds waited.

        Waits for nothing where neither skin nor status can be read: time does not make them readable.
        Raises StageCancelled.
        """
        began = time.monotonic()
        self._await_first_sample()
        why = gate(self.sample(), self._limits)
        if why is None:
            return 0.0
        if self.sample() == HeatSample(None, None):
            self._warn("unknown", f"{why} What is measured is marked so.")
            return 0.0
        if self._left_s > 0:
            text = f"{why} Waiting for it before {before}, for {self._left_s:.0f} s at most."
            self._say(text, "info")
        return self._while_hot(before, done, total, began)

    def _await_first_sample(self) -> None:
        deadline = time.monotonic() + FIRST_SAMPLE_S
        while self.sample() == HeatSample(None, None) and time.monotonic() < deadline:
            self._context.check_cancelled()
            self._context.cancel.wait(POLL_S / 2)

    def _while_hot(self, before: str, done: float, total: float, began: float) -> float:
        skins: list[tuple[float, float]] = []
        last = time.monotonic()
        while (why := gate(sample := self.sample(), self._limits)) is not None and self._left_s > 0:
            self._context.check_cancelled()
            if sample.skin_c is not None:
                skins = [(t, c) for t, c in skins if last - t < 60.0] + [(last, sample.skin_c)]
            self._count_down(before, done, total, sample, trend_of(skins))
            self._context.cancel.wait(min(POLL_S, self._left_s))
            now = time.monotonic()
            self._left_s, last = max(0.0, self._left_s - (now - last)), now
        self._context.check_cancelled()
        waited_s = last - began
        if why is None:
            self._say(f"The phone is cool enough after {waited_s:.0f} s{_skin(sample)}.", "info")
        else:
            text = f"The phone did not cool down in {self._timeout_s:.0f} s: {why} What is measured hot is marked."
            self._warn("hot", text)
        return waited_s

    def _count_down(self, before: str, done: float, total: float, sample: HeatSample, trend: Trend) -> None:
        need = []
        if sample.skin_c is not None and sample.skin_c >= self._limits.skin_c:
            need.append(f"skin {sample.skin_c:.1f} °C, needs less than {self._limits.skin_c:.1f}")
        if sample.status is not None and sample.status >= self._limits.status:
            need.append(f"status {STATUS_NAMES[sample.status]}, needs {STATUS_NAMES[self._limits.status - 1]}")
        need = need or ["skin and status unknown now"]
        cool_s = self._seconds_to_cool(sample, trend)
        guess = "" if cool_s is None else f" · about {cool_s:.0f} s at {trend.c_per_min:+.1f} °C/min"
        note = f"cooling before {before}: {'; '.join(need)}{guess} · gives up in {self._left_s:.0f} s"
        eta_s = self._left_s if cool_s is None else min(self._left_s, cool_s)
        now = time.monotonic()
        self._context.post(
            ev.StageProgress(
                t=now, name=self._stage, done=done, total=total, unit="rounds", note=note, eta_s=round(eta_s, 1)
            )
        )

    def _seconds_to_cool(self, sample: HeatSample, trend: Trend) -> float | None:
        """Until the skin is below its limit at the present trend; None where it does not fall or is cool already."""
        if sample.skin_c is None or trend.c_per_min is None or trend.c_per_min >= -0.1:
            return None
        distance_c = sample.skin_c - self._limits.skin_c
        return -60.0 * distance_c / trend.c_per_min if distance_c > 0 else None

    def _say(self, text: str, level: ev.Level) -> None:
        self._context.post(ev.Message(t=time.monotonic(), text=text, level=level))

    def _warn(self, what: str, text: str) -> None:
        """Once a stage is enough: the marks say the rest."""
        if what not in self._warned:
            self._warned.add(what)
            self._say(text, "warning")


def _skin(sample: HeatSample) -> str:
    return f": skin {sample.skin_c:.1f} °C" if sample.skin_c is not None else ""
