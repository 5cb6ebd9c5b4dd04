"""Time passing on the phone: load of the running programs becomes heat, heat becomes files."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass

from mtplab.standin.hostproc import cpu_seconds, resident_kib
from mtplab.standin.logcat import LogBook
from mtplab.standin.phone import Phone
from mtplab.standin.physics import STATUS_NAMES
from mtplab.standin.processes import Processes, kill_group
from mtplab.standin.storage import Storage
from mtplab.standin.trace import Trace

TICK_S = 0.25
IDLE_TICK_S = 1.0  # while no shell or program runs, nobody looks
UPTIME_TICK_S = 0.05
SPACE_EVERY_TICKS = 20
LMKD_PID = 612
BACKGROUND_LOAD = {"BIG": 0.01, "MID": 0.02, "LITTLE": 0.08}


@dataclass
class _Running:
    """A program that works for the phone: what the phone shows of it, and its CPU time when last seen."""

    shown_pid: int
    name: str
    die: str
    used_s: float | None
    seen_at: float


class Clockwork:
    """Drives the heat model from measured CPU time and keeps the phone's files current."""

    def __init__(
        self, phone: Phone, processes: Processes, storage: Storage, *, speed: float, trace: Trace | None = None
    ) -> None:
        """`speed`: how much faster heat moves than the clock; `trace` is played in place of the heat model."""
        self._phone, self._processes, self._storage, self._speed = phone, processes, storage, speed
        self._trace, self._played_s = trace, 0.0
        self._programs: dict[int, _Running] = {}
        self.log = LogBook(phone.files)
        self._forced: dict[str, float] = {}
        self._cores = {
            die: sum(len(policy.cpus) for policy in phone.profile.policies if policy.die == die)
            for die in ("BIG", "MID", "LITTLE")
        }

    def program_started(self, pid: int, die: str, shown_pid: int, name: str) -> None:
        """A program of the host now works for the phone, which lists it under another pid."""
        self._programs[pid] = _Running(shown_pid, name, die, cpu_seconds(pid), time.monotonic())

    def host_pid(self, shown_pid: int) -> int:
        """The host's process behind a pid of the device."""
        return next((pid for pid, program in self._programs.items() if program.shown_pid == shown_pid), shown_pid)

    def program_ended(self, pid: int) -> None:
        """It works no more."""
        self._programs.pop(pid, None)

    def clock_share(self, die: str) -> float:
        """The share of its peak clock at which a die runs now; `CPU` is led by the big cores."""
        return self._phone.model.clock["BIG" if die == "CPU" else die]

    def force(self, die: str, load: float | None) -> None:
        """Set a die's load by hand (0..1), or give it back to the programs with None. KeyError: no such die."""
        if die not in self._phone.model.constants.dies:
            raise KeyError(die)
        if load is None:
            self._forced.pop(die, None)
        else:
            self._forced[die] = min(1.0, max(0.0, load))

    def set_battery(self, percent: float) -> None:
        """Charge or empty the battery at once."""
        self._phone.state.battery.level = min(100.0, max(1.0, percent))
        self._phone.refresh_services()

    def temperatures(self) -> dict[str, object]:
        """The model's state, for people and tests."""
        model = self._phone.model
        return {
            "temperature_c": {name: round(value, 2) for name, value in model.temperature_c.items()},
            "clock": {name: round(value, 3) for name, value in model.clock.items()},
            "load": {name: round(value, 3) for name, value in model.load.items()},
            "status": STATUS_NAMES[model.status],
        }

    async def run(self, keep_uptime: bool) -> None:
        """Until cancelled. `keep_uptime`: the shell reads /proc/uptime as a file, so it must be written often."""
        last, tick = time.monotonic(), 0
        while True:
            now = time.monotonic()
            self._pass_time((now - last) * self._speed)
            last = now
            self._phone.refresh(self._watch_memory())
            if self._processes.live or tick % SPACE_EVERY_TICKS == 0:
                self._watch_storage()
            tick += 1
            await self._until_next_tick(keep_uptime)

    def _pass_time(self, seconds: float) -> None:
        model, state = self._phone.model, self._phone.state
        model.load, model.rest_share = self._load(), state.rest_share()
        if self._trace is not None:
            self._played_s += seconds
            self._trace.apply(model, self._played_s)
        else:
            model.step(seconds)
        state.battery.step(seconds, model.total_w())

    def _watch_memory(self) -> int:
        """What the programs hold, in KiB; when it is more than there is, the largest of them is killed."""
        held = {pid: resident_kib(pid) or 0 for pid in self._programs}
        total = sum(held.values())
        if total > self._phone.kernel.available_kib():
            self.kill_for_memory(max(held, key=lambda pid: held[pid]))
        return total

    def kill_for_memory(self, pid: int | None = None) -> str | None:
        """The low-memory killer comes for a program (None: the largest); its name, or None if nothing runs."""
        held = {one: resident_kib(one) or 0 for one in self._programs}
        victim = pid if pid is not None else max(held, key=lambda one: held[one], default=None)
        if victim is None:
            return None
        program = self._programs[victim]
        said = f"Kill '{program.name}' ({program.shown_pid}), uid 2000, oom_score_adj 0 to free {held[victim]}kB rss"
        self.log.write("I", "lowmemorykiller", f"{said}, 0kB swap; reason: device is low on memory", LMKD_PID)
        kill_group(victim, signal.SIGKILL)
        return program.name

    def _watch_storage(self) -> None:
        """Shells write without asking; whoever goes beyond the storage's limit is ended with all others."""
        self._phone.write_space(self._storage.df_line())
        self.log.trim()
        if self._processes.live and self._storage.overrun():
            self.log.write("E", "vold", "no space left on /data: the processes that write are ended", LMKD_PID)
            self._processes.kill_all()

    async def _until_next_tick(self, keep_uptime: bool) -> None:
        waited, tick_s = 0.0, TICK_S if self._processes.live or self._forced else IDLE_TICK_S
        while waited < tick_s:
            busy = keep_uptime and bool(self._processes.live)
            if keep_uptime:
                self._phone.write_uptime()
            if self._processes.live:
                tick_s = TICK_S  # somebody came
            pause = UPTIME_TICK_S if busy else TICK_S
            await asyncio.sleep(pause)
            waited += pause

    def _load(self) -> dict[str, float]:
        threads, load = 0.0, dict(BACKGROUND_LOAD)
        for pid, program in list(self._programs.items()):
            now, used = time.monotonic(), cpu_seconds(pid)
            before, when, die = program.used_s, program.seen_at, program.die
            program.used_s, program.seen_at = used, now
            clock = self._phone.model.clock["BIG" if die == "CPU" else die]
            # A throttled program sleeps part of its time here; on a phone it would be busy and slow.
            busy = 1.0  # where CPU time cannot be seen, a running program counts as busy
            if used is not None and before is not None and now > when:
                busy = (used - before) / (now - when) / clock
            if die == "CPU":
                threads += busy
            else:
                load[die] = min(1.0, load.get(die, 0.0) + min(1.0, busy))
        for die in ("BIG", "MID", "LITTLE"):  # the fast cores are taken first
            cores = self._cores[die]
            load[die] = min(1.0, load[die] + min(threads, cores) / cores)
            threads = max(0.0, threads - cores)
        return {**load, **self._forced}
