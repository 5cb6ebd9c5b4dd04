"""What an engine is asked to do: which phone, which run."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from mtplab.engine.errors import EngineError

STAGES = ("freeze", "export", "align", "quantise", "acceptance", "push", "bench", "measure", "conclude")
MEASURING = ("bench", "measure", "conclude")
ACCELERATORS = ("cpu", "gpu", "npu")
GPU_PRECISIONS = ("fp16", "fp32")
HEADS = ("token_conditioned", "recurrent_residual")
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
)
_PACKAGE = Path(__file__).resolve().parents[1]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline run. `from_stage` runs that stage and those after it again even where they are cached.

    `prepare` names the settings of the phone that a measurement borrows (see `device/prepare.py`).
    The bench asks each of `accelerators` in `bench_rounds` turns; `benchmark_binary` is a file of this host.
    """

    model: str = "tiny"
    head: str = "token_conditioned"
    recipe: str = "mixed"
    head_recipe: str | None = None
    gamma: int = 3
    threads: int = 2
    output_limit: int = 48
    prompts: str = "demo"
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
    from_stage: str | None = None
    to_stage: str | None = None
    skin_limit_c: float = 37.0
    cooldown_timeout_s: float = 60.0
    prepare: str = "bench"
    prepare_required: bool = False


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One engine: a stand-in scenario or a phone's serial (None: the only one attached)."""

    standin: str | None = None
    serial: str | None = None
    standin_speed: float = 1.0
    sample_hz: float = 2.0
    keep: bool = False
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
