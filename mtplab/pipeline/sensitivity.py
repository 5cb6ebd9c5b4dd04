"""Which layers a recipe hurts: one group at a time is lifted a step, and what that brings back of α is measured.

A group is a block of the backbone, or a module outside of the blocks, or a module of the head. Lifted means int8
where the recipe went lower, else float. Candidates are ranked on the float backbone's own text, where none of them is
at home; what is proposed in the end writes its own text, and is judged exactly as the gate judges a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from mtplab.litert.recipes import Recipe, Rule
from mtplab.litert.runtime import LiteRtBackbone
from mtplab.pipeline.job import Emitter
from mtplab.pipeline.judging import (
    THREADS,
    Graphs,
    Limits,
    Pair,
    Reference,
    cross,
    judge_output,
    rounds_over,
    true_rounds,
)
from mtplab.pipeline.recipe_graphs import BackboneGraph, FloatGraphs, HeadGraphs
from mtplab.pipeline.stages.loading import Text
from mtplab.speculation.acceptance import AcceptCounts
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.paired import delta_alpha, delta_given_text

_BLOCK = re.compile(r"(blocks\.\d+)\.")
_LOWER = ("INT2", "INT4")


class Group(msgspec.Struct, frozen=True):
    """Modules of one graph (`backbone` or `head`) that are lifted together, and to what."""

    graph: str
    name: str
    modules: tuple[str, ...]
    to: str

    @property
    def rule(self) -> Rule:
        """The rule that lifts these modules and no others; behind the recipe's own, so it wins."""
        block = _BLOCK.match(self.name + ".")
        start = f"{self.name}." if block else ""
        rest = "|".join(re.escape(module.removeprefix(start)) for module in self.modules)
        match = f"^{re.escape(start)}(?:{rest})$"
        if self.to == "int8":
            return Rule(match=match, bits=8, compute="dynamic", if_present=True)
        return Rule(match=match, bits=32, compute="float", if_present=True)


class Lift(msgspec.Struct, frozen=True):
    """What lifting one group alone brought: `gain` of α on the float text (paired by prompt), and bytes."""

    graph: str
    group: str
    to: str
    gain: Estimate
    bytes_added: int


class Proposal(msgspec.Struct, frozen=True):
    """Groups lifted together, judged as the gate judges: `passes` or not."""

    groups: list[str]
    rules: dict[str, list[Rule]]
    delta_alpha: Estimate
    bytes_added: int
    passes: bool


class Sensitivity(msgspec.Struct, frozen=True):
    """Every group's lift, the greatest gain first, and the groups to lift, as tried."""

    lifts: list[Lift]
    proposals: list[Proposal]

    @property
    def cure(self) -> Proposal | None:
        """The smallest tried set of groups that passes."""
        return next((one for one in self.proposals if one.passes), None)

    def sentence(self) -> str:
        """What to lift, seen and not guessed."""
        if not self.lifts:
            return "no layer of it is quantised, so there is nothing to lift"
        if self.cure is not None:
            cure = self.cure
            return (
                f"lift {', '.join(cure.groups)}: measured with them, α changes by {_text(cure.delta_alpha)}, "
                f"for {cure.bytes_added / 1e6:.2f} MB more"
            )
        best = ", ".join(f"{one.group} ({one.gain.value:+.3f})" for one in self.lifts[:3])
        told = f"lifting one group alone brings most in {best}"
        if self.proposals:
            last = self.proposals[-1]
            told += f"; with {len(last.groups)} lifted together α still changes by {_text(last.delta_alpha)}"
        return f"{told}; choose another recipe"


def _text(change: Estimate) -> str:
    if change.value is None or change.low is None or change.high is None:
        return "an unknown amount"
    return f"{change.value:+.3f} (95 % {change.low:+.3f} … {change.high:+.3f})"


def groups_of(graph: str, dtypes: dict[str, str]) -> list[Group]:
    """The groups of a graph out of its quantised modules, in their order."""
    found: dict[str, list[str]] = {}
    for module in sorted(dtypes, key=_natural):
        block = _BLOCK.match(module)
        found.setdefault(block[1] if block else module, []).append(module)
    return [
        Group(graph, name, tuple(modules), "int8" if any(dtypes[m] in _LOWER for m in modules) else "float")
        for name, modules in found.items()
    ]


def _natural(name: str) -> list[int | str]:
    # Digits and words alternate, so entries of one place are always of one kind.
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def lifted(recipe: Recipe, groups: Sequence[Group]) -> Recipe:
    """`recipe` with the groups' rules behind its own; what it promised to keep stays promised."""
    name = f"{recipe.name}+{len(groups)}"[:60]
    return msgspec.structs.replace(recipe, name=name, rules=(*recipe.rules, *(group.rule for group in groups)))


