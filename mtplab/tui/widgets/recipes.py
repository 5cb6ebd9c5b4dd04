"""The recipe table with its Pareto pictures, and the calibration set's lengths beside production's."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rich.cells import cell_len
from textual.color import Color
from textual.content import Content

from mtplab.report.calibration import calibration_lines
from mtplab.session.calibrated import calibrated
from mtplab.session.events import Figure, RecipeRow, RecipesJudged
from mtplab.session.recipes import pareto_front
from mtplab.session.state import LabState
from mtplab.tui import plot, texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Painted, wrapped

WIDE = 104
PLOT_ROWS = 13
NAME_CELLS = 20
LETTERS = string.ascii_lowercase + string.ascii_uppercase
NO_TABLE = "No recipe was judged in this session: the stage acceptance does it, or `mtplab run --to acceptance`."
NO_SET = "Nothing was calibrated: a recipe that needs ranges (static_int8) does it, or `mtplab calibrate`."


class RecipesBody(Painted):
    """As high as it has to be: the page around it scrolls."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        colour = self.app.theme_variables.get("text-accent")
        accent = Color.parse(colour).rgb if colour and colour.startswith("#") else None
        return recipes_content(view, width, accent)

    def show(self, view: View) -> None:
        """Draw, growing with what there is to say."""
        self.view = view
        width = self.content_size.width
        if width <= 0:
            return
        content = self.render_view(view, width, 0)
        if not content.is_same(self._painted):
            self._painted = content
            self.update(content)


def recipes_content(view: View, width: int, accent: plot.Rgb | None = None) -> Content:
    """The whole page: table, pictures, calibration."""
    nothing = view.nothing()
    if nothing is not None and not view.state.event_count:
        return texts.lines(wrapped(texts.clean(nothing), width, "$text-warning"), width)
    table = view.state.recipes
    if table is None or not table.rows:
        parts = [texts.lines([_title("Recipes"), *wrapped(NO_TABLE, width, "$text-muted")], width)]
    else:
        parts = [texts.lines(table_rows(table, width), width), *pareto_pictures(table.rows, width, accent)]
    parts.append(texts.lines([[""], _title("Calibration"), *calibration_rows(view.state, width)], width))
    return Content("\n").join(parts)


def _title(text: str) -> list[Part]:
    return [(text, "bold $text-accent")]


# -- the table -------------------------------------------------------------------------------------------
def table_rows(table: RecipesJudged, width: int) -> list[list[Part]]:
    """Each pair of recipes on a line, on two where the screen is narrow; the Pareto front is marked."""
    front = set(pareto_front(table.rows))
    about = (
        f"Recipes: γ {table.gamma}, {table.prompts} prompts of {texts.clean(table.prompt_set, 40)}, "
        f"{table.output_tokens} tokens each, times on this host ({table.threads} threads)"
    )
    rows = [_title(about), [(_head(width), "$text-muted")]]
    for place, row in enumerate(table.rows):
        rows += _row(row, LETTERS[place % len(LETTERS)], place in front, width)
    rows += wrapped("* on the front: no other row is smaller, faster and better accepted at once", width, "$text-muted")
    rows += wrapped(
        "top-1 and α by draft position: top-1 forced on every position, α of true rounds on the row's own text; "
        "Δα against float on equal text",
        width,
        "$text-muted",
    )
    return rows


def _head(width: int) -> str:
    names = f"    {'backbone':<{NAME_CELLS}} {'head':<{NAME_CELLS}} {'MB':>6} {'ms/tok':>7}"
    return f"{names}  {'α [95 %]':<19} {'Δα [95 %]':<22} top-1 · α" if width >= WIDE else names


def _row(row: RecipeRow, letter: str, on_front: bool, width: int) -> list[list[Part]]:
    name = texts.pad(texts.clean(row.backbone), NAME_CELLS)
    head = texts.pad(texts.clean(row.head), NAME_CELLS)
    mark = "✗" if row.reason else "*" if on_front else " "
    style = "bold $text-error" if row.reason else "bold $text-accent" if on_front else ""
    start: list[Part] = [(f"{letter} {mark} ", style), (name, style), " ", head]
    if row.reason:
        return [start, *([("      ", ""), *more] for more in wrapped(texts.clean(row.reason), width - 6, "$text-error"))]
    size = "?" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    start.append(f" {size:>6} {_value(row.ms_per_token, '.3g'):>7}")
    alpha, change = _interval(row.alpha, ".3f"), _interval(row.delta_alpha, "+.3f")
    positions = f"{_positions(row.top1)} · {_positions(row.conditional_alpha)}"
    if width >= WIDE:
        return [[*start, f"  {alpha:<19} {change:<22} {positions}"]]
    details = f"      α {alpha}  Δα {change}"
    return [start, [(details, "")], [(f"      top-1 · α by position {positions}", "$text-muted")]]


