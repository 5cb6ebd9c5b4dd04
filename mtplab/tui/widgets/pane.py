"""The base of what is painted: a Static that repaints only when its content changed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from mtplab.tui.texts import Part
from mtplab.tui.view import View


class Painted(Static):
    """Draws a View by `render_view`; unchanged content costs nothing, a new size draws the last view again."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(Content(""), id=id, classes=classes, markup=False)
        self.view: View | None = None
        self._painted = Content("")

    def render_view(self, view: View, width: int, height: int) -> Content:
        """The content for `width` × `height` cells."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Draw `view`, unless there is no room (a hidden pane is drawn when it appears)."""
        self.view = view
        size = self.content_size
        if size.width <= 0 or size.height <= 0:
            return
        content = self.render_view(view, size.width, size.height)
        if not content.is_same(self._painted):
            self._painted = content
            self.update(content, layout=False)

    def on_resize(self) -> None:
        """Fill the new size."""
        if self.view is not None:
            self.show(self.view)


class Grown(Painted):
    """As high as what it says: the page around it scrolls."""

    def show(self, view: View) -> None:
        """Draw `view` in the width there is, unless there is none."""
        self.view = view
        width = self.content_size.width
        if width <= 0:
            return
        content = self.render_view(view, width, 0)
        if not content.is_same(self._painted):
            self._painted = content
            self.update(content)


class Pane(Painted, can_focus=True):
    """A framed pane of the bench with a title."""

    TITLE: ClassVar[str] = ""

    def on_mount(self) -> None:
        """Name the frame."""
        self.border_title = Content(self.TITLE)


def badge(widget: Widget, view: View) -> None:
    """Mark a frame SIMULATED where the session says so."""
    wanted = "SIMULATED" if view.state.identity.simulated else ""
    if (widget.border_subtitle or "") != wanted:
        widget.border_subtitle = wanted


def flowed(pieces: Sequence[str], width: int, style: str = "", between: str = " · ") -> list[list[Part]]:
    """Pieces side by side in as few rows of `width` cells as hold each of them whole."""
    rows: list[str] = []
    for piece in pieces:
        if rows and cell_len(rows[-1]) + cell_len(between) + cell_len(piece) <= width:
            rows[-1] += between + piece
        else:
            rows.append(piece)
    return [[(row, style)] for row in rows]


def wrapped(text: str, width: int, style: str = "") -> list[list[Part]]:
    """A sentence as rows of at most `width` cells."""
    return [[(row, style)] for row in textwrap.wrap(text, max(8, width), break_long_words=True)]
