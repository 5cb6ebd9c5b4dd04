"""An experiment: a file that names what is to be measured, and the cells that follow from it."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.engine.errors import EngineError
from mtplab.engine.options import ACCELERATORS, OPTIONAL, RunOptions, check_scenario
from mtplab.session.configuration import ADAPTIVE, POLICIES, Configuration
from mtplab.session.text import clean_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_CELLS = 1000


class Axes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What varies; the cells are all combinations. `gammas` and `policies` are one axis: how drafts are made.

    A `core_masks` entry "" is no mask, a `head_threads` entry 0 the backbone's number; without `classes` all prompts
    are one cell.
    """

    recipes: tuple[str, ...] = ("mixed",)
    gammas: tuple[int, ...] = (3,)
    policies: tuple[str, ...] = ()
    threads: tuple[int, ...] = (2,)
    head_threads: tuple[int, ...] = (0,)
    backends: tuple[str, ...] = ("cpu",)
    core_masks: tuple[str, ...] = ("",)
    classes: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a round may begin, and how long is waited for a phone that is hot or gone."""

    skin_c: float = 37.0
    cool_down_s: float = 60.0
    reconnect_s: float = 300.0


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. What stands beside `axes` is the same in every cell."""

    name: str
    axes: Axes
    model: str = "tiny"
    head: str | None = None
    prompts: str | None = None
    output_limit: int = 48
    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0
    rounds: int = 5
    bench: bool = False
    prepare: str = "bench"
    limits: Limits = Limits()
    serial: str | None = None
    standin: str | None = None

    def key(self) -> str:
        """By what an interrupted experiment is known again: all that its cells share, but for rounds and limits.

        Axes may grow and rounds may be added: what was measured stays good.
        """
        shared = msgspec.structs.replace(self, axes=Axes(), limits=Limits(), rounds=5, bench=False)
        return hashlib.sha256(msgspec.json.encode(shared, order="deterministic")).hexdigest()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the experiment: one recipe, one configuration, one class of prompts (None: all)."""

    name: str
    recipe: str
    configuration: Configuration
    klass: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that share their artefacts, and are measured interleaved: in one session, plain decoding beside them."""

    recipe: str
    cells: tuple[Cell, ...]

    @property
    def configurations(self) -> list[Configuration]:
        """Plain decoding on every ground, then what drafts at fixed lengths, then adaptive lengths."""
        own = list(dict.fromkeys(cell.configuration for cell in self.cells))
        plain = list(dict.fromkeys(_plain(c) for c in own))
        return [*plain, *[c for c in own if not c.adaptive], *[c for c in own if c.adaptive]]


def read_experiment(path: Path) -> Experiment:
    """The experiment in a file; EngineError with exit code 1 and a sentence that says where it is wrong."""
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
        experiment = msgspec.convert(table, Experiment)
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"The experiment {path.name} cannot be read ({error}).", 1) from None
    except tomllib.TOMLDecodeError as error:
        raise EngineError(f"The experiment {path.name} is no TOML: {clean_text(str(error), 200)}.", 1) from None
    except RecursionError:
        raise EngineError(f"The experiment {path.name} cannot be used: it is nested too deeply.", 1) from None
    except msgspec.ValidationError as error:
        said = clean_text(str(error), 300).replace("Object missing", "it lacks the")
        said = said.replace("Object ", "it ", 1).replace("`$.", "`").replace(" - at ", " in ")
        raise EngineError(f"The experiment {path.name} cannot be used: {said}.", 1) from None
    try:
        _check(experiment)
    except ValueError as error:
        raise EngineError(f"The experiment {path.name} cannot be used: {error}.", 1) from None
    return experiment


def _check(experiment: Experiment) -> None:
    """ValueError where values make no sense together; ranges are those of a run and checked there."""
    axes = experiment.axes
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", experiment.name):
        raise ValueError("`name` takes up to 40 letters, digits, dots, dashes and underscores")
    for field in axes.__struct_fields__:
        values = getattr(axes, field)
        if len(set(values)) != len(values):
            raise ValueError(f"`axes.{field}` names a value twice")
        if not values and field not in ("classes", "gammas", "policies"):
            raise ValueError(f"`axes.{field}` is empty, which leaves nothing to measure")
    _one_of("policies", axes.policies, POLICIES)
    _one_of("backends", axes.backends, ACCELERATORS)
    for name, values, least, most in (("threads", axes.threads, 1, 16), ("head_threads", axes.head_threads, 0, 16),
                                      ("gammas", axes.gammas, 1, 8)):  # fmt: skip
        if any(not least <= value <= most for value in values):
            raise ValueError(f"`axes.{name}` lies in {least}…{most}")
    if any(mask and not re.fullmatch(r"[0-9a-fA-F]{1,16}", mask) for mask in axes.core_masks):
        raise ValueError("a core mask is a hexadecimal number such as f0, or empty")
    if not axes.gammas:
        raise ValueError("`axes.gammas` needs a draft length: adaptive policies choose among them")
    most = math.prod(len(values) for values in _axis_values(axes))
    if most > MAX_CELLS:  # counted before they are made: a slip of the pen may ask for millions
        raise ValueError(f"its axes make {most} cells, and {MAX_CELLS} are the most")
    recipe_of: dict[str, str] = {}
    for cell in cells_of(experiment):
        other = recipe_of.setdefault(cell.name, cell.recipe)
        if other != cell.recipe:
            raise ValueError(
                f"the recipes {other!r} and {cell.recipe!r} would both be the cell {cell.name}; rename one of them"
            )
    try:
        check_scenario(experiment.standin)
    except EngineError as error:
        raise ValueError(str(error).rstrip(".")) from None


