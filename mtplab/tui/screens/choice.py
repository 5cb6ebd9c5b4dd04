"""A question with a key for each answer."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static


class Answer(msgspec.Struct, frozen=True):
    """A key, what it means, and what the question returns for it."""

    key: str
    text: str
    value: str


class ChoiceScreen(ModalScreen[str | None]):
    """Returns the value of the answer whose key was pressed, None for Esc."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "answer('')", "back", show=False)]

    def __init__(self, title: str, text: str, answers: tuple[Answer, ...]) -> None:
        super().__init__()
        self._title, self._text, self.answers = title, text, answers

    def compose(self) -> ComposeResult:
        """The question and a line for each answer."""
        with Vertical(classes="dialog"):
            yield Static(Content(self._title), classes="title")
            if self._text:
                yield Static(Content(self._text))
            for answer in self.answers:
                yield Static(Content.assemble((f"  {answer.key}  ", "bold $text-accent"), answer.text))
            yield Static(Content.assemble(("  esc  ", "bold $text-accent"), "back"))

    def on_key(self, event: events.Key) -> None:
        """Answer by key."""
        for answer in self.answers:
            if event.key == answer.key:
                event.stop()
                self.dismiss(answer.value)

    def action_answer(self, value: str) -> None:
        """Leave with an answer, or without one."""
        self.dismiss(value or None)
