"""Quantise a float graph by a recipe, and prove by reading every weight back that it was done."""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mtplab.litert import search
from mtplab.litert.audit import WEIGHTED, Audit, Role, Use, Weight, audit, key
from mtplab.litert.errors import LiteRtError
from mtplab.litert.offsets import split_offsets
from mtplab.litert.recipes import Recipe, Rule
from mtplab.litert.sharing import share_equal_buffers

_DTYPES = {2: "INT2", 4: "INT4", 8: "INT8", 16: "FLOAT16", 32: "FLOAT32"}
_ALGORITHMS = {
    "min_max": "MIN_MAX_UNIFORM_QUANT",
    "octav": "OCTAV",
    "mse": "MSE",
    "gptq": "GPTQ",
    "hadamard": "DECOMPOSED_HADAMARD_ROTATION",
    "search": search.PLACE,
}
_OFFSETS = Rule(match="/offsets", bits=8, compute="dynamic")
_NAMED = 6  # how many modules a complaint names

# By tensor: min, max and, for gptq, hessian; nested lists (as JSON gives them) or arrays.
Statistics = Mapping[str, Mapping[str, Any]]


class Change(msgspec.Struct, frozen=True):
    """What happened to one weight of the float graph, in one of its uses."""

    module: str | None
    role: str
    op: str
    output: str
    shape: tuple[int, ...]
    before: str
    after: str
    granularity: str
    compute: str


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


def quantise(
    source: Path,
    target: Path,
    recipe: Recipe,
    modules: Mapping[str, str] | None = None,
    statistics: Statistics | None = None,
) -> Quantised:
    """Write `source` quantised by `recipe` to `target`; `modules` names its weights (`export.module_names`).

    `statistics` are the quantizer's own calibration result. Raises `LiteRtError` when a rule finds no weight, when
    the statistics lack what a rule needs, or when reading the result back shows a weight that is not what was asked.
    """
    before = audit(source, modules)
    wanted = select(before, recipe)
    names = dict(modules or {})
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        split = Path(folder) / source.name
        if offsets := _split(source, split, wanted):
            source = split
            names |= {key(c): f"{names.get(key(use), use.output)} offsets" for use, c in offsets.items()}
            wanted |= dict.fromkeys(offsets.values(), _OFFSETS)
        asked = {use: rule for use, rule in wanted.items() if rule.compute != "float"}
        calibrated = _statistics(source, recipe, asked, statistics)
        if asked:
            _quantise(source, target, asked, calibrated)
        else:
            shutil.copyfile(source, target)
    after = audit(target, names)
    _prove(recipe, wanted, after)
    return Quantised(recipe.label, before, after, _compare(before, after))


def _split(source: Path, target: Path, wanted: Mapping[Use, Rule]) -> dict[Use, Use]:
    """Write the graph with a zero point for every block where a rule asks for it; the uses of those points by use."""
    split = {use: rule for use, rule in wanted.items() if rule.offsets}
    blocks = {rule.block for rule in split.values()}
    if not split:
        return {}
    if len(blocks) > 1:
        raise LiteRtError(
            "`offsets` with blocks of different sizes in one recipe are not supported; choose one size."
        )
    return split_offsets(source, target, split, blocks.pop(), 4)


def select(graph: Audit, recipe: Recipe) -> dict[Use, Rule]:
    """The rule of every use that the recipe asks for; later rules win. Raises where a rule finds no weight."""
    wanted: dict[Use, Rule] = {}
    for rule in recipe.rules:
        chosen = [
            use for weight in graph.weights for use in weight.uses if use.op in WEIGHTED and _picks(rule, weight, use)
        ]
        if not chosen and not rule.if_present:
            raise LiteRtError(_nothing_found(graph, recipe, rule))
        for use in chosen:
            if use.op == "EMBEDDING_LOOKUP" and not _embeds(rule):
                raise LiteRtError(
                    f"The rule {rule} of recipe {recipe.name!r} asks {rule.compute} {rule.bits} bits per "
                    f"{rule.scales} of the embedding, and a lookup takes dynamic 2, 4 or 8 bits per tensor or "
                    "channel, or float16; give the embedding a rule of its own."
                )
        wanted.update(dict.fromkeys(chosen, rule))
    return wanted


def role_of(weight: Weight, use: Use) -> Role:
    """A tied embedding is one buffer with two roles: each use is judged by its own operation."""
    return "embedding" if use.op == "EMBEDDING_LOOKUP" else weight.role


def _picks(rule: Rule, weight: Weight, use: Use) -> bool:
    if rule.match is not None:
        return any(text and re.search(rule.match, text) for text in (weight.module, use.output))
    return rule.on == role_of(weight, use)


