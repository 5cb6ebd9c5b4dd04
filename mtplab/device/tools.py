"""Command lines of the programs that run on the phone; what each flag must be is decided here and nowhere else."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from mtplab.device import paths
from mtplab.device.binaries import Tool
from mtplab.device.errors import CommandFailed

Requested = Literal["cpu", "gpu", "npu"]
ACCELERATORS: tuple[Requested, ...] = ("cpu", "gpu", "npu")
MIN_WARMUP_RUNS, MIN_RUNS = 10, 50
MAX_SECS = 300.0


class InputFile(msgspec.Struct, frozen=True):
    """A real input of a graph: tensor name, static shape, and the file on the phone with its raw bytes."""

    name: str
    shape: tuple[int, ...]
    path: str


class BenchmarkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run of either benchmark tool (flags: LiteRT's tflite/tools/benchmark and litert/tools).

    The counts rule, not the clock: the minimum times are zero and `max_secs` only ends a run that hangs, so a log
    with fewer runs than asked was cut short. `inputs` must name every input of the signature, in its order, or be
    empty (then the tool feeds random bytes, which is no measurement of a model with positions and masks).
    `cache_token` names the compiled form of one graph in `cache_dir`; without both, every start is a cold one.
    """

    graph: str
    requested: Requested = "cpu"
    signature: str | None = None
    threads: int = 4
    warmup_runs: int = MIN_WARMUP_RUNS
    runs: int = MIN_RUNS
    max_secs: float = MAX_SECS
    gpu_precision: Literal["fp16", "fp32"] | None = None
    require_full_delegation: bool = False
    inputs: tuple[InputFile, ...] = ()
    op_profiling: bool = False
    core_mask: str | None = None
    cache_dir: str | None = None
    cache_token: str | None = None
    dispatch_dir: str | None = None
    output_file: str | None = None


class BenchmarkCommand(msgspec.Struct, frozen=True):
    """An argument list (unquoted: `Link` quotes it) and what was wished for but is no flag of this tool."""

    words: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    real_inputs: bool = False


def benchmark_command(options: BenchmarkOptions, tool: Tool | None = None) -> BenchmarkCommand:
    """The command for the tool at hand, with flags that it knows; a Tool of its own kind where none is given.

    CommandFailed if the options cannot be measured with, or the tool cannot ask for the accelerator at all.
    """
    tool = tool or Tool()
    _check(options, tool)
    litert = tool.kind == "benchmark_litert_model"
    wishes = [*_common(options), *(_litert(options) if litert else _classic(options))]
    known = [wish for wish in wishes if wish.needed or tool.knows(wish.flag)]
    left_out = tuple(dict.fromkeys(wish.flag for wish in wishes if wish not in known))
    # Given in part, inputs would be refused: all their flags or none.
    if any(flag.startswith("input_layer") for flag in left_out):
        known = [wish for wish in known if not wish.flag.startswith("input_layer")]
    words = [f"--{wish.flag}={wish.value}" for wish in known]
    before = [*_libraries(options, tool), *_affinity(options.core_mask)]
    real = any(wish.flag == "input_layer_value_files" for wish in known)
    return BenchmarkCommand((*before, tool.path, *words), left_out, real)


def _check(options: BenchmarkOptions, tool: Tool) -> None:
    if options.warmup_runs < MIN_WARMUP_RUNS or options.runs < MIN_RUNS:
        raise CommandFailed(
            f"benchmark_model needs at least {MIN_WARMUP_RUNS} warm-up runs and {MIN_RUNS} runs to be evidence: "
            f"{options.warmup_runs} and {options.runs} were asked for."
        )
    if options.threads < 1:
        raise CommandFailed(f"benchmark_model needs at least one thread, not {options.threads}.")
    if options.core_mask is not None and not re.fullmatch(r"[0-9a-fA-F]{1,16}", options.core_mask):
        raise CommandFailed(f"A core mask is a hexadecimal number such as f0, not {options.core_mask!r}.")
    asks = {"npu": "use_npu", "gpu": "use_gpu", "cpu": ""}[options.requested]
    if asks and (not tool.knows(asks) or (asks == "use_npu" and tool.kind != "benchmark_litert_model")):
        raise CommandFailed(
            f"{tool.path} has no --{asks}, so it cannot ask the {options.requested.upper()}: "
            "give LiteRT's benchmark_litert_model with --benchmark-binary, or leave that accelerator out."
        )


class _Wish(msgspec.Struct, frozen=True):
    """A flag; one that is needed is given even to a tool that did not tell it, and the log shows what came of it."""

    flag: str
    value: str
    needed: bool = False


def _common(options: BenchmarkOptions) -> Iterator[_Wish]:
    yield _Wish("graph", options.graph, True)
    yield _Wish("num_threads", str(options.threads), True)
    yield _Wish("warmup_runs", str(options.warmup_runs), True)
    yield _Wish("warmup_min_secs", "0", True)
    yield _Wish("num_runs", str(options.runs), True)
    yield _Wish("min_secs", "0", True)
    yield _Wish("max_secs", f"{options.max_secs:g}", True)
    yield _Wish("use_gpu", _boolean(options.requested == "gpu"), True)
    if options.signature is not None:
        yield _Wish("signature_to_run_for", options.signature, True)
    if options.require_full_delegation:
        yield _Wish("require_full_delegation", "true", True)
    yield from _input_wishes(options.inputs)
    if options.output_file is not None:
        yield _Wish("output_filepath", options.output_file)


