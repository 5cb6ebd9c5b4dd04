"""The α/γ pane: takes the session's numbers or typed ones, and draws what they make of drafting."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label

from mtplab.tui import texts
from mtplab.tui.reckoning import Numbers, Origin, Reckoned, cost_of, measured_speedup, numbers_of, reckon
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.calculator_rows import answer_rows, class_rows, curve_content, note_rows, what_if_rows
from mtplab.tui.widgets.heat import _rgb
from mtplab.tui.widgets.pane import Painted, wrapped
from mtplab.tui.widgets.typing import TypedInput

FIELDS = (("alpha", "α"), ("gamma", "γ"), ("draft_cost", "c"), ("verify_cost", "r"))
THREADS = ("threads", "threads")
STEPS = {"alpha": 0.01, "gamma": 1, "draft_cost": 0.01, "verify_cost": 0.05, "threads": 1}
WHOLE = ("gamma", "threads")
Typed = float | int | tuple[int, int]
CURVE_ROWS, LEAST_CURVE_ROWS = 8, 4


class Answered(Painted):
    """The answer and its curve."""

    pane: CalculatorPane

    def render_view(self, view: View, width: int, height: int) -> Content:
        return self.pane.content(width, height)


class CalculatorPane(Vertical, can_focus=True):
    """Takes the session's counts as soon as there are any; `v` types other values, `u` takes the session's again."""

    def __init__(self, *, id: str, classes: str) -> None:
        super().__init__(id=id, classes=classes)
        self.body = Answered(id="calculator-body")
        self.body.pane = self
        self.numbers = Numbers()
        self.by_hand = False
        self.problem: str | None = None
        self.refused: dict[str, str] = {}
        """What stands in a field and is no number, by the field's name."""
        self._session_numbers: Numbers | None = None
        self._asked: Numbers | None = None
        self._reckoned: Reckoned | None = None
        self._drawn: tuple[tuple[object, ...], Content] | None = None
        self._seen: tuple[int, int, int] | None = None
        self._view: View | None = None

    def compose(self) -> ComposeResult:
        """Only the answer; the fields come when somebody wants to type."""
        yield self.body

    def on_mount(self) -> None:
        """Name the frame."""
        self.border_title = Content("4 α/γ speedup")

    def show(self, view: View) -> None:
        """Take over the session's counts unless the user typed values of their own."""
        self._view = view
        # A long session's rounds are read again only when there is something new in them.
        seen = (id(view.state), view.state.event_count, len(view.state.verdicts))
        if seen != self._seen:
            self._seen, self._session_numbers = seen, numbers_of(view.state)
        if not self.by_hand:
            self.numbers = self._session_numbers or Numbers()
        self.body.show(view)

    # -- drawing -------------------------------------------------------------
    def content(self, width: int, height: int) -> Content:
        """Rows and, where there is room, the curve."""
        if self.numbers != self._asked:
            self._asked = self.numbers
            try:
                self._reckoned, self.problem = reckon(self.numbers), None
            except ValueError as error:
                self._reckoned, self.problem = None, str(error)
        rows = self._refused_rows(width)
        if self.problem is not None or self._reckoned is None:
            rows += wrapped(texts.clean(self.problem or ""), width, "bold $text-error")
            return texts.lines(rows, width, height)
        timed = None if self.by_hand or self._view is None else measured_speedup(self._view.state)
        rows += answer_rows(self.numbers, self._reckoned, self._hint(), width, timed, self.origin)
        for more in (
            what_if_rows(self._reckoned, width),
            class_rows(self._reckoned, width),
            note_rows(self._reckoned, width),
        ):
            if height - len(rows) - len(more) >= CURVE_ROWS:
                rows += more
        left = height - len(rows)
        if left < LEAST_CURVE_ROWS:
            return texts.lines(rows, width, height)
        return Content("\n").join([texts.lines(rows, width), self._curve(width, left)])

    def _curve(self, width: int, height: int) -> Content:
        """The curve, drawn anew only where it would be another one: it is most of what a redraw costs."""
        assert self._reckoned is not None
        colours = [_rgb(self.app.theme_variables.get(name)) for name in ("text-primary", "text-secondary")]
        wanted = (self.numbers, width, height, *colours)
        if self._drawn is None or self._drawn[0] != wanted:
            self._drawn = (wanted, curve_content(self.numbers, self._reckoned, width, height, *colours))
        return self._drawn[1]

    @property
    def origin(self) -> Origin:
        """Where the numbers come from: an example claims nothing, typed ones only what would be."""
        if self.by_hand:
            return "hand"
        return "example" if self._session_numbers is None else "session"

    def _hint(self) -> str:
        if self.by_hand:
            return "typed by hand" + (" · u the session's" if self._session_numbers is not None else "")
        if self._session_numbers is None:
            return "EXAMPLE, nothing measured · v types"
        if self._session_numbers.costs_measured:
            return "computed from measured α, c, r · v types"
        return "computed from measured α; c, r not measured yet · v types"

    def _refused_rows(self, width: int) -> list[list[Part]]:
        return [row for text in self._refusals() for row in wrapped(text, width, "bold $text-error")]

    def _refusals(self) -> list[str]:
        labels = dict(FIELDS)
        labels["threads"] = "threads"
        return [
            f"{labels[name]}: {_quoted(text)} is no {'whole number' if name in WHOLE else 'number'}; "
            f"{self._typed(name)} still counts."
            for name, text in self.refused.items()
        ]

    # -- typing ---------------------------------------------------------------
    async def edit(self) -> None:
        """Open the fields."""
        if not self.query("#calculator-fields"):
            boxes: list[Label | Input] = []
            for name, label in self._fields():
                boxes += [Label(f"{label} "), TypedInput(self._typed(name), name=name, compact=True)]
            await self.mount(Horizontal(*boxes, id="calculator-fields"), before=self.body)
        self.query(Input).first().focus()

    def _fields(self) -> tuple[tuple[str, str], ...]:
        """α, γ, c, r, and threads where the session measured costs on several."""
        several = len({p.threads for p in self.numbers.points}) > 1
        return (*FIELDS, THREADS) if several else FIELDS

    async def close_fields(self) -> None:
        """Put the fields away, keep what was typed; what was no number is said once more and forgotten."""
        for sentence in self._refusals():
            self.notify(sentence, severity="warning", markup=False)
        self.refused.clear()
        await self.query("#calculator-fields").remove()
        self.focus()

    async def use_session(self) -> bool:
        """Take the session's own values again; False where it has none."""
        self.by_hand = False
        self.refused.clear()
        await self.query("#calculator-fields").remove()
        if self._view is not None:
            self.show(self._view)
        return self._session_numbers is not None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Calculate while typing; an unfinished number waits."""
        event.stop()
        name = event.input.name or ""
        value = _read(name, event.value)
        event.input.set_class(value is None, "-invalid")
        if value is None:
            self.refused[name] = event.value
        elif self.refused.pop(name, None) is None and event.value == self._typed(name):
            return
        else:
            self._take(name, value)
        if self._view is not None:
            self.body.show(self._view)

    def _take(self, name: str, value: Typed) -> None:
        """Calculate with a typed value. Accept counts answer for other draft lengths too, class by class."""
        self.by_hand = True
        changed: dict[str, Any] = {name: value}
        if name == "alpha":
            ratio = isinstance(value, tuple)
            changed = {"alpha": None if ratio else value, "totals": value if ratio else None,
                       "counts": None, "prompts": (), "classes": ()}  # fmt: skip
        elif name == "threads":
            changed |= {"draft_cost": None, "verify_cost": None}
        self.numbers = msgspec.structs.replace(self.numbers, **changed)

    def _typed(self, name: str) -> str:
        """A field's text; of α, c and r the measured ones, from which nudging then begins."""
        value = getattr(self.numbers, name)
        if name == "alpha" and self.numbers.totals is not None:
            return "/".join(map(str, self.numbers.totals))
        if value is None and name in ("draft_cost", "verify_cost"):
            value = self._measured(name)
        return f"{self._alpha() if value is None else value:g}"

    def _measured(self, name: str) -> float:
        try:
            cost = cost_of(self.numbers)[0]
        except ValueError:
            return 0.0 if name == "draft_cost" else 1.0
        gamma = self.numbers.gamma
        return round(cost.draft_cost(gamma) / gamma if name == "draft_cost" else cost.verify_cost(gamma + 1), 4)

    def _alpha(self) -> float:
        value = self._reckoned.answer.alpha.value if self._reckoned is not None else None
        return round(value, 3) if value is not None else 0.6

    async def on_key(self, event: events.Key) -> None:
        """Up and down nudge a field, escape closes them."""
        field = self.app.focused
        if not isinstance(field, Input) or field.name not in STEPS:
            return
        if event.key in ("up", "down"):
            event.stop()
            step = STEPS[field.name] * (1 if event.key == "up" else -1)
            field.value = _stepped(field.value, step, whole=field.name in WHOLE)
        elif event.key in ("escape", "enter"):
            event.stop()
            await self.close_fields()


def _quoted(text: str) -> str:
    return repr(texts.clean(text, 16)) if text.strip() else "nothing"


def _read(name: str, text: str) -> Typed | None:
    """A field's number, None where it is none; α may also be accepted/drafted, two whole numbers."""
    try:
        if name == "alpha" and "/" in text:
            accepted, drafted = (int(part) for part in text.split("/"))
            return accepted, drafted
        value: float | int = int(text) if name in WHOLE else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _stepped(text: str, step: float, *, whole: bool) -> str:
    try:
        value = float(text) + step
    except ValueError:
        return text
    return str(max(1, round(value))) if whole else f"{max(0.0, round(value, 4)):g}"
