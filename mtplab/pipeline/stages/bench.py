"""Bench: run every signature on the phone, on the CPU and on each accelerator asked for, and read the logs live."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.benchlog.reading import Finding, Reading
from mtplab.device import paths
from mtplab.device.binaries import Tool, look_at, push_binary
from mtplab.device.errors import CommandFailed, DeviceError
from mtplab.device.npu import read_count
from mtplab.device.tools import BenchmarkCommand, BenchmarkOptions, InputFile, Requested, benchmark_command
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageFailed
from mtplab.pipeline.stages.bench_findings import (
    compare_outputs,
    compare_times,
    initialisations,
    same_time_text,
    weigh_npu_count,
)
from mtplab.pipeline.stages.bench_log import Followed, Job, follow
from mtplab.session import events as ev

_ROW_FIGURES = (
    "verdict", "reason", "delegated_nodes", "total_nodes", "partitions", "inference_avg_us", "inference_median_us",
    "inference_std_us", "inference_p5_us", "inference_p95_us", "inference_runs", "warmup_runs", "init_us", "first_us",
    "cold_init", "peak_memory_bytes", "exit_code",
)  # fmt: skip
_PROFILE_ROWS = 20


def jobs(signatures: dict[str, list[str]], accelerators: Sequence[Requested], rounds: int) -> list[Job]:
    """Accelerators alternate on every graph, and turn about in every other round, so that heat meets all alike.

    Each job has a process of its own: a failed attempt at an accelerator slows what the same process does later.
    """
    return [
        Job(artefact, signature, accelerator, number)
        for number in range(rounds)
        for artefact, names in signatures.items()
        for signature in names
        for accelerator in (accelerators if number % 2 == 0 else tuple(reversed(accelerators)))
    ]


def deployed(signatures: Sequence[str], gamma: int) -> list[str]:
    """Without the signatures of draft lengths that are exported and not measured."""
    return [name for name in signatures if name.partition("_")[0] not in ("verify", "draft") or _fits(name, gamma)]


def _fits(signature: str, gamma: int) -> bool:
    return signature.partition("_")[2] in ("", str(gamma))


def run(context: DeviceContext) -> Outcome:
    """Bench every signature of the pushed graphs; a log with fewer runs than asked fails the stage."""
    return _Bench(context).run()


class _Bench:
    """One pass of the stage: the tool, the rows so far, and the verdicts as they were told."""

    def __init__(self, context: DeviceContext) -> None:
        self._context, self._options = context, context.options
        self._rows: list[dict[str, Any]] = []
        self._told: dict[str, ev.VerdictReached] = {}
        self._left_out: set[str] = set()
        self._cache_dir = f"{paths.DELEGATE_CACHE_DIR}/{context.logs.name}"
        self._output_dir = f"{paths.OUTPUTS_DIR}/{context.logs.name}"

    def run(self) -> Outcome:
        context, options = self._context, self._options
        self._tool = self._find_tool()
        todo = self._todo()
        for job in todo:
            self._command(job)  # what this tool cannot be asked is refused before anything runs
        began = time.monotonic()
        try:
            context.link.run(["mkdir", "-p", self._cache_dir, self._output_dir], check=True)
            for index, job in enumerate(todo):
                context.check_cancelled()
                context.progress("bench", index, len(todo), "logs", f"{job.graph} on {job.requested}", began)
                self._rows.append(self._bench(index, job))
            context.progress("bench", len(todo), len(todo), "logs")
            numerics = self._numerics()
        finally:
            with contextlib.suppress(DeviceError):
                context.link.run(["rm", "-rf", self._cache_dir, self._output_dir])
        comparisons = compare_times(self._rows)
        self._doubt(comparisons, numerics)
        figures = {
            "tool": _tool_figures(self._tool, self._left_out),
            "runs": self._rows,
            "comparisons": comparisons,
            "initialisation": initialisations(self._rows),
            "numerics": numerics,
        }
        short = short_run(self._rows, options.bench_runs, options.warmup_runs)
        if short is not None:
            raise StageFailed(short, figures)
        return Outcome(figures, self._summary())

    # -- what to run ----------------------------------------------------------
    def _find_tool(self) -> Tool:
        """The binary named on the host, pushed by its hash, or the one on the phone; looked at before it runs.

        One tool serves all accelerators, so that their times can be compared; only LiteRT's can ask an NPU.
        """
        context, given = self._context, self._options.benchmark_binary
        path = push_binary(context.link, Path(given)) if given else paths.BENCHMARK_MODEL
        tool = look_at(context.link, path, simulated=context.simulated)
        if not given and "npu" in self._options.accelerators and not tool.knows("use_npu"):
            with contextlib.suppress(CommandFailed):
                tool = look_at(context.link, paths.BENCHMARK_LITERT_MODEL, simulated=context.simulated)
        kind = tool.kind or "a tool that does not tell its flags, run as benchmark_model"
        text = f"{tool.path}: {kind}, {tool.machine or 'a script'}, sha256 {(tool.sha256 or '')[:12]}, {tool.origin}"
        unknown = tool.release is None and not context.simulated
        context.post(ev.Message(t=time.monotonic(), text=text, level="warning" if unknown else "info"))
        return tool

    def _todo(self) -> list[Job]:
        exported = self._context.figures["export"]
        signatures = {
            graph: deployed(exported[f"{graph}_signatures"], self._options.gamma) for graph in ("head", "backbone")
        }
        todo = jobs(signatures, self._options.accelerators, self._options.bench_rounds)
        if self._options.op_profile:  # in processes of their own: the profiler costs time
            todo += [msgspec.structs.replace(job, purpose="profiled") for job in todo if job.round == 0]
        return todo

    def _command(self, job: Job) -> BenchmarkCommand:
        options, pushed = self._options, self._context.pushed
        graph = pushed[job.artefact]
        content = graph.rpartition("-")[2].removesuffix(".tflite")
        timed = job.purpose == "timed"
        command = benchmark_command(
            BenchmarkOptions(
                graph=graph,
                requested=job.requested,
                signature=job.signature,
                threads=options.threads,
                warmup_runs=options.warmup_runs,
                runs=options.bench_runs,
                gpu_precision=options.gpu_precision,
                inputs=self._inputs(job),
                op_profiling=not timed,
                core_mask=options.core_mask,
                cache_dir=self._cache_dir if timed else None,
                cache_token=f"{job.artefact}-{job.signature}-{content}",
                dispatch_dir=options.dispatch_dir or paths.TMP,
                output_file=self._output(job) if options.check_numerics and timed else None,
            ),
            self._tool,
        )
        self._left_out.update(command.left_out)
        return command

    def _inputs(self, job: Job) -> tuple[InputFile, ...]:
        """Real inputs of this signature, in its own order, from where the push stage brought them."""
        rows = self._context.figures["acceptance"]["bench_inputs"][job.graph]
        return tuple(
            InputFile(row["name"], tuple(row["shape"]), self._context.pushed[row["artefact"]]) for row in rows
        )

    def _output(self, job: Job) -> str:
        return f"{self._output_dir}/{job.artefact}-{job.signature}-{job.requested}.bin"

    # -- running --------------------------------------------------------------
    def _bench(self, index: int, job: Job) -> dict[str, Any]:
        context = self._context
        command = self._command(job)
        count = read_count(context.link) if job.requested == "npu" else None

        def revise(reading: Reading) -> Reading:
            if count is not None:
                reading = weigh_npu_count(reading, count, read_count(context.link))
            if command.real_inputs or reading.verdict in ("failed", "crash"):
                return reading
            text = "this tool took no inputs and ran on random bytes: its times are not those of real positions"
            return msgspec.structs.replace(
                reading, findings=(*reading.findings, Finding(None, text, "random-inputs"))
            )

        followed = follow(context, job, f"bench-{index:02d}", command.words, revise)
        self._told[followed.log] = followed.told
        return self._row(job, followed, command)

    def _row(self, job: Job, followed: Followed, command: BenchmarkCommand) -> dict[str, Any]:
        reading = followed.reading
        row: dict[str, Any] = {
            "graph": job.graph,
            "requested": job.requested,
            "round": job.round,
            "purpose": job.purpose,
            "log": followed.log,
            "command": shlex.join(command.words),
            **{name: getattr(reading, name) for name in _ROW_FIGURES},
            "evidence": reading.evidence[0].text if reading.evidence else None,
            "findings": [finding.text for finding in reading.findings],
            "seconds": round(followed.seconds, 3),
            "proof": followed.proof,
            "real_inputs": command.real_inputs,
            "clocks": clocks_text(self._context.heat()),
        }
        if job.purpose == "profiled":
            ops = sorted(reading.op_profile, key=lambda op: -op.avg_ms)[:_PROFILE_ROWS]
            row["op_profile"] = msgspec.to_builtins(ops)
        return row

    # -- what the logs say together ---------------------------------------------
    def _numerics(self) -> list[dict[str, Any]]:
        """Outputs of each accelerator against the CPU's, where asked for and where the tool can write them."""
        if not self._options.check_numerics:
            return []
        found = []
        link = self._context.link
        for row in self._rows:
            if row["requested"] == "cpu" or row["round"] or row["purpose"] != "timed":
                continue
            artefact, _, signature = row["graph"].partition("/")
            try:
                cpu, other = (
                    link.pull(self._output(Job(artefact, signature, requested)))
                    for requested in ("cpu", row["requested"])
                )
                result = compare_outputs(cpu, other)
            except DeviceError as error:
                result = {"values": None, "not_finite": None, "relative": None, "text": None, "reason": str(error)}
            found.append({"graph": row["graph"], "requested": row["requested"], "log": row["log"], **result})
        return found

    def _doubt(self, comparisons: list[dict[str, Any]], numerics: list[dict[str, Any]]) -> None:
        """Put findings that need several logs beside the verdicts they are about."""
        for comparison in comparisons:
            text = same_time_text(comparison, self._rows, self._context.simulated)
            comparison["text"] = text
            if text is not None:
                self._add_finding(comparison["graph"], comparison["requested"], text, self._context.simulated)
        for result in numerics:
            if result["text"] is not None:
                self._add_finding(result["graph"], result["requested"], result["text"], False)

    def _add_finding(self, graph: str, requested: str, text: str, quiet: bool) -> None:
        now = time.monotonic()
        for row in self._rows:
            if (row["graph"], row["requested"]) == (graph, requested):
                row["findings"].append(text)
                told = self._told[row["log"]]
                self._told[row["log"]] = msgspec.structs.replace(told, t=now, findings=[*told.findings, text])
                self._context.post(self._told[row["log"]])
        if not quiet:
            self._context.post(ev.Message(t=now, text=f"{graph} on {requested}: {text}", level="warning"))

    def _summary(self) -> str:
        parts = []
        for accelerator in self._options.accelerators:
            verdicts = sorted({row["verdict"] for row in self._rows if row["requested"] == accelerator})
            parts.append(f"{accelerator}: {', '.join(verdicts)}")
        return " · ".join(parts)


