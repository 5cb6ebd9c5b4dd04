"""The α/γ pane: what acceptance and costs make of drafting, from the session or typed by hand, with its curve."""

from __future__ import annotations

import math

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label

from mtplab.session.events import Figure
from mtplab.tui import plot, texts
from mtplab.tui.reckoning import Numbers, Reckoned, measured_speedup, numbers_of, reckon
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.heat import _rgb
from mtplab.tui.widgets.pane import Painted, flowed, wrapped

FIELDS = (("alpha", "α"), ("gamma", "γ"), ("draft_cost", "c"), ("verify_cost", "r"))
STEPS = {"alpha": 0.01, "gamma": 1, "draft_cost": 0.01, "verify_cost": 0.05}
VERDICT_STYLES = {"pays": "bold $text-success", "costs": "bold $text-error"}


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
        self._session_numbers = numbers_of(view.state)
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
        rows += answer_rows(self.numbers, self._reckoned, self._hint(), width, timed)
        left = height - len(rows)
        notes = note_rows(self._reckoned, width)
        if left - len(notes) >= 8:
            rows, left = [*rows, *notes], left - len(notes)
        if left < 5:
            return texts.lines(rows, width, height)
        colours = self.app.theme_variables
        curve = curve_content(self.numbers, self._reckoned, width, left, _rgb(colours.get("text-primary")))
        return Content("\n").join([texts.lines(rows, width), curve])

    def _hint(self) -> str:
        if self.by_hand:
            return "typed by hand" + (" · u the session's" if self._session_numbers is not None else "")
        if self._session_numbers is None:
            return "an example: nothing measured · v types"
        if self._session_numbers.costs_measured:
            return "computed from measured α, c, r · v types"
        return "computed from measured α; c, r not measured yet · v types"

    def _refused_rows(self, width: int) -> list[list[Part]]:
        return [row for text in self._refusals() for row in wrapped(text, width, "bold $text-error")]

    def _refusals(self) -> list[str]:
        labels = dict(FIELDS)
        kind = {"gamma": "whole number"}
        return [
            f"{labels[name]}: {_quoted(text)} is no {kind.get(name, 'number')}; {self._typed(name)} still counts."
            for name, text in self.refused.items()
        ]

    # -- typing ---------------------------------------------------------------
    async def edit(self) -> None:
        """Open the fields."""
        if not self.query("#calculator-fields"):
            boxes: list[Label | Input] = []
            for name, label in FIELDS:
                boxes += [Label(f"{label} "), Input(self._typed(name), name=name, compact=True)]
            await self.mount(Horizontal(*boxes, id="calculator-fields"), before=self.body)
        self.query(Input).first().focus()

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

    def _take(self, name: str, value: float | int) -> None:
        """Calculate with a typed value."""
        self.by_hand = True
        if name != "alpha" and self.numbers.alpha is None and name == "gamma":
            # Counts hold for their own γ only: another γ is a question about α.
            self.numbers = msgspec.structs.replace(self.numbers, alpha=self._alpha(), counts=None, prompts=())
        changed = {name: value, **({"counts": None, "prompts": ()} if name == "alpha" else {})}
        self.numbers = msgspec.structs.replace(self.numbers, **changed)

    def _typed(self, name: str) -> str:
        """A field's text; of α the measured one, from which nudging then begins."""
        value = getattr(self.numbers, name)
        return f"{self._alpha() if value is None else value:g}"

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
            field.value = _stepped(field.value, step, whole=field.name == "gamma")
        elif event.key in ("escape", "enter"):
            event.stop()
            await self.close_fields()


def _quoted(text: str) -> str:
    return repr(texts.clean(text, 16)) if text.strip() else "nothing"


def _read(name: str, text: str) -> float | int | None:
    """A field's number, None where it is none."""
    try:
        value: float | int = int(text) if name == "gamma" else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _stepped(text: str, step: float, *, whole: bool) -> str:
    try:
        value = float(text) + step
    except ValueError:
        return text
    return str(max(1, round(value))) if whole else f"{max(0.0, round(value, 4)):g}"


def note_rows(reckoned: Reckoned, width: int) -> list[list[Part]]:
    """What the answer rests on and where it stops holding; the question of the ratio has rows of its own."""
    answer = reckoned.answer
    told = [w for w in answer.warnings if "was taken as α" not in w]
    rows = [row for text in told for row in wrapped(f"! {texts.clean(text)}", width, "$text-warning")]
    return rows + [row for text in answer.notes for row in wrapped(texts.clean(text), width, "$text-muted")]


