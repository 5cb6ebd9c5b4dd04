"""Samples the host itself: a busy host spoils conversions, stand-in figures and arrival stamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mtplab.session.events import Event, Gap, HostLoad

EVERY_S = 2.0
# A sampling thread that wakes this much too late was not merely busy: the machine slept.
SUSPEND_S = 15.0


class HostSampler:
    """Posts a HostLoad every EVERY_S seconds, and a Gap where the host was suspended."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="host", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        import psutil

        psutil.cpu_percent()
        woke = time.time()
        while not self._stop.wait(EVERY_S):
            # Wall time sees a suspend that the monotonic clock of some systems does not count.
            late_s = time.time() - woke - EVERY_S
            woke = time.time()
            if late_s > SUSPEND_S:
                seconds = round(late_s, 1)
                self._post(Gap(t=time.monotonic(), what="host", reason="the host slept or hung", seconds=seconds))
            self._post(
                HostLoad(
                    t=time.monotonic(),
                    cpu_percent=psutil.cpu_percent(),
                    memory_available_bytes=psutil.virtual_memory().available,
                    temperature_c=_temperature(),
                )
            )

    def close(self) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join(1.0)


def _temperature() -> float | None:
    import psutil

    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return None
    try:
        sensors = read()
    except OSError:
        return None
    values = [entry.current for entries in sensors.values() for entry in entries if 0 < entry.current < 130]
    return max(values) if values else None
