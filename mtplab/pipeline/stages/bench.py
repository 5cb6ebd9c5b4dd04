"""Bench: run every signature on the phone, asked for CPU and asked for GPU, and read the log as it comes."""

from __future__ import annotations

import shlex
import time
from typing import Any

import msgspec

from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import Reading
from mtplab.device.errors import DeviceError
from mtplab.device.tools import BenchmarkOptions, InputFile, benchmark_command
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageCancelled, StageFailed
from mtplab.session import events as ev
from mtplab.session.text import clean_text

ACCELERATORS = ("cpu", "gpu")
# A graph whose GPU time lies this near its CPU time is worth a word, whatever the log claims.
SAME_TIME = 0.10


class Job(msgspec.Struct, frozen=True):
    """One process of `benchmark_model`: which artefact, which signature, asked of which accelerator."""

    artefact: str
    signature: str
    requested: str

    @property
    def graph(self) -> str:
        """The name under which people see it."""
        return f"{self.artefact}/{self.signature}"


def jobs(signatures: dict[str, list[str]]) -> list[Job]:
    """CPU and GPU alternate, so that heat that builds up meets both alike; each has a process of its own."""
    return [
        Job(artefact, signature, accelerator)
        for artefact, names in signatures.items()
        for signature in names
        for accelerator in ACCELERATORS
    ]


def run(context: DeviceContext) -> Outcome:
    """Bench every signature of the pushed graphs; a log with fewer runs than asked fails the stage."""
    exported = context.figures["export"]
    todo = jobs({"head": exported["head_signatures"], "backbone": exported["backbone_signatures"]})
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    for index, job in enumerate(todo):
        context.check_cancelled()
        context.progress("bench", index, len(todo), "logs", f"{job.graph} on {job.requested}", began)
        rows.append(_bench(context, index, job))
    context.progress("bench", len(todo), len(todo), "logs")
    _refuse_short_runs(rows, context.options.bench_runs)
    return Outcome({"runs": rows, "same_time": _same_times(context, rows)}, _summary(rows))


def _bench(context: DeviceContext, index: int, job: Job) -> dict[str, Any]:
    options = BenchmarkOptions(
        graph=context.pushed[job.artefact],
        signature=job.signature,
        threads=context.options.threads,
        warmup_runs=context.options.warmup_runs,
        runs=context.options.bench_runs,
        use_gpu=job.requested == "gpu",
        use_xnnpack=job.requested == "cpu",
        inputs=_inputs(context, job),
    )
    command = benchmark_command(options)
    log = f"bench-{index:02d}"
    file = f"{log}-{job.artefact}-{job.signature}-{job.requested}.txt"
    where = f"logs/{context.logs.name}/{file}"
    t, told = time.monotonic(), shlex.join(command)
    context.post(ev.LogOpened(t=t, log=log, graph=job.graph, requested=job.requested, command=told, file=where))
    reading = _read(context, job, log, file, command)
    return {
        "graph": job.graph,
        "requested": job.requested,
        "verdict": reading.verdict,
        "inference_avg_us": reading.inference_avg_us,
        "inference_median_us": reading.inference_median_us,
        "inference_std_us": reading.inference_std_us,
        "inference_runs": reading.inference_runs,
        "warmup_runs": reading.warmup_runs,
        "init_us": reading.init_us,
        "first_us": reading.first_us,
        "exit_code": reading.exit_code,
    }


def _inputs(context: DeviceContext, job: Job) -> tuple[InputFile, ...]:
    """Real inputs of this signature, in its own order, from where the push stage brought them."""
    rows = context.figures["acceptance"]["bench_inputs"][job.graph]
    return tuple(InputFile(row["name"], tuple(row["shape"]), context.pushed[row["artefact"]]) for row in rows)


