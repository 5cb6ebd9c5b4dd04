"""One phone with all its parts wired together."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from mtplab.standin import backends
from mtplab.standin.adbd import Adbd
from mtplab.standin.clockwork import Clockwork
from mtplab.standin.control import Control
from mtplab.standin.files import DeviceFiles
from mtplab.standin.kernel_clock import hide_kernel_clock, show_kernel_clock
from mtplab.standin.keys import PublicKey
from mtplab.standin.phone import Phone
from mtplab.standin.physics import HeatModel
from mtplab.standin.processes import Processes
from mtplab.standin.programs import Programs
from mtplab.standin.settings import Scenario, load_profile
from mtplab.standin.storage import Storage
from mtplab.standin.system_services import SystemServices
from mtplab.standin.trace import read_trace


@dataclass(frozen=True)
class Order:
    """What is the same for all phones that one command serves."""

    scenario: Scenario
    keys: list[PublicKey]
    programs: dict[str, list[str]]
    backend: str
    speed: float
    max_processes: int
    max_bytes: int
    trace: Path | None = None


class Device:
    """A phone: its files, its shell, its programs, its heat, and the daemon that lets clients in."""

    def __init__(self, order: Order, profile_name: str, root: Path) -> None:
        scenario = order.scenario
        self.profile = load_profile(profile_name)
        root.mkdir(exist_ok=True)
        root.chmod(0o755)
        self.files = DeviceFiles(str(root))
        self.phone = Phone(self.files, self.profile, scenario, HeatModel.start(self.profile, scenario))
        self.phone.build("unknown")
        self.phone.write_uptime()
        self.backend = backends.choose(order.backend, self.files)
        self.phone.build(self.backend.name)
        self._keeps_uptime = self.backend.writes_uptime and not show_kernel_clock(self.files.root)
        storage = Storage(self.files, self.profile.storage_kib, order.max_bytes, scenario.free_bytes)
        self.processes = Processes(self.files, order.max_processes, order.max_bytes)
        trace = read_trace(order.trace, self.profile) if order.trace is not None else None
        self.clockwork = Clockwork(self.phone, self.processes, storage, speed=order.speed, trace=trace)
        self.programs = Programs(
            self.files, self.processes, self.profile, scenario, self.clockwork,
            trampolines=self.backend.has_trampolines,
        )  # fmt: skip
        self.programs.services = SystemServices(self.phone, self.clockwork.host_pid)
        self.programs.table.install(order.programs)
        self.adbd = Adbd(
            self.profile, self.files, self.backend, self.processes, self.programs,
            keys=order.keys, room_bytes=storage.room_bytes, cable=scenario.cable,
        )  # fmt: skip
        self.adbd.rebooted = self.clockwork.log.restart
        if not scenario.authorised:
            self.adbd.set_mode("unauthorized")
        self.control = Control(self.adbd, self.clockwork, self.processes)
        self.ticking: asyncio.Task[None] | None = None
        self._listening: asyncio.AbstractServer | None = None

    async def open(self, port: int, control: Path) -> dict[str, object]:
        """Take clients and commands, let time pass; what the first line says of this phone. OSError: the port."""
        self.programs.listen()
        chosen = await self.adbd.listen(port)
        self._listening = await self.control.listen(control)
        self.ticking = asyncio.ensure_future(self.clockwork.run(self._keeps_uptime))
        return {
            "serial": f"127.0.0.1:{chosen}",
            "profile": self.profile.name,
            "title": self.profile.title,
            "backend": self.backend.name,
            "root": self.files.root,
            "control": os.fspath(control),
        }

    def close(self) -> None:
        """End everything that was started for it."""
        if self.ticking is not None:
            self.ticking.cancel()
        if self._listening is not None:
            self._listening.close()
        self.programs.close()
        self.adbd.close()
        self.processes.kill_all()
        hide_kernel_clock(self.files.root)
