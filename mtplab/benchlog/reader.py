"""Reads a log line by line: one line in, what is new out; the verdict so far can be asked for at any time."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .compose import choose, compose
from .lines import HALF_LIMIT, Line, clean, strip_controls
from .reading import Backend, OpTime, Reading
from .rules import Rules, load_rules
from .run import MAX_OPS, TEXT_LIMIT, Event, Run, Sign
from .verdict import judge, requested_by_log

# The list of unsupported operations ends at its summary; other printers' lines may stand between.
OP_GAP = 8
MAX_RUNS = 256
MAX_PROFILE_ROWS = 20_000
_OP = re.compile(r"([A-Za-z_]\w{1,80}):(?: (.*)|$)", re.ASCII)
_ROW = re.compile(
    r"(?P<type>\S.{0,200}?)\s+[\d.]+\s+(?P<avg>[\d.]+)\s+(?P<percent>[\d.]+)%\s+[\d.]+%\s+[\d.]+\s+\d+\s+(?P<name>\S.*)",
    re.ASCII,
)
_NOTHING: tuple[Event, ...] = ()


class LogReader:
    """Incremental reader of one log, which may hold several runs. `requested` overrides what the log says."""

    def __init__(self, requested: str | None = None, rules: Rules | None = None) -> None:
        if requested not in (None, "cpu", "gpu", "nnapi", "npu"):
            raise ValueError(f"requested must be cpu, gpu, nnapi or npu, not {requested!r}")
        self._asked: Backend | None = requested  # type: ignore[assignment]
        self._rules = rules or load_rules()
        self._runs = [Run(self._rules)]
        self._earlier: dict[tuple[int, str | None, str | None, bool], Reading] = {}
        self._number = 0
        self._last: tuple[int, str] = (0, "")
        self._ops_left = 0  # lines for which the list of unsupported operations may still go on
        self._ops_tag: str | None = None
        self._profile = False
        self._watching = False  # the next line belongs to a list or a table: look at it whatever it says

    # ---- lines in

    def feed(self, line: str) -> Sequence[Event]:
        """Takes one line (with or without its end) and returns the evidence, findings and figures it adds."""
        return self._feed((line,), self._rules.parts)

    def feed_text(self, text: str) -> Sequence[Event]:
        """Takes many whole lines at once: the same as feeding each, and faster."""
        parts = tuple(part for part in self._rules.parts if part in text)
        return self._feed(text.removesuffix("\n").split("\n"), parts)

    def _feed(self, lines: Sequence[str], parts: Sequence[str]) -> Sequence[Event]:
        """Sets aside, as cheaply as can be, what no rule can match; `parts` are those that may stand in the lines."""
        isdisjoint = self._rules.words.isdisjoint
        events: list[Event] = []
        number = self._number
        for line in lines:
            number += 1
            if len(line) > 2 * HALF_LIMIT:
                line = strip_controls(line)
            if not self._watching and isdisjoint(line.split()):
                for part in parts:
                    if part in line:
                        break
                else:
                    continue
            self._number = number
            events += self._take(clean(line))
        self._number = number
        return events

    def _take(self, line: Line) -> Sequence[Event]:
        if not line.text:
            return _NOTHING
        number = self._number
        repeated = self._last == (number - 1, line.text)
        self._last = (number, line.text)
        found = self._rules.matches(line.text, line.whole)
        if repeated and not any(rule.kind == "separator" for rule, _ in found):
            return _NOTHING  # a log that was caught twice
        events: list[Event] = []
        for rule, match in found:
            if rule.kind == "opening":
                self._open(rule.id)
            events += self.run.take(rule, match, line, number)
            self._ops_left = 0 if rule.kind in ("opsum", "nodes") else self._ops_left
        kinds = {rule.kind for rule, _ in found}
        if "ops" in kinds:
            self._ops_left, self._ops_tag = OP_GAP, line.tag
        elif self._ops_left and not found:
            self._take_op(line)
        if "profile" in kinds:
            self._profile = True
        elif self._profile:
            self._take_row(line)
        self._watching = self._profile or self._ops_left > 0
        return events

    def _take_op(self, line: Line) -> None:
        self._ops_left -= 1
        match = _OP.fullmatch(line.text)
        if match and line.tag == self._ops_tag and len(self.run.ops) < MAX_OPS:
            op = (match[1], (match[2] or "").strip()[:TEXT_LIMIT])
            self.run.ops.setdefault(op, set()).add(len(self.run.nodes))
            self._ops_left = OP_GAP

    def _take_row(self, line: Line) -> None:
        match = _ROW.fullmatch(line.text)
        if not match:
            self._profile = False
            return
        run = self.run
        if "profile-regular" in run.seen and len(run.profile) < MAX_PROFILE_ROWS:
            delegated = match["name"].startswith("Delegate/") or self._rules.backend_of(match["type"]) is not None
            row = OpTime(match["type"], match["name"], float(match["avg"]), float(match["percent"]), not delegated)
            if row not in run.profile[-200:]:  # the same rows come again, sorted by time
                run.profile.append(row)

    def _open(self, rule_id: str) -> None:
        """Begins a new run when the current one already has its own opening or figures."""
        again = rule_id in self.run.seen or (rule_id == "starting" and self.run.has_content)
        if again and rule_id in ("starting", "parameters-begin") and len(self._runs) < MAX_RUNS:
            self._runs.append(Run(self._rules))
            self._profile, self._ops_left = False, 0

    @property
    def run(self) -> Run:
        """The run that the last line belongs to."""
        return self._runs[-1]

    # ---- readings out

    def verdict(self, final: bool = False) -> Reading:
        """The reading by what was seen so far; provisional unless `final`."""
        known = [requested_by_log(run) for run in self._runs]
        fallback = next((pair for pair in known if pair[0]), (None, None))
        readings = []
        for place, (run, own) in enumerate(zip(self._runs, known, strict=True)):
            requested, source = (self._asked, "argument") if self._asked else own if own[0] else fallback
            key = (place, requested, source, final)
            reading = self._earlier.get(key)
            if reading is None:
                reading = compose(run, requested, source, judge(run, requested), provisional=not final)
                if run is not self.run:  # nothing more will be said about it
                    self._earlier[key] = reading
            readings.append(reading)
        return choose(readings, [run.closed or run.exit_code is not None for run in self._runs])

    def finish(self, exit_code: int | None = None) -> Reading:
        """The final reading. `exit_code` is the process's own, when the caller knows it."""
        if exit_code is not None:
            run = self.run
            rule = self._rules.by_id["exit-code"]
            run.exit_code = exit_code
            run.exit_sign = Sign(rule, "any", self._number, f"exit code {exit_code}")
        return self.verdict(final=True)
