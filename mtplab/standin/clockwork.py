"""Time passing on the phone: load of the running programs becomes heat, heat becomes files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from mtplab.standin.phone import Phone
from mtplab.standin.physics import STATUS_NAMES
from mtplab.standin.processes import Processes
from mtplab.standin.storage import Storage

TICK_S = 0.25
IDLE_TICK_S = 1.0  # while no shell or program runs, nobody looks
UPTIME_TICK_S = 0.05
SPACE_EVERY_TICKS = 20
BACKGROUND_LOAD = {"BIG": 0.01, "MID": 0.02, "LITTLE": 0.08}


class Clockwork:
    """Drives the heat model from measured CPU time and keeps the phone's files current."""

    def __init__(self, phone: Phone, processes: Processes, storage: Storage, *, speed: float) -> None:
        self._phone, self._processes, self._storage, self._speed = phone, processes, storage, speed
        self._programs: dict[int, tuple[str, float | None, float]] = {}
        self._forced: dict[str, float] = {}
        self._cores = {
            die: sum(len(policy.cpus) for policy in phone.profile.policies if policy.die == die)
            for die in ("BIG", "MID", "LITTLE")
        }

    def program_started(self, pid: int, die: str) -> None:
        """A program of the host now works for the phone."""
        self._programs[pid] = (die, cpu_seconds(pid), time.monotonic())

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
            self._phone.refresh(self._memory_kib())
            if tick % SPACE_EVERY_TICKS == 0:
                self._phone.write_space(self._storage.df_line())
            tick += 1
            await self._until_next_tick(keep_uptime)

    def _pass_time(self, seconds: float) -> None:
        model, state = self._phone.model, self._phone.state
        model.load, model.rest_share = self._load(), state.rest_share()
        model.step(seconds)
        state.battery.step(seconds, model.total_w())

    def _memory_kib(self) -> int:
        return sum(resident_kib(pid) or 0 for pid in self._programs)

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
        for pid, (die, before, when) in list(self._programs.items()):
            now, used = time.monotonic(), cpu_seconds(pid)
            self._programs[pid] = (die, used, now)
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


def resident_kib(pid: int) -> int | None:
    """The memory a process holds, or None where the host does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def cpu_seconds(pid: int) -> float | None:
    """CPU time a process has used, or None where the host does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
