"""A realistic stream of events without any phone, for developing and testing the screen; run it to grow a journal."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL, RECORD, reduce_events
from mtplab.session.identity import Identity, Policy
from mtplab.session.journal import JournalWriter
from mtplab.session.record import record_of, write_record
from mtplab.tui import texts
from mtplab.tui.view import View

STAGES = ["freeze", "export", "align", "quantise", "acceptance", "push", "bench", "measure", "conclude"]
COUNTS = [40, 22, 16, 30]
IDENTITY = Identity(
    device_model="Pixel 9 Pro",
    os_version="16",
    aicore_version="0.release.20260601.RC11",
    quantisation="mixed",
    gamma=3,
    temperature=0.0,
    simulated=True,
    scenario="normal",
    soc="Tensor G4",
    model="tiny",
    head="token_conditioned",
)
FACTS = {
    "model": ev.Fact(value="Pixel 9 Pro", source="getprop ro.product.model"),
    "aicore_version": ev.Fact(value="0.release.20260601.RC11", source="dumpsys package"),
    "skin_thresholds_c": ev.Fact(value="nan,39,43,45,47,51.5,56", source="dumpsys thermalservice"),
    "battery_level_percent": ev.Fact(value=84, source="dumpsys battery"),
    "battery_temperature_c": ev.Fact(value=31.2, source="dumpsys battery"),
    "charging": ev.Fact(value="usb", source="dumpsys battery"),
    "gpu_driver": ev.Fact(value=None, reason="the build hides it"),
}


def heat_events(t0: float, seconds: float, hz: float = 2.0) -> list[ev.Event]:
    """A phone that warms towards LIGHT."""
    found: list[ev.Event] = []
    for i in range(int(seconds * hz)):
        s = i / hz
        skin = 33.0 + 7.0 * (1 - math.exp(-s / 60))
        load = 1.0 if s > 20 else 0.2
        zones: dict[str, float | None] = {
            "BIG": skin + 8 + 24 * load + 2 * math.sin(s / 3),
            "MID": skin + 6 + 12 * load,
            "LITTLE": skin + 4 + 5 * load,
            "G3D": skin + 3 + 8 * load,
            "TPU": skin + 3,
            "battery": skin - 6,
            "usb_pwr_therm": None,
        }
        found.append(
            ev.Heat(
                t=t0 + s,
                zones={k: None if v is None else round(v, 1) for k, v in zones.items()},
                skin_c=round(skin, 1),
                status=1 if skin > 39 else 0,
                headroom=round(skin / 45, 2),
                clocks_khz={
                    "BIG": (2_200_000, 3_105_000),
                    "MID": (2_300_000, 2_600_000),
                    "LITTLE": (1_950_000, None),
                },
            )
        )
    return found


def log_events(t: float, log: str, requested: str, verdict: str, *, lines: int = 60) -> list[ev.Event]:
    """One benchmark log with its provisional and final verdicts."""
    k, n = {"partial": (41, 44), "full_delegate": (44, 44)}.get(verdict, (None, None))
    found: list[ev.Event] = [
        ev.LogOpened(t=t, log=log, graph="mtp_head_int8.tflite", requested=requested, command="benchmark_model …")
    ]
    for i in range(1, lines + 1):
        text = f"INFO: inference {i} took {5100 + 7 * (i % 13)} us"
        if i == 7 and k is not None:
            text = (
                f"Replacing {k} out of {n} node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 2 partitions."
            )
        found.append(ev.LogLine(t=t + i * 0.1, log=log, n=i, text=text))
        if i == 8 or i == lines:
            evidence = [ev.Evidence(line=7, text="Replacing 41 out of 44 node(s) …", rule="replacing")] if k else []
            found.append(
                ev.VerdictReached(
                    t=t + i * 0.1,
                    log=log,
                    graph="mtp_head_int8.tflite",
                    requested=requested,
                    verdict=verdict,
                    provisional=i != lines,
                    complete=i == lines,
                    delegated_nodes=k,
                    total_nodes=n,
                    partitions=2 if k else None,
                    reason="GATHER_ND: not supported" if verdict == "partial" else None,
                    cure="Keep GATHER_ND out of the graph or ask for the CPU." if verdict == "partial" else None,
                    evidence=evidence,
                    figures={"inference_avg_us": 5140.2, "init_us": 91_000},
                )
            )
    return found


def _figure(value: float, low: float, high: float, unit: str = "", n: int = 5) -> ev.Figure:
    return ev.Figure(value=value, low=low, high=high, n=n, unit=unit, evidence="rounds")


def measured_events(t: float) -> list[ev.Event]:
    """Five interleaved rounds, one of them hot, the figures and the conclusion."""
    found: list[ev.Event] = []
    for i in range(5):
        for j, name in enumerate(("mtp-off", "mtp-on")):
            found.append(
                ev.RoundMeasured(
                    t=t + 2 * i + j,
                    configuration=name,
                    index=i + 1,
                    order=2 * i + j,
                    marks=["began-hot"] if i == 4 else [],
                    skin_before_c=38.0,
                    skin_max_c=39.2,
                    skin_after_c=39.0,
                )
            )
    on = {
        "ttft_ms": _figure(212, 205, 219, "ms"),
        "tpot_ms": _figure(8.1, 7.9, 8.4, "ms"),
        "tokens_per_s": _figure(118, 115, 121, "tok/s"),
        "alpha": _figure(0.643, 0.58, 0.70, n=170),
    }
    off = {
        "ttft_ms": _figure(210, 204, 216, "ms"),
        "tpot_ms": _figure(9.9, 9.7, 10.2, "ms"),
        "tokens_per_s": _figure(98, 96, 100, "tok/s"),
        "alpha": ev.Figure(value=None, reason="drafts nothing"),
    }
    found.append(ev.ConfigurationMeasured(t=t + 11, name="mtp-off", figures=off))
    found.append(ev.ConfigurationMeasured(t=t + 11, name="mtp-on", figures=on, counts=COUNTS))
    found.append(
        ev.Concluded(
            t=t + 12,
            text="The head pays for templated text and costs in open-ended chat.",
            scenarios=[
                {"class": "templated", "says": "pays", "speedup": 1.31},
                {"class": "chat", "says": "costs", "speedup": 0.94},
            ],
            predicted={"draft_cost": 0.056, "verify_cost": 1.5, "speedup": 1.27},
        )
    )
    return found


def whole_run(t0: float = 1000.0, *, gpu: str = "partial", log_lines: int = 60, facts: bool = True) -> list[ev.Event]:
    """A whole simulated run of about two minutes, sorted by time."""
    found: list[ev.Event] = [
        ev.DeviceSeen(t=t0, identity=IDENTITY, facts=FACTS if facts else {}),
        ev.LinkChanged(t=t0, state="connected"),
        ev.RunStarted(
            t=t0 + 5,
            run="run-1",
            stages=STAGES,
            policy=Policy(),
            model="tiny",
            head="token_conditioned",
            recipe="mixed",
        ),
    ]
    t = t0 + 5.0
    for name in STAGES:
        seconds = {"bench": 24.0, "measure": 40.0, "export": 0.1}.get(name, 4.0)
        found.append(ev.StageChanged(t=t, name=name, status="running"))
        for i in range(1, 11):
            left = seconds * (1 - i / 10)
            found.append(
                ev.StageProgress(t=t + seconds * i / 10.5, name=name, done=i * 5, total=50, unit="runs", eta_s=left)
            )
        if name == "bench":
            found += log_events(t + 1, "bench-cpu", "cpu", "cpu_baseline", lines=log_lines)
            found += log_events(t + 12, "bench-gpu", "gpu", gpu, lines=log_lines)
        if name == "measure":
            found += measured_events(t + 20)
        t += seconds
        found.append(ev.StageReport(t=t, name=name, figures={}, summary=f"{name} is as it should be"))
        status: ev.StageStatus = "cached" if name == "export" else "done"
        found.append(ev.StageChanged(t=t, name=name, status=status, seconds=seconds))
    found.append(ev.RunEnded(t=t, run="run-1", outcome="done", exit_code=3))
    found.append(ev.Throttled(t=t0 + 58, began=True, evidence="status LIGHT"))
    found.append(ev.Marker(t=t0 + 70, label="window opened"))
    found += heat_events(t0, t - t0 + 5)
    return sorted(found, key=lambda e: e.t)


def view_of(events: list[ev.Event], phase: str = "live", **more: object) -> View:
    """A view of what some events reduce to."""
    trail = [e for e in events if isinstance(e, ev.Heat)][-120:]
    state = reduce_events(events)
    return View(state=state, phase=phase, t0=events[0].t, trail=trail, **more)  # type: ignore[arg-type]


def plain(rows: object, width: int = 200) -> str:
    """Rows of styled parts as plain text."""
    return texts.lines(rows, width).plain  # type: ignore[arg-type]


def header(t0: float = 1000.0, session: str = "20261129T101500Z-pixel-9-pro-demo") -> ev.Header:
    """The header that belongs to a synthetic stream."""
    return ev.Header(schema=ev.SCHEMA, session=session, created_utc="2026-11-29T10:15:00+00:00", t0=t0)


def write_session(folder: Path, events: list[ev.Event], *, sealed: bool = True) -> Path:
    """Write a session folder holding `events`, with its record unless told otherwise."""
    t0 = events[0].t if events else 1000.0
    head = header(t0, folder.name)
    writer = JournalWriter(folder / JOURNAL, head)
    for event in events:
        writer.append(event)
    sha256 = writer.close()
    if sealed:
        write_record(folder / RECORD, record_of(reduce_events(events), head, events_sha256=sha256))
    return folder


def grow(folder: Path, events: list[ev.Event], speed: float = 1.0) -> None:
    """Write `events` as time goes by, `speed` times faster than they happened."""
    writer = JournalWriter(folder / JOURNAL, header(events[0].t, folder.name))
    began = time.monotonic()
    for event in events:
        wait = (event.t - events[0].t) / speed - (time.monotonic() - began)
        if wait > 0.01:
            writer.tick()
            time.sleep(wait)
        writer.append(event)
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--gpu", default="partial")
    parser.add_argument("--at-once", action="store_true")
    args = parser.parse_args()
    stream = whole_run(time.monotonic(), gpu=args.gpu)
    if args.at_once:
        write_session(args.folder, stream)
    else:
        grow(args.folder, stream, args.speed)
