"""Puts the facts of a run and its verdict together into a reading, and chooses among the runs of one log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from .reading import Backend, Finding, LlmFigures, OpTime, Reading
from .run import OLD_DELEGATE, Run
from .verdict import Judgement, nodes_of, tool_is_classic

# Exit codes of `mtplab log`, worst first: failed or crashed, not what was requested, unknown, fine.
EXIT_CODES = {
    "crash": 4,
    "failed": 4,
    "fallback_cpu": 3,
    "partial": 3,
    "backend_downgrade": 3,
    "unknown": 5,
    "full_delegate": 0,
    "cpu_baseline": 0,
}
EXIT_ORDER = (4, 3, 5, 0)
GOOD = ("full_delegate", "cpu_baseline")


def compose(
    run: Run, requested: Backend | None, source: str | None, judged: Judgement, *, provisional: bool
) -> Reading:
    """The reading of one run."""
    warm, runs = run.measured()
    figures = run.figures
    llm = llm_figures(run)
    nodes = nodes_of(run, requested)
    # Two lines may tell of the same step, one with the total and one with the partitions.
    same = [n for n in nodes if n.delegated == nodes[0].delegated]
    delegated = nodes[0].delegated if nodes else None
    total = nodes[0].total if nodes else None
    partitions = next((n.partitions for n in same if n.partitions is not None), None)
    opsum = next(iter(run.own_opsums), None) if requested == "gpu" and not nodes else None
    if opsum:
        delegated, total = opsum.delegated, None if opsum.rest is None else opsum.delegated + opsum.rest
    asked = _whole(_number(run.setting("num_runs")))
    count = _first(figures.get("inference_runs"), runs.get("count"))
    llm_init_ms = figures.get("llm_init_total_ms")
    llm_init_us = None if llm_init_ms is None else llm_init_ms * 1000
    reading = Reading(
        tool=tool_of(run),
        requested=requested,
        requested_from=source,
        verdict=judged.verdict,
        provisional=provisional,
        reason=judged.reason,
        cause=judged.cause,
        cure=judged.cure,
        delegated_nodes=delegated,
        total_nodes=total,
        partitions=partitions,
        unsupported_ops=tuple(run.own_ops),
        init_us=_first(figures.get("init_us"), figures.get("session_us"), llm_init_us),
        first_us=_first(figures.get("first_us"), warm.get("first"), warm.get("curr")),
        warmup_avg_us=_first(figures.get("warmup_avg_us"), warm.get("avg"), warm.get("curr")),
        warmup_runs=_whole(_first(figures.get("warmup_runs"), warm.get("count"))),
        inference_avg_us=_first(figures.get("inference_avg_us"), runs.get("avg"), runs.get("curr")),
        inference_min_us=_first(figures.get("inference_min_us"), runs.get("min")),
        inference_max_us=_first(figures.get("inference_max_us"), runs.get("max")),
        inference_std_us=_first(figures.get("inference_std_us"), runs.get("std")),
        inference_p5_us=_first(figures.get("inference_p5_us"), runs.get("p5")),
        inference_median_us=_first(figures.get("inference_median_us"), runs.get("median")),
        inference_p95_us=_first(figures.get("inference_p95_us"), runs.get("p95")),
        inference_runs=_whole(count),
        runs_asked=asked,
        init_memory_bytes=_whole(figures.get("init_memory_bytes")),
        overall_memory_bytes=_whole(figures.get("overall_memory_bytes")),
        peak_memory_bytes=_whole(figures.get("peak_memory_bytes")),
        rss_bytes=_whole(figures.get("rss_bytes")),
        model_bytes=_whole(figures.get("model_bytes")),
        threads=_whole(_first(figures.get("threads"), _number(run.setting("num_threads")))),
        graph=run.setting("graph") or None,
        signature=run.signature_run,
        cold_init=run.cold_init,
        op_profile=op_profile(run),
        llm=llm,
        findings=(*run.findings.values(), *_derived(run, judged, requested, count, asked)),
        evidence=judged.evidence,
        runs_in_log=1,
        complete=run.complete,
        exit_code=run.exit_code,
    )
    if provisional or counted(reading) == reading.verdict:
        return reading
    when = "no inference was made" if reading.complete else "the log ends before any inference"
    text = f"{when}: the delegate was applied, but nothing shows that it ever ran the graph"
    cut = Finding(None, text, "cut-before-inference")
    return msgspec.structs.replace(reading, findings=(*reading.findings, cut))


def counted(reading: Reading) -> str:
    """The verdict that the exit code speaks of: a good one without any inference counts as `unknown`.

    That is a log that was cut before, or a tool that says itself that it made no runs.
    """
    llm = reading.llm or LlmFigures()
    ran = (
        reading.first_us, reading.warmup_avg_us, reading.warmup_runs, reading.inference_avg_us,
        reading.inference_runs, llm.ttft_s, llm.prefill_tok_s, llm.decode_tok_s, llm.decode_us,
    )  # fmt: skip
    none = 0 in (reading.warmup_runs, reading.inference_runs) or any(
        f.rule == "litert-no-runs" for f in reading.findings
    )
    cut = (none or not reading.complete) and not any(ran)
    return "unknown" if cut and reading.verdict in GOOD else reading.verdict


def llm_figures(run: Run) -> LlmFigures | None:
    """LiteRT-LM's totals: over the turns where it prints them, else as its shorter reports give them."""
    values: dict[str, Any] = {
        key.removeprefix("llm_"): value for key, value in run.figures.items() if key.startswith("llm_")
    }
    for phase in ("prefill", "decode", "tokenize"):
        turns = [turn for (name, _), turn in run.turns.items() if name == phase]
        if not turns:
            continue
        tokens, took_us = sum(turn.tokens for turn in turns), math.fsum(turn.us for turn in turns)
        values[f"{phase}_us"] = took_us
        if phase != "tokenize":
            values |= {f"{phase}_turns": len(turns), f"{phase}_tokens": tokens}
            if len(turns) > 1:  # a speed is printed for each turn only
                values[f"{phase}_tok_s"] = tokens / took_us * 1e6 if took_us > 0 else None
    drafted, verified = values.get("drafted_tokens"), values.get("verified_tokens")
    if "success_ratio" not in values and drafted and verified is not None:
        values["success_ratio"] = verified / drafted
    return LlmFigures(**values) if values else None


