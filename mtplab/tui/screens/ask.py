"""Small forms: what to run, and the word for a marker."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from mtplab.tui.widgets.typing import TypedInput


class Field(msgspec.Struct, frozen=True):
    """One line to fill in."""

    name: str
    label: str
    value: str = ""


class AskScreen(ModalScreen[dict[str, str] | None]):
    """Returns what was filled in; Enter accepts from any field, Esc gives None."""

    CSS_PATH = "dialogs.tcss"
    # Tab comes first of all: else keys typed right behind it would still go to the field that is left.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", show=False),
        Binding("tab", "app.focus_next", "next", show=False, priority=True),
        Binding("shift+tab", "app.focus_previous", "previous", show=False, priority=True),
    ]

    def __init__(self, title: str, fields: tuple[Field, ...], hint: str = "") -> None:
        super().__init__()
        self._title, self.fields, self._hint = title, fields, hint

    def compose(self) -> ComposeResult:
        """A label and an input for each field."""
        with Vertical(classes="dialog"):
            yield Static(Content(self._title), classes="title")
            for field in self.fields:
                yield Label(Content(field.label))
                yield TypedInput(field.value, name=field.name, compact=True)
            yield Static(Content(self._hint or "enter accepts · tab next field · esc back"), classes="keys")

    def on_mount(self) -> None:
        """Take keys at once, those typed right behind the one that opened this too."""
        self.set_focus(self.query(Input).first())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept, once every field has taken in the keys that were typed before Enter."""
        event.stop()
        self.call_after_refresh(self._accept)

    def _accept(self) -> None:
        if self.is_current:
            self.dismiss({field.name or "": field.value.strip() for field in self.query(Input)})

    def action_leave(self) -> None:
        """Do nothing."""
        self.dismiss(None)


def run_screen(recipes: tuple[str, ...]) -> AskScreen:
    """What a run may be given; defaults stand in the fields."""
    from mtplab.engine.options import RunOptions

    defaults = RunOptions()
    return AskScreen(
        "Run the pipeline",
        (
            Field("model", "model: tiny, smollm2, or the folder of a checkpoint", defaults.model),
            Field("head", "draft head: a family or a file; empty for the model's own", ""),
            Field("recipe", f"recipe: {', '.join(recipes)}" if recipes else "recipe", defaults.recipe),
            Field("rounds", "rounds of each configuration (at least 5)", str(defaults.rounds)),
            Field("cooldown_timeout_s", "cool-down: longest wait in all (s)", f"{defaults.cooldown_timeout_s:g}"),
            Field("prepare", "phone settings to borrow: bench (all), none, or names", defaults.prepare),
        ),
        "enter runs · tab next field · esc back",
    )


def run_options(filled: dict[str, str]) -> dict[str, Any]:
    """The engine's options out of a filled form; an empty field keeps its default. ValueError with a sentence."""
    options: dict[str, Any] = {k: v for k, v in filled.items() if v}
    for name, kind, what in (("rounds", int, "number of rounds"), ("cooldown_timeout_s", float, "time in seconds")):
        if name in options:
            try:
                options[name] = kind(options[name])
            except ValueError:
                raise ValueError(f"{options[name][:20]!r} is no {what}.") from None
    return options


def mark_screen() -> AskScreen:
    """A word for the marker."""
    return AskScreen("Mark this moment", (Field("label", "what happened"),), "enter marks · esc back")
