"""A program that knows nothing of the phone's clocks is slowed from outside, and never left stopped."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from mtplab.standin.throttle import hold_back

BUSY = "while True: pass"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells a process's state")
@pytest.mark.parametrize(("share", "is_stopped"), [(0.5, True), (1.0, False)])
def test_a_held_program_is_seen_stopped_and_goes_on_afterwards(share: float, is_stopped: bool) -> None:
    child = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
    try:

        async def watch() -> set[str]:
            holder = asyncio.ensure_future(hold_back(child.pid, lambda: share))
            seen = set()
            for _ in range(300):
                await asyncio.sleep(0.003)
                seen.add(state_of(child.pid))
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
            return seen

        seen = asyncio.run(watch())
        assert ("T" in seen) is is_stopped
        assert state_of(child.pid) != "T"
    finally:
        child.kill()
        child.wait()


def test_a_program_that_has_ended_is_no_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], start_new_session=True)
    child.wait()

    async def hold() -> None:
        holder = asyncio.ensure_future(hold_back(child.pid, lambda: 0.5))
        await asyncio.sleep(0.1)
        assert not holder.done()
        holder.cancel()

    asyncio.run(hold())
