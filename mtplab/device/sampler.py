"""Samples heat and clocks all the time: one shell loop that stays on the phone, whole frames only, gaps told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

import msgspec

from mtplab.device.errors import DeviceError
from mtplab.device.frames import FrameReader, loop_script
from mtplab.device.link import Link
from mtplab.device.shell import Stream
from mtplab.device.thermal import ThermalSample, ThermalService, parse_thermalservice
from mtplab.session.events import SamplerCost

OnSample = Callable[[ThermalSample], None]
OnStatus = Callable[[ThermalService], None]
OnGap = Callable[[str, float], None]
OnLost = Callable[[str], None]

class Sampler:
    """Samples until `stop`, through lost cables: no sample is invented, none delivered twice, gaps are reported.

    Callbacks run in the sampler's threads. `on_lost(reason)` when samples stop, `on_gap(reason, seconds)` when they
    come again; `on_status` gets `dumpsys thermalservice` every `status_period_s` (never faster than every 2 s).
    """

    def __init__(
        self, link: Link, hz: float, on_sample: OnSample, on_gap: OnGap | None = None,
        on_status: OnStatus | None = None, on_lost: OnLost | None = None, status_period_s: float = 2.0,
    ) -> None:  # fmt: skip
        self.interval_s = min(10.0, max(0.1, 1.0 / hz))
        self.problem: BaseException | None = None
        self.latest: ThermalSample | None = None
        self.latest_status: ThermalService | None = None
        self._link = link
        self._on_sample, self._on_gap, self._on_status, self._on_lost = on_sample, on_gap, on_status, on_lost
        self._status_period_s = max(2.0, status_period_s)
        self._stopping = threading.Event()
        self._reader = FrameReader()
        self._lost: tuple[str, float] | None = None
        self._samples, self._rejected, self._duplicates = 0, 0, 0
        self._meter = _StreamMeter()
        self._last_t = time.monotonic()
        self._arrivals: deque[float] = deque(maxlen=256)
        self._threads = [threading.Thread(target=self._guard, args=(self._follow,), name="sampler", daemon=True)]
        if on_status is not None:
            self._threads.append(
                threading.Thread(target=self._guard, args=(self._watch_status,), name="thermalservice", daemon=True)
            )

    def start(self) -> Sampler:
        """Begin sampling."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End sampling; the loop on the phone has ended when this returns. Raises what a callback raised."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(20)
        if self.problem is not None:
            raise self.problem

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def rejected(self) -> int:
        """Frames that were torn or no frames, over all connections."""
        return self._rejected + self._reader.rejected

    @property
    def duplicates(self) -> int:
        """Frames that the phone sent twice, over all connections; none was delivered twice."""
        return self._duplicates + self._reader.duplicates

    @property
    def cost(self) -> SamplerCost:
        """What a sample costs on the present connection.

        The loop alone: `dumpsys thermalservice`, asked every `status_period_s`, comes on top and is not in it.
        """
        device_ms = self._reader.device_ms
        return SamplerCost(
            zones=self._reader.zone_count, samples=self._samples,
            rate_hz=self._rate_hz(),
            device_ms=device_ms, host_ms=self._meter.host_ms, packets=self._meter.packets, bytes=self._meter.bytes,
            rejected=self.rejected, pacing=self._reader.pacing,
            reason="the phone's clock has not told its CPU time apart yet" if device_ms is None else None,
        )  # fmt: skip

    def _rate_hz(self) -> float | None:
        arrivals = list(self._arrivals)
        span_s = arrivals[-1] - arrivals[0] if len(arrivals) > 1 else 0.0
        return (len(arrivals) - 1) / span_s if span_s > 0 else None

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - told by stop(): a thread's traceback would tear the screen
            self.problem = problem
            self._stopping.set()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            reason = "the loop on the phone ended"
            try:
                self._one_stream()
            except DeviceError as problem:
                reason = str(problem)
            if self._stopping.is_set():
                return
            if self._lost is None:
                self._lost = (reason, self._last_t)
                if self._on_lost is not None:
                    self._on_lost(reason)
            with contextlib.suppress(DeviceError):
                self._link.wait_for_return(2.0)
            self._stopping.wait(0.2)

    def _one_stream(self) -> None:
        self._rejected += self._reader.rejected
        self._duplicates += self._reader.duplicates
        self._reader = FrameReader()
        self._meter = _StreamMeter()
        # The group keeps the shells' complaints about unreadable files off the wire.
        with self._link.stream("{ " + loop_script(self.interval_s) + " } 2>/dev/null", self._line) as stream:
            self._meter.stream = stream
            patience_s = max(5.0, 10 * self.interval_s)
            opened = time.monotonic()
            while stream.running:
                if self._stopping.wait(0.1):
                    self._end(stream)
                    return
                if time.monotonic() - max(opened, self._last_t) > patience_s:
                    raise DeviceError(f"{self._link.serial} sent no sample for {patience_s:g} s.")
            stream.wait(1)

    def _end(self, stream: Stream) -> None:
        if self._reader.pacing != "read":
            return  # this shell does not notice the end of its input: leaving the stream's block ends it
        stream.close_stdin()
        try:
            stream.wait(2)
        except (TimeoutError, DeviceError):
            stream.cancel()

    def _line(self, stream: str, text: str, t: float) -> None:
        sample = self._reader.feed(text, t) if stream == "stdout" else None
        if sample is None:
            return
        if self._lost is not None:
            (reason, since), self._lost = self._lost, None
            self._arrivals.clear()
            if self._on_gap is not None:
                self._on_gap(reason, t - since)
        # The loop on the phone counts from 0 again after each reconnection; here the numbers go on.
        sample = msgspec.structs.replace(sample, seq=self._samples)
        self._samples += 1
        self._last_t = t
        self._arrivals.append(t)
        self.latest = sample
        self._on_sample(sample)
        self._meter.count()

    def _watch_status(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            service = self._read_status()
            if service is not None:
                self.latest_status = service
                if self._on_status is not None:
                    self._on_status(service)
            self._stopping.wait(max(0.0, self._status_period_s - (time.monotonic() - began)))

    def _read_status(self) -> ThermalService | None:
        """None while the phone is away: the gap is reported where samples are missed."""
        try:
            said = self._link.run(["dumpsys", "thermalservice"], timeout_s=8)
        except DeviceError:
            return None
        return parse_thermalservice(said.stdout or said.stderr, time.monotonic())


class _StreamMeter:
    """What one connection costs the host, counted in the thread that reads it."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self._samples = 0
        self._first_s = self._last_s = 0.0

    def count(self) -> None:
        """One more sample was read and delivered by the calling thread."""
        now_s = time.thread_time()
        if not self._samples:
            self._first_s = now_s
        self._samples, self._last_s = self._samples + 1, now_s

    @property
    def host_ms(self) -> float | None:
        """CPU time per sample: receiving, reading and handing on."""
        return 1000.0 * (self._last_s - self._first_s) / (self._samples - 1) if self._samples > 1 else None

    @property
    def packets(self) -> float | None:
        """Packets of the shell protocol per sample."""
        return self.stream.packets / self._samples if self.stream and self._samples else None

    @property
    def bytes(self) -> float | None:
        """Bytes per sample."""
        return self.stream.bytes_received / self._samples if self.stream and self._samples else None
