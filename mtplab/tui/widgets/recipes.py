"""The recipe table with its Pareto pictures, and the calibration set's lengths beside production's."""

from __future__ import annotations

import string
from collections.abc import Sequence

from rich.cells import cell_len
from textual.color import Color
from textual.content import Content

from mtplab.report.calibration import calibration_lines
from mtplab.report.recipes import interval_text, positions_text, value_text
from mtplab.session.calibrated import calibrated
from mtplab.session.events import RecipeRow, RecipesJudged
from mtplab.session.recipes import pareto_front
from mtplab.session.state import LabState
from mtplab.tui import plot, texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Grown, wrapped

WIDE = 104
PLOT_ROWS = 13
NAME_CELLS = 20
LETTERS = string.ascii_lowercase + string.ascii_uppercase
_INDENT = "      "
NO_TABLE = "This session keeps no recipe table: the stage acceptance writes one, or `mtplab run --to acceptance`."
NO_SET = "Nothing was calibrated: a recipe that needs ranges (static_int8) does it, or `mtplab calibrate`."


class RecipesBody(Grown):
    """The recipe table, its pictures and the calibration."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        colour = self.app.theme_variables.get("text-accent")
        accent = Color.parse(colour).rgb if colour and colour.startswith("#") else None
        return recipes_content(view, width, accent)


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
    threads = f"{table.threads} thread{'' if table.threads == 1 else 's'}"
    about = (
        f"Recipes: γ {table.gamma}, {table.prompts} prompts of {texts.clean(table.prompt_set, 40)}, "
        f"{table.output_tokens} tokens each, times on this host ({threads})"
    )
    rows = [*wrapped(about, width, "bold $text-accent"), _head()]
    for place, row in enumerate(table.rows):
        rows += _row(row, LETTERS[place % len(LETTERS)], place in front, width)
    starred = "* on the front: no other row is smaller, faster and better accepted at once"
    rows += wrapped(starred, width, "$text-muted")
    rows += wrapped(
        "top-1 and α by draft position: top-1 forced on every position, α of true rounds on the row's own text; "
        "Δα against float on equal text",
        width,
        "$text-muted",
    )
    return rows


def _head() -> list[Part]:
    names = f"    {'backbone':<{NAME_CELLS}} {'head':<{NAME_CELLS}} {'MB':>6} {'ms/tok':>7}"
    return [(names, "$text-muted")]


def _row(row: RecipeRow, letter: str, on_front: bool, width: int) -> list[list[Part]]:
    """Letter, mark, names, size and time; then what has room beside them, the rest below."""
    mark = "✗" if row.reason else "!" if row.warning else "*" if on_front else " "
    style = "bold $text-error" if row.reason or row.warning else "bold $text-accent" if on_front else ""
    name, head = (texts.pad(texts.clean(text), NAME_CELLS) for text in (row.backbone, row.head))
    start: list[Part] = [(f"{letter} {mark} {name}", style), f" {head}"]
    if row.reason:
        why = wrapped(texts.clean(row.reason), width - len(_INDENT), "$text-error")
        complaint: list[list[Part]] = [[_INDENT, *more] for more in why]
        return [start, *complaint]
    size = "?" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    start.append(f" {size:>6} {value_text(row.ms_per_token, '.3g'):>7}")
    intervals = f"α {interval_text(row.alpha, '.3f'):<19} Δα {interval_text(row.delta_alpha, '+.3f'):<22}"
    positions = f"top-1 {positions_text(row.top1)} · α {positions_text(row.conditional_alpha)}"
    rows = [start]
    for piece in (intervals, positions):
        if texts.parts_len(rows[-1]) + 2 + len(piece) > width:
            rows.append([_INDENT[2:]])
        rows[-1].append(("  " + piece, "" if piece is intervals else "$text-muted"))
    if row.warning:
        rows += [[_INDENT, *more] for more in wrapped(row.warning, width - len(_INDENT), "$text-error")]
    return rows


# -- the pictures ------------------------------------------------------------------------------------------
def pareto_pictures(rows: Sequence[RecipeRow], width: int, accent: plot.Rgb | None) -> list[Content]:
    """α against size and against time a token, rows by their letters; intervals stand as lines through them."""
    known = [
        (place, row)
        for place, row in enumerate(rows)
        if row.bytes is not None and row.alpha.value is not None and row.ms_per_token.value is not None
    ]
    if len(known) < 2:
        why = "No picture: it needs two rows with size, α and time."
        return [texts.lines(wrapped(why, width, "$text-muted"), width)]
    sizes = {place: (row.bytes or 0) / 1e6 for place, row in known}
    times = {place: row.ms_per_token.value or 0.0 for place, row in known}
    front = set(pareto_front(rows))
    side_by_side = width >= WIDE
    each = (width - 2) // 2 if side_by_side else width
    left = _picture(known, sizes, front, "α against MB", each, accent)
    right = _picture(known, times, front, "α against ms/token", each, accent)
    return [_beside(left, right, each)] if side_by_side else [left, right]


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
