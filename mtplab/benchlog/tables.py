"""What a log says over several lines: lists of unsupported operations and of accelerators, and op profiles."""

from __future__ import annotations

import re
from collections.abc import Collection

from .lines import Line
from .reading import BACKENDS, OpTime
from .rules import Rule, Rules
from .run import MAX_OPS, MAX_PROFILE_ROWS, OLD_DELEGATE, TEXT_LIMIT, Run, Sign

# The kinds of lines that begin or end a list, a table or a part of an op profile.
KINDS = frozenset({"opsum", "nodes", "ops", "list", "section", "table", "profile", "closing"})
# A list or a table ends by itself; so many lines of other printers may stand between its own.
GAP = 8
LIST_GAP = 4
# The names of the schema, in capitals; of a custom operation and of another delegate's node with its own name behind.
_OP = re.compile(r"([A-Z][A-Z0-9_]{1,80}(?: [\w:./-]{1,160})?):(?: (.*)|$)", re.ASCII)
_LISTED = re.compile(r'"(CPU|GPU|NPU)",?', re.ASCII)
_NUMBER = r"[\d.]{1,30}"
# [node type] ([start], in 2019 and 2020) [first] [avg ms] [%] [cdf%] [mem KB] [times called] [Name]
_ROW = re.compile(
    rf"(?P<type>\S.{{0,200}}?)\s+(?:{_NUMBER}\s+)?{_NUMBER}\s+(?P<avg>{_NUMBER})\s+(?P<percent>{_NUMBER})%"
    rf"\s+{_NUMBER}%\s+{_NUMBER}\s+\d+\s+(?P<name>\S.*)",
    re.ASCII,
)
_CSV_ROW = re.compile(
    rf"(?P<type>[^,]{{1,200}}), (?:{_NUMBER}, )?{_NUMBER}, (?P<avg>{_NUMBER}), (?P<percent>{_NUMBER})%"
    rf", {_NUMBER}%, {_NUMBER}, \d+, (?P<name>\S.*)",
    re.ASCII,
)


class Tables:
    """Follows at most one list or table at a time; while it does, every line must be shown to it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.watching = False  # whether the next line belongs to a list or a table, whatever it says
        self._ops_left = 0  # lines for which the list of unsupported operations may still go on
        self._ops_tag: str | None = None
        self._listed_left = 0
        self._rows_left = 0
        self._wanted = True  # whether the rows of this table are new: tables repeat them in other orders
        self._in_delegate = False

    def take(self, line: Line, number: int, found: Collection[tuple[Rule, re.Match[str]]], run: Run) -> None:
        """Takes a line that the rules have seen already."""
        self._follow(line, number, found, run)
        self.watching = self._rows_left > 0 or self._ops_left > 0 or self._listed_left > 0

    def _follow(self, line: Line, number: int, found: Collection[tuple[Rule, re.Match[str]]], run: Run) -> None:
        for rule, match in found:
            if rule.kind in ("opsum", "nodes"):
                self._ops_left = 0
            elif rule.kind == "ops":
                self._ops_left, self._ops_tag = GAP, line.tag
                return
            elif rule.kind == "list":
                self._listed_left = LIST_GAP
                return
            elif rule.kind == "section":
                self._in_delegate = rule.id == "profile-delegate"
                run.profile_of_init = rule.id == "profile-init" or (self._in_delegate and run.profile_of_init)
                run.profile_whole = False
                if rule.id == "profile-regular":
                    run.closed = False
            elif rule.id == "profile-end":
                run.profile_whole = not run.profile_of_init
            elif rule.kind == "table":
                self._wanted = match["title"] == "Run Order" or not run.profile
                self._rows_left = 0
            elif rule.kind == "profile":
                self._rows_left = GAP
                return
        if self._ops_left and not found:
            self._take_op(line, run)
        if self._listed_left:
            self._take_listed(line, run)
        if self._rows_left:
            self._take_row(line, number, run)

    def _take_op(self, line: Line, run: Run) -> None:
        self._ops_left -= 1
        match = _OP.fullmatch(line.text)
        if match and line.tag == self._ops_tag and len(run.ops) < MAX_OPS:
            op = (match[1], (match[2] or "").strip()[:TEXT_LIMIT])
            run.ops.setdefault(op, set()).add(len(run.nodes))
            self._ops_left = GAP

    def _take_listed(self, line: Line, run: Run) -> None:
        self._listed_left -= 1
        match = _LISTED.fullmatch(line.text)
        if match:
            run.accelerators.add(next(b for b in BACKENDS if b == match[1].lower()))
        else:
            self._listed_left = 0

    def _take_row(self, line: Line, number: int, run: Run) -> None:
        match = _ROW.fullmatch(line.text) or _CSV_ROW.fullmatch(line.text)
        self._rows_left = GAP if match else self._rows_left - 1
        if not match:
            return
        if run.profile_of_init or not self._wanted or len(run.profile) >= MAX_PROFILE_ROWS:
            return
        inner = self._in_delegate or match["name"].startswith("Delegate/")
        # Who ran it is told by the delegates of the whole run, which may stand further down: see compose.py.
        row = OpTime(match["type"], match["name"], float(match["avg"]), float(match["percent"]), None, inner)
        run.profile.append(row)
        rule = self._rules.by_id.get("profile-header")
        if rule and not inner:
            backend = self._rules.backend_of(row.node_type) or ("any" if row.node_type == OLD_DELEGATE else "cpu")
            run.profile_signs.setdefault(backend, Sign(rule, backend, number, line.text[:TEXT_LIMIT]))
