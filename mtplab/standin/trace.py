"""Heat from a recording in place of the model: a CSV file, or the heat samples of a session's events.jsonl."""

from __future__ import annotations

import bisect
import csv
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplab.standin.physics import HeatModel
from mtplab.standin.settings import Profile, UsageError

MOST_BYTES = 256 << 20
# Zones and columns of recordings -> node of the heat model.
NODES = {
    "VIRTUAL-SKIN": "skin", "mb-therm-monitor": "skin", "batt-therm": "battery", "soc_therm": "soc",
    **{name: name for name in ("skin", "battery", "soc", "BIG", "MID", "LITTLE", "G3D", "TPU")},
}  # fmt: skip


@dataclass
class Sample:
    """One moment: temperatures by node, clocks as shares of their peak by die, status where it was recorded."""

    t_s: float
    temperature_c: dict[str, float] = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)
    status: int | None = None


class Trace:
    """Samples in order of time; between two of them temperatures and clocks are interpolated, after the last held."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = sorted(samples, key=lambda sample: sample.t_s)
        self._times = [sample.t_s - self._samples[0].t_s for sample in self._samples]

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self._times[-1]

    def apply(self, model: HeatModel, seconds: float) -> None:
        """Put the model where the recording was `seconds` after its begin."""
        number = max(0, bisect.bisect_right(self._times, seconds) - 1)
        before = self._samples[number]
        after = self._samples[min(number + 1, len(self._samples) - 1)]
        span = after.t_s - before.t_s
        share = min(1.0, (seconds - self._times[number]) / span) if span > 0 else 0.0
        temperatures = (model.temperature_c, before.temperature_c, after.temperature_c)
        for known, first, second in (temperatures, (model.clock, before.clock, after.clock)):
            for name, value in first.items():
                known[name] = value + (second.get(name, value) - value) * max(0.0, share)
        if before.status is not None:
            model.status = before.status
        else:
            model.follow_skin()


def read_trace(path: Path, profile: Profile) -> Trace:
    """The recording in a file; UsageError, with one sentence, when it holds none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"--trace {path} is larger than {MOST_BYTES >> 20} MiB; cut it")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read the trace {path}: {error.strerror}") from None
    try:
        samples = _from_events(text, profile) if text.lstrip()[:1] == "{" else _from_csv(text)
    except csv.Error:
        samples = []
    if not samples:
        columns = f"t_s and any of {', '.join(NODES)}, clock:BIG (a share of the peak), status"
        raise UsageError(f"{path} holds no heat: give a session's events.jsonl, or a CSV file with columns {columns}")
    return Trace(samples)


def _from_csv(text: str) -> list[Sample]:
    samples = []
    for row in csv.DictReader(io.StringIO(text)):
        time_s = _number(row.get("t_s"))
        if time_s is None:
            continue
        sample = Sample(time_s)
        for name, cell in row.items():
            value = _number(cell)
            if value is None or name is None:
                continue
            if name in NODES:
                sample.temperature_c[NODES[name]] = value
            elif name.startswith("clock:") and name[6:] in NODES:
                sample.clock[name[6:]] = min(1.0, max(0.05, value))
            elif name == "status" and 0 <= value <= 6:
                sample.status = int(value)
        samples.append(sample)
    return [sample for sample in samples if sample.temperature_c]


def _from_events(text: str, profile: Profile) -> list[Sample]:
    dies = {policy.name: policy.die for policy in profile.policies}
    samples = []
    for line in text.splitlines():
        if '"heat"' not in line:
            continue
        try:
            event = json.loads(line)
        except ValueError:  # a torn line
            continue
        if isinstance(event, dict) and event.get("k") == "heat":
            sample = _from_event(event, dies)
            if sample is not None:
                samples.append(sample)
    return samples


def _from_event(event: dict[str, Any], dies: dict[str, str]) -> Sample | None:
    time_s, zones = _number(event.get("t")), event.get("zones")
    if time_s is None:
        return None
    named = [*(zones.items() if isinstance(zones, dict) else ()), ("skin", event.get("skin_c"))]
    sample = Sample(time_s)
    for name, cell in named:
        value = _number(cell)
        if name in NODES and value is not None:
            sample.temperature_c[NODES[name]] = value
    clocks, caps = event.get("clocks_khz"), event.get("caps_khz")
    for policy, die in dies.items():
        pair = clocks.get(policy) if isinstance(clocks, dict) else None
        cap = _number(caps.get(policy)) if isinstance(caps, dict) else None
        most = _number(pair[1]) if isinstance(pair, list) and len(pair) == 2 else None
        if cap and most:
            sample.clock[die] = min(1.0, max(0.05, cap / most))
    status = event.get("status")
    if isinstance(status, int) and 0 <= status <= 6:
        sample.status = status
    return sample if sample.temperature_c else None


def _number(cell: object) -> float | None:
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and not isinstance(cell, bool) else None
