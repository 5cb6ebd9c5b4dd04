"""Slows a program that knows nothing of the phone's clocks: it is stopped for its share of every few milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

PERIOD_S = 0.02
FULL_SHARE = 0.99  # above it the pauses would be shorter than the scheduler's own noise


async def hold_back(group: int, share: Callable[[], float]) -> None:
    """Until cancelled: let the process group run only `share()` (0..1] of the time, as a slower clock would.

    Work of t seconds then lasts t ÷ share on average; pauses are lumps of a few milliseconds, so single steps
    shorter than PERIOD_S are either untouched or late.
    """
    try:
        while True:
            now = share()
            if now >= FULL_SHARE:
                await asyncio.sleep(10 * PERIOD_S)
                continue
            await asyncio.sleep(PERIOD_S * now)
            _signal(group, signal.SIGSTOP)
            await asyncio.sleep(PERIOD_S * (1 - now))
            _signal(group, signal.SIGCONT)
    finally:
        _signal(group, signal.SIGCONT)  # a stopped process would never see that it is asked to end


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