def op_profile(run: Run) -> tuple[OpTime, ...]:
    """The rows of the op profile, each with who ran it as far as the whole log tells."""
    took = {n.sign.backend for n in run.nodes if n.delegated} | {s.backend for s in run.signs if s.backend == "cpu"}
    took |= {run.rules.backend_of(row.node_type) for row in run.profile if not row.inside_delegate}
    took.discard(None)
    unnamed = None if len(took) != 1 else took == {"cpu"}  # the rows of a delegate whose name they do not bear

    def on_cpu(row: OpTime) -> bool | None:
        if row.inside_delegate or row.node_type == OLD_DELEGATE:
            return unnamed
        backend = run.rules.backend_of(row.node_type)
        return backend in (None, "cpu")

    return tuple(msgspec.structs.replace(row, on_cpu=on_cpu(row)) for row in run.profile)


def _derived(
    run: Run, judged: Judgement, requested: str | None, count: float | None, asked: int | None
) -> Iterator[Finding]:
    """Findings that follow from several lines."""
    if count is not None and asked is not None and count < asked:
        text = f"{count:.0f} measured runs stand in the log, fewer than the {asked} asked for (a time limit cut them)"
        yield Finding(None, text, "runs-fewer-than-asked")
    good = judged.verdict in GOOD
    if good and run.exit_code == 0 and count is None and "inference_avg_us" not in run.figures and not run.blocks:
        yield Finding(None, "the program ended without an error and without a figure", "no-figures")
    others = {
        f"another subgraph, {n.name}: {n.delegated} of {n.total}": n
        for n in reversed(run.other_nodes)
        if n.sign.backend == requested and n.total is not None and n.delegated < n.total
    }
    for text, n in sorted(others.items(), key=lambda item: item[1].sign.line):
        yield Finding(n.sign.line, text, "other-subgraph")
    for sign in run.signs:
        if "nodes:named" in sign.rule.unless and sign.rule.why and run.holds("nodes:named", sign):
            yield Finding(sign.line, f"about another subgraph: {sign.text}", "other-subgraph")
    rows = [row for row in op_profile(run) if not row.inside_delegate]
    cpu = [row for row in rows if row.on_cpu]
    if cpu and len(cpu) < len(rows):
        share = math.fsum(row.percent for row in cpu)
        text = f"{len(cpu)} of {len(rows)} rows of the op profile ran on the CPU, {share:.1f} % of the time"
        yield Finding(None, text, "profile-on-cpu")
    if run.fully and "cpu" in run.accelerators and len(run.accelerators) > 1:
        text = "'Fully accelerated' counts what XNNPACK takes on the CPU as well: it proves no other delegate"
        yield Finding(run.fully_sign.line if run.fully_sign else None, text, "accelerated-by-anyone")
    if requested == "nnapi" and judged.verdict == "full_delegate" and not run.is_on("disable_nnapi_cpu"):
        text = "NNAPI may itself run nodes on its CPU reference: only --disable_nnapi_cpu=true excludes that"
        yield Finding(None, text, "nnapi-cpu-allowed")


def tool_of(run: Run) -> str | None:
    """Which program speaks, by its own lines; for the runtime alone, by how its lines came."""
    streams = "stream" in run.printers
    if run.tools:
        name = max(run.tools, key=lambda tool: run.tools[tool])
        if name == "classic":  # the app prints to logcat only and never says STARTING!
            return "benchmark_model" if streams else "benchmark_model (APK)"
        return name
    if run.nodes or run.signs:
        if tool_is_classic(run) or (run.blocks and not streams):
            return "benchmark_model (APK)"
        return "app (C++ tool over adb shell)" if streams else "app"
    return None


def choose(readings: Sequence[Reading], ended: Sequence[bool]) -> Reading:
    """One reading for a log of several runs: the worst of those that ended, or of all when none did."""
    pool = [r for r, done in zip(readings, ended, strict=True) if done] or list(readings)
    chosen = min(pool, key=lambda r: EXIT_ORDER.index(EXIT_CODES[r.verdict]))
    if len(readings) == 1:
        return chosen
    at = next(i for i, r in enumerate(readings) if r is chosen)
    texts = [f"run {i + 1} of {len(readings)}: {r.verdict}" for i, r in enumerate(readings) if i != at]
    texts.insert(0, f"this is run {at + 1} of {len(readings)}")
    others = tuple(Finding(None, text, "several-runs") for text in texts)
    return msgspec.structs.replace(
        chosen,
        findings=chosen.findings + others,
        runs_in_log=len(readings),
        complete=all(r.complete for r in readings),
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdecimal() and len(text) < 16 else None