class Bench:
    """The float reference and the texts that every candidate is judged on."""

    def __init__(
        self,
        graphs: FloatGraphs,
        recipes: tuple[Recipe, Recipe],
        reference: Reference,
        texts: Sequence[Text],
        limits: Limits,
        limit: float,
        emit: Emitter,
    ) -> None:
        """`limit` is the lowest lower bound of Δα that passes, such as −0.02."""
        self._graphs, self._recipes, self._reference = graphs, recipes, reference
        self._texts, self._limits, self._limit, self._emit = texts, limits, limit, emit
        self._base = (graphs.backbone(recipes[0], "base"), graphs.head(recipes[1], "base_head"))
        self._base_backbone = LiteRtBackbone(self._base[0].path, THREADS)
        self._groups = [
            *groups_of("backbone", self._base[0].dtypes),
            *groups_of("head", self._base[1].dtypes),
        ]
        # The recipe twice (on either text), every group, and one, two, four … of them together.
        self._done, self._total = 0, 2 + len(self._groups) + len(self._groups).bit_length()

    def run(self) -> Sensitivity:
        """Lift every group alone, then the best of them together: one, two, four, … until the gate lets them pass."""
        groups = self._groups
        self._tell("the recipe on the float text")
        base = self._counts(self._load(*self._base, self._base_backbone))
        lifts = {group: self._lift(group, base) for group in groups}
        ranked = sorted(groups, key=lambda group: -(lifts[group].gain.value or 0.0))
        useful = [group for group in ranked if (lifts[group].gain.value or 0.0) > 0]
        return Sensitivity([lifts[group] for group in ranked], self._proposals(useful))

    def as_is(self) -> Proposal:
        """The recipe without any lift, judged as the gate judges."""
        return self._propose([])

    def _proposals(self, ranked: Sequence[Group]) -> list[Proposal]:
        found: list[Proposal] = []
        size = 1
        while ranked and not (found and (found[-1].passes or len(found[-1].groups) == len(ranked))):
            found.append(self._propose(ranked[:size]))
            size *= 2
        return found

    def _lift(self, group: Group, base: list[AcceptCounts]) -> Lift:
        self._tell(f"{group.graph} {group.name} to {group.to}")
        made = self._make([group])
        backbone = self._base_backbone if group.graph == "head" else self._open(made[0])
        counts = self._counts(self._load(*made, backbone))
        return Lift(group.graph, group.name, group.to, delta_given_text(base, counts), self._added(made))

    def _propose(self, groups: Sequence[Group]) -> Proposal:
        names = ", ".join(group.name for group in groups)
        self._tell(f"{len(groups)} together: {names}" if groups else "the recipe as it is")
        made = self._make(groups)
        pair = self._load(*made, self._open(made[0]))
        rounds = true_rounds(pair, self._texts, self._limits, _untold)
        crossing = cross(self._reference, pair, self._texts, rounds, self._limits.gamma, _untold)
        change = delta_alpha(crossing.counts)
        return Proposal(
            groups=[f"{group.graph} {group.name}" for group in groups],
            rules={graph: [one.rule for one in groups if one.graph == graph] for graph in ("backbone", "head")},
            delta_alpha=change,
            bytes_added=self._added(made),
            passes=change.low is not None and change.low >= self._limit,
        )

    def _make(self, groups: Sequence[Group]) -> tuple[BackboneGraph, HeadGraphs]:
        """The pair with these groups lifted; a graph of which nothing is lifted is the base's own."""
        mine = {graph: [group for group in groups if group.graph == graph] for graph in ("backbone", "head")}
        backbone, head = self._base
        if mine["backbone"]:
            backbone = self._graphs.backbone(lifted(self._recipes[0], mine["backbone"]), "candidate")
        if mine["head"]:
            head = self._graphs.head(lifted(self._recipes[1], mine["head"]), "candidate_head")
        return backbone, head

    def _open(self, made: BackboneGraph) -> LiteRtBackbone:
        if made is self._base[0]:
            return self._base_backbone
        return LiteRtBackbone(made.path, THREADS, self._base_backbone.cache_mode)

    def _load(self, backbone: BackboneGraph, head: HeadGraphs, opened: LiteRtBackbone) -> Pair:
        graphs = Graphs(backbone=backbone.path, head=head.head, evaluation=head.evaluation)
        return Pair.load(graphs, THREADS, opened)

    def _counts(self, pair: Pair) -> list[AcceptCounts]:
        """Rounds over the float text, a prompt each."""
        rows = zip(self._texts, self._reference.rounds, strict=True)
        return [
            rounds_over(judge_output(pair, text, one.output), text, one.output, self._limits.gamma)
            for text, one in rows
        ]

    def _added(self, made: tuple[BackboneGraph, HeadGraphs]) -> int:
        return _bytes(made) - _bytes(self._base)

    def _tell(self, what: str) -> None:
        self._emit.progress(self._done, self._total, "layer groups", what)
        self._done += 1


def _untold(prompt: str) -> None:
    """A prompt is no step here: the whole candidate is one."""


def _bytes(made: tuple[BackboneGraph, HeadGraphs]) -> int:
    return made[0].path.stat().st_size + made[1].head.stat().st_size