def _read(context: DeviceContext, job: Job, log: str, file: str, command: list[str]) -> Reading:
    """Follow one log: onto the disk first, then through the reader, its verdict told whenever it changes."""
    reader = LogReader(job.requested)
    told: tuple[Any, ...] | None = None
    count = 0
    context.logs.mkdir(parents=True, exist_ok=True)
    with (context.logs / file).open("w", encoding="utf-8", errors="replace") as spool:
        try:
            with context.link.stream(command) as stream, context.ended_by_cancel(stream):
                for line in stream:
                    spool.write(line.text + "\n")
                    count += 1
                    news = reader.feed(line.text)
                    text, stream_name = clean_text(line.text), _stream(line.stream)
                    context.post(ev.LogLine(t=line.t, log=log, n=count, text=text, stream=stream_name))
                    if news:
                        told = _tell(context, job, log, reader.verdict(), told, provisional=True)
                exit_code = stream.wait(5.0)
            context.explain_kill(stream, f"benchmark_model ({job.graph} on {job.requested})", exit_code)
        except DeviceError as error:
            if context.cancel.is_set():
                raise StageCancelled from None
            _tell(context, job, log, reader.verdict(), told, provisional=True)
            raise StageFailed(f"The benchmark of {job.graph} on {job.requested} was cut off: {error}") from error
    reading = reader.finish(exit_code)
    _tell(context, job, log, reading, None, provisional=False)
    return reading


def _stream(name: str) -> Any:
    return name if name in ("stdout", "stderr") else "merged"


def _tell(
    context: DeviceContext, job: Job, log: str, reading: Reading, told: tuple[Any, ...] | None, *, provisional: bool
) -> tuple[Any, ...]:
    """Post the verdict where it says something new; returns what has been told."""
    news = (reading.verdict, reading.reason, reading.delegated_nodes, reading.total_nodes, provisional)
    if news == told:
        return news
    context.post(verdict_event(job, log, reading, provisional))
    if not provisional and reading.verdict not in ("full_delegate", "cpu_baseline"):
        label = f"{job.graph} asked {job.requested}: {reading.verdict}"
        context.post(ev.Marker(t=time.monotonic(), label=label, kind="verdict"))
    return news


def verdict_event(job: Job, log: str, reading: Reading, provisional: bool) -> ev.VerdictReached:
    """A reading in the session's vocabulary."""
    figures = {
        name: getattr(reading, name)
        for name in (
            "init_us", "first_us", "warmup_avg_us", "warmup_runs", "inference_avg_us", "inference_min_us",
            "inference_max_us", "inference_std_us", "inference_median_us", "inference_p95_us", "inference_runs",
            "exit_code",
        )
    }  # fmt: skip
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
        figures=figures,
    )


def _refuse_short_runs(rows: list[dict[str, Any]], asked: int) -> None:
    """Runs are counted from the log, not from the flags: time limits cut them short."""
    for row in rows:
        made = row["inference_runs"]
        if row["verdict"] in ("failed", "crash") or (made is not None and made >= asked):
            continue
        seen = "no measured run" if made is None else f"{made} runs"
        raise StageFailed(
            f"The log of {row['graph']} on {row['requested']} shows {seen} where {asked} were asked for; "
            "a time limit or the phone cut it short: read its log and run the stage again."
        )


def _same_times(context: DeviceContext, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Graphs whose GPU time is within noise of their CPU time: a finding beside the verdict, not a proof."""
    found = []
    times = {(row["graph"], row["requested"]): row["inference_median_us"] for row in rows}
    for graph in {row["graph"] for row in rows}:
        cpu, gpu = times.get((graph, "cpu")), times.get((graph, "gpu"))
        if cpu and gpu and abs(gpu / cpu - 1) < SAME_TIME:
            found.append({"graph": graph, "cpu_us": cpu, "gpu_us": gpu})
    if found and not context.simulated:
        names = ", ".join(f["graph"] for f in found)
        text = f"GPU and CPU times are the same within {SAME_TIME:.0%} for {names}: an idling governor or a fallback."
        context.post(ev.Message(t=time.monotonic(), text=text, level="warning"))
    return sorted(found, key=lambda f: f["graph"])


def _summary(rows: list[dict[str, Any]]) -> str:
    parts = []
    for accelerator in ACCELERATORS:
        verdicts = sorted({row["verdict"] for row in rows if row["requested"] == accelerator})
        parts.append(f"{accelerator}: {', '.join(verdicts)}")
    return " · ".join(parts)
