"""What a log says, as values: the reading of a run, its proving lines and its findings."""

from __future__ import annotations

from typing import Literal

import msgspec

Backend = Literal["cpu", "gpu", "nnapi", "npu"]
BACKENDS: tuple[Backend, ...] = ("cpu", "gpu", "nnapi", "npu")
ACCELERATORS: tuple[Backend, ...] = ("gpu", "nnapi", "npu")
Verdict = Literal[
    "full_delegate", "partial", "backend_downgrade", "fallback_cpu", "failed", "crash", "unknown", "cpu_baseline"
]


class Evidence(msgspec.Struct, frozen=True):
    """A line that proves something: its number from 1, its clean text and the rule that knew it."""

    line: int
    text: str
    rule: str


class Finding(msgspec.Struct, frozen=True):
    """Something worth knowing beside the verdict; `line` is None when it follows from several lines."""

    line: int | None
    text: str
    rule: str


class Figure(msgspec.Struct, frozen=True):
    """One number as it was read; the unit stands in the name."""

    name: str
    value: float
    line: int


class OpTime(msgspec.Struct, frozen=True):
    """One row of the op profile; `on_cpu` is None when the log does not say who ran it."""

    node_type: str
    name: str
    avg_ms: float
    percent: float
    on_cpu: bool | None
    inside_delegate: bool = False  # a part of a delegate's own profile: its time is in the delegate's node as well


class LlmFigures(msgspec.Struct, frozen=True):
    """What LiteRT-LM reports about one conversation: totals over its turns, no stamps.

    `ttft_s` is derived by LiteRT-LM (prefill and the mean of a decoded token), not the moment of a first token.
    `success_ratio` is verified ÷ drafted tokens, the bonus token excluded: it is not α.
    """

    init_total_ms: float | None = None
    ttft_s: float | None = None
    prefill_turns: int | None = None
    prefill_tokens: float | None = None
    prefill_us: float | None = None
    prefill_tok_s: float | None = None
    decode_turns: int | None = None
    decode_tokens: float | None = None
    decode_us: float | None = None
    decode_tok_s: float | None = None
    tokenize_us: float | None = None
    drafted_tokens: float | None = None
    verified_tokens: float | None = None
    success_ratio: float | None = None
    mtp_rounds: float | None = None
    mtp_emitted_tokens: float | None = None
    mtp_drafting_us: float | None = None
    mtp_verify_us: float | None = None
    mtp_round_us: float | None = None
    plain_steps: float | None = None
    plain_step_us: float | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of one log. None means that the log does not say; times in µs, memory in bytes."""

    tool: str | None
    requested: Backend | None
    requested_from: str | None  # argument, parameters, delegate lines, failure lines, no accelerator asked
    verdict: Verdict
    provisional: bool
    reason: str | None
    cause: str | None
    cure: str | None
    delegated_nodes: int | None
    total_nodes: int | None
    partitions: int | None
    unsupported_ops: tuple[tuple[str, str], ...]
    init_us: float | None
    first_us: float | None
    warmup_avg_us: float | None
    warmup_runs: int | None
    inference_avg_us: float | None
    inference_min_us: float | None
    inference_max_us: float | None
    inference_std_us: float | None
    inference_p5_us: float | None
    inference_median_us: float | None
    inference_p95_us: float | None
    inference_runs: int | None  # counted from the log, never from the flags
    runs_asked: int | None
    init_memory_bytes: int | None
    overall_memory_bytes: int | None
    peak_memory_bytes: int | None
    rss_bytes: int | None
    model_bytes: int | None
    threads: int | None
    graph: str | None
    signature: str | None
    cold_init: bool | None  # False: the delegate was restored from its serialised cache
    op_profile: tuple[OpTime, ...]
    llm: LlmFigures | None
    findings: tuple[Finding, ...]
    evidence: tuple[Evidence, ...]
    runs_in_log: int
    complete: bool
    exit_code: int | None
