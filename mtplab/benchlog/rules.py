"""The rules as values, and the few literals that say quickly that a line cannot match any of them."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

from .reading import Backend

if TYPE_CHECKING:
    from .sieve import Sieve

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
    "accelerators",  # the accelerators that a tool was allowed to use
    "list",  # the same as a JSON list, one in a line
    "json",  # numbers of a result file
    "figure",  # numbers; the group's name says which and in which unit
    "stats",  # `count=…` of a block of runs
    "llm",  # a BenchmarkInfo begins
    "turn",  # one turn of a conversation: its tokens and how long they took
    "nodes",  # a delegate took nodes
    "ops",  # a list of unsupported operations begins
    "opsum",  # how many operations go where
    "accelerated",  # the tool says whether every operation was accelerated, by whomever
    "error",  # the tool or the runtime printed it as an ERROR: the reason where no other rule knows one
    "created",  # a delegate was created
    "outcome",  # proves, or explains, a verdict
    "section",  # a part of the op profile begins
    "table",  # a table of the op profile begins
    "profile",  # the header of such a table
    "separator",  # dashes between the parts of a BenchmarkInfo
    "note",  # only a finding, or which tool this is
]


SIEVE_LENGTH = 1 << 14
_Ready = tuple[int, Callable[[str], "re.Match[str] | None"], "Rule"]
_PLACE = operator.itemgetter(0)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of rules.toml; see the head of that file for the meaning of each field."""

    id: str
    kind: Kind
    pattern: str
    words: list[str] = []
    inside: list[str] = []
    backend: Literal["any", "accelerator", "named", "cpu", "gpu", "nnapi", "npu"] = "any"
    verdict: Literal[
        "full_delegate", "partial", "backend_downgrade", "fallback_cpu", "failed", "crash", "cpu_baseline", None
    ] = None
    priority: int = 0
    why: bool = False
    whole: bool = False
    begins: Literal["again", "after", None] = None
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


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """rules.toml: the rules, the labels of parameter lines and the names that delegates go by."""

    labels: dict[str, str]
    flags: dict[str, str]
    json: dict[str, str]
    delegates: list[tuple[str, str]]
    options: list[tuple[str, Backend]]
    derived: dict[str, int]
    rule: list[Rule]


def anchored(pattern: str) -> bool:
    """Whether the whole pattern begins with ^, so that it need be tried at a line's beginning only."""
    plain = re.sub(r"\\.|\[\^?\]?[^]]*\]", "", pattern)  # without escapes and sets
    depth = 0
    for sign in plain:
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            return False
    return pattern.startswith("^")


class Rules:
    """The rules made ready: compiled, and found by the words of a line, so that most lines cost one set operation."""

    def __init__(self, file: RuleFile) -> None:
        self.file = file
        self.by_id = {rule.id: rule for rule in file.rule}
        self._by_word: dict[str, list[_Ready]] = {}
        self._by_part: dict[str, list[_Ready]] = {}
        for place, rule in enumerate(file.rule):
            pattern = re.compile(rule.pattern, re.ASCII)
            ready: _Ready = (place, pattern.match if anchored(rule.pattern) else pattern.search, rule)
            for word in rule.words:
                self._by_word.setdefault(word, []).append(ready)
            for part in rule.inside:
                self._by_part.setdefault(part, []).append(ready)
        self.words = frozenset(self._by_word)
        # An escape can split a word, so a line that holds one is always looked at.
        self.parts = (*self._by_part, "\x1b", "\x9b")

    def may_match(self, line: str) -> bool:
        """Whether any rule could match the line: a quick look that may say yes in vain, but never no."""
        if not self.words.isdisjoint(line.split()):
            return True
        for part in self.parts:  # noqa: SIM110 - any() over a generator takes three times as long
            if part in line:
                return True
        return False

    def candidates(self, block: str) -> list[int]:
        """Where the lines begin, in a block of whole lines, of which `may_match` would say yes, and a few more."""
        if len(block) >= SIEVE_LENGTH:
            return self._sieve.line_starts(block)
        starts, at = [], 0
        while at < len(block):
            end = block.index("\n", at) + 1
            if self.may_match(block[at:end]):
                starts.append(at)
            at = end
        return starts

    @functools.cached_property
    def _sieve(self) -> Sieve:
        from .sieve import Sieve  # numpy takes longer to load than most logs take to read

        return Sieve(self.words, self.parts)

    def matches(self, text: str, whole: str) -> list[tuple[Rule, re.Match[str]]]:
        """Every rule that knows the line, `text` or `whole` with its prefixes, and its match, in the file's order."""
        ready: list[_Ready] = []
        for word in self.words.intersection(whole.split()):
            ready += self._by_word[word]
        for part, members in self._by_part.items():
            if part in whole:
                ready += members
        if len(ready) > 1:
            ready = sorted({r[0]: r for r in ready}.values(), key=_PLACE)
        found = []
        for _, search, rule in ready:
            if match := search(whole if rule.whole else text):
                found.append((rule, match))
        return found

    def backend_of(self, delegate: str) -> str | None:
        """The backend a delegate's name belongs to, or None for one that the table does not know."""
        name = delegate.lower()
        return next((backend for part, backend in self.file.delegates if part in name), None)

    def without(self, rule_id: str) -> Rules:
        """The same rules but one: for tests that every rule is alive."""
        kept = [rule for rule in self.file.rule if rule.id != rule_id]
        return Rules(msgspec.structs.replace(self.file, rule=kept))


@functools.cache
def load_rules() -> Rules:
    """The rules that the package carries."""
    data = resources.files("mtplab.benchlog").joinpath("rules.toml").read_bytes()
    return Rules(msgspec.toml.decode(data, type=RuleFile))
