"""What an engine is asked to do: which phone, which run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mtplab.engine.errors import EngineError
from mtplab.session.configuration import POLICIES
from mtplab.session.identity import RUNTIMES, TOKEN_RUNNER

STAGES = (
    "freeze", "export", "align", "calibrate", "quantise", "recipes", "acceptance", "bundle",
    "push", "bench", "measure", "conclude",
)  # fmt: skip
MEASURING = ("bench", "measure", "conclude")
OPTIONAL = ("bench",)
ACCELERATORS = ("cpu", "gpu", "npu")
GPU_PRECISIONS = ("fp16", "fp32")
# What a run may be asked for, by option: lowest and highest.
BOUNDS = (
    ("gamma", 1, 8),
    ("threads", 1, 16),
    ("output_limit", 2, 400),
    ("rounds", 5, 100),
    ("warmup_runs", 10, 10_000),
    ("bench_runs", 50, 100_000),
    ("bench_rounds", 1, 100),
    ("cooldown_timeout_s", 0, 3600),
    ("skin_limit_c", 20, 60),
    ("temperature", 0, 5),
    ("seed", 0, 2**31 - 1),
    ("alpha_drop_limit", 0, 1),
    ("reconnect_s", 0, 3600),
)
_PACKAGE = Path(__file__).resolve().parents[1]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline run. `from_stage` runs that stage and those after it again even where they are cached.

    `prepare` names the settings of the phone that a measurement borrows (see `device/prepare.py`).
    `head` is a family or a file (with `head_map` where it is foreign), `prompts` and `judge_prompts` (of the
    acceptance stage) a set or a file; left out, the model's own default. `gamma` is measured; `gammas` are exported,
    and `gamma` with them.
    Beside plain decoding and `gamma` the measurement takes every length of `measure_gammas`, the adaptive `policies`,
    and the head on `head_threads` and `head_backends`; `reconnect_s` is how long a pulled cable is waited for, `skip`
    names stages of OPTIONAL that are left out. `recipes` and `head_recipes` are set beside each other in a table; the
    run fails where the lower bound of the change in α lies below minus `alpha_drop_limit`.
    `runtime` is the program that decodes on the phone; LiteRT-LM's takes a bundle, which the run then makes.
    With `calibration` (a set that `mtplab calibrate` built, or a log), or for a recipe that needs ranges, the run
    calibrates. The bench asks each of `accelerators` in `bench_rounds` turns; `benchmark_binary` is a file of this
    host.
    """

    model: str = "tiny"
    head: str | None = None
    head_map: str | None = None
    recipe: str = "mixed"
    head_recipe: str | None = None
    gamma: int = 3
    gammas: tuple[int, ...] = (1, 2, 3)
    threads: int = 2
    output_limit: int = 48
    prompts: str | None = None
    judge_prompts: str | None = None
    rounds: int = 5
    warmup_runs: int = 10
    bench_runs: int = 50
    bench_rounds: int = 2
    accelerators: tuple[str, ...] = ("cpu", "gpu")
    benchmark_binary: str | None = None
    gpu_precision: str | None = None
    dispatch_dir: str | None = None
    check_numerics: bool = False
    op_profile: bool = False
    core_mask: str | None = None
    calibration: str | None = None
    recipes: tuple[str, ...] = ()
    head_recipes: tuple[str, ...] = ()
    alpha_drop_limit: float = 0.02
    from_stage: str | None = None
    to_stage: str | None = None
    skin_limit_c: float = 37.0
    cooldown_timeout_s: float = 60.0
    prepare: str = "bench"
    prepare_required: bool = False
    measure_gammas: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    head_threads: tuple[int, ...] = ()
    head_backends: tuple[str, ...] = ()
    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0
    reconnect_s: float = 60.0
    skip: tuple[str, ...] = ()
    runtime: str = TOKEN_RUNNER


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One engine: a stand-in scenario or a phone's serial (None: the only one attached).

    `purpose` ends the name of its session.
    """

    standin: str | None = None
    serial: str | None = None
    standin_speed: float = 1.0
    sample_hz: float = 2.0
    keep: bool = False
    purpose: str | None = None
    run: RunOptions | None = None


def scenarios() -> list[str]:
    """Names of the stand-in's scenarios: they are data files beside it, so nothing is imported for them."""
    return sorted(path.stem for path in (_PACKAGE / "standin" / "scenarios").glob("*.toml"))


def recipe_names() -> tuple[str, ...]:
    """Names of the shipped recipes in their file's order, and of the user's; none where they cannot be read."""
    from mtplab.litert.errors import LiteRtError
    from mtplab.litert.recipes import recipes, user_recipes

    try:
        return (*recipes(), *user_recipes())
    except (OSError, LiteRtError):
        return ()


