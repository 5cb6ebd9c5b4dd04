"""Line plots as styled text: the only user of plotext, imported when the first plot is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.text import Text
from textual.content import Content

Rgb = tuple[int, int, int]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A line or some points: what is plotted, with which marker and colour."""

    x: Sequence[float]
    y: Sequence[float]
    marker: str = "braille"
    colour: Rgb | None = None
    connect: bool = True


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an axis and the labels on it."""

    low: float
    high: float
    ticks: Sequence[float] = ()
    labels: Sequence[str] = ()


def draw(series: Sequence[Series], x_axis: Axis, y_axis: Axis, width: int, height: int) -> Content:
    """A plot of exactly `width` × `height` cells; the caller decimates (about two points a column are seen)."""
    if width < 12 or height < 4:
        return Content("")
    import plotext

    plotext.terminal.limit(False, False)  # or it clips to the terminal it believes to be in
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.canvas("default")
    figure.plot_size(width, height)
    figure.axes(False)
    figure.axes(True, axis="x", side="lower")
    figure.axes(True, axis="y", side="left")
    for axis, name, side in ((x_axis, "x", "lower"), (y_axis, "y", "left")):
        figure.ruler(name, side).lim(axis.low, axis.high)
        figure.ruler(name, side).ticks(list(axis.ticks), list(axis.labels))
    for one in series:
        if not one.x:
            continue
        marker = plotext.marker(one.marker, one.colour) if one.colour else plotext.marker(one.marker)
        signal = figure.signal(list(one.x), list(one.y), marker=marker)
        figure.draw(signal.lines(True) if one.connect and len(one.x) > 1 else signal)
    return Content.from_rich_text(Text.from_ansi(figure.build().string().rstrip("\n")))


def decimate(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    """At most about 2·`columns` points with every column's minimum and maximum kept, in order of time."""
    if len(points) <= 2 * columns or columns < 1:
        return list(points)
    low, high = points[0][0], points[-1][0]
    width = (high - low) / columns or 1.0
    kept: list[tuple[float, float]] = []
    bucket: list[tuple[float, float]] = []
    edge = low + width
    for point in points:
        if point[0] >= edge and bucket:
            kept += _extremes(bucket)
            bucket = []
            edge = low + width * (int((point[0] - low) / width) + 1)
        bucket.append(point)
    return kept + _extremes(bucket)


def _extremes(bucket: list[tuple[float, float]]) -> list[tuple[float, float]]:
    least, most = min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])
    return [least] if least == most else sorted((least, most))
