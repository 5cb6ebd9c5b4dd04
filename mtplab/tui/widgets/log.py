"""The log pane: the verdict's banner over the lines of a benchmark log, with follow, filter and jump to the proof."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Log

from mtplab.session.events import LogLine, VerdictReached
from mtplab.session.state import VISIBLE_LOG_LINES, LogView
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Painted, wrapped
from mtplab.tui.widgets.typing import TypedInput


class LogText(Log, inherit_bindings=False):
    """Textual's Log that repaints after it began to drop lines, and says when somebody scrolls it."""

    # Left and right belong to the replay; sideways is done with shift.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", "Up", show=False),
        Binding("down", "scroll_down", "Down", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
        Binding("home", "scroll_home", "First line", show=False),
        Binding("end", "scroll_end", "Last line", show=False),
        Binding("shift+left", "scroll_left", "Left", show=False),
        Binding("shift+right", "scroll_right", "Right", show=False),
    ]

    class Left(Message):
        """The end of the log was left by hand."""

    def add(self, lines: Iterable[str]) -> None:
        """Append lines in one go."""
        self.write_lines(lines)
        # Once max_lines is reached every line moves up while offset and size stay: Textual repaints nothing.
        self.refresh()

    def action_scroll_up(self) -> None:
        self.post_message(self.Left())
        super().action_scroll_up()

    def action_page_up(self) -> None:
        self.post_message(self.Left())
        super().action_page_up()

    def action_scroll_home(self) -> None:
        self.post_message(self.Left())
        super().action_scroll_home()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(self.Left())
        super()._on_mouse_scroll_up(event)


class Banner(Painted):
    """What the shown log proves so far, as loud as it is bad."""

    shown_log: LogView | None = None

    def render_view(self, view: View, width: int, height: int) -> Content:
        return texts.lines(banner_rows(self.shown_log, width), width, height)


def banner_rows(log: LogView | None, width: int) -> list[list[Part]]:
    """PROVISIONAL or FINAL, the verdict's word, nodes, proof; then reason, cure and the proving line."""
    if log is None:
        return []
    verdict = log.verdict
    if verdict is None:
        text = f" ? UNKNOWN so far: {log.total_lines} lines and none speaks of a delegate "
        return [[(texts.pad(text, width), "bold $loud-text on $loud-unknown")]]
    glyph, word, style = texts.verdict_look(verdict.verdict)
    stage = "PROVISIONAL" if verdict.provisional else "FINAL" if verdict.complete else "FINAL, LOG CUT SHORT"
    head = f" {stage}: {glyph} {word}{_nodes(verdict)} · requested {texts.clean(verdict.requested, 16).upper()} "
    proof = f" line {verdict.evidence[0].line} · j jumps " if verdict.evidence else " no line proves it "
    first = texts.pad(head, max(0, width - len(proof))) + proof
    rows: list[list[Part]] = [[(first, style)]]
    why = " — ".join(texts.clean(w) for w in (verdict.reason, verdict.cause) if w)
    rows += [[("▌ ", style), *row] for row in wrapped(f"why: {why}", width - 2)] if why else []
    rows += (
        [[("▌ ", style), *row] for row in wrapped(f"cure: {texts.clean(verdict.cure)}", width - 2)]
        if verdict.cure
        else []
    )
    if verdict.evidence:
        evidence = verdict.evidence[0]
        rows.append([("▌ ", style), (f"{evidence.line}│ {texts.clean(evidence.text)}", "$text-muted")])
    return rows


def _nodes(verdict: VerdictReached) -> str:
    if verdict.delegated_nodes is None or verdict.total_nodes is None:
        return ""
    parts = f", {verdict.partitions} partitions" if verdict.partitions is not None else ""
    return f", {verdict.delegated_nodes} of {verdict.total_nodes} nodes{parts}"


