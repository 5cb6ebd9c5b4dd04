"""The host stages in their order, what each depends on, and what a run gives each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from mtplab.litert.recipes import DEFAULT_RECIPE, Recipe, head_recipe_for, recipe_named
from mtplab.model.files import model_files, without_heads
from mtplab.model.kinds import BUNDLED_KINDS, KINDS, no_drafter
from mtplab.model.prompts import SHIPPED, load_prompts, prompts_path
from mtplab.pipeline.cache import ArtefactRef, file_sha256
from mtplab.pipeline.choices import Choice, prompt_sets
from mtplab.pipeline.errors import PipelineError
from mtplab.session.identity import Policy

Status = Literal["done", "cached", "failed", "cancelled"]

LADDER = (1, 2, 3)
"""Draft lengths exported unless others are asked for."""


class RunParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline run is about; each stage sees only the part that it depends on."""

    model: str = "tiny"
    head: Choice = "token_conditioned"
    gamma: int = 3
    """The draft length that is measured unless another is asked for."""
    gammas: tuple[int, ...] = LADDER
    """Draft lengths to export; `gamma` is always one of them (see `ladder`)."""
    recipe: str | Recipe = DEFAULT_RECIPE
    head_recipe: str | Recipe | None = None
    """None: what the recipe itself says for a head, else the same."""
    compared_recipes: tuple[str, ...] = ()
    compared_head_recipes: tuple[str, ...] = ()
    """Recipes to set beside each other, every backbone recipe with every head recipe."""
    policy: Policy = Policy()
    measured_set: str | None = None
    """A set or a file (None: the policy's, by its name)."""
    acceptance_set: str | None = None
    """None: the model's own (see `choices.prompt_sets`)."""
    calibration: str = "calibration"
    """A log that ships, or the path of a set that `mtplab calibrate` built, or of a log in JSON Lines."""
    calibration_ranges: str = "moving_average"
    alignment_threshold: float = 0.99
    alpha_drop_limit: float = 0.02
    """The acceptance stage fails when the paired 95 % lower bound of the change in α is below minus this."""

    @property
    def ladder(self) -> tuple[int, ...]:
        """All exported draft lengths, ascending: changing γ inside it exports nothing again."""
        return tuple(sorted({*self.gammas, self.gamma}))


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ended. `seconds` is what it took, of the earlier run when cached."""

    stage: str
    status: Status
    seconds: float
    figures: dict[str, Any] = {}
    artefacts: dict[str, ArtefactRef] = {}
    records: dict[str, Any] = {}
    summary: str = ""
    reason: str | None = None
    key: str = ""


class HostStage(msgspec.Struct, frozen=True, kw_only=True):
    """One host stage. `takes` names its inputs and the stage and artefact each comes from; `may_take` those that
    are given only where their stage is part of the run.

    `parts` run one after the other in workers of their own and are cached apart: what one of them made stays made
    when another is changed, killed or fails. To the session they are one stage.
    """

    name: str
    title: str
    uses: tuple[str, ...]
    takes: dict[str, tuple[str, str]] = {}
    may_take: dict[str, tuple[str, str]] = {}
    packages: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    measuring: bool = False
    parts: tuple[HostStage, ...] = ()
    share: float = 1.0
    """Of a part: how much of the whole stage's time it takes, roughly; for the progress only."""

    @property
    def module(self) -> str:
        return f"mtplab.pipeline.stages.{self.name}"


_TORCH = ("torch", "numpy", "safetensors", "tokenizers")
_LITERT = ("ai-edge-litert", "numpy", "tokenizers")
_BACKBONE = {"backbone.json": ("freeze", "backbone.json")}
_MODEL = {**_BACKBONE, "head.json": ("freeze", "head.json")}
_FLOAT = {"backbone.tflite": ("export", "backbone.tflite"), "head.tflite": ("export", "head.tflite")}
_NAMES = {
    "backbone_modules.json": ("export", "backbone_modules.json"),
    "head_modules.json": ("export", "head_modules.json"),
}
_CONVERTER = (*_TORCH, "litert-torch", "ai-edge-litert", "litert-converter", "jax")
_EXPORTS = (
    HostStage(
        name="export_head",
        title="Export the head",
        uses=("model", "model_files", "head", "gammas"),
        takes=_MODEL,
        packages=_CONVERTER,
        share=0.12,
    ),
    HostStage(
        name="export_evaluation",
        title="Export the head for whole texts",
        uses=("model", "model_files", "head", "gammas"),
        takes=_MODEL,
        packages=_CONVERTER,
        share=0.05,
    ),
    HostStage(
        name="export_backbone",
        title="Export the backbone",
        uses=("model", "backbone_files", "gammas"),
        takes=_BACKBONE,
        packages=_CONVERTER,
        share=0.83,
    ),
)

