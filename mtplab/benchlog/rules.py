"""The rules as values, and the few literals that say quickly that a line cannot match any of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib import resources
from typing import Literal

import msgspec

Kind = Literal[
    "opening",  # a run begins
    "closing",  # the last line that a tool prints
    "reopening",  # after this line more must follow
    "wrapper",  # a script's own line: the log ends with the exit code
    "exit",  # the exit code
    "param",  # `<Label>: [<value>]`
    "flags",  # a command line
    "ignored",  # flags that the tool did not know
    "request",  # the program says which backend it uses
    "figure",  # numbers; the group's name says which and in which unit
    "stats",  # `count=…` of a block of runs
    "nodes",  # a delegate took nodes
    "ops",  # a list of unsupported operations begins
    "opsum",  # how many operations go where
    "created",  # a delegate was created
    "outcome",  # proves, or explains, a verdict
    "profile",  # the header of an op profile
    "separator",  # dashes between the parts of a BenchmarkInfo
    "note",  # only a finding, or which tool this is
]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of rules.toml; see the head of that file for the meaning of each field."""

    id: str
    kind: Kind
    pattern: str
    needs: str | list[str]
    backend: Literal["any", "accelerator", "named", "cpu", "gpu", "nnapi", "npu"] = "any"
    verdict: Literal[
        "full_delegate", "partial", "backend_downgrade", "fallback_cpu", "failed", "crash", "cpu_baseline", None
    ] = None
    priority: int = 0
    why: bool = False
    whole: bool = False
    unless: list[str] = []
    when: list[str] = []
    asks: str | None = None
    weight: int = 0
    tool: str | None = None
    tool_weight: int = 0
    says: str | None = None
    cache: Literal["warm", "cold", None] = None
    cause: str | None = None
    cure: str | None = None
    source: str

    @property
    def literals(self) -> list[str]:
        """One of these stands in every line that the rule matches."""
        return [self.needs] if isinstance(self.needs, str) else self.needs


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """rules.toml: the rules, the labels of parameter lines and the names that delegates go by."""

    labels: dict[str, str]
    delegates: list[tuple[str, str]]
    derived: dict[str, int]
    rule: list[Rule]


class Rules:
    """The rules made ready: compiled, and grouped under anchors for a quick look."""

    def __init__(self, file: RuleFile) -> None:
        self.file = file
        self.by_id = {rule.id: rule for rule in file.rule}
        self.anchors = anchors_for([word for rule in file.rule for word in rule.literals])
        groups: dict[str, list[tuple[str, re.Pattern[str], Rule]]] = {anchor: [] for anchor in self.anchors}
        for rule in file.rule:
            compiled = re.compile(rule.pattern)
            for word in rule.literals:
                anchor = next(a for a in self.anchors if a in word)
                groups[anchor].append((word, compiled, rule))
        self._groups = list(groups.items())
        self.order = {rule.id: place for place, rule in enumerate(file.rule)}

    def matches(self, text: str, whole: str) -> list[tuple[Rule, re.Match[str]]]:
        """Every rule that knows the line, `text` or `whole` with its prefixes, and its match, in the file's order."""
        found: dict[str, tuple[Rule, re.Match[str]]] = {}
        for anchor, members in self._groups:
            if anchor not in whole:
                continue
            for word, pattern, rule in members:
                if word in whole and rule.id not in found and (match := pattern.search(whole if rule.whole else text)):
                    found[rule.id] = (rule, match)
        return sorted(found.values(), key=lambda pair: self.order[pair[0].id])

    def backend_of(self, delegate: str) -> str | None:
        """The backend a delegate's name belongs to, or None for one that the table does not know."""
        name = delegate.lower()
        return next((backend for part, backend in self.file.delegates if part in name), None)

    def without(self, rule_id: str) -> Rules:
        """The same rules but one: for tests that every rule is alive."""
        kept = [rule for rule in self.file.rule if rule.id != rule_id]
        return Rules(msgspec.structs.replace(self.file, rule=kept))


def anchors_for(literals: Sequence[str]) -> list[str]:
    """A small set of strings such that each literal contains one of them (greedy set cover over their words)."""
    open_literals = set(literals)
    chosen: list[str] = []
    while open_literals:
        cover: dict[str, int] = {}
        for literal in open_literals:
            for part in {literal, *re.findall(r"[A-Za-z]{5,}", literal)}:
                cover.setdefault(part, 0)
        for part in cover:
            cover[part] = sum(part in literal for literal in open_literals)
        best = max(cover, key=lambda part: (cover[part], len(part), part))
        chosen.append(best)
        open_literals = {literal for literal in open_literals if best not in literal}
    return chosen


@functools.cache
def load_rules() -> Rules:
    """The rules that the package carries."""
    data = resources.files("mtplab.benchlog").joinpath("rules.toml").read_bytes()
    return Rules(msgspec.toml.decode(data, type=RuleFile))
