"""The phone's storage: how much its user's folders hold, how much more they may, and what `df` says of it."""

from __future__ import annotations

import os

from mtplab.standin.files import DeviceFiles


class Storage:
    """Counts what is stored against the phone's size, the limit of --max-bytes and the scenario's free space."""

    def __init__(self, files: DeviceFiles, total_kib: int, limit_bytes: int, free_bytes: int | None) -> None:
        """`free_bytes`: room on the phone as the scenario finds it, whatever was stored before."""
        self._files, self._total_kib, self._limit_bytes = files, total_kib, limit_bytes
        if free_bytes is not None:
            self._limit_bytes = min(limit_bytes, files.stored_bytes() + free_bytes)

    def room_bytes(self) -> int:
        """How much may still be written."""
        disk = os.statvfs(self._files.root)
        free = min(self._limit_bytes - self._files.stored_bytes(), disk.f_bavail * disk.f_frsize)
        return max(0, min(free, self._total_kib * 1024))

    def overrun(self) -> bool:
        """True when more is stored than the limit allows (shells write without asking)."""
        return self._files.stored_bytes() > self._limit_bytes

    def df_line(self) -> str:
        """The figures for the `df` command: KiB in total, used, free, used in per cent, then the three in GiB."""
        total, free = self._total_kib, self.room_bytes() // 1024
        sizes = (total, total - free, free)
        percent = -(-(total - free) * 100 // total)
        return " ".join(str(number) for number in (*sizes, percent, *(size >> 20 for size in sizes))) + "\n"
