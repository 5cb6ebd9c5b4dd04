"""What one run in a log has shown so far, and the questions that its verdict and its reading ask."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .reading import Backend, Evidence, Figure, Finding, OpTime
from .rules import Rule, Rules

Event = Evidence | Finding | Figure

# Bounds, so that a hostile log cannot fill the memory; no real log comes near them.
MAX_SIGNS_PER_RULE = 8
MAX_NODES = 1024
MAX_OPS = 1024
MAX_TURNS = 4096
MAX_FLAGS = 256
MAX_FINDINGS = 256
MAX_PROFILE_ROWS = 20_000
TEXT_LIMIT = 500

# The one flag that proves something: a run that violates it ends without figures.
ENFORCING_FLAG = "require_full_delegation"
OLD_DELEGATE = "DELEGATE"  # the node type that profiles of 2019 give to every delegate's node
EXTERNAL = "EXTERNAL"  # what the tool calls every delegate that comes as a library
TRUE = frozenset({"1", "true", "True"})


class Sign(NamedTuple):
    """A line that speaks for or against a delegate, with what the rule says about it."""

    rule: Rule
    backend: str | None  # whom it is about: a backend, "any", "accelerator", or None for an unknown delegate
    line: int
    text: str


@dataclass(frozen=True)
class Nodes:
    """How many nodes a delegate took, of how many (None: not said), in how many partitions."""

    sign: Sign
    delegated: int
    total: int | None
    partitions: int | None
    subgraph: int | None
    name: str | None = None  # the subgraph's, which is its signature's where the exporter named it so

    @property
    def all_taken(self) -> bool:
        """One partition without a total means that there is nothing but the delegate's node."""
        if self.delegated == 0:
            return False
        return self.delegated == self.total if self.total is not None else self.partitions == 1


@dataclass(frozen=True)
class OpSum:
    """How many operations the GPU delegate takes and leaves (None: not said) of one subgraph."""

    sign: Sign
    delegated: int
    rest: int | None
    place: int  # how many node lines stood before: the delegate names the subgraph only in its next one


class Turn(NamedTuple):
    """One turn of a conversation in a BenchmarkInfo."""

    tokens: int
    us: float


