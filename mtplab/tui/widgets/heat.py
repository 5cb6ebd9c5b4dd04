"""The heat pane: skin and hottest die over time, with stages, verdicts and throttling on the same axis."""

from __future__ import annotations

from collections.abc import Iterator

from textual.color import Color
from textual.content import Content

from mtplab.session.heat import HeatPoint, skin_limits_c
from mtplab.tui import plot, texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Pane, wrapped

LABEL_CELLS = 4
GAP_S = 15.0
LEGEND = "▲ throttling begins △ ends  ▼ verdict ✂ cable × gap ◆ mark • round"


class HeatPane(Pane):
    """A plot, then a row of marks and a row of stages under the same time axis."""

    TITLE = "5 Heat and rounds"

    def render_view(self, view: View, width: int, height: int) -> Content:
        nothing = view.nothing()
        if nothing is not None:
            return texts.lines(wrapped(texts.clean(nothing), width, "$text-warning"), width, height)
        points = view.state.heat_history.points
        if len(points) < 2:
            return Content.styled("No heat curve yet: it needs two samples.", "$text-muted")
        colours = self.app.theme_variables
        return heat_content(view, width, height, _rgb(colours.get("text-accent")), _rgb(colours.get("text-error")))


def _rgb(text: str | None) -> plot.Rgb | None:
    return Color.parse(text).rgb if text and text.startswith("#") else None


def heat_content(
    view: View, width: int, height: int, skin: plot.Rgb | None = None, die: plot.Rgb | None = None
) -> Content:
    """Curve, marks and stage band in `width` × `height` cells."""
    points = view.state.heat_history.points
    begin, end = points[0].t, max(points[-1].t, points[0].t + 1.0)
    series = [
        *_curve([(p.t, p.die_high_c) for p in points], width, die),
        *_curve([(p.t, p.skin_high_c) for p in points], width, skin),
    ]
    values = [y for s in series for y in s.y]
    low, high = (min(values), max(values)) if values else (20.0, 40.0)
    low, high = 5 * int(low // 5), 5 * int(high // 5) + 5
    limit = _limit(view, low, high)
    if limit is not None:
        series.append(plot.Series(x=[begin, end], y=[limit, limit], marker="┈"))
    ticks = sorted({low, 5 * round((low + high) / 10), high}) if height > 7 else [low, high]
    curve = plot.draw(
        series,
        plot.Axis(low=begin, high=end, ticks=_times(begin, end, width), labels=_time_labels(view, begin, end, width)),
        plot.Axis(low=low, high=high, ticks=ticks, labels=[f"{t:>{LABEL_CELLS}.0f}" for t in ticks]),
        width,
        max(4, height - 3),
    )
    canvas = width - LABEL_CELLS - 1
    margin = " " * (LABEL_CELLS + 1)
    rows: list[list[Part]] = [[margin, *marks_row(view, begin, end, canvas)]]
    rows.append([(f"{'run':>{LABEL_CELLS}} ", "$text-muted"), *stage_row(view, begin, end, canvas)])
    rows.append(_legend(view, points[-1], limit, width))
    return Content("\n").join([curve, texts.lines(rows, width)])


def _curve(points: list[tuple[float, float | None]], width: int, colour: plot.Rgb | None) -> Iterator[plot.Series]:
    """One series a stretch without gaps: a line across what was not recorded would claim it was."""
    known = [(t, v) for t, v in points if v is not None]
    step = max(GAP_S, 3 * (known[-1][0] - known[0][0]) / len(known)) if known else GAP_S
    stretch: list[tuple[float, float]] = []
    for point in [*known, None]:
        if stretch and (point is None or point[0] - stretch[-1][0] > step):
            kept = plot.decimate(stretch, 2 * width)
            yield plot.Series(x=[t for t, _ in kept], y=[v for _, v in kept], colour=colour)
            stretch = []
        if point is not None:
            stretch.append(point)


def _limit(view: View, low: float, high: float) -> float | None:
    """The skin threshold that matters: the next one above, else the last one below, where it is in the picture."""
    known = [t for t in skin_limits_c(view.state.facts) if t is not None and low <= t <= high]
    heat = view.state.heat
    if not known or heat is None or heat.skin_c is None:
        return None
    above = [t for t in known if t > heat.skin_c]
    return above[0] if above else known[-1]


def _times(begin: float, end: float, width: int) -> list[float]:
    count = max(2, min(7, width // 18))
    return [begin + (end - begin) * i / (count - 1) for i in range(count)]


def _time_labels(view: View, begin: float, end: float, width: int) -> list[str]:
    return [texts.clock(view.since(t)) for t in _times(begin, end, width)]


def _column(t: float, begin: float, end: float, columns: int) -> int | None:
    place = round((t - begin) / (end - begin) * (columns - 1))
    return place if 0 <= place < columns else None


def marks_row(view: View, begin: float, end: float, columns: int) -> list[Part]:
    """One glyph for each thing that happened; graver ones are drawn over the rest."""
    state = view.state
    marks: list[tuple[float, str, str]] = []
    marks += [(r.t, "•", "") for c in state.configurations.values() for r in c.rounds]
    marks += [(m.t, "✂" if m.kind == "link" else "◆", "$text-accent") for m in state.markers]
    for verdict in state.verdicts:
        good = verdict.verdict in ("full_delegate", "cpu_baseline")
        marks.append((verdict.t, "▼", "$text-success" if good else "bold $text-error"))
    marks += [(g.t, "×", "bold $text-warning") for g in state.gaps]
    marks += [(e.t, "▲" if e.began else "△", "bold $text-warning") for e in state.throttle_events]
    cells: list[tuple[str, str]] = [(" ", "")] * columns
    for t, glyph, style in marks:
        place = _column(t, begin, end, columns)
        if place is not None:
            cells[place] = (glyph, style)
    return list(cells)


def stage_row(view: View, begin: float, end: float, columns: int) -> list[Part]:
    """A band with each stage's name over the time it took."""
    cells = [" "] * columns
    for stage in view.state.stages.values():
        if stage.began_t is None:
            continue
        stop = stage.began_t + stage.seconds if stage.seconds is not None else end
        first, last = (_column(min(max(t, begin), end), begin, end, columns) for t in (stage.began_t, stop))
        if first is None or last is None:
            continue
        name = texts.clean(stage.name, 16)
        room = last - first
        text = f"╴{name}╶" if room >= len(name) + 2 else name[: max(0, room - 1)]
        cells[first : last + 1] = "├" + text.center(max(0, room - 1), "─")[: max(0, room - 1)] + ("┤" if room else "")
    return [("".join(cells[:columns]), "$text-primary")]


def _legend(view: View, last: HeatPoint, limit: float | None, width: int) -> list[Part]:
    die = f"die {last.die_high_c:.1f}" if last.die_high_c is not None else "die unknown"
    skin = f"skin {last.skin_high_c:.1f}" if last.skin_high_c is not None else "skin unknown"
    edge = f"  ┈ {limit:g} °C threshold" if limit is not None else ""
    seen = f" last seen {texts.ago(view.heat_age_s())}:" if view.stale() is not None else ""
    return [f"{seen} upper {die}  lower {skin} °C{edge}   ", (LEGEND if width > 90 else "", "$text-muted")]
