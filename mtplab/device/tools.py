"""Command lines of the programs that run on the phone; what each flag must be is decided here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mtplab.device import paths
from mtplab.device.errors import CommandFailed

MIN_WARMUP_RUNS, MIN_RUNS = 10, 50


class InputFile(msgspec.Struct, frozen=True):
    """A real input of a graph: tensor name, static shape, and the file on the phone with its raw bytes."""

    name: str
    shape: tuple[int, ...]
    path: str


class BenchmarkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run of TensorFlow Lite's `benchmark_model` (flags of its README).

    The counts rule, not the clock: the minimum times are zero and `max_secs` only ends a run that hangs, so a log
    with fewer runs than asked was cut short. `inputs` must name every input of the signature, in its order, or be
    empty (then the tool feeds random bytes, which is no measurement of a model with positions and masks).
    """

    graph: str
    signature: str | None = None
    threads: int = 4
    warmup_runs: int = MIN_WARMUP_RUNS
    runs: int = MIN_RUNS
    max_secs: float = 300.0
    use_gpu: bool = False
    use_xnnpack: bool | None = None
    gpu_precision_loss_allowed: bool | None = None
    require_full_delegation: bool = False
    inputs: tuple[InputFile, ...] = ()
    op_profiling: bool = False
    core_mask: str | None = None
    binary: str = paths.BENCHMARK_MODEL


def benchmark_command(options: BenchmarkOptions) -> list[str]:
    """The argument list (unquoted: `Link` quotes it). CommandFailed if the options cannot be measured with."""
    if options.warmup_runs < MIN_WARMUP_RUNS or options.runs < MIN_RUNS:
        raise CommandFailed(
            f"benchmark_model needs at least {MIN_WARMUP_RUNS} warm-up runs and {MIN_RUNS} runs to be evidence: "
            f"{options.warmup_runs} and {options.runs} were asked for."
        )
    if options.threads < 1:
        raise CommandFailed(f"benchmark_model needs at least one thread, not {options.threads}.")
    flags = [
        f"--graph={options.graph}",
        f"--num_threads={options.threads}",
        f"--warmup_runs={options.warmup_runs}",
        "--warmup_min_secs=0",
        f"--num_runs={options.runs}",
        "--min_secs=0",
        f"--max_secs={options.max_secs:g}",
        f"--use_gpu={_boolean(options.use_gpu)}",
    ]
    if options.signature is not None:
        flags.append(f"--signature_to_run_for={options.signature}")
    for flag, value in (
        ("use_xnnpack", options.use_xnnpack),
        ("gpu_precision_loss_allowed", options.gpu_precision_loss_allowed),
        ("require_full_delegation", options.require_full_delegation or None),
        ("enable_op_profiling", options.op_profiling or None),
    ):
        if value is not None:
            flags.append(f"--{flag}={_boolean(value)}")
    return [*_affinity(options.core_mask), options.binary, *flags, *_input_flags(options.inputs)]


def _input_flags(inputs: Sequence[InputFile]) -> list[str]:
    if not inputs:
        return []
    for given in inputs:
        if any(mark in given.path for mark in ",:") or "," in given.name:
            raise CommandFailed(f"benchmark_model cannot read {given.name!r} from {given.path!r}: no , or : there.")
    return [
        "--input_layer=" + ",".join(given.name for given in inputs),
        "--input_layer_shape=" + ":".join(",".join(map(str, given.shape)) for given in inputs),
        "--input_layer_value_files=" + ",".join(f"{_escaped(given.name)}:{given.path}" for given in inputs),
    ]


def _escaped(name: str) -> str:
    return name.replace(":", "::")  # the tool's own escape for names such as "input:0"


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _affinity(core_mask: str | None) -> list[str]:
    return ["taskset", core_mask] if core_mask else []


class TokenRunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the token runner; every path is on the phone, except under the stand-in, whose programs map them."""

    backbone: str
    tokenizer: str
    prompts: str
    head: str | None = None
    mtp: bool = False
    max_tokens: int = 48
    threads: int = 2
    warmup_prompts: int = 1
    stop_ids: tuple[int, ...] = ()
    run: str = "run"
    seed: int = 0
    core_mask: str | None = None
    binary: str = paths.TOKEN_RUNNER


def token_runner_command(options: TokenRunnerOptions) -> list[str]:
    """The argument list (unquoted: `Link` quotes it). CommandFailed if MTP is asked for without a head."""
    if options.mtp and options.head is None:
        raise CommandFailed("The token runner needs a draft head to run with MTP: name one.")
    flags = [f"--backbone={options.backbone}", f"--tokenizer={options.tokenizer}", f"--prompts={options.prompts}"]
    if options.head is not None:
        flags.append(f"--head={options.head}")
    flags += [
        f"--mtp={'on' if options.mtp else 'off'}",
        f"--max-tokens={options.max_tokens}",
        f"--threads={options.threads}",
        f"--warmup-prompts={options.warmup_prompts}",
        f"--run={options.run}",
        f"--seed={options.seed}",
        *(f"--stop-id={stop}" for stop in options.stop_ids),
    ]
    return [*_affinity(options.core_mask), options.binary, *flags]