def _value(figure: Figure, form: str) -> str:
    return "?" if figure.value is None else format(figure.value, form)


def _interval(figure: Figure, form: str) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return _value(figure, form)
    return f"{figure.value:{form}} [{figure.low:{form}} {figure.high:{form}}]"


def _positions(figures: Sequence[Figure]) -> str:
    return " ".join(_value(one, ".2f").removeprefix("0") for one in figures) or "?"


# -- the pictures ------------------------------------------------------------------------------------------
def pareto_pictures(rows: Sequence[RecipeRow], width: int, accent: plot.Rgb | None) -> list[Content]:
    """α against size and against time a token, rows by their letters; intervals stand as lines through them."""
    known = [
        (place, row)
        for place, row in enumerate(rows)
        if row.bytes is not None and row.alpha.value is not None and row.ms_per_token.value is not None
    ]
    if len(known) < 2:
        return [texts.lines(wrapped("No picture: it needs two rows with size, α and time.", width, "$text-muted"), width)]
    sizes = {place: (row.bytes or 0) / 1e6 for place, row in known}
    times = {place: row.ms_per_token.value or 0.0 for place, row in known}
    front = set(pareto_front(rows))
    side_by_side = width >= WIDE
    each = (width - 2) // 2 if side_by_side else width
    drawn = [
        _picture(known, values, front, name, each, accent)
        for name, values in (("α against MB", sizes), ("α against ms/token", times))
    ]
    return [_beside(*drawn, each)] if side_by_side else drawn


def _picture(
    known: Sequence[tuple[int, RecipeRow]],
    values: dict[int, float],
    front: set[int],
    name: str,
    width: int,
    accent: plot.Rgb | None,
) -> Content:
    series = []
    for place, row in known:
        x, low, high = values[place], row.alpha.low, row.alpha.high
        if low is not None and high is not None:
            series.append(plot.Series(x=[x, x], y=[low, high], marker="│"))
    for place, row in known:  # letters last, over all lines
        colour = accent if place in front else None
        letter = LETTERS[place % len(LETTERS)]
        series.append(plot.Series(x=[values[place]], y=[row.alpha.value or 0.0], marker=letter, colour=colour))
    heights = [y for one in series for y in one.y]
    x_axis, y_axis = _axis(list(values.values()), 4), _axis(heights, 4)
    picture = plot.draw(series, x_axis, y_axis, width, PLOT_ROWS)
    return Content("\n").join([texts.lines([[""], [(name, "bold")]], width), picture])


def _axis(values: Sequence[float], count: int) -> plot.Axis:
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    low, high = low - margin, high + margin
    ticks = [low + (high - low) * i / (count - 1) for i in range(count)]
    return plot.Axis(low=low, high=high, ticks=ticks, labels=[texts.number(tick) for tick in ticks])


def _beside(left: Content, right: Content, width: int) -> Content:
    """Two pictures in one; each line of the left is filled to `width` cells."""
    pairs = zip(left.split("\n", allow_blank=True), right.split("\n", allow_blank=True), strict=False)
    return Content("\n").join(
        [Content.assemble(one, " " * max(0, width - cell_len(one.plain)) + "  ", other) for one, other in pairs]
    )


# -- calibration -------------------------------------------------------------------------------------------
def calibration_rows(state: LabState, width: int) -> list[list[Part]]:
    """The set and its ranges as the report tells them; what warns stands out."""
    stage = state.stages.get("calibrate")
    found = calibrated(stage.figures) if stage is not None and stage.figures else None
    if found is None:
        return wrapped(NO_SET, width, "$text-muted")
    rows: list[list[Part]] = []
    for line in calibration_lines(found, width):
        style = "$text-warning" if line.startswith("!") else ""
        rows += [[(line, style)]] if cell_len(line) <= width else wrapped(line, width, style)
    return rows