def _one_of(field: str, values: Sequence[str], known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"`axes.{field}` knows no {clean_text(value, 40)!r}, only {', '.join(known)}")


def cells_of(experiment: Experiment) -> list[Cell]:
    """All cells, in the order in which they are told."""
    return list(dict.fromkeys(_cell(*values) for values in itertools.product(*_axis_values(experiment.axes))))


def _axis_values(axes: Axes) -> tuple[Sequence[Any], ...]:
    """The values of every axis in the order in which `_cell` takes them."""
    lengths = [f"fixed:{gamma}" for gamma in axes.gammas] + [ADAPTIVE + policy for policy in axes.policies]
    return (
        axes.recipes, axes.threads, axes.head_threads, axes.backends, axes.core_masks, lengths,
        axes.classes or (None,),
    )  # fmt: skip


def _cell(
    recipe: str, threads: int, head_threads: int, backend: str, mask: str, length: str, klass: str | None
) -> Cell:
    configuration = Configuration(
        name="",
        mtp=True,
        draft_length=length,
        threads=threads,
        head_threads=head_threads if head_threads not in (0, threads) else None,
        backend=backend,
        core_mask=mask or None,
    )
    configuration = msgspec.structs.replace(configuration, name=_name(configuration))
    parts = [Path(recipe).stem, configuration.name, *([klass] if klass else [])]
    return Cell(name="/".join(parts), recipe=recipe, configuration=configuration, klass=klass)


def _plain(configuration: Configuration) -> Configuration:
    """Plain decoding on the same ground."""
    plain = msgspec.structs.replace(
        configuration, mtp=False, draft_length=None, head_threads=None, head_backend=None, name=""
    )
    return msgspec.structs.replace(plain, name=_name(plain))


def _name(configuration: Configuration) -> str:
    """A name that says all, fit for a file: `g3-t2`, `tiers-t2-h1-cpu-mf0`, `off-t4`."""
    length = configuration.draft_length
    how = "off" if length is None else f"g{configuration.gamma}" if configuration.gamma else length.partition(":")[2]
    parts = [how, f"t{configuration.threads}"]
    if configuration.head_threads is not None:
        parts.append(f"h{configuration.head_threads}")
    if configuration.backend != "cpu":
        parts.append(configuration.backend)
    if configuration.core_mask is not None:
        parts.append(f"m{configuration.core_mask.lower()}")
    return "-".join(parts)


def groups_of(experiment: Experiment) -> list[Group]:
    """The cells by what they share."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells_of(experiment):
        groups.setdefault(cell.recipe, []).append(cell)
    return [Group(recipe=recipe, cells=tuple(cells)) for recipe, cells in groups.items()]


def run_options(experiment: Experiment, group: Group) -> RunOptions:
    """The run that measures a group."""
    axes = experiment.axes
    return RunOptions(
        model=experiment.model,
        head=experiment.head,
        recipe=group.recipe,
        gamma=max(axes.gammas),
        # The usual ladder as well, so that an export that is cached already serves.
        gammas=tuple(sorted({*RunOptions().gammas, *axes.gammas})),
        threads=axes.threads[0],
        core_mask=axes.core_masks[0] or None,
        output_limit=experiment.output_limit,
        prompts=experiment.prompts,
        rounds=experiment.rounds,
        temperature=experiment.temperature,
        top_k=experiment.top_k,
        seed=experiment.seed,
        prepare=experiment.prepare,
        skin_limit_c=experiment.limits.skin_c,
        cooldown_timeout_s=experiment.limits.cool_down_s,
        reconnect_s=experiment.limits.reconnect_s,
        skip=() if experiment.bench else OPTIONAL,
    )
