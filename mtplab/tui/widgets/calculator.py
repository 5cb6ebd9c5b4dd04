"""The α/γ pane: what acceptance and costs make of drafting, from the session or typed by hand, with its curve."""

from __future__ import annotations

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label

from mtplab.tui import plot, texts
from mtplab.tui.reckoning import Numbers, Reckoned, numbers_of, reckon
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.heat import _rgb
from mtplab.tui.widgets.pane import Painted, wrapped

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
        if self._reckoned is None:
            return texts.lines(wrapped(texts.clean(self.problem or ""), width, "bold $text-error"), width, height)
        rows = answer_rows(self.numbers, self._reckoned, self._hint(), width)
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
        costs = "" if self._session_numbers.costs_measured else ", costs not yet"
        return f"as measured{costs} · v types"

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
        """Put the fields away, keep what was typed."""
        await self.query("#calculator-fields").remove()
        self.focus()

    async def use_session(self) -> bool:
        """Take the session's own values again; False where it has none."""
        self.by_hand = False
        await self.query("#calculator-fields").remove()
        if self._view is not None:
            self.show(self._view)
        return self._session_numbers is not None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Calculate while typing; an unfinished number waits."""
        event.stop()
        name = event.input.name or ""
        if event.value == self._typed(name):
            return
        try:
            value: float | int = int(event.value) if name == "gamma" else float(event.value)
        except ValueError:
            event.input.add_class("-invalid")
            return
        event.input.remove_class("-invalid")
        self.by_hand = True
        if name != "alpha" and self.numbers.alpha is None and name == "gamma":
            # Counts hold for their own γ only: another γ is a question about α.
            self.numbers = msgspec.structs.replace(self.numbers, alpha=self._alpha(), counts=None, prompts=())
        changed = {name: value, **({"counts": None, "prompts": ()} if name == "alpha" else {})}
        self.numbers = msgspec.structs.replace(self.numbers, **changed)
        if self._view is not None:
            self.body.show(self._view)

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


def answer_rows(numbers: Numbers, reckoned: Reckoned, hint: str, width: int) -> list[list[Part]]:
    """τ, costs, speedup, best γ and break-even; of a typed α also what it means read as accepted ÷ drafted."""
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
    over = f"  o {numbers.overhead:.2g}" if numbers.overhead else ""
    edge = f"{answer.break_even_alpha:.2f}" if answer.break_even_alpha is not None else "never"
    best = f"{answer.best_gamma} ({answer.best_speedup:.2f}×)" if answer.best_gamma else "0 (do not draft)"
    rows: list[list[Part]] = [
        [(hint, "$text-muted")],
        [
            ("α ", "bold"),
            f"{alpha.value:.2f}{spread}" if alpha.value is not None else "unknown",
            f"  γ {answer.gamma}",
        ],
        [("τ ", "bold"), f"{answer.expected_tokens:.2f} tokens/round{rounds}"],
        [
            ("c ", "bold"),
            f"{numbers.draft_cost:.3g}  r({answer.gamma + 1}) {numbers.verify_cost:.3g}{over}",
            f"  K {answer.round_cost:.2f}",
        ],
        [("S ", "bold"), (f"{answer.speedup:.2f}×{between} {answer.verdict}", style)],
        [f"best γ {best} · break-even α {edge}"],
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


def curve_content(numbers: Numbers, reckoned: Reckoned, width: int, height: int, colour: plot.Rgb | None) -> Content:
    """Speedup over γ with the break-even line (─) and the current γ (●)."""
    gammas = [g for g, _ in reckoned.curve]
    gains = [s for _, s in reckoned.curve]
    low, high = min([*gains, 0.9]), max([*gains, 1.1])
    margin = (high - low) * 0.08
    here = [s for g, s in reckoned.curve if g == numbers.gamma]
    series = [
        plot.Series(x=[gammas[0], gammas[-1]], y=[1.0, 1.0], marker="─"),
        plot.Series(x=gammas, y=gains, colour=colour),
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
