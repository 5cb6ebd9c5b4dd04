"""The cable: how fast it carries, and when it is pulled by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from mtplab.standin.settings import Cable


class CableKeeper:
    """Counts what passes in both directions over all connections; waits as a slow cable would, and pulls it."""

    def __init__(self, cable: Cable, pull: Callable[[float | None], None]) -> None:
        """`pull` takes the seconds until the cable is back."""
        self._pull = pull
        self._timer: asyncio.TimerHandle | None = None
        self._free_at = 0.0
        self.plan = cable
        self.carried = 0
        self._left_bytes = cable.pull_after_bytes
        self._left_times = cable.times

    def set(self, **changes: float | int | None) -> None:
        """Change the plan from now on: a field of `Cable` each. TypeError for what is none."""
        self.plan = replace(self.plan, **changes)  # type: ignore[arg-type]
        self._left_bytes, self._left_times = self.plan.pull_after_bytes, self.plan.times
        self._stop_timer()
        if "pull_after_s" in changes:
            self.came_online()

    def came_online(self) -> None:
        """Somebody is served: a cable that is pulled after some seconds counts from here."""
        if self.plan.pull_after_s is not None and self._left_times > 0 and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.plan.pull_after_s, self._fall_out)

    async def carry(self, count: int) -> bool:
        """Let `count` bytes pass; False when the cable was pulled within them."""
        self.carried += count
        if self._left_bytes is not None and self._left_times > 0:
            self._left_bytes -= count
            if self._left_bytes < 0:
                self._left_bytes = self.plan.pull_after_bytes
                self._fall_out()
                return False
        if self.plan.bytes_per_s:
            loop = asyncio.get_running_loop()
            self._free_at = max(loop.time(), self._free_at) + count / self.plan.bytes_per_s
            await asyncio.sleep(self._free_at - loop.time())
        return True

    def _fall_out(self) -> None:
        self._stop_timer()
        self._left_times -= 1
        self._pull(self.plan.away_s)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