@dataclass
class Run:
    """The facts of one run. Filled line by line; the verdict is worked out elsewhere."""

    rules: Rules
    params: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, Sign] = field(default_factory=dict)
    asks: dict[tuple[int, Backend], int] = field(default_factory=dict)  # (weight, backend) -> first line
    says_backend: str | None = None
    seen: dict[str, int] = field(default_factory=dict)
    signs: list[Sign] = field(default_factory=list)
    nodes: list[Nodes] = field(default_factory=list)
    opsums: list[OpSum] = field(default_factory=list)
    ops: dict[tuple[str, str], set[int]] = field(default_factory=dict)  # (name, why) -> places, as in OpSum
    figures: dict[str, float] = field(default_factory=dict)
    figure_signs: dict[str, Sign] = field(default_factory=dict)
    blocks: dict[str, dict[str, float]] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    tools: dict[str, int] = field(default_factory=dict)
    printers: set[str | None] = field(default_factory=set)
    profile: list[OpTime] = field(default_factory=list)
    profile_signs: dict[str, Sign] = field(default_factory=dict)  # who ran rows of the profile -> the first such row
    profile_of_init: bool = False
    profile_whole: bool = False
    turns: dict[tuple[str, int], Turn] = field(default_factory=dict)  # (prefill, decode or tokenize, number)
    errors: list[Sign] = field(default_factory=list)  # the first line that a tool or the runtime printed as an ERROR
    accelerators: set[Backend] = field(default_factory=set)  # what litert-benchmark was allowed to use
    accelerators_sign: Sign | None = None
    fully: bool | None = None  # "Fully accelerated", which XNNPACK can make true as well
    fully_sign: Sign | None = None
    strangers: list[Sign] = field(default_factory=list)  # delegates whose names the table does not hold
    signature: str | None = None
    cold_init: bool | None = None
    enforcing_sign: Sign | None = None
    opened: bool = False
    closed: bool = False
    wrapped: bool = False
    exit_sign: Sign | None = None
    exit_code: int | None = None
    kept: dict[str, int] = field(default_factory=dict)
    info_tail: bool = False  # the last part of a BenchmarkInfo is being printed
    # The dashes between the parts of a BenchmarkInfo: another line since, how many in a row now, and the first time.
    rule_between: bool = True
    rules_in_row: int = 0
    rules_first: int = 0

    # ---- questions

    def holds(self, condition: str, sign: Sign) -> bool:
        """Whether a rule's condition holds: `seen:RULE`, `nodes:full`, `nodes:named` or `param:KEY=VALUE`."""
        kind, _, rest = condition.partition(":")
        if kind == "seen":
            return rest in self.seen
        if kind == "nodes" and rest == "named":
            name = self.own_subgraph
            return name is not None and any(
                n.name == name and n.delegated and n.sign.backend == sign.backend for n in self.nodes
            )
        if kind == "nodes":
            own = [n.all_taken for n in self.own_nodes if n.sign.backend == sign.backend]
            return bool(own) and all(own)
        key, _, value = rest.partition("=")
        return self.setting(key) == value or (value == "1" and self.setting(key) in TRUE)

    def counts(self, sign: Sign) -> bool:
        """Whether the conditions of the sign's rule hold by what was seen so far."""
        rule = sign.rule
        return all(self.holds(c, sign) for c in rule.when) and not any(self.holds(c, sign) for c in rule.unless)

    def backend_named(self, delegate: str) -> str | None:
        """The backend that a delegate's name stands for in this run; None for a name that the table does not hold."""
        known = self.rules.backend_of(delegate)
        if delegate != EXTERNAL and known != self.external_library:
            return known
        return self.external

    @property
    def external_library(self) -> str | None:
        """What the library of the external delegate is for, by its file's name."""
        return self.rules.backend_of((self.setting("external_delegate") or "").rpartition("/")[2])

    @property
    def external(self) -> str | None:
        """Where the external delegate was told to run: a QNN library can serve the GPU as well."""
        library, options = self.external_library, self.setting("external_delegate_options") or ""
        told = next((backend for part, backend in self.rules.file.options if part in options), None)
        return library and (told or library)

    @property
    def converses(self) -> bool:
        """Whether a model's reply may stand between the lines, and its runtime's lines bear prefixes."""
        return "litert_lm_main" in self.tools and not self.printers.isdisjoint(("stream", "logcat"))

    @property
    def signature_run(self) -> str | None:
        """The signature that was run, as the tool says or was told."""
        return self.signature or self.setting("signature") or None

    @property
    def own_subgraph(self) -> str | None:
        """The subgraph that was run, where node lines name it as the signature; None: any line may be about it."""
        name = self.signature_run
        return name if name and any(n.name == name for n in self.nodes) else None

    @property
    def own_nodes(self) -> list[Nodes]:
        """The node counts of the subgraph that was run: a delegate goes through all subgraphs, whichever is run."""
        own = self.own_subgraph
        return [n for n in self.nodes if own is None or n.name in (own, None)]

    @property
    def other_nodes(self) -> list[Nodes]:
        """The node counts of subgraphs that were not run; none when the log does not tell them apart."""
        own = self.own_subgraph
        return [n for n in self.nodes if own is not None and n.name not in (own, None)]

    @property
    def own_opsums(self) -> list[OpSum]:
        """What the GPU delegate said to take and leave of the subgraph that was run."""
        own = self._own_places()
        return [o for o in self.opsums if o.place in own]

    @property
    def own_ops(self) -> list[tuple[str, str]]:
        """The operations that are not supported in the subgraph that was run."""
        own = self._own_places()
        return [op for op, places in self.ops.items() if not own.isdisjoint(places)]

    def _own_places(self) -> set[int]:
        """The places in the log whose next node line of the GPU delegate is not another subgraph's."""
        own, name = self.own_subgraph, None
        places = {len(self.nodes)}
        for place in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[place].sign.backend == "gpu":
                name = self.nodes[place].name
            if own is None or name in (own, None):
                places.add(place)
        return places

    def setting(self, key: str) -> str | None:
        """A parameter as the tool printed it, or as the command line gave it."""
        return self.params.get(key, self.flags.get(key))

    def is_on(self, key: str) -> bool:
        """Whether the log itself shows that flag switched on."""
        return self.params.get(key) in TRUE or self.flags.get(key) in TRUE

    @property
    def complete(self) -> bool:
        """From the opening line to the last one that the tool prints, or to the exit code of the script around it."""
        return self.opened and (self.exit_code is not None or (self.closed and not self.wrapped))

    @property
    def ended(self) -> bool:
        """Whether its last line, its exit code or its crash was seen: what opens after that is another run."""
        return self.closed or self.exit_code is not None or any(s.rule.verdict == "crash" for s in self.signs)

    @property
    def has_content(self) -> bool:
        """Whether a second opening line would be another run's."""
        return self.opened or bool(self.blocks) or bool(self.figures)

    def measured(self) -> tuple[dict[str, float], dict[str, float]]:
        """The blocks of the warm-up and of the measured runs; empty when the log does not tell them apart."""
        blocks = list(self.blocks.values())

        def by_average(name: str) -> dict[str, float] | None:
            wanted = self.figures.get(name)
            if wanted is None:
                return None
            near = [b for b in blocks if math.isclose(b.get("avg", b.get("curr", -1.0)), wanted, rel_tol=2e-5)]
            return near[-1] if near else {}

        warm, runs = by_average("warmup_avg_us"), by_average("inference_avg_us")
        if warm is None and runs is None:
            return (blocks[0] if blocks else {}), (blocks[1] if len(blocks) > 1 else {})
        return warm or {}, runs or {}
