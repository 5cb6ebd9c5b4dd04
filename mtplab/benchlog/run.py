"""What one run in a log has shown so far: parameters, figures, delegates and lines that prove something."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .lines import Line
from .reading import ACCELERATORS, Backend, Evidence, Figure, Finding, OpTime
from .rules import Rule, Rules

Event = Evidence | Finding | Figure

# Bounds, so that a hostile log cannot fill the memory; no real log comes near them.
MAX_SIGNS_PER_RULE = 8
MAX_NODES = 1024
MAX_OPS = 1024
MAX_FLAGS = 256
MAX_FINDINGS = 256
TEXT_LIMIT = 500

# The one flag that proves something: a run that violates it ends without figures.
ENFORCING_FLAG = "require_full_delegation"

# ending of a group's name -> (ending of the figure's name, scale as a power of ten, or a factor)
_UNITS: dict[str, tuple[str, int, float]] = {
    "us": ("us", 0, 1.0),
    "ms": ("us", 3, 1.0),
    "s": ("us", 6, 1.0),
    "mb": ("bytes", 0, 1048576.0),
    "mega": ("bytes", 6, 1.0),
    "n": ("", 0, 1.0),
}
_FLAG = re.compile(r"--([A-Za-z_]\w{0,60})(?:[= ](?!-)(\S{1,300}))?", re.ASCII)
_STAT = re.compile(r"\b(count|first|curr|min|max|avg|std|p5|median|p95)=([\d.]+(?:e[+-]?\d{1,3})?)", re.ASCII)
_TRUE = frozenset({"1", "true", "True"})


@dataclass(frozen=True)
class Sign:
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
    signature: str | None = None
    cold_init: bool | None = None
    enforcing_sign: Sign | None = None
    opened: bool = False
    closed: bool = False
    wrapped: bool = False
    exit_sign: Sign | None = None
    exit_code: int | None = None
    _kept: dict[str, int] = field(default_factory=dict)
    _dashes: tuple[bool, int, int] = (
        True,
        0,
        0,
    )  # a line between, how many in a row, and the first time

    # ---- taking lines

    def take(self, rule: Rule, match: re.Match[str], line: Line, number: int) -> Iterable[Event]:
        """Adds what `rule` saw in the line and returns what is new."""
        self.printers.add(line.printer)
        if rule.tool:
            self.tools[rule.tool] = max(self.tools.get(rule.tool, 0), rule.tool_weight)
        text = (line.whole if rule.whole else line.text)[:TEXT_LIMIT]
        sign = Sign(rule, self._backend(rule, match), number, text)
        self.seen.setdefault(rule.id, number)
        if rule.asks or rule.weight:
            wanted = sign.backend if rule.asks in (None, "named") else rule.asks
            for backend in ACCELERATORS:
                if backend == wanted:
                    self.asks.setdefault((rule.weight, backend), number)
        if rule.cache:
            self.cold_init = rule.cache == "cold"
        if rule.kind != "separator":
            self._dashes = (True, *self._dashes[1:])
        handler = _HANDLERS.get(rule.kind)
        events = list(handler(self, sign, match)) if handler else []
        if rule.verdict or rule.why or rule.kind == "created":
            events += self._add_sign(sign)
        if rule.says:
            events += self.add_finding(rule.says, number, rule.id)
        return events

    def _backend(self, rule: Rule, match: re.Match[str]) -> str | None:
        if rule.backend != "named":
            return rule.backend
        name = match["delegate"]
        known = self.rules.backend_of(name)
        # A node that fails under an operation's own name is nobody's delegate and everybody's failure.
        return known or ("any" if rule.id == "node-failed" else None)

    def _add_sign(self, sign: Sign) -> Iterable[Event]:
        self._kept[sign.rule.id] = kept = self._kept.get(sign.rule.id, 0) + 1
        if kept <= MAX_SIGNS_PER_RULE:
            self.signs.append(sign)
            yield Evidence(sign.line, sign.text, sign.rule.id)

    def add_finding(self, text: str, line: int | None, rule: str) -> Iterable[Event]:
        """Keeps a finding once, at the line where it was first seen."""
        if text not in self.findings and len(self.findings) < MAX_FINDINGS:
            self.findings[text] = Finding(line, text, rule)
            yield self.findings[text]

    def _param(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        label = match["label"]
        key = self.rules.file.labels.get(label)
        if key is None:
            return ()
        self.params[key] = match["value"][:TEXT_LIMIT]
        if key == ENFORCING_FLAG:
            self.enforcing_sign = sign
        return ()

    def _flags(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        for name, value in _FLAG.findall(match.string)[: MAX_FLAGS - len(self.flags)]:
            self.flags[name] = value.strip("\"'") or "true"
            if name == ENFORCING_FLAG:
                self.enforcing_sign = sign
        return ()

    def _ignored(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        for name, value in _FLAG.findall(match.string)[: MAX_FLAGS - len(self.ignored)]:
            if not value or value in _TRUE:
                self.ignored[name] = sign
        return self.add_finding(f"the tool ignored: {match.string[match.end() :].strip()}", sign.line, sign.rule.id)

    def _request(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        self.says_backend = match["backend"].lower()
        return ()

    def _figure(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        for group, text in match.groupdict().items():
            if text is None:
                continue
            name, unit = group.rsplit("_", 1)
            value: float | None
            if group.startswith("llm_"):
                name, value = group, scaled(text, 0, 1.0)
            else:
                ending, power, factor = _UNITS[unit]
                name, value = f"{name}_{ending}".rstrip("_"), scaled(text, power, factor)
            if value is not None:
                self.figures[name] = value
                self.figure_signs[name] = sign
                yield Figure(name, value, sign.line)

    def _stats(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        if sign.text in self.blocks or len(self.blocks) >= MAX_NODES:
            return  # the same line once more: two streams of one log
        values = {key: scaled(text, 0, 1.0) for key, text in _STAT.findall(sign.text)}
        block = {key: value for key, value in values.items() if value is not None}
        self.blocks[sign.text] = block
        self.figure_signs[sign.text] = sign
        kind = "warmup" if len(self.blocks) == 1 else "inference"
        average = block.get("avg", block.get("curr"))
        if average is not None and block["count"] > 0:
            yield Figure(f"{kind}_avg_us", average, sign.line)
            yield Figure(f"{kind}_runs", block["count"], sign.line)

    def _nodes(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        groups = match.groupdict()
        found = {k: int(v) for k, v in groups.items() if k not in ("delegate", "name") and v is not None}
        if len(self.nodes) < MAX_NODES and sign.backend is not None:
            entry = (found["delegated"], found.get("total"), found.get("partitions"), found.get("subgraph"))
            self.nodes.append(Nodes(sign, *entry, groups.get("name")))
            yield Evidence(sign.line, sign.text, sign.rule.id)

    def _opsum(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        if len(self.opsums) < MAX_NODES:
            rest = int(match["rest"]) if match["rest"] else None
            self.opsums.append(OpSum(sign, int(match["delegated"]), rest, len(self.nodes)))
            yield Evidence(sign.line, sign.text, sign.rule.id)

    def _note(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        if "signature" in match.groupdict():
            self.signature = match["signature"][:TEXT_LIMIT]
        return ()

    def _opening(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        self.opened = True
        return ()

    def _closing(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        self.closed = self.closed or self.counts(sign)
        return self._figure(sign, match) if match.groupdict() else ()

    def _reopening(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        self.closed = False
        return ()

    def _wrapper(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        self.wrapped = True
        return ()

    def _exit(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        if self.exit_code != int(match["code"]):
            self.exit_sign, self.exit_code = sign, int(match["code"])
            yield Evidence(sign.line, sign.text, sign.rule.id)

    def _separator(self, sign: Sign, match: re.Match[str]) -> Iterable[Event]:
        between, length, first = self._dashes
        if between:
            first, length = first or length, 0
        length += 1
        self._dashes = (False, length, first)
        # A BenchmarkInfo ends with its rule printed twice (twice as often as before, in a doubled log).
        if first and length >= 2 * first and "lm-info" in self.seen:
            self.closed = True
        return ()

    # ---- questions

    def holds(self, condition: str, sign: Sign) -> bool:
        """Whether a rule's condition holds: `seen:RULE`, `nodes:full` or `param:KEY=VALUE`."""
        kind, _, rest = condition.partition(":")
        if kind == "seen":
            return rest in self.seen
        if kind == "nodes":
            own = [n.all_taken for n in self.own_nodes if n.sign.backend == sign.backend]
            return bool(own) and all(own)
        key, _, value = rest.partition("=")
        return self.setting(key) == value or (value == "1" and self.setting(key) in _TRUE)

    def counts(self, sign: Sign) -> bool:
        """Whether the conditions of the sign's rule hold by what was seen so far."""
        rule = sign.rule
        return all(self.holds(c, sign) for c in rule.when) and not any(self.holds(c, sign) for c in rule.unless)

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
        return self.params.get(key) in _TRUE or self.flags.get(key) in _TRUE

    @property
    def complete(self) -> bool:
        """From the opening line to the last one that the tool prints, or to the exit code of the script around it."""
        return self.opened and (self.exit_code is not None or (self.closed and not self.wrapped))

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


def scaled(text: str, power: int, factor: float) -> float | None:
    """The number times 10**power times factor, without rounding twice; None when it is none."""
    try:
        value = float(text) * 10**power if "e" in text else float(f"{text}e{power}")
    except ValueError:
        return None
    return value * factor if math.isfinite(value * factor) else None


_HANDLERS: dict[str, Callable[[Run, Sign, re.Match[str]], Iterable[Event]]] = {
    "param": Run._param,
    "flags": Run._flags,
    "ignored": Run._ignored,
    "request": Run._request,
    "figure": Run._figure,
    "stats": Run._stats,
    "nodes": Run._nodes,
    "opsum": Run._opsum,
    "note": Run._note,
    "opening": Run._opening,
    "closing": Run._closing,
    "reopening": Run._reopening,
    "wrapper": Run._wrapper,
    "exit": Run._exit,
    "separator": Run._separator,
}
