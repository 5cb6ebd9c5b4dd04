"""Reads a log line by line: one line in, what is new out; the verdict so far can be asked for at any time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .compose import choose, compose
from .intake import take, take_error
from .lines import HALF_LIMIT, Line, clean, strip_controls
from .reading import Backend, Reading
from .rules import Rule, Rules, load_rules
from .run import Event, Run, Sign
from .tables import KINDS, Tables
from .verdict import judge, requested_by_log

MAX_RUNS = 256
BLOCK_LENGTH = 1 << 16
_NOTHING: tuple[Event, ...] = ()


class LogReader:
    """Incremental reader of one log, which may hold several runs. `requested` overrides what the log says."""

    def __init__(self, requested: str | None = None, rules: Rules | None = None) -> None:
        if requested not in (None, "cpu", "gpu", "nnapi", "npu"):
            raise ValueError(f"requested must be cpu, gpu, nnapi or npu, not {requested!r}")
        self._asked: Backend | None = requested  # type: ignore[assignment]
        self._rules = rules or load_rules()
        self._runs = [Run(self._rules)]
        self._tables = Tables(self._rules)
        self._earlier: dict[tuple[int, str | None, str | None, bool], Reading] = {}
        self._number = 0
        self._last: tuple[int, str] = (0, "")

    # ---- lines in

    def feed(self, line: str) -> Sequence[Event]:
        """Takes one line (with or without its end) and returns the evidence, findings and figures it adds."""
        self._number += 1
        if len(line) > 2 * HALF_LIMIT:
            line = strip_controls(line)
        if self._tables.watching or self._rules.may_match(line):
            return self._take(clean(line))
        return _NOTHING

    def feed_text(self, text: str) -> Sequence[Event]:
        """Takes many whole lines at once: the same as feeding each, and faster."""
        return [event for events in self.scan(text) for event in events]

    def scan(self, text: str) -> Iterator[Sequence[Event]]:
        """Takes many whole lines at once and yields what each of them adds, as soon as it is taken."""
        start = 0
        while start < len(text):
            end = text.rfind("\n", start, start + BLOCK_LENGTH) + 1
            if end <= start:  # a line that is longer than a block
                end = text.find("\n", start) + 1 or len(text)
                yield self.feed(text[start:end])
            else:
                yield from self._scan_block(text[start:end])
            start = end

    def _scan_block(self, block: str) -> Iterator[Sequence[Event]]:
        """Sets aside, as cheaply as can be, the lines of a block that no rule can match."""
        tables, before, at = self._tables, self._number, 0  # `before`: how many lines stand before `at`
        for start in [*self._rules.candidates(block), len(block)]:
            while tables.watching and at < start:  # every line of a list or a table
                end = block.index("\n", at) + 1
                before = self._number = before + 1
                if events := self._take(clean(block[at:end])):
                    yield events
                tables, at = self._tables, end
            if start < at or start == len(block):
                continue
            end = block.index("\n", start) + 1
            before = self._number = before + block.count("\n", at, start) + 1
            if events := self._take(clean(block[start:end])):
                yield events
            tables, at = self._tables, end
        self._number = before + block.count("\n", at)

    def _take(self, line: Line) -> Sequence[Event]:
        if not line.text:
            return _NOTHING
        number, last = self._number, self._last
        self._last = (number, line.text)
        matched = self._rules.matches(line.text, line.whole)
        found = [pair for pair in matched if pair[0].kind != "error"]
        if matched and not found and not self._tables.watching:
            take_error(self.run, matched[0][0], line, number)
        again = last == (number - 1, line.text)  # a log that was caught twice
        if not found:
            if self._tables.watching and not again:
                self._tables.take(line, number, found, self.run)
            return _NOTHING
        if again and not any(rule.kind == "separator" for rule, _ in found):
            return _NOTHING
        events: list[Event] = []
        tabled = False
        for rule, match in found:
            if rule.begins:
                self._open(rule)
            events += take(self.run, rule, match, line, number)
            tabled = tabled or rule.kind in KINDS
        if tabled or self._tables.watching:
            self._tables.take(line, number, found, self.run)
        return events

    def _open(self, rule: Rule) -> None:
        """Begins a new run when the current one already has its own opening, figures or end."""
        run = self.run
        again = {
            "again": rule.id in run.seen or (rule.id == "starting" and run.has_content),
            "after": run.ended or bool(run.blocks or run.figures),
        }
        if again[rule.begins or "again"] and len(self._runs) < MAX_RUNS:
            self._runs.append(Run(self._rules))
            self._tables = Tables(self._rules)

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