def _classic(options: BenchmarkOptions) -> Iterator[_Wish]:
    yield _Wish("use_xnnpack", _boolean(options.requested == "cpu"))
    if options.requested == "gpu":
        if options.gpu_precision is not None:
            yield _Wish("gpu_precision_loss_allowed", _boolean(options.gpu_precision == "fp16"))
        if options.cache_dir and options.cache_token:
            yield _Wish("delegate_serialize_dir", options.cache_dir)
            yield _Wish("delegate_serialize_token", options.cache_token)
    if options.op_profiling:
        yield _Wish("enable_op_profiling", "true")


def _litert(options: BenchmarkOptions) -> Iterator[_Wish]:
    # Left on, the CPU would be beside every other accelerator, and a missing library would measure it in silence.
    yield _Wish("use_cpu", _boolean(options.requested == "cpu"), True)
    if options.requested == "npu":
        yield _Wish("use_npu", "true", True)
        if options.dispatch_dir:
            yield _Wish("dispatch_library_path", options.dispatch_dir, True)
        if options.cache_dir:
            yield _Wish("compiler_cache_path", options.cache_dir)
    if options.requested == "gpu":
        if options.gpu_precision is not None:
            yield _Wish("allow_fp16", _boolean(options.gpu_precision == "fp16"))
        if options.cache_dir and options.cache_token:
            yield _Wish("gpu_serialization_dir", options.cache_dir)
            yield _Wish("gpu_model_cache_key", options.cache_token)
    if options.op_profiling:
        yield _Wish("use_profiler", "true")


def _input_wishes(inputs: Sequence[InputFile]) -> Iterator[_Wish]:
    if not inputs:
        return
    for given in inputs:
        if any(mark in given.path for mark in ",:") or "," in given.name:
            raise CommandFailed(f"benchmark_model cannot read {given.name!r} from {given.path!r}: no , or : there.")
    yield _Wish("input_layer", ",".join(given.name for given in inputs))
    yield _Wish("input_layer_shape", ":".join(",".join(map(str, given.shape)) for given in inputs))
    yield _Wish("input_layer_value_files", ",".join(f"{_escaped(given.name)}:{given.path}" for given in inputs))


def _libraries(options: BenchmarkOptions, tool: Tool) -> list[str]:
    """LiteRT loads its accelerators from libraries, which lie beside the program or where the dispatch library is."""
    if tool.kind != "benchmark_litert_model" or options.requested == "cpu":
        return []
    folders = dict.fromkeys(filter(None, [posixpath.dirname(tool.path), options.dispatch_dir, paths.TMP]))
    return ["env", f"LD_LIBRARY_PATH={':'.join(folders)}"]


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
    classes: tuple[str, ...] = ()
    draft_length: str | None = None
    draft_lengths: tuple[int, ...] = ()
    round_costs: tuple[tuple[int, float], ...] = ()
    head_threads: int | None = None
    backend: Requested = "cpu"
    head_backend: Requested | None = None
    temperature: float = 0.0
    top_k: int | None = None
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
        *(f"--class={klass}" for klass in options.classes),
        *_runner_wishes(options),
    ]
    return [*_affinity(options.core_mask), options.binary, *flags]


def _runner_wishes(options: TokenRunnerOptions) -> Iterator[str]:
    """Flags that are given only where they say something: a runner that knows fewer can still be measured."""
    if options.mtp:
        if options.draft_length is not None:
            yield f"--draft-length={options.draft_length}"
        if options.draft_lengths:
            yield f"--draft-lengths={','.join(map(str, options.draft_lengths))}"
        if options.round_costs:
            yield f"--round-costs={','.join(f'{gamma}:{cost:.6g}' for gamma, cost in options.round_costs)}"
        if options.head_threads is not None:
            yield f"--head-threads={options.head_threads}"
        if options.head_backend is not None:
            yield f"--head-backend={options.head_backend}"
    if options.backend != "cpu":
        yield f"--backend={options.backend}"
    if options.temperature:
        yield f"--temperature={options.temperature:g}"
        if options.top_k is not None:
            yield f"--top-k={options.top_k}"


class LitertLmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt for LiteRT-LM's own program; its conversation puts the bundle's chat template around the text."""

    bundle: str
    prompt: str
    max_tokens: int
    mtp: bool = False
    threads: int = 4
    backend: Requested = "cpu"
    core_mask: str | None = None
    binary: str = paths.LITERT_LM


def litert_lm_command(options: LitertLmOptions, flags: frozenset[str] = frozenset()) -> list[str]:
    """The argument list (unquoted) for a program that has `flags`; empty where it did not tell them.

    CommandFailed where it lacks a flag that the measurement rests on: builds differ in what they take.
    """
    wishes = {
        "backend": options.backend,
        "model_path": options.bundle,
        "input_prompt": options.prompt,
        "max_output_tokens": str(options.max_tokens),
        "num_cpu_threads": str(options.threads),
        "enable_speculative_decoding": _boolean(options.mtp),
        "async": "true",
        "benchmark": "true",  # without it the program counts nothing
    }
    if "boost_performance" in flags:
        wishes["boost_performance"] = "disabled"  # the default of its benchmark mode, which nobody deploys
    missing = [name for name in wishes if flags and name not in flags and name != "async"]
    if missing:
        raise CommandFailed(
            f"{options.binary} has no --{missing[0]}, so it cannot be asked alike with MTP on and off: "
            "take the litert_lm_advanced_main of a LiteRT-LM release."
        )
    words = [f"--{name}={value}" for name, value in wishes.items() if not flags or name in flags]
    return [*_affinity(options.core_mask), options.binary, *words]