class LogPane(Vertical):
    """The benchmark log that is written now, or the one chosen by hand."""

    def __init__(self, *, id: str, classes: str) -> None:
        super().__init__(id=id, classes=classes)
        self.banner = Banner(id="banner")
        self.text = LogText(max_lines=VISIBLE_LOG_LINES, id="log-text")
        self.filter_input = TypedInput(
            placeholder="show only lines that contain …  (enter keeps, esc clears)", id="filter"
        )
        self.view: View | None = None
        self.following = True
        self.needle = ""
        self.chosen: str | None = None
        self._log: LogView | None = None
        self._last_n = 0
        self._marked: frozenset[int] = frozenset()
        self._rows: deque[int] = deque(maxlen=VISIBLE_LOG_LINES)
        self._hidden = 0
        self._said = ""

    def compose(self) -> ComposeResult:
        """Banner, lines, filter."""
        yield self.banner
        yield self.text
        yield self.filter_input

    def on_mount(self) -> None:
        """Begin without a filter."""
        self.filter_input.display = False
        self.border_title = Content("3 Benchmark log")

    # -- drawing -------------------------------------------------------------
    def show(self, view: View) -> None:
        """Take over what is new; rebuild where another log, a jump in time or new proof asks for it."""
        self.view = view
        log = self._wanted(view)
        self.banner.shown_log = log
        rows = len(banner_rows(log, max(20, self.content_size.width)))
        self.banner.styles.height = min(rows, 4 if self.content_size.height >= 11 else 2)
        self.banner.show(view)
        if log is None:
            self._show_empty(view)
        elif log is not self._log or log.total_lines < self._last_n or _proof(log) != self._marked:
            self._rebuild(log, view)
        elif self.following:
            self._append(log, view)
        self._title(view)

    def _wanted(self, view: View) -> LogView | None:
        state = view.state
        if self.chosen is not None and self.chosen in state.logs:
            return state.logs[self.chosen]
        return state.logs.get(state.current_log) if state.current_log is not None else None

    def _show_empty(self, view: View) -> None:
        waiting = "No benchmark log yet: the stage `bench` writes it." if view.state.running else "No benchmark log."
        said = texts.clean(view.nothing() or waiting)
        if self._log is None and said == self._said:
            return
        self._log, self._last_n, self._marked, self._said = None, 0, frozenset(), said
        self.text.clear()
        self._rows.clear()
        self.text.add([f" {said}"])

    def _rebuild(self, log: LogView, view: View) -> None:
        self.text.clear()
        self._rows.clear()
        self._log, self._last_n, self._hidden, self._marked = log, 0, 0, _proof(log)
        self._append(log, view)
        if self.following:
            self.text.scroll_end(animate=False)

    def _append(self, log: LogView, view: View) -> None:
        fresh: list[LogLine] = []
        for line in reversed(log.lines):
            if line.n <= self._last_n:
                break
            fresh.append(line)
        if not fresh:
            return
        self._last_n = fresh[0].n
        kept = [line for line in reversed(fresh) if self.needle in line.text.lower()]
        self._hidden += len(fresh) - len(kept)
        self._rows.extend(line.n for line in kept)
        if kept:
            self.text.add(self._row(line, view) for line in kept)

    def _row(self, line: LogLine, view: View) -> str:
        mark = "▶" if line.n in self._marked else " "
        return f"{mark}{line.n:>5} {texts.clock(view.since(line.t), milli=True)} {texts.clean(line.text, 2000)}"

    def _title(self, view: View) -> None:
        room = max(10, self.size.width - 6)
        forms = self._titles(view)
        title = next((form for form in forms if cell_len(form) <= room), forms[-1])
        content = Content(texts.fit(title, room))
        if self._border_title is None or not content.is_same(self._border_title):
            self.border_title = content

    def _titles(self, view: View) -> list[str]:
        """The pane's title, the longest form first: which log, whether it follows, what is not seen of it."""
        log = self._log
        if log is None:
            return ["3 Benchmark log"]
        older, below = log.total_lines - len(log.lines), log.total_lines - self._last_n
        state = "follow ●" if self.following else f"follow ○ {below:,} new below"
        by = f" by “{texts.clean(self.needle, 20)}”" if self.needle else ""
        counts = f"{log.total_lines:,} lines · {self._hidden:,} hidden{by}"
        counts += f" · {older:,} older" if older > 0 else ""
        names = list(view.state.logs)
        which = f" {names.index(log.log) + 1}/{len(names)}" if len(names) > 1 and log.log in names else ""
        asked = texts.clean(log.requested, 12).upper()
        return [
            f"3 Log · {texts.clean(log.graph, 40)} · requested {asked}{f' ({which[1:]}, l next)' if which else ''}"
            f" · {state} · {counts}",
            f"3 Log · {asked}{which} · {state} · {counts}",
            f"3 Log {asked}{which} · {'●' if self.following else '○'} · {counts}",
        ]

    # -- what keys do ----------------------------------------------------------
    def toggle_follow(self) -> None:
        """Follow the end, or stand still while lines go on arriving."""
        self.following = not self.following
        self.text.auto_scroll = self.following
        if self.following and self.view is not None and self._log is not None:
            self._rebuild(self._log, self.view)
        self._retitle()

    def next_log(self) -> None:
        """Show the next log of this run."""
        if self.view is None or len(self.view.state.logs) < 2:
            return
        names = list(self.view.state.logs)
        now = self._log.log if self._log is not None and self._log.log in names else names[0]
        self.chosen = names[(names.index(now) + 1) % len(names)]
        if self.chosen == self.view.state.current_log:
            self.chosen = None
        self.show(self.view)

    def jump(self) -> str | None:
        """Go to the line that proves the verdict; the reason as a sentence where that cannot be."""
        log = self._log
        if log is None or log.verdict is None or not log.verdict.evidence:
            return "No line proves a verdict here: silence is unknown."
        line = log.verdict.evidence[0].line
        if self.following:
            self.toggle_follow()
        if self.needle and line not in self._rows:
            self.set_filter("")
        if line not in self._rows:
            return (
                f"Line {line} has left the screen's {VISIBLE_LOG_LINES:,} lines; it stands in the session's journal."
            )
        row = list(self._rows).index(line)
        self.text.scroll_to(y=max(0, row - self.text.size.height // 2), animate=False)
        return None

    def ask_filter(self) -> None:
        """Open the filter."""
        self.filter_input.display = True
        self.filter_input.focus()

    def set_filter(self, needle: str) -> None:
        """Show only lines that contain `needle`, whatever the case."""
        self.needle = needle.strip().lower()
        if self._log is not None and self.view is not None:
            self._rebuild(self._log, self.view)
            self._retitle()

    def _retitle(self) -> None:
        if self.view is not None:
            self._title(self.view)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        self.set_filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter; an empty one goes away."""
        event.stop()
        self.filter_input.display = bool(event.value.strip())
        self.text.focus()

    def on_key(self, event: events.Key) -> None:
        """Escape clears the filter."""
        if event.key == "escape" and self.filter_input.has_focus:
            event.stop()
            self.filter_input.value = ""
            self.filter_input.display = False
            self.text.focus()

    def on_log_text_left(self, message: LogText.Left) -> None:
        """Who scrolls up wants to read: stand still."""
        message.stop()
        if self.following and self.text.max_scroll_y > 0:
            self.toggle_follow()

    def on_resize(self) -> None:
        """Stay at the end through a change of size."""
        if self.view is not None:
            self.show(self.view)
        if self.following:
            self.call_after_refresh(self.text.scroll_end, animate=False)


def _proof(log: LogView) -> frozenset[int]:
    return frozenset(e.line for e in log.verdict.evidence) if log.verdict is not None else frozenset()
