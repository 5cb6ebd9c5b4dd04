"""Follow one benchmark process: its lines onto the disk, through the reader, and its verdict told as it forms."""

from __future__ import annotations

import contextlib
import shlex
import time
from array import array
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import Finding, Reading
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.shell import Stream
from mtplab.device.tools import MAX_SECS, Requested
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed, ended_when
from mtplab.session import events as ev
from mtplab.session.state import GOOD_VERDICTS
from mtplab.session.text import clean_text

# How long a phone whose cable was pulled may take to come back before its process is left to itself.
RETURN_S = 20.0
# A series of runs is silent for `max_secs` at most, and a first compilation takes its time; after that it hangs.
SILENCE_S = MAX_SECS + 180.0
_FIGURES = (
    "init_us", "first_us", "warmup_avg_us", "warmup_runs", "inference_avg_us", "inference_min_us",
    "inference_max_us", "inference_std_us", "inference_median_us", "inference_p5_us", "inference_p95_us",
    "inference_runs", "peak_memory_bytes", "exit_code",
)  # fmt: skip
Revise = Callable[[Reading], Reading]


class Job(msgspec.Struct, frozen=True):
    """One process of a benchmark tool: which artefact and signature, asked of which accelerator, and what for."""

    artefact: str
    signature: str
    requested: Requested
    round: int = 0
    purpose: Literal["timed", "profiled"] = "timed"

    @property
    def graph(self) -> str:
        """The name under which people see it."""
        return f"{self.artefact}/{self.signature}"


class Followed(msgspec.Struct, frozen=True):
    """A log that has ended: its reading, the verdict as it was told, and when its lines came (host's clock)."""

    log: str
    reading: Reading
    told: ev.VerdictReached
    seconds: float
    proof: dict[str, Any] | None
    """The proving line: number, seconds after the log began, and how long after its arrival the verdict was told."""


def follow(context: DeviceContext, job: Job, log: str, command: tuple[str, ...], revise: Revise) -> Followed:
    """Run `command` to its end, telling lines and verdicts; `revise` has the last word on the final reading.

    Raises StageCancelled, or StageFailed where the phone was lost; either way the process on the phone is ended.
    """
    return _Follower(context, job, log).run(command, revise)