_STATISTICS = {"statistics.json": ("calibrate", "statistics.json")}
_JUDGED = {
    "float_backbone.tflite": ("export", "backbone.tflite"),
    "float_head.tflite": ("export", "head.tflite"),
    "float_evaluation.tflite": ("export", "evaluation.tflite"),
    **_NAMES,
    "evaluation_modules.json": ("export", "evaluation_modules.json"),
    "tokenizer.json": ("freeze", "tokenizer.json"),
    "model.json": ("freeze", "model.json"),
}

HOST_STAGES: tuple[HostStage, ...] = (
    HostStage(
        name="freeze",
        title="Freeze",
        uses=("model", "model_files", "head", "gamma", "policy", "prompts"),
        packages=_TORCH,
    ),
    HostStage(
        name="export",
        title="Export",
        uses=("model", "model_files", "backbone_files", "head", "gammas"),
        takes=_MODEL,
        parts=_EXPORTS,
    ),
    HostStage(
        name="align",
        title="Align",
        uses=("model", "model_files", "head", "acceptance_prompts", "alignment_threshold"),
        takes={**_MODEL, **_FLOAT},
        packages=(*_TORCH, "ai-edge-litert"),
    ),
    HostStage(
        name="calibrate",
        title="Calibrate",
        uses=("model", "model_files", "calibration", "calibration_ranges"),
        takes={**_FLOAT, "tokenizer.json": ("freeze", "tokenizer.json")},
        packages=(*_LITERT, "ai-edge-quantizer", "datasketch", "jinja2"),
    ),
    HostStage(
        name="quantise",
        title="Quantise",
        uses=("recipes",),
        takes={**_FLOAT, **_NAMES},
        packages=("ai-edge-quantizer", "ai-edge-litert", "numpy"),
        may_take=_STATISTICS,
    ),
    HostStage(
        name="recipes",
        title="Recipes",
        uses=("gamma", "recipe_pairs", "acceptance_prompts"),
        takes=_JUDGED,
        may_take=_STATISTICS,
        packages=(*_LITERT, "ai-edge-quantizer"),
    ),
    HostStage(
        name="acceptance",
        title="Acceptance",
        uses=("gamma", "recipes", "acceptance_prompts", "alpha_drop_limit"),
        takes={
            **_JUDGED,
            "backbone.tflite": ("quantise", "backbone.tflite"),
            "head.tflite": ("quantise", "head.tflite"),
        },
        may_take=_STATISTICS,
        packages=(*_LITERT, "ai-edge-quantizer"),
    ),
    HostStage(
        name="bundle",
        title="Bundle",
        uses=("model", "model_files", "head", "gamma", "recipes"),
        takes={
            **_MODEL,
            "backbone.tflite": ("quantise", "backbone.tflite"),
            "tokenizer.json": ("freeze", "tokenizer.json"),
        },
        packages=(*_TORCH, "litert-torch", "ai-edge-litert", "ai-edge-quantizer", "litert-lm-builder"),
    ),
)
# No stages of a run: a command asks for them, and they take what a run left.
SIDE_STAGES: tuple[HostStage, ...] = (
    HostStage(
        name="sensitivity",
        title="Sensitivity",
        uses=("gamma", "recipes", "acceptance_prompts", "alpha_drop_limit"),
        takes=_JUDGED,
        may_take=_STATISTICS,
        packages=(*_LITERT, "ai-edge-quantizer"),
    ),
)


def host_stage(name: str) -> HostStage:
    for stage in (*HOST_STAGES, *SIDE_STAGES, *_EXPORTS):
        if stage.name == name:
            return stage
    raise PipelineError(
        f"There is no host stage {name!r}; choose one of {', '.join(stage.name for stage in HOST_STAGES)}."
    )


def needed_for(name: str) -> list[str]:
    """That stage and all that it takes something from, directly or not, in the order in which they run."""
    wanted = {name}
    for stage in reversed(HOST_STAGES):
        if stage.name in wanted:
            wanted |= {source for source, _ in stage.takes.values()}
    return [stage.name for stage in HOST_STAGES if stage.name in wanted]


