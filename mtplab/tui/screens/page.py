"""A page over the bench: one scrolling text with a title and its keys, drawn anew as the session goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.header import HeaderLine

if TYPE_CHECKING:
    from mtplab.tui.app import LabApp

Result = TypeVar("Result")


class Page(Screen[Result]):
    """Header, title, a body that the page makes, and its keys. Esc and q go back to the bench."""

    CSS_PATH = "page.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "back", show=False)]
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.header = HeaderLine()
        self.heading = Static(Content(""), classes="heading")

    @property
    def lab(self) -> LabApp:
        """The application, as what it is."""
        return cast("LabApp", self.app)

    def body(self) -> Widget:
        """What stands between title and keys."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.header
        yield self.heading
        yield self.body()
        parts: list[Part] = []
        for key, word in (*self.KEYS, ("esc", "back")):
            parts += [(f" {key} ", "bold $text-accent"), f"{word} "]
        yield Static(Content.assemble(*parts), classes="page-keys")

    def entitle(self, *parts: Part) -> None:
        """Say what the page shows, and how it stands."""
        self.heading.update(Content.assemble(" ", *parts))

    def draw(self, view: View, count: int) -> None:
        """Draw what is due at tick number `count` (ten a second)."""
        if count % 5 == 0:
            self.header.show(view)

    def action_leave(self) -> None:
        """Back to the bench."""
        self.dismiss(None)