def clocks_text(heat: ev.Heat | None) -> str | None:
    """The clocks of a sample as `name current/maximum MHz`; None where none was read."""
    known = [
        f"{name} {now / 1e3:.0f}/{'?' if most is None else f'{most / 1e3:.0f}'} MHz"
        for name, (now, most) in (heat.clocks_khz.items() if heat else ())
        if now is not None
    ]
    return ", ".join(known) or None


def _tool_figures(tool: Tool, left_out: set[str]) -> dict[str, Any]:
    return {
        "path": tool.path,
        "kind": tool.kind,
        "sha256": tool.sha256,
        "machine": tool.machine,
        "release": tool.release,
        "origin": tool.origin,
        "flags_told": bool(tool.flags),
        "flags_left_out": sorted(left_out),
    }


def short_run(rows: list[dict[str, Any]], asked: int, warmup: int) -> str | None:
    """The sentence about the first log with fewer runs than asked, counted from the log: time limits cut them."""
    for row in rows:
        counts = ((row["warmup_runs"], warmup, "warm-up"), (row["inference_runs"], asked, "measured"))
        for made, wanted, what in counts:
            if row["verdict"] in ("failed", "crash") or (made is not None and made >= wanted):
                continue
            seen = f"no {what} run" if made is None else f"{made} {what} runs"
            return (
                f"The log of {row['graph']} on {row['requested']} shows {seen} where {wanted} were asked for; "
                "a time limit or the phone cut it short: read its log and run the stage again."
            )
    return None