def check_scenario(name: str | None) -> None:
    """Refuse a scenario that does not exist; EngineError with exit code 1."""
    if name is not None and name not in scenarios():
        raise EngineError(f"The stand-in has no scenario {name!r}: {', '.join(scenarios())}.", 1)


def check_bench(options: RunOptions) -> None:
    """Refuse what no bench can be asked; EngineError with exit code 1."""
    asked = options.accelerators
    if not asked or len(set(asked)) != len(asked) or not set(asked) <= set(ACCELERATORS):
        given = ",".join(asked) or "nothing"
        raise EngineError(f"The accelerators are {', '.join(ACCELERATORS)}, each once, and not {given}.", 1)
    if options.gpu_precision not in (None, *GPU_PRECISIONS):
        raise EngineError(f"The GPU's precision is {' or '.join(GPU_PRECISIONS)}, not {options.gpu_precision}.", 1)
    if options.core_mask is not None and not re.fullmatch(r"[0-9a-fA-F]{1,16}", options.core_mask):
        raise EngineError(f"A core mask is a hexadecimal number such as f0, not {options.core_mask!r}.", 1)
    if options.benchmark_binary is not None and not Path(options.benchmark_binary).is_file():
        raise EngineError(f"There is no file {options.benchmark_binary!r}: name a benchmark_model for Android.", 1)


def check_tables(options: RunOptions) -> None:
    """Refuse a recipe that is to be set beside itself; EngineError with exit code 1."""
    for name, given in (("--recipes", options.recipes), ("--head-recipes", options.head_recipes)):
        twice = next((one for one in given if given.count(one) > 1), None)
        if twice is not None:
            raise EngineError(f"{name} names {twice} twice; name each recipe once.", 1)


def check_measure(options: RunOptions, exported: Sequence[int]) -> None:
    """Refuse what the measurement cannot be asked, `exported` being the draft lengths; EngineError, exit code 1."""
    lengths = ", ".join(map(str, exported))
    unknown = sorted({options.gamma, *options.measure_gammas} - set(exported))
    if unknown:
        raise EngineError(f"γ = {', '.join(map(str, unknown))} is not exported, only {lengths}; see --gammas.", 1)
    for name in options.policies:
        if name not in POLICIES:
            raise EngineError(f"There is no drafting policy {name!r}: {', '.join(POLICIES)}.", 1)
    if any(not 1 <= threads <= 16 for threads in options.head_threads):
        raise EngineError("The head's threads must lie in 1…16.", 1)
    for name in options.head_backends:
        if name not in ACCELERATORS:
            raise EngineError(f"There is no backend {name!r}: {', '.join(ACCELERATORS)}.", 1)
    if options.top_k is not None and not (options.temperature > 0 and options.top_k >= 1):
        raise EngineError("--top-k takes 1 or more, and only with a --temperature above 0.", 1)
    check_runtime(options)
    for name in options.skip:
        if name not in OPTIONAL:
            raise EngineError(f"The stage {name!r} cannot be left out; only {', '.join(OPTIONAL)} can.", 1)


def check_runtime(options: RunOptions) -> None:
    """Refuse what LiteRT-LM's program cannot be asked; EngineError with exit code 1."""
    if options.runtime not in RUNTIMES:
        raise EngineError(f"The runtime is {' or '.join(RUNTIMES)}, not {options.runtime!r}.", 1)
    if options.runtime == TOKEN_RUNNER:
        return
    for name in ("measure_gammas", "policies", "head_threads", "head_backends", "temperature", "seed"):
        if getattr(options, name):
            raise EngineError(
                f"--{name.replace('_', '-')} needs the token runner: a bundle has one draft length, and LiteRT-LM's "
                "program runs drafter and backbone alike and greedily. Leave it out, or --runtime litert-lm.", 1,
            )  # fmt: skip


def numbers_of(text: str | None, option: str) -> tuple[int, ...]:
    """Whole numbers out of `1,2,4`, none where `option` was not given; EngineError with exit code 1 for the rest."""
    try:
        return tuple(int(part) for part in names_in(text, option))
    except ValueError:
        raise EngineError(f"{option} takes whole numbers such as 1,2,4, not {text!r}.", 1) from None


def names_in(text: str | None, option: str) -> tuple[str, ...]:
    """Names out of `a,b`, none where `option` was not given; EngineError with exit code 1 for commas alone."""
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise EngineError(f"{option} names nothing in {text!r}; leave it out, or give what you want, such as a,b.", 1)
    return names
