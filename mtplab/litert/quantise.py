"""Quantise a float graph by a named recipe, and prove by reading the result back that it was done."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from mtplab.litert.audit import Audit, Role, Use, Weight, audit, key
from mtplab.litert.errors import LiteRtError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_RECIPE = "mixed"
_DTYPES = {8: "INT8", 4: "INT4"}
# Operations whose weights the rules may pick; constants of all others stay as they are.
_QUANTISABLE = ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a recipe."""

    bits: Literal[4, 8]
    compute: Literal["dynamic", "weight_only"]
    on: Role | None = None
    match: str | None = None
    if_present: bool = False

    def __post_init__(self) -> None:
        if (self.on is None) == (self.match is None):
            raise ValueError("a rule picks weights by either `on` or `match`")
        if self.match is not None:
            try:
                re.compile(self.match)
            except re.error as error:
                raise ValueError(f"`match` is no regular expression: {error}") from error

    def __str__(self) -> str:
        return f"on = {self.on}" if self.on else f"match = {self.match!r}"


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to quantise and what must stay float."""

    title: str
    rules: tuple[Rule, ...]
    keep: tuple[Role, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """What happened to one weight of the float graph."""

    module: str | None
    role: str
    op: str
    output: str
    shape: tuple[int, ...]
    before: str
    after: str
    granularity: str


class Quantised(msgspec.Struct, frozen=True):
    """The proof: audits of both files and the map from module to tensor."""

    recipe: str
    before: Audit
    after: Audit
    changes: tuple[Change, ...]

    @property
    def touched(self) -> int:
        """Weights whose type changed."""
        return sum(change.before != change.after for change in self.changes)


def recipes() -> dict[str, Recipe]:
    """All shipped recipes by name."""
    text = resources.files("mtplab.litert").joinpath("recipes.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Recipe])


def recipe_named(name: str) -> Recipe:
    known = recipes()
    if name not in known:
        raise LiteRtError(f"There is no recipe {name!r}; choose one of {', '.join(known)}.")
    return known[name]


def quantise(
    source: Path,
    target: Path,
    name: str,
    recipe: Recipe | None = None,
    modules: Mapping[str, str] | None = None,
) -> Quantised:
    """Write `source` quantised by the recipe `name` to `target`.

    Raises `LiteRtError` when a rule finds no weight, or when reading the result back shows a weight that was
    asked for and is not quantised, or one that should have stayed float and did not.
    """
    recipe = recipe or recipe_named(name)
    before = audit(source, modules)
    wanted = _select(before, name, recipe)
    if wanted:
        _quantise(source, target, wanted)
    else:
        shutil.copyfile(source, target)
    after = audit(target, modules)
    changes = _compare(before, after)
    _prove(name, recipe, wanted, after)
    return Quantised(name, before, after, changes)


def _select(before: Audit, name: str, recipe: Recipe) -> dict[Use, Rule]:
    """The rule of every use that the recipe asks for; later rules win."""
    wanted: dict[Use, Rule] = {}
    for rule in recipe.rules:
        chosen = [
            use
            for weight in before.weights
            for use in weight.uses
            if use.op in _QUANTISABLE and _picks(rule, weight, use)
        ]
        if not chosen and not rule.if_present:
            raise LiteRtError(
                f"The rule {rule} of recipe {name!r} finds no weight in this graph, so it would silently change "
                "nothing; look at the map of modules and correct the rule."
            )
        wanted.update(dict.fromkeys(chosen, rule))
    return wanted


def _picks(rule: Rule, weight: Weight, use: Use) -> bool:
    if rule.match is not None:
        return any(text and re.search(rule.match, text) for text in (weight.module, use.output))
    # A tied embedding is one buffer with two roles: each use is judged by its own operation.
    role = "embedding" if use.op == "EMBEDDING_LOOKUP" else weight.role
    return rule.on == role


def _quantise(source: Path, target: Path, wanted: Mapping[Use, Rule]) -> None:
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    quantizer = Quantizer(str(source))
    groups: dict[tuple[str, Rule], list[str]] = {}
    for use, rule in wanted.items():
        groups.setdefault((use.op, rule), []).append(use.output)
    for (op, rule), outputs in groups.items():
        # The quantizer searches its regex in the op's output names, each closed by a semicolon.
        exactly = "^(?:" + "|".join(re.escape(output) for output in sorted(set(outputs))) + ");$"
        operation = TFLOperationName(op)
        if rule.compute == "dynamic":
            quantizer.add_dynamic_config(exactly, operation, rule.bits)
        else:
            quantizer.add_weight_only_config(exactly, operation, rule.bits)
    try:
        result: Any = quantizer.quantize(enable_progress_report=False, enable_progress_bar=False)
        target.unlink(missing_ok=True)
        result.export_model(str(target))
    except (RuntimeError, ValueError) as error:
        raise LiteRtError(
            f"The quantizer refused {source.name} ({error}); choose another recipe or fewer bits."
        ) from error


def _compare(before: Audit, after: Audit) -> tuple[Change, ...]:
    now = {key(use): weight for weight in after.weights for use in weight.uses}
    changes = []
    for weight in before.weights:
        for use in weight.uses:
            if use.op not in _QUANTISABLE:
                continue
            found = now.get(key(use))
            changes.append(
                Change(
                    module=weight.module,
                    role="embedding" if use.op == "EMBEDDING_LOOKUP" else weight.role,
                    op=use.op,
                    output=f"{use.signature}:{use.output}",
                    shape=weight.shape,
                    before=weight.dtype,
                    after=found.dtype if found else "absent",
                    granularity=found.granularity if found else "none",
                )
            )
    return tuple(changes)


def _prove(name: str, recipe: Recipe, wanted: Mapping[Use, Rule], after: Audit) -> None:
    now = {key(use): weight for weight in after.weights for use in weight.uses}
    for use, rule in wanted.items():
        found = now.get(key(use))
        if found is None or found.dtype != _DTYPES[rule.bits]:
            raise LiteRtError(
                f"Recipe {name!r} asked for {_DTYPES[rule.bits]} but the weight of {use.output} in {use.signature} "
                f"is {found.dtype if found else 'gone'}; this quantizer ignored the request, choose another recipe."
            )
    for role in recipe.keep:
        broken = [weight for weight in after.weights if weight.role == role and weight.dtype != "FLOAT32"]
        if broken:
            raise LiteRtError(
                f"Recipe {name!r} keeps the {role.replace('_', ' ')} float but {broken[0].tensor} became "
                f"{broken[0].dtype}; a rule picked it by accident."
            )
    if recipe.rules and not wanted:
        raise LiteRtError(f"Recipe {name!r} found nothing to quantise in this graph; choose another recipe.")
