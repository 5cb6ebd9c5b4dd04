"""What several benchmark logs say together: times that cannot be told apart, initialisations, outputs that differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from mtplab.benchlog.reading import Finding, Reading
from mtplab.device.npu import NpuCount

Row = dict[str, Any]
# 5 % and 95 % points of a normal distribution lie this many standard deviations apart.
_P5_TO_P95 = 3.29
# Half precision keeps 11 bits; sums of a deep graph lose some more. Beyond this share of the range it is no rounding.
NUMERIC_LIMIT = 0.05
# Of these verdicts the times may raise a doubt; a run that is known not to have been accelerated needs none.
_DOUBTABLE = ("full_delegate", "partial", "backend_downgrade", "unknown")


class Times(msgspec.Struct, frozen=True):
    """One graph on one accelerator: the median over its logs, and how far repeats scatter."""

    median_us: float
    noise_us: float
    logs: int


def times_of(rows: Iterable[Row]) -> Times | None:
    """Median and noise; None where no log tells both.

    The noise is the repeats' own: the scatter of single inferences within a log (from p5 and p95, which a stray
    outlier does not move), or the spread of the logs' medians where that is wider.
    """
    medians, scatters = [], []
    for row in rows:
        median = row["inference_median_us"] or row["inference_avg_us"]
        scatter = _scatter(row)
        if median and scatter is not None:
            medians.append(float(median))
            scatters.append(scatter)
    if not medians:
        return None
    noise = max(statistics.median(scatters), max(medians) - min(medians))
    return Times(statistics.median(medians), noise, len(medians))


def _scatter(row: Row) -> float | None:
    low, high, std = row["inference_p5_us"], row["inference_p95_us"], row["inference_std_us"]
    if low is not None and high is not None:
        return float(high - low) / _P5_TO_P95
    return None if std is None else float(std)


def compare_times(rows: Sequence[Row]) -> list[Row]:
    """Each graph's time on an accelerator beside its time on the CPU; `same` where noise covers the difference."""
    found = []
    timed = [row for row in rows if row["purpose"] == "timed" and row["verdict"] not in ("failed", "crash")]
    for graph in dict.fromkeys(row["graph"] for row in timed):
        own = [row for row in timed if row["graph"] == graph]
        cpu = times_of(row for row in own if row["requested"] == "cpu")
        for requested in dict.fromkeys(row["requested"] for row in own if row["requested"] != "cpu"):
            other = times_of(row for row in own if row["requested"] == requested)
            if cpu is None or other is None:
                continue
            noise = math.hypot(cpu.noise_us, other.noise_us)
            found.append(
                {
                    "graph": graph,
                    "requested": requested,
                    "cpu_us": round(cpu.median_us, 1),
                    "accelerator_us": round(other.median_us, 1),
                    "noise_us": round(noise, 1),
                    "ratio": round(other.median_us / cpu.median_us, 4),
                    "same": abs(other.median_us - cpu.median_us) <= noise,
                    "logs": min(cpu.logs, other.logs),
                }
            )
    return found


def same_time_text(comparison: Row, rows: Sequence[Row], simulated: bool) -> str | None:
    """The finding beside a verdict that the times put in doubt, with the clocks as evidence; None where none is."""
    own = [r for r in rows if (r["graph"], r["requested"]) == (comparison["graph"], comparison["requested"])]
    if not comparison["same"] or not any(row["verdict"] in _DOUBTABLE for row in own):
        return None
    name = comparison["requested"].upper()
    clocks = next((row["clocks"] for row in reversed(own) if row["clocks"]), None)
    evidence = f"clocks as its last runs ended: {clocks}" if clocks else "no clocks were read"
    text = (
        f"{name} time ({comparison['accelerator_us']:.0f} µs) and CPU time ({comparison['cpu_us']:.0f} µs) differ by "
        f"less than repeats do (±{comparison['noise_us']:.0f} µs): an idling governor, or a fallback that the log "
        f"does not show; {evidence}"
    )
    return text + (" (SIMULATED: the stand-in runs both on this host's CPU)" if simulated else "")


def initialisations(rows: Sequence[Row]) -> list[Row]:
    """Cold and warm initialisation times of each graph and accelerator, never mixed; `unsaid` where a log is mute."""
    found = []
    for key in dict.fromkeys((row["graph"], row["requested"]) for row in rows):
        sorted_in: dict[str, list[float]] = {"cold_us": [], "warm_us": [], "unsaid_us": []}
        for row in rows:
            if (row["graph"], row["requested"]) == key and row["init_us"] is not None:
                place = {True: "cold_us", False: "warm_us", None: "unsaid_us"}[row["cold_init"]]
                sorted_in[place].append(row["init_us"])
        found.append({"graph": key[0], "requested": key[1], **sorted_in})
    return found


def compare_outputs(cpu: bytes, other: bytes) -> Row:
    """The float32 outputs of one graph, CPU against accelerator; `text` says what is wrong with them, if anything."""
    text: str | None = None
    if len(cpu) != len(other) or len(cpu) % 4 or not cpu:
        text = f"the outputs have {len(other)} bytes and the CPU's {len(cpu)}: they cannot be compared"
        return {"values": None, "not_finite": None, "relative": None, "text": text}
    reference, given = (np.frombuffer(data, np.dtype("<f4")) for data in (cpu, other))
    both = np.isfinite(reference) & np.isfinite(given)
    lost = int(np.count_nonzero(np.isfinite(reference) & ~np.isfinite(given)))
    scale = float(np.abs(reference[both]).max()) if both.any() else 0.0
    apart = float(np.abs(reference[both].astype(np.float64) - given[both]).max()) if both.any() else None
    relative = None if apart is None or not scale else apart / scale
    if lost:
        text = f"{lost} of {len(given)} output values are inf or NaN where the CPU's are finite: fp16 overflows"
    elif relative is None:
        text = None if apart == 0 else "the outputs hold nothing that could be compared"
    elif relative > NUMERIC_LIMIT:
        text = (
            f"the outputs differ from the CPU's by up to {100 * relative:.3g} % of their range, more than the "
            f"{100 * NUMERIC_LIMIT:g} % that rounding explains: the accelerator computes something else"
        )
    return {"values": len(given), "not_finite": lost, "relative": relative, "text": text}


def weigh_npu_count(reading: Reading, before: NpuCount, after: NpuCount) -> Reading:
    """A full delegation to an NPU whose own counter stood still is not proven, whatever the log says."""
    if before.value is None or after.value is None:
        text = f"the NPU's own count of inferences is unknown ({before.reason or after.reason}): only the log speaks"
        return _with(reading, Finding(None, text, "npu-count-unknown"))
    moved = after.value - before.value
    if moved > 0:
        text = f"the NPU counted {moved} inferences during this run ({before.value} before, {after.value} after)"
        return _with(reading, Finding(None, text, "npu-count-moved"))
    text = f"the NPU's own count of inferences did not move ({before.value} before, {after.value} after)"
    reading = _with(reading, Finding(None, text, "npu-count-still"))
    if reading.verdict not in ("full_delegate", "partial"):
        return reading
    return msgspec.structs.replace(
        reading,
        verdict="unknown",
        reason=f"{text}, although the log claims {reading.verdict}",
        cause="the work may have run on the CPU, or this phone counts elsewhere",
        cure="compare with the CPU's time, and look at the dispatch library's own log",
    )


def _with(reading: Reading, finding: Finding) -> Reading:
    return msgspec.structs.replace(reading, findings=(*reading.findings, finding))