def _embeds(rule: Rule) -> bool:
    """Whether an embedding lookup can be done so; seen by trying."""
    plain = rule.compute == "dynamic" and rule.scales in ("tensor", "channel")
    return rule.bits >= 16 or (plain and rule.algorithm in (None, "min_max", "octav", "mse", "search"))


def _nothing_found(graph: Audit, recipe: Recipe, rule: Rule) -> str:
    """Why a rule finds nothing: what it matched instead, and what it may have meant."""
    names = sorted({w.module for w in graph.weights if w.module and any(u.op in WEIGHTED for u in w.uses)})
    roles = sorted({role_of(w, use) for w in graph.weights for use in w.uses if use.op in WEIGHTED})
    others = [
        f"{use.op} {use.output}"
        for w in graph.weights
        for use in w.uses
        if use.op not in WEIGHTED and _picks(rule, w, use)
    ]
    instead = f"it matched only {others[0]}, which no recipe can quantise" if others else "it matched nothing"
    near = difflib.get_close_matches(rule.match or "", names, n=3, cutoff=0.3)
    known = near or names[:_NAMED]
    if rule.on:
        there = f"the roles here are {', '.join(roles)}"
    elif known:
        there = f"the modules here are {', '.join(known)}{' …' if len(names) > len(known) else ''}"
    else:
        there = "the modules of this graph have no names"
    return (
        f"The rule {rule} of recipe {recipe.name!r} finds no weight in this graph, so it would silently change "
        f"nothing: {instead}; {there}. Correct the rule."
    )


def _statistics(
    source: Path, recipe: Recipe, asked: Mapping[Use, Rule], given: Statistics | None
) -> dict[str, dict[str, Any]] | None:
    """The statistics as the quantizer takes them, once every tensor that a rule needs is seen in them."""
    needing = {use: rule for use, rule in asked.items() if rule.needs_calibration}
    if not needing:
        return None
    if not given:
        raise LiteRtError(
            f"The recipe {recipe.name!r} needs calibration statistics and there are none; calibrate the model first, "
            "or choose a dynamic recipe."
        )
    arrays = {
        tensor: {name: np.asarray(value, np.float32) for name, value in values.items()}
        for tensor, values in given.items()
    }
    lacking: dict[str, list[str]] = {}
    for use, tensors in _activations(source, needing).items():
        fields = ("hessian",) if needing[use].algorithm == "gptq" else ("min", "max")
        lacking.setdefault(use.signature, [])
        lacking[use.signature] += [t for t in tensors if not all(field in arrays.get(t, {}) for field in fields)]
    missing = [signature for signature, tensors in lacking.items() if tensors]
    if missing:
        example = lacking[missing[0]][0]
        raise LiteRtError(
            f"The calibration statistics lack {', '.join(missing)} (for one, the tensor {example}), so recipe "
            f"{recipe.name!r} cannot be applied; calibrate every signature."
        )
    return arrays


def _activations(source: Path, uses: Mapping[Use, Rule]) -> dict[Use, list[str]]:
    """What each use reads and, for static rules, writes: the tensors whose range must be known."""
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(source))
    by_place = {(use.signature, use.output): use for use in uses}
    found: dict[Use, list[str]] = {}
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]
        for op in graph.operators:
            output = graph.tensors[op.outputs[0]].name.decode()
            use = by_place.get((signature.signatureKey.decode(), output))
            if use is not None:
                found[use] = [graph.tensors[op.inputs[0]].name.decode()]
                if uses[use].compute == "static":
                    found[use].append(output)
    return found