def answer_rows(
    numbers: Numbers, reckoned: Reckoned, hint: str, width: int, timed: Figure | None = None
) -> list[list[Part]]:
    """τ, costs, speedup, best γ and break-even; of a typed α also what it means read as accepted ÷ drafted.

    `timed` is the session's measured decode speedup, set beside the computed S.
    """
    answer = reckoned.answer
    measured = numbers.counts is not None
    # Only what was measured may look like a finding.
    style = VERDICT_STYLES.get(answer.verdict, "bold $text-warning") if measured else "bold"
    alpha = answer.alpha
    spread = (
        f" [{alpha.low:.2f}–{alpha.high:.2f}] n {alpha.n}" if alpha.low is not None and alpha.high is not None else ""
    )
    rounds = f" · {sum(numbers.counts)} rounds" if numbers.counts else ""
    gain = answer.speedup_interval
    between = f" [{gain.low:.2f}–{gain.high:.2f}]" if gain.low is not None and gain.high is not None else ""
    over = [f"o {numbers.overhead:.2g}"] if numbers.overhead else []
    edge = f"{answer.break_even_alpha:.2f}" if answer.break_even_alpha is not None else "never"
    best = f"{answer.best_gamma} {answer.best_speedup:.2f}×" if answer.best_gamma else "0: do not draft"
    # Of a recorded head only its own positions were seen; a longer draft was neither exported nor observed.
    within = f"≤{answer.gamma}:" if measured else ""
    beyond = " (longer: not exported)" if measured and width >= 60 else ""
    costs = [f"c {numbers.draft_cost:.3g}", f"r({answer.gamma + 1}) {numbers.verify_cost:.3g}", *over]
    rows: list[list[Part]] = [
        *_hint_rows(hint, width),
        [
            ("α ", "bold"),
            f"{alpha.value:.2f}{spread}" if alpha.value is not None else "unknown",
            f"  γ {answer.gamma}",
        ],
        [("τ ", "bold"), f"{answer.expected_tokens:.2f} tokens/round{rounds}"],
        *flowed([*costs, f"K {answer.round_cost:.2f}"], width, between=" "),
        [("S ", "bold"), (f"{answer.speedup:.2f}×{between} {answer.verdict}", style)],
        *_timed_rows(timed, width),
        *flowed([f"best γ{within} {best}{beyond}", f"break-even α {edge}"], width),
    ]
    if answer.readings is not None:
        other = answer.readings["as_ratio"]
        rows += wrapped(
            f"? {alpha.value:.2f} read as accepted÷drafted: α {other.alpha:.2f}, τ {other.expected_tokens:.2f}, "
            f"S {other.speedup:.2f}× {other.verdict}",
            width,
            "$text-warning",
        )
    return rows


def _hint_rows(hint: str, width: int) -> list[list[Part]]:
    """What it was made of; the key gives way where there is no room."""
    return wrapped(hint if len(hint) <= width else hint.partition(" · ")[0], width, "$text-muted")


def _timed_rows(timed: Figure | None, width: int) -> list[list[Part]]:
    if timed is None or timed.value is None:
        return []
    between = f" [{timed.low:.2f}–{timed.high:.2f}]" if timed.low is not None and timed.high is not None else ""
    return flowed(["measured decode", f"{timed.value:.2f}×{between}"], width, "bold", between=" ")


def curve_content(numbers: Numbers, reckoned: Reckoned, width: int, height: int, colour: plot.Rgb | None) -> Content:
    """Speedup over γ with the break-even line (─) and the current γ (●); behind what was observed only dots (·)."""
    seen = numbers.gamma if numbers.counts is not None else len(reckoned.curve)
    gammas = [g for g, _ in reckoned.curve]
    gains = [s for _, s in reckoned.curve]
    low, high = min([*gains, 0.9]), max([*gains, 1.1])
    margin = (high - low) * 0.08
    here = [s for g, s in reckoned.curve if g == numbers.gamma]
    series = [
        plot.Series(x=[gammas[0], gammas[-1]], y=[1.0, 1.0], marker="─"),
        plot.Series(x=gammas[:seen], y=gains[:seen], colour=colour),
        plot.Series(x=gammas[seen:], y=gains[seen:], marker="·", connect=False),
        plot.Series(x=[numbers.gamma] * len(here), y=here, marker="●", connect=False),
    ]
    ticks = sorted({round(low, 2), 1.0, round(high, 2)})
    return plot.draw(
        series,
        plot.Axis(
            low=gammas[0], high=gammas[-1], ticks=gammas, labels=[f"γ{g}" if g == 1 else str(g) for g in gammas]
        ),
        plot.Axis(low=low - margin, high=high + margin, ticks=ticks, labels=[f"{t:.2f}×" for t in ticks]),
        width,
        height,
    )
