"""Android's commands that need more than a file: logcat, top, thermal overrides, a battery set by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mtplab.standin.hostproc import usage
from mtplab.standin.logcat import WishError, logcat
from mtplab.standin.phone import Phone
from mtplab.standin.physics import STATUS_NAMES

Say = Callable[[str], Awaitable[None]]
BATTERY_FIELDS = {
    "ac": "AC powered", "usb": "USB powered", "wireless": "Wireless powered", "dock": "Dock powered",
    "status": "status", "level": "level", "counter": "Charge counter", "temp": "temperature", "present": "present",
}  # fmt: skip
THERMAL_HELP = """Thermal service (thermalservice) commands:
  help
    Print this help text.

  inject-temperature TYPE STATUS NAME [VALUE]
    injects a new temperature sample for the specified device.
    type and status strings follow the names in android.os.Temperature.
  override-status STATUS
    sets and locks the thermal status of the device to STATUS.
    status code is defined in android.os.Temperature.
  reset
    unlocks the thermal status of the device.

"""
TOP_DELAY_S = 3.0


class SystemServices:
    """Answers what the device's stub commands pass on: `run` is one call."""

    def __init__(self, phone: Phone, host_pid: Callable[[int], int]) -> None:
        """`host_pid` gives the host's process behind a pid of the device."""
        self._phone, self._host_pid = phone, host_pid
        self._calls: dict[str, Callable[[list[str], Say, Say], Awaitable[int]]] = {
            "logcat": self._logcat, "top": self._top, "uptime": self._uptime,
            "dumpsys": self._dumpsys, "cmd": self._cmd,
        }  # fmt: skip

    async def run(self, name: str, words: list[str], out: Say, err: Say) -> int:
        """One command with its arguments; its exit code."""
        call = self._calls.get(name)
        if call is None:
            await err(f"{name}: the stand-in has no such command\n")
            return 127
        return await call(words, out, err)

    async def _logcat(self, words: list[str], out: Say, err: Say) -> int:
        try:
            return await logcat(self._phone.files.root, words, out)
        except WishError as error:
            await err(f"logcat: {error}\n")
            return 1

    # --- load

    async def _uptime(self, _words: list[str], out: Say, _err: Say) -> int:
        seconds = int(time.monotonic())
        days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
        up = f"{days} days, " if days else ""
        averages = ", ".join(f"{value:.2f}" for value in self._phone.kernel.averages())
        clock = time.strftime("%H:%M:%S")
        await out(f" {clock} up {up}{hours:2d}:{minutes:02d},  0 users,  load average: {averages}\n")
        return 0

    async def _top(self, words: list[str], out: Say, _err: Say) -> int:
        rounds = _option(words, "-n")
        delay = float(_option(words, "-d") or TOP_DELAY_S)
        left = int(rounds) if rounds and rounds.isdecimal() else None
        while left is None or left > 0:
            await out(self._top_screen())
            left = None if left is None else left - 1
            if left != 0:
                await asyncio.sleep(max(0.2, delay))
        return 0

    def _busy_cores(self) -> tuple[float, int]:
        model, policies = self._phone.model, self._phone.profile.policies
        busy = sum(min(1.0, model.load.get(policy.die, 0.0)) * len(policy.cpus) for policy in policies)
        return busy, sum(len(policy.cpus) for policy in policies)

    def _top_screen(self) -> str:
        phone, rows = self._phone, process_lines(self._phone.files.root)
        busy, cores = self._busy_cores()
        total, available = phone.profile.memory_kib, phone.kernel.available_kib()
        user, system, idle = (round(100 * part) for part in (busy * 0.85, busy * 0.15, cores - busy))
        shares = f"{user:3d}%user   0%nice {system:3d}%sys {idle:3d}%idle"
        lines = [
            f"Tasks: {len(rows)} total,   1 running, {max(0, len(rows) - 1)} sleeping,   0 stopped,   0 zombie",
            f"  Mem: {total:8d}K total, {total - available:8d}K used, {available:8d}K free",
            f"{cores * 100}%cpu {shares}   0%iow   0%irq   0%sirq   0%host",
            "  PID USER         PR  NI  RES S[%CPU] %MEM     TIME+ ARGS",
        ]
        for pid, line in rows:
            used = usage(self._host_pid(pid))
            if used is not None:
                share = 100 * used.resident_kib / total
                spent = f"{int(used.cpu_s // 60)}:{used.cpu_s % 60:05.2f}"
                figures = f"{used.resident_kib // 1024:3d}M S {used.cpu_percent:5.1f} {share:5.1f} {spent:>9}"
                lines.append(f"{pid:5d} shell        20   0 {figures} {line}")
        return "\n".join(lines) + "\n"

    # --- services

    async def _dumpsys(self, words: list[str], out: Say, err: Say) -> int:
        if words[:1] == ["battery"]:
            return await self._battery(words[1:], out, err)
        if words[:1] == ["cpuinfo"]:
            await out(self._cpuinfo())
        elif words[:1] == ["meminfo"]:
            await out(self._meminfo())
        return 0

    def _cpuinfo(self) -> str:
        phone = self._phone
        averages = " / ".join(f"{value:.2f}" for value in phone.kernel.averages())
        busy, cores = self._busy_cores()
        share = 100 * busy / cores
        return (
            f"Load: {averages}\nCPU usage from 10000ms to 0ms ago:\n"
            f"{share:.1f}% TOTAL: {share * 0.85:.1f}% user + {share * 0.15:.1f}% kernel\n"
        )

    def _meminfo(self) -> str:
        total, available = self._phone.profile.memory_kib, self._phone.kernel.available_kib()
        return (
            f"Applications Memory Usage (in Kilobytes):\nUptime: {int(time.monotonic() * 1000)} "
            f"Realtime: {int(time.monotonic() * 1000)}\n\n"
            f"Total RAM: {total:,}K (status normal)\n Free RAM: {available:,}K\n Used RAM: {total - available:,}K\n"
        )

    async def _battery(self, words: list[str], out: Say, err: Say) -> int:
        battery, words = self._phone.state.battery, [word for word in words if word != "-f"]
        known = len(words) == 3 and words[1] in BATTERY_FIELDS and words[2].lstrip("-").isdecimal()
        if words[:1] == ["unplug"]:
            battery.reported |= {name: "false" for name in BATTERY_FIELDS.values() if "powered" in name}
            battery.reported["status"] = "3"
        elif words[:1] == ["reset"]:
            battery.reported.clear()
        elif words[:1] == ["set"] and known:
            switch = words[1] in ("ac", "usb", "wireless", "dock", "present")
            value = {"0": "false"}.get(words[2], "true") if switch else words[2]
            battery.reported[BATTERY_FIELDS[words[1]]] = value
        elif words:
            await err(f"Bad argument: {' '.join(words)}\n")
            return 255
        self._phone.refresh_services()
        return 0

    async def _cmd(self, words: list[str], out: Say, err: Say) -> int:
        service, rest = words[0] if words else "", words[1:]
        if service == "battery":
            return await self._battery(rest, out, err)
        if service == "thermalservice":
            return await self._thermal(rest, out, err)
        await err(f"cmd: Can't find service: {service}\n")
        return 20

    async def _thermal(self, words: list[str], out: Say, err: Say) -> int:
        state = self._phone.state
        if not words or words[0] in ("help", "-h"):
            await out(THERMAL_HELP)
        elif words[0] == "reset":
            state.thermal_override = None
        elif words[0] == "override-status" and len(words) == 2 and words[1].isdecimal():
            if int(words[1]) >= len(STATUS_NAMES):
                await err(f"Invalid status: {words[1]}\n")
                return 255
            state.thermal_override = int(words[1])
        elif words[0] == "inject-temperature":
            await err("the stand-in's temperatures follow its heat model: `load` on its control socket moves them\n")
            return 255
        else:
            await err(f"Unknown command: {words[0]}\n")
            return 255
        self._phone.refresh_services()
        return 0


def _option(words: list[str], name: str) -> str | None:
    """The value of `-n 1` or `-n1`."""
    for number, word in enumerate(words):
        if word == name and number + 1 < len(words):
            return words[number + 1]
        if word.startswith(name) and len(word) > len(name):
            return word[len(name) :]
    return None


def process_lines(root: str) -> list[tuple[int, str]]:
    """The device's processes: pid and command line."""
    found = []
    for folder in Path(root + "/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        found.append((int(folder.name), line))
    return sorted(found)