def _quantise(
    source: Path, target: Path, asked: Mapping[Use, Rule], statistics: dict[str, dict[str, Any]] | None
) -> None:
    from ai_edge_quantizer.qtyping import TFLOperationName
    from ai_edge_quantizer.quantizer import Quantizer

    quantizer = Quantizer(str(source))
    groups: dict[tuple[str, Rule], list[str]] = {}
    for use, rule in asked.items():
        groups.setdefault((use.op, rule), []).append(use.output)
    try:
        for (op, rule), outputs in groups.items():
            # The quantizer searches its regex in the op's output names, each closed by a semicolon.
            exactly = "^(?:" + "|".join(re.escape(output) for output in sorted(set(outputs))) + ");$"
            quantizer.update_quantization_recipe(exactly, TFLOperationName(op), *_config(rule))
        result: Any = quantizer.quantize(statistics, enable_progress_report=False, enable_progress_bar=False)
        target.unlink(missing_ok=True)
        result.export_model(str(target))
    # Its own complaints fail with a TypeError where a tensor's name is still bytes.
    except (RuntimeError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise LiteRtError(f"The quantizer refused {source.name} ({reason}); choose another recipe.") from error
    share_equal_buffers(target)


def _config(rule: Rule) -> tuple[Any, str]:
    """The quantizer's own words for a rule: its configuration and the key of its algorithm."""
    from ai_edge_quantizer import qtyping as q
    from ai_edge_quantizer.algorithm_manager import AlgorithmName

    if rule.bits == 16:
        half = q.TensorQuantizationConfig(num_bits=16, dtype=q.TensorDataType.FLOAT)
        stored = q.OpQuantizationConfig(weight_tensor_config=half, explicit_dequantize=True)
        return stored, AlgorithmName.FLOAT_CASTING
    scales = {"tensor": "TENSORWISE", "channel": "CHANNELWISE"}.get(rule.scales) or f"BLOCKWISE_{rule.scales[5:]}"
    weights = q.TensorQuantizationConfig(num_bits=rule.bits, granularity=q.QuantGranularity(scales))
    activations = None
    if rule.compute == "static":
        bits = rule.activation_bits or 8
        activations = q.TensorQuantizationConfig(num_bits=bits, symmetric=bits == 16)
    widened = rule.compute == "weight_only"
    config = q.OpQuantizationConfig(
        activation_tensor_config=activations,
        weight_tensor_config=weights,
        compute_precision=q.ComputePrecision.FLOAT if widened else q.ComputePrecision.INTEGER,
        explicit_dequantize=widened,
    )
    if rule.algorithm == "search":
        search.register()
    return config, AlgorithmName[_ALGORITHMS[rule.algorithm or "min_max"]]


def _compare(before: Audit, after: Audit) -> tuple[Change, ...]:
    now = _by_key(after)
    changes = []
    for weight in before.weights:
        for use in weight.uses:
            if use.op not in WEIGHTED:
                continue
            found = now.get(key(use))
            changes.append(
                Change(
                    module=weight.module,
                    role=role_of(weight, use),
                    op=use.op,
                    output=f"{use.signature}:{use.output}",
                    shape=weight.shape,
                    before=weight.dtype,
                    after=found.dtype if found else "absent",
                    granularity=found.granularity if found else "none",
                    compute=after.computes.get(key(use), "absent"),
                )
            )
    return tuple(changes)


def _by_key(graph: Audit) -> dict[str, Weight]:
    return {key(use): weight for weight in graph.weights for use in weight.uses}


def _prove(recipe: Recipe, wanted: Mapping[Use, Rule], after: Audit) -> None:
    """Raise unless every weight is of the type, granularity and computation that its rule asks for."""
    now = _by_key(after)
    wrong = []
    for use, rule in wanted.items():
        found = now.get(key(use))
        is_so = _seen(found, after.computes.get(key(use), "absent"))
        if is_so != (asked := _asked(rule, found)):
            wrong.append(f"the weight of {use.output} in {use.signature} is {is_so} and not {asked}")
    if wrong:
        more = f", and so are {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise LiteRtError(
            f"Recipe {recipe.name!r} was not carried out: of {len(wanted)} uses of weights {wrong[0]}{more}; "
            "this quantizer ignored the request, choose another recipe."
        )
    for role in recipe.keep:
        for weight in after.weights:
            uses = [use for use in weight.uses if role_of(weight, use) == role]
            if uses and weight.dtype != "FLOAT32":
                raise LiteRtError(
                    f"Recipe {recipe.name!r} keeps the {role.replace('_', ' ')} float but {weight.tensor} became "
                    f"{weight.dtype}; a rule picked it by accident."
                )
    if recipe.rules and not wanted:
        raise LiteRtError(f"Recipe {recipe.name!r} found nothing to quantise in this graph; choose another recipe.")


def _seen(found: Weight | None, compute: str) -> str:
    if found is None:
        return "gone"
    return found.dtype if found.granularity == "none" else f"{found.dtype} per {found.granularity}, {compute}"


def _asked(rule: Rule, found: Weight | None) -> str:
    if rule.bits >= 16:
        return _DTYPES[rule.bits]
    compute = f"static_int{rule.activation_bits or 8}" if rule.compute == "static" else rule.compute
    # One channel has one scale, and cannot be told from one tensor.
    one = found is not None and found.shape[0] == 1
    scales = {"tensor": "tensor", "channel": "tensor" if one else "channel[0]"}.get(rule.scales)
    return f"{_DTYPES[rule.bits]} per {scales or f'block[{rule.scales[5:]}]'}, {compute}"