def params_for(name: str, run: RunParameters) -> dict[str, Any]:
    """The part of `run` that the stage depends on, with the hashes of the files behind names."""
    values: dict[str, Callable[[], Any]] = {
        "model": lambda: run.model,
        "model_files": lambda: model_files(run.model),
        "backbone_files": lambda: without_heads(model_files(run.model)),
        "head": lambda: msgspec.to_builtins(run.head),
        "gamma": lambda: run.gamma,
        "gammas": lambda: list(run.ladder),
        "recipes": lambda: msgspec.to_builtins(chosen_recipes(run)),
        "recipe_pairs": lambda: msgspec.to_builtins(recipe_pairs(run)),
        "policy": lambda: msgspec.to_builtins(_complete(run.policy)),
        "prompts": lambda: prompt_file(run.measured_set or run.policy.prompt_set),
        "acceptance_prompts": lambda: prompt_file(run.acceptance_set or prompt_sets(run.model)[1]),
        "calibration": lambda: _calibration_file(run.calibration),
        "calibration_ranges": lambda: run.calibration_ranges,
        "alignment_threshold": lambda: run.alignment_threshold,
        "alpha_drop_limit": lambda: run.alpha_drop_limit,
    }
    return {use: values[use]() for use in host_stage(name).uses}


def chosen_recipes(run: RunParameters) -> dict[str, Recipe]:
    """The recipe of each graph as a value, so that a user's file is part of the key by content. LiteRtError."""
    recipe = run.recipe if isinstance(run.recipe, Recipe) else recipe_named(run.recipe)
    asked = run.head_recipe
    return {"backbone": recipe, "head": asked if isinstance(asked, Recipe) else head_recipe_for(recipe, asked)}


def check_bundle(run: RunParameters) -> None:
    """Refuse what can be no bundle: a head without a single-step drafter, or a drafter that would need ranges.

    Ranges are collected on the graph that our own loop runs, and the drafter is another. PipelineError.
    """
    if run.head in KINDS and run.head not in BUNDLED_KINDS:
        raise PipelineError(no_drafter(str(run.head)))
    head = chosen_recipes(run)["head"]
    if head.needs_calibration:
        raise PipelineError(
            f"The recipe {head.name} needs calibration, which no drafter of a bundle gets; give "
            "--head-recipe a dynamic one, such as dynamic_int8."
        )


def recipe_pairs(run: RunParameters) -> list[tuple[Recipe, Recipe]]:
    """Every backbone recipe with every head recipe to be compared; without head recipes, each with its own."""
    heads = [recipe_named(name) for name in run.compared_head_recipes]
    backbones = [recipe_named(name) for name in run.compared_recipes] or [chosen_recipes(run)["backbone"]]
    return [(backbone, head) for backbone in backbones for head in heads or [head_recipe_for(backbone)]]


def _complete(policy: Policy) -> Policy:
    sha256 = policy.prompt_set_sha256 or load_prompts(policy.prompt_set).sha256
    return msgspec.structs.replace(policy, prompt_set_sha256=sha256)


def prompt_file(name: str) -> dict[str, str]:
    """Where a prompt set stands (`load_prompts` takes it) and the hash of its bytes: continuations decide results.

    Its name is what sessions call it, never a path of this computer. ModelError where it is no prompt set.
    """
    path, _, most = prompts_path(name)
    few = "" if most is None else f":{most}"
    return {"name": load_prompts(name).name, "path": f"{path.resolve()}{few}", "sha256": file_sha256(path)}


def _calibration_file(name: str) -> dict[str, str]:
    if name in SHIPPED:
        return prompt_file(name)
    path = Path(name)
    if not path.is_file():
        raise PipelineError(
            f"There is no calibration set {name!r}; build one with `mtplab calibrate`, or give a log in JSON Lines."
        )
    return {"name": path.name, "path": str(path.resolve()), "sha256": file_sha256(path)}


def inputs_for(name: str, results: Mapping[str, StageResult]) -> dict[str, str]:
    """Hashes of the stage's inputs, out of the results of the stages before it."""
    stage_of = host_stage(name)
    inputs = {}
    for own, (stage, artefact) in stage_of.may_take.items():
        if stage in results and artefact in results[stage].artefacts:
            inputs[own] = results[stage].artefacts[artefact].sha256
    for own, (stage, artefact) in stage_of.takes.items():
        result = results.get(stage)
        if result is None or artefact not in result.artefacts:
            raise PipelineError(f"The stage {name} needs {artefact} of the stage {stage}; run {stage} first.")
        inputs[own] = result.artefacts[artefact].sha256
    return inputs
