"""What the phone counts besides heat: its cores' busy ticks, and clock and use of its GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator

from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import Profile

TICKS_PER_S = 100


class Counters:
    """Ticks by core since the stand-in began, and the GPU's files; `files` gives them by path."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._last = time.monotonic()
        self._busy = {cpu: 0.0 for policy in profile.policies for cpu in policy.cpus}
        self._ticks = 0.0

    def files(self, model: HeatModel) -> Iterator[tuple[str, str]]:
        """The files' present texts; time has passed since the last call under the model's present load."""
        now = time.monotonic()
        ticks, self._last = (now - self._last) * TICKS_PER_S, now
        self._ticks += ticks
        for policy in self._profile.policies:
            for cpu in policy.cpus:
                self._busy[cpu] += ticks * min(1.0, model.load.get(policy.die, 0.0))
        yield "/proc/stat", self._stat()
        if self._profile.gpu is not None:
            yield from self._gpu(self._profile.gpu["path"], self._profile.gpu["steps_khz"], model)

    def _stat(self) -> str:
        rows = [f"cpu{cpu} {int(busy)} 0 0 {int(self._ticks - busy)} 0 0 0 0 0 0" for cpu, busy in self._busy.items()]
        busy, cores = int(sum(self._busy.values())), len(self._busy)
        return "\n".join([f"cpu  {busy} 0 0 {int(self._ticks * cores) - busy} 0 0 0 0 0 0", *rows, "ctxt 0", ""])

    @staticmethod
    def _gpu(path: str, steps: list[int], model: HeatModel) -> Iterator[tuple[str, str]]:
        load = min(1.0, model.load.get("G3D", 0.0))
        limit = max(step for step in steps if step <= max(model.clock["G3D"] * max(steps), min(steps)))
        clock = max(step for step in steps if step <= max(min(steps), limit * min(1.0, load * 1.25)))
        yield f"{path}/cur_freq", f"{clock}\n"
        yield f"{path}/scaling_max_freq", f"{limit}\n"
        yield f"{path}/utilization", f"{round(100 * load)}\n"
        yield f"{path}/available_frequencies", " ".join(map(str, steps)) + "\n"
        yield f"{path}/power_policy", "coarse_demand [adaptive] always_on\n"
