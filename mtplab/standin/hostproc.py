"""What the host tells of a process: CPU time, memory, age; None where it does not tell."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """One process: memory held, CPU time used, and that time as a share of its age in per cent."""

    resident_kib: int
    cpu_s: float
    cpu_percent: float


def _fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float | None:
    """CPU time a process has used."""
    fields = _fields(pid)
    return None if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid: int) -> int | None:
    """The memory a process holds."""
    fields = _fields(pid)
    return None if fields is None else int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024


def usage(pid: int) -> Usage | None:
    """All three at once."""
    fields, ticks = _fields(pid), os.sysconf("SC_CLK_TCK")
    try:
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except OSError:
        return None
    if fields is None:
        return None
    spent = (int(fields[11]) + int(fields[12])) / ticks
    age = max(0.01, uptime - int(fields[19]) / ticks)
    return Usage(int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024, spent, 100 * spent / age)
