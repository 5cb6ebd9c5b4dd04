"""The facts page: everything that is known of the phone, live, with sources and reasons."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widget import Widget

from mtplab.tui.screens.page import Page
from mtplab.tui.view import View
from mtplab.tui.widgets.facts import FactsBody


class FactsScreen(Page[None]):
    """Scrolls with the arrows; i, Esc or q closes it."""

    BINDINGS = [("i", "leave", "back")]  # noqa: RUF012 - Textual's own form
    KEYS = (("↑ ↓", "scroll"),)

    def __init__(self) -> None:
        super().__init__()
        self.facts = FactsBody()

    def body(self) -> Widget:
        """One scrolling text."""
        return VerticalScroll(self.facts, classes="page-body")

    def on_mount(self) -> None:
        """Take the arrows at once."""
        self.entitle("All facts of the phone: what is known and by which command, what is not and why")
        self.query_one(VerticalScroll).focus()

    def draw(self, view: View, count: int) -> None:
        """Once a second is enough to read."""
        super().draw(view, count)
        if count % 10 == 0:
            self.facts.show(view)
