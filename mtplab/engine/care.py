"""Care for the phone beside the stages: its clock, its memory, and the settings that a measurement borrows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mtplab.device import prepare
from mtplab.device.clock import ClockOffset, drift_between, measure_clock
from mtplab.device.devices import DeviceEntry, wireless_warning
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.facts import Unknown, battery_level, charging
from mtplab.device.link import Link
from mtplab.device.memory import Fit, Need, fits, read_memory
from mtplab.device.prepare import Told
from mtplab.session import events as ev
from mtplab.session.events import Event, Fact

# What was chosen without being named is said.
_CHOSEN = {
    "remembered": "Of several attached phones the remembered one, {serial}, is taken (`mtplab devices --forget`).",
    "cable": "{serial} is attached by cable and over Wi-Fi: the cable is used.",
}


class PhoneCare:
    """One engine's care for its phone; every method says what it finds as events and survives a phone that is gone.

    `prepare` before a measurement and `put_back` after it may be called from any thread. What could not be put back
    because the phone was gone is put back when it returns, at the end of the engine, or by the next engine that opens
    that phone (see `device/prepare.py`).
    """

    def __init__(
        self, link: Link, phone: str, session: str, post: Callable[[Event], None], *,
        simulated: bool, entry: DeviceEntry | None, how: str = "",
    ) -> None:  # fmt: skip
        self._link, self._phone, self._session, self._post = link, phone, session, post
        self._simulated, self._entry, self._how = simulated, entry, how
        self._guard = threading.Lock()
        self._borrowed = False
        self._busy = False
        self._told_late = False
        self._courses: dict[str, str] = {}
        self._clock: ClockOffset | None = None
        self._threads: list[threading.Thread] = []

    # -- at the beginning -----------------------------------------------------
    def open(self) -> None:
        """Say what is odd about the connection, measure the clock, put back what an earlier engine left."""
        self._connection()
        self.measure_clock()
        with self._guard:
            self._put_back("Put back what an earlier measurement had set")

    def _connection(self) -> None:
        kind = self._entry.connection if self._entry else "loopback"
        self._facts(connection=Fact(value=kind, source="adb devices -l"))
        if self._how in _CHOSEN:
            self._say(_CHOSEN[self._how].format(serial=self._link.serial))
        try:
            mismatch = self._link.server.mismatch()
        except DeviceError:
            return  # no adb binary of our own: nothing of another version can replace the server
        if mismatch:
            self._say(mismatch, "warning")

    def warn_if_wireless(self) -> None:
        """Before a measurement: a wireless connection is measured along with the model."""
        warning = wireless_warning(self._entry) if self._entry else None
        if warning:
            self._say(warning, "warning")
            self._post(
                ev.PitfallFound(
                    t=time.monotonic(),
                    pitfall="wireless connection",
                    text=warning,
                    evidence=f"adb's serial {self._entry.serial if self._entry else ''}",
                )
            )

    # -- the clock --------------------------------------------------------------
    def measure_clock(self) -> None:
        """Measure how the phone's clock stands to the host's; a second time, how that changed."""
        source = "/proc/uptime, half of the round trip"
        try:
            offset = measure_clock(self._link)
        except DeviceError as problem:
            self._facts(clock_offset_s=Fact(source=source, reason=str(problem)))
            return
        before, self._clock = self._clock, offset
        self._facts(
            clock_offset_s=Fact(value=round(offset.offset_s, 4), source=source),
            clock_uncertainty_s=Fact(value=round(offset.uncertainty_s, 4), source=source),
        )
        if before is None:
            return
        drift = drift_between(before, offset)
        if drift.restarted:
            self._say(f"{self._link.serial} was restarted while it was away: what ran on it is lost.", "warning")
            return
        told = Fact(value=round(drift.change_s, 4), source=f"{source}, after {drift.seconds:.0f} s")
        self._facts(clock_drift_s=told)
        if drift.seen:
            self._say(
                f"The phone's clock moved by {drift.change_s * 1000:+.1f} ms (±{drift.uncertainty_s * 1000:.1f} ms) "
                f"against the host's in {drift.seconds:.0f} s."
            )

    def take(self, event: Event) -> None:
        """Hear the session's events: when the cable has returned, measure the clock and put back what is left."""
        if not isinstance(event, ev.LinkChanged) or event.state != "returned":
            return
        # Not in the recorder's thread, which waits for nobody.
        thread = threading.Thread(target=self._returned, name="phone returned", daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def _returned(self) -> None:
        self.measure_clock()
        with self._guard:
            if self._borrowed and not self._busy:
                self._put_back("The phone is back")

    # -- memory -----------------------------------------------------------------
    def check_memory(self, need: Need) -> Fit:
        """Whether what is about to run will fit; unknown is told, and refused is only what cannot fit."""
        try:
            memory = read_memory(self._link)
        except DeviceError as problem:
            return Fit(False, f"The phone's free memory is not known: {problem}")
        available = memory.available_bytes
        self._facts(
            memory_available_bytes=Fact(
                value=available,
                source="/proc/meminfo MemAvailable",
                reason=None if available is not None else "it names none",
            ),
            memory_needed_bytes=Fact(value=need.likely_bytes, source="estimate: weights and caches twice, runtime"),
        )
        fit = fits(need, memory)
        if fit.sentence and not fit.refused:
            self._say(fit.sentence, "warning")
        return fit

    # -- borrowed settings ------------------------------------------------------
    def prepare(self, policy: str) -> list[Told]:
        """Set the phone up as `policy` says (see `prepare.names_of`); what is not as it should be has a `problem`.

        Raises DeviceError where nothing could be prepared, which it has said then.
        """
        names = prepare.names_of(policy)
        if not names:
            return []
        with self._guard:
            self._busy = True
            self._put_back("Put back what an earlier measurement had set")
            self._borrowed = True  # from here on something may have been set
            try:
                told = prepare.prepare(self._link, self._phone, names, self._session, self._simulated)
            except DeviceError as problem:
                self._say(f"The phone was not prepared: {problem}", "warning")
                raise
            self._courses = {one.name: one.text for one in told}
            self._tell(told, {one.name: one.text for one in told})
            self._power()
        done = [one.sentence for one in told if one.problem is None]
        odd = [one.sentence for one in told if one.problem is not None]
        if done:
            self._say(f"Prepared the phone: {'; '.join(done)}.")
        if odd:
            self._say(f"Not prepared: {'; '.join(odd)}.", "warning")
        return told

    def put_back(self) -> None:
        """Put back what `prepare` set; where the phone is gone that is said, and done when it returns."""
        with self._guard:
            self._busy = False
            if self._borrowed:
                self._put_back("Put back")

    def close(self) -> None:
        """The last chance of this engine to put back what it borrowed."""
        for thread in self._threads:
            thread.join(10)
        self.put_back()

    def _put_back(self, why: str) -> None:
        """With the guard held: put back what is noted for this phone, and tell it."""
        try:
            told = prepare.put_back(self._link, self._phone)
        except DeviceError as problem:
            self._borrowed, gone = True, isinstance(problem, DeviceGone)
            tail = "It will be when the phone returns, or by `mtplab restore`." if gone else "Try `mtplab restore`."
            if not self._told_late:
                self._say(f"The phone's settings are not put back yet: {problem} {tail}", "warning")
            self._told_late = True
            return
        self._told_late = False
        if not told:
            self._borrowed = False
            return
        self._tell(told, {one.name: self._course(one) for one in told})
        self._power()
        self._borrowed, self._courses = prepare.note_of(self._phone) is not None, {}
        odd = any(one.problem for one in told)
        self._say(f"{why}: {'; '.join(one.sentence for one in told)}.", "warning" if odd else "info")

    def _course(self, one: Told) -> str:
        """The whole course of a setting: before → set → put back."""
        before = self._courses.get(one.name)
        return one.text if before is None else f"{before} → {one.now or 'unknown'}"

    def _tell(self, told: list[Told], texts: dict[str, str]) -> None:
        self._facts(
            **{f"prepared_{one.name}": _fact(texts[one.name], one.source, one.problem) for one in told}
        )

    def _power(self) -> None:
        """The charging state: not set, but recorded at both ends of a measurement."""
        source = "dumpsys battery"
        try:
            text = self._link.run(["dumpsys", "battery"], timeout_s=8).stdout
            now = f"{charging(text)} at {battery_level(text)} %"
        except (DeviceError, Unknown) as problem:
            self._facts(prepared_power=Fact(source=source, reason=str(problem)))
            return
        before = self._courses.get("power")
        self._courses["power"] = now if before is None else f"{before} → {now}"
        self._facts(prepared_power=Fact(value=self._courses["power"], source=source))

    # -- telling ----------------------------------------------------------------
    def _facts(self, **facts: Fact) -> None:
        self._post(ev.FactsSeen(t=time.monotonic(), facts=facts))

    def _say(self, text: str, level: ev.Level = "info") -> None:
        self._post(ev.Message(t=time.monotonic(), text=text, level=level))


def _fact(text: str, source: str, problem: str | None) -> Fact:
    return Fact(value=None if text == "unknown" else text, source=source, reason=problem)
