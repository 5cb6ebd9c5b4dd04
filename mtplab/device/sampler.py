"""Samples heat and clocks all the time: one shell loop that stays on the phone, whole frames only, gaps told."""

from __future__ import annotations

import contextlib
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

import msgspec

from mtplab.device.errors import DeviceError
from mtplab.device.link import Link
from mtplab.device.shell import Stream
from mtplab.device.thermal import (
    Clock,
    ThermalSample,
    ThermalService,
    is_no_temperature,
    parse_thermalservice,
    zone_celsius,
)

OnSample = Callable[[ThermalSample], None]
OnStatus = Callable[[ThermalService], None]
OnGap = Callable[[str, float], None]
OnLost = Callable[[str], None]

# Plain POSIX sh, builtins only inside the loop. The pause is a `read` with a fractional time limit where the shell
# has one: no fork, and it ends at end of file, so that nothing stays on the phone. Paths are collected once: a zone
# that appears later cannot shift the others. One `echo` a frame: one packet.
_LOOP = r"""
nl='
'
zs=; head='#H 1'
for z in /sys/class/thermal/thermal_zone*; do
  [ -d "$z" ] || continue
  t=; read -r t <"$z/type"; zs="$zs $z"; head="$head$nl#Z ${z##*thermal_zone} $t"
done
ps=
for p in /sys/devices/system/cpu/cpufreq/policy*; do
  [ -d "$p" ] || continue
  m=; read -r m _ <"$p/cpuinfo_max_freq"; ps="$ps $p"; head="$head$nl#P ${p##*/} ${m:-NA}"
done
read -r -t 0.01 x; rc=$?
if [ $rc -gt 128 ]; then how=read; elif sleep 0.01; then how=sleep; else how=seconds; fi
echo "$head$nl#G $how"
n=0
while :; do
  u=; read -r u _ </proc/uptime
  l=; for z in $zs; do v=; read -r v _ <"$z/temp"; l="$l ${v:-NA}"; done
  c=; for p in $ps; do
    a=; b=; read -r a _ <"$p/scaling_cur_freq"; read -r b _ <"$p/scaling_max_freq"; c="$c ${a:-NA}/${b:-NA}"
  done
  echo "#B $n ${u:-NA}${nl}T$l${nl}C$c$nl#E $n" || exit 0
  n=$((n+1))
  case $how in
    read) read -r -t @INTERVAL@ x; [ $? -eq 1 ] && exit 0;;
    sleep) sleep @INTERVAL@;;
    *) sleep 1;;
  esac
done
"""


class SamplerCost(msgspec.Struct, frozen=True):
    """What sampling costs and how regular it is; None where nothing was measured yet."""

    samples: int
    frames_rejected: int
    duplicates_dropped: int
    bytes_received: int
    bytes_per_s: float | None
    interval_median_s: float | None
    pacing: str | None


class FrameReader:
    """Turns the loop's lines into samples. Anything that is not a whole, well-formed frame is counted and dropped."""

    def __init__(self) -> None:
        self.rejected = 0
        self.duplicates = 0
        self.pacing: str | None = None
        self._zones: list[str] = []
        self._policies: list[tuple[str, int | None]] = []
        self._frame: list[str] | None = None
        self._last_seq = -1

    def feed(self, line: str, t: float) -> ThermalSample | None:
        """The sample that this line completes, if any."""
        kind, _, rest = line.partition(" ")
        if kind == "#Z" and self.pacing is None:
            self._add_zone(rest)
        elif kind == "#P" and self.pacing is None:
            name, _, most = rest.partition(" ")
            self._policies.append((_printable(name), _khz(most)))
        elif kind == "#G":
            self.pacing = rest if rest in ("read", "sleep", "seconds") else "unknown"
        elif kind == "#B":
            self.rejected += self._frame is not None
            self._frame = [line]
        elif kind == "#E" and self._frame is not None:
            frame, self._frame = [*self._frame, line], None
            return self._whole(frame, t)
        elif self._frame is not None:
            self._frame.append(line)
        return None

    def _add_zone(self, rest: str) -> None:
        index, _, name = rest.partition(" ")
        name = _printable(name) or f"zone{_printable(index)}"
        self._zones.append(name if name not in self._zones else f"{name} (zone{_printable(index)})")

    def _whole(self, frame: list[str], t: float) -> ThermalSample | None:
        sample = self._sample(frame, t)
        if sample is None:
            self.rejected += 1
        elif sample.seq <= self._last_seq:
            self.duplicates += 1
            return None
        else:
            self._last_seq = sample.seq
        return sample

    def _sample(self, frame: list[str], t: float) -> ThermalSample | None:
        if len(frame) != 4 or self.pacing is None:
            return None
        begin, temperatures, clocks, end = (line.split(" ") for line in frame)
        if len(begin) != 3 or len(end) != 2 or begin[1] != end[1] or not _is_count(begin[1]):
            return None
        if temperatures[0] != "T" or clocks[0] != "C":
            return None
        if len(temperatures) - 1 != len(self._zones) or len(clocks) - 1 != len(self._policies):
            return None
        zones = {
            name: zone_celsius(name, raw)[0]
            for name, raw in zip(self._zones, temperatures[1:], strict=True)
            if not is_no_temperature(name)
        }
        states = {
            name: Clock(_khz(word.partition("/")[0]), _khz(word.partition("/")[2]), most)
            for (name, most), word in zip(self._policies, clocks[1:], strict=True)
        }
        uptime = float(begin[2]) if re.fullmatch(r"\d{1,10}(\.\d{1,9})?", begin[2], re.ASCII) else None
        return ThermalSample(t, uptime, zones, states, int(begin[1]))


def _printable(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", text.strip())[:64]


def _is_count(word: str) -> bool:
    return bool(re.fullmatch(r"\d{1,12}", word, re.ASCII))


def _khz(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[1-9]\d{0,8}", word, re.ASCII) else None


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
        self._samples, self._rejected, self._duplicates, self._bytes = 0, 0, 0, 0
        self._began = time.monotonic()
        self._last_t = self._began
        self._intervals: deque[float] = deque(maxlen=512)
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
    def cost(self) -> SamplerCost:
        """What sampling has cost so far."""
        seconds = time.monotonic() - self._began
        return SamplerCost(
            self._samples, self._rejected + self._reader.rejected, self._duplicates + self._reader.duplicates,
            self._bytes, self._bytes / seconds if seconds > 0 and self._bytes else None,
            statistics.median(self._intervals) if self._intervals else None, self._reader.pacing,
        )  # fmt: skip

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
        script = _LOOP.replace("@INTERVAL@", f"{self.interval_s:g}")
        # The group keeps the shells' complaints about unreadable files off the wire.
        with self._link.stream("{ " + script + " } 2>/dev/null", self._line) as stream:
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
        self._bytes += len(text) + 1
        sample = self._reader.feed(text, t) if stream == "stdout" else None
        if sample is None:
            return
        if self._lost is not None:
            (reason, since), self._lost = self._lost, None
            if self._on_gap is not None:
                self._on_gap(reason, t - since)
        elif self._samples:
            self._intervals.append(t - self._last_t)
        # The loop on the phone counts from 0 again after each reconnection; here the numbers go on.
        sample = msgspec.structs.replace(sample, seq=self._samples)
        self._samples += 1
        self._last_t = t
        self.latest = sample
        self._on_sample(sample)

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