class _Follower:
    def __init__(self, context: DeviceContext, job: Job, log: str) -> None:
        self._context, self._job, self._log = context, job, log
        self._reader = LogReader(job.requested)
        self._began = time.monotonic()
        self._arrivals = array("d")
        self._told: tuple[Any, ...] | None = None
        self._marked: set[str] = set()
        self._heard = self._began
        self._hung = False
        self._proofs: dict[str, dict[str, Any]] = {}

    def run(self, command: tuple[str, ...], revise: Revise) -> Followed:
        context, job = self._context, self._job
        name = f"{self._log}-{job.artefact}-{job.signature}-{job.requested}"
        where = f"logs/{context.logs.name}/{name}.txt"
        told = shlex.join(command)
        context.post(
            ev.LogOpened(
                t=self._began, log=self._log, graph=job.graph, requested=job.requested, command=told, file=where
            )
        )
        exit_code, killed = self._stream(command, name)
        reading = revise(self._reader.finish(exit_code))
        if killed is not None:
            reading = msgspec.structs.replace(reading, findings=(*reading.findings, Finding(None, killed, "killed")))
        event = self._tell(reading, provisional=False)
        assert event is not None
        proof = self._proofs.get(reading.verdict)
        return Followed(self._log, reading, event, time.monotonic() - self._began, proof)

    def _stream(self, command: tuple[str, ...], name: str) -> tuple[int, str | None]:
        """The exit code, and why the program was killed if it was.

        Every line goes onto the disk before anybody looks at it; a sidecar keeps its stream and arrival.
        """
        context = self._context
        context.logs.mkdir(parents=True, exist_ok=True)
        stream: Stream | None = None
        try:
            with (
                (context.logs / f"{name}.txt").open("w", encoding="utf-8", errors="replace") as spool,
                (context.logs / f"{name}.arrivals.tsv").open("w", encoding="ascii") as arrivals,
                context.link.stream(command) as stream,
                context.ended_by_cancel(stream),
                ended_when(stream, self._silent_too_long, min(1.0, SILENCE_S / 4)),
            ):
                arrivals.write("line\tseconds\tstream\n")
                for line in stream:
                    self._heard = line.t
                    spool.write(line.text + "\n")
                    spool.flush()
                    self._arrivals.append(line.t)
                    arrivals.write(f"{len(self._arrivals)}\t{line.t - self._began:.6f}\t{line.stream}\n")
                    self._take(line.text, line.stream, line.t)
                exit_code = stream.wait(5.0)
            what = f"benchmark_model ({self._job.graph} on {self._job.requested})"
            return exit_code, context.explain_kill(stream, what, exit_code)
        except DeviceError as error:
            if context.cancel.is_set():
                raise StageCancelled from None
            self._tell(self._reader.verdict(), provisional=True)
            left = _tidy(context, stream) if stream is not None and isinstance(error, DeviceGone) else ""
            what = f"{self._job.graph} on {self._job.requested}"
            if self._hung:
                raise StageFailed(
                    f"The benchmark of {what} printed nothing for {SILENCE_S:.0f} s and was ended: "
                    "a driver hangs there; reboot the phone, or leave that accelerator out."
                ) from None
            raise StageFailed(f"The benchmark of {what} was cut off: {error}{left}") from error

    def _silent_too_long(self) -> bool:
        self._hung = self._hung or time.monotonic() - self._heard > SILENCE_S
        return self._hung

    def _take(self, text: str, stream: str, t: float) -> None:
        news = self._reader.feed(text)
        kind: Any = stream if stream in ("stdout", "stderr") else "merged"
        self._context.post(
            ev.LogLine(t=t, log=self._log, n=len(self._arrivals), text=clean_text(text), stream=kind)
        )
        if news:
            self._tell(self._reader.verdict(), provisional=True)

    def _tell(self, reading: Reading, *, provisional: bool) -> ev.VerdictReached | None:
        """Post the verdict where it says something new, and mark the place where a bad one first stood."""
        news = (reading.verdict, reading.reason, reading.delegated_nodes, reading.total_nodes, provisional)
        if news == self._told:
            return None
        self._told = news
        event = verdict_event(self._job, self._log, reading, provisional)
        self._context.post(event)
        self._proofs.setdefault(reading.verdict, self._proof(reading, event.t))
        bad = reading.verdict not in GOOD_VERDICTS and not (provisional and reading.verdict == "unknown")
        if bad and reading.verdict not in self._marked:
            self._marked.add(reading.verdict)
            label = f"{self._job.graph} asked {self._job.requested}: {reading.verdict}"
            self._context.post(ev.Marker(t=event.t, label=label, kind="verdict"))
        return event

    def _proof(self, reading: Reading, told_t: float) -> dict[str, Any]:
        """When the line that proves it arrived; None where it rests on no line (an exit code, silence)."""
        line = reading.evidence[0].line if reading.evidence else 0
        if not 0 < line <= len(self._arrivals):
            return {"line": None, "arrived_s": None, "told_after_ms": None}
        arrived = self._arrivals[line - 1]
        return {
            "line": line,
            "arrived_s": round(arrived - self._began, 3),
            "told_after_ms": round((told_t - arrived) * 1e3, 3),
        }


def _tidy(context: DeviceContext, stream: Stream) -> str:
    """End what a pulled cable left running on the phone, once it is back; what came of it as a sentence."""
    with contextlib.suppress(DeviceError):
        context.link.wait_for_return(RETURN_S)
    if stream.cancel():
        return " The program on the phone was ended."
    return " The program may still run on the phone: replug it and end benchmark_model there."


def verdict_event(job: Job, log: str, reading: Reading, provisional: bool) -> ev.VerdictReached:
    """A reading in the session's vocabulary."""
    return ev.VerdictReached(
        t=time.monotonic(),
        log=log,
        graph=job.graph,
        requested=job.requested,
        verdict=reading.verdict,
        provisional=provisional,
        complete=reading.complete,
        delegated_nodes=reading.delegated_nodes,
        total_nodes=reading.total_nodes,
        partitions=reading.partitions,
        reason=reading.reason,
        cause=reading.cause,
        cure=reading.cure,
        evidence=[ev.Evidence(line=e.line, text=e.text, rule=e.rule) for e in reading.evidence],
        findings=[f.text for f in reading.findings],
        figures={name: getattr(reading, name) for name in _FIGURES},
    )
