"""The recipes page: which quantisation is worth having, and what its ranges were calibrated on."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widget import Widget

from mtplab.tui.screens.page import Page
from mtplab.tui.view import View
from mtplab.tui.widgets.recipes import RecipesBody


class RecipesScreen(Page[None]):
    """Scrolls with the arrows; k, Esc or q closes it."""

    BINDINGS = [("k", "leave", "back")]  # noqa: RUF012 - Textual's own form
    KEYS = (("↑ ↓", "scroll"),)

    def __init__(self) -> None:
        super().__init__()
        self.recipes = RecipesBody()

    def body(self) -> Widget:
        """One scrolling text."""
        return VerticalScroll(self.recipes, classes="page-body")

    def on_mount(self) -> None:
        """Take the arrows at once."""
        self.entitle("Recipes: bytes, acceptance and time of each; what the ranges were calibrated on")
        self.query_one(VerticalScroll).focus()

    def draw(self, view: View, count: int) -> None:
        """Once a second is enough to read; pictures only once their library is there."""
        super().draw(view, count)
        if count % 10 == 0 and self.lab.warm:
            self.recipes.show(view)
