"""The doctor's page: every precondition with its status, cause and cure; checked in the background."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from mtplab.device.readiness import Item, Options
from mtplab.tui import texts
from mtplab.tui.screens.page import Page
from mtplab.tui.source import LiveSource
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import wrapped

LOOKS = {
    "pass": ("✓", "$text-success"),
    "fail": ("✗", "bold $loud-text on $loud-error"),
    "unknown": ("?", "bold $loud-text on $loud-unknown"),
}


def item_content(item: Item, width: int) -> Content:
    """Glyph, name and cause; the cure below, where there is something to cure."""
    glyph, style = LOOKS[item.status]
    name = texts.clean(item.id.removeprefix(f"{item.group}."), 40)
    rows: list[list[Part]] = []
    for i, row in enumerate(wrapped(f"{name}: {texts.clean(item.cause)}", width - 4)):
        rows.append([(glyph, style) if i == 0 else " ", " ", *row])
    if item.status != "pass" and item.cure:
        for i, row in enumerate(wrapped(texts.clean(item.cure), width - 8, "$text-accent")):
            rows.append([("    → " if i == 0 else "      "), *row])
    return texts.lines(rows, width)


def folded(items: list[Item]) -> list[Item]:
    """The items with all packages that are as they should be as one: nobody reads a dozen of those."""
    fine = [item for item in items if item.id.startswith("package.") and item.status == "pass"]
    if len(fine) < 2:
        return items
    whole = Item("packages", "toolchain", "pass", ", ".join(item.cause for item in fine))
    return [whole if item is fine[0] else item for item in items if item is fine[0] or item not in fine]


def command_of(cure: str) -> str:
    """The part of a cure that can be pasted: without the remark in brackets that may stand behind it."""
    return cure.partition("  (")[0].strip()


def options_for(live: LiveSource | None, serial: str | None) -> Options:
    """What to check: the phone of the engine that this lab shows, else the one that an engine would take."""
    if live is not None and not live.ended:
        return Options(serial=serial, session=live.session_dir.name, own=True)
    return Options(serial=serial)


class DoctorScreen(Page[None]):
    """Arrows choose an item; r checks again, t looks deep, x ends that, c copies the cure."""

    BINDINGS = [  # noqa: RUF012 - Textual's own form
        ("r", "again", "again"),
        ("t", "deep", "deep look"),
        ("x", "end_deep", "end it"),
        ("c", "copy", "copy the cure"),
        ("d", "leave", "back"),
    ]
    KEYS = (("↑ ↓", "choose"), ("r", "again"), ("t", "deep look: a toy"), ("x", "end that"), ("c", "copy cure"))

    def __init__(self) -> None:
        super().__init__()
        self.list = OptionList(classes="page-body")
        self._shown = -1
        self._items: list[Item | None] = []

    def body(self) -> Widget:
        """A list, one entry an item."""
        return self.list

    def on_mount(self) -> None:
        """Check at once, unless that was done: then show what was found, with its key to do it again."""
        self.list.focus()
        if not self.lab.examination.items:
            self.action_again()

    def draw(self, view: View, count: int) -> None:
        """The verdict moves with the seconds; the list only when an item came."""
        super().draw(view, count)
        found = self.lab.examination
        if count % 2 == 0:
            self.entitle("Doctor   ", (found.verdict(), self._style()))
        if found.changes != self._shown:
            self._shown = found.changes
            self._fill(folded(found.all()))

    def _style(self) -> str:
        found = self.lab.examination
        if found.running or found.step is not None:
            return "$text-accent"
        return "bold $text-success" if found.verdict().startswith("READY") else "bold $text-warning"

    def _fill(self, items: list[Item]) -> None:
        width = max(30, self.app.size.width - 8)
        chosen, options, self._items = self._chosen(), list[Option](), []
        group = ""
        for item in items:
            if item.group != group:
                group = item.group
                options.append(Option(Content.styled(group, "bold $text-accent"), disabled=True))
                self._items.append(None)
            options.append(Option(item_content(item, width)))
            self._items.append(item)
        # What was chosen stays chosen; at first it is the first thing to cure.
        ids = [item.id if item else None for item in self._items]
        bad = next((i for i, item in enumerate(self._items) if item and item.status != "pass"), None)
        place = ids.index(chosen.id) if chosen is not None and chosen.id in ids else bad
        self.list.clear_options().add_options(options)
        self.list.highlighted = place

    def _chosen(self) -> Item | None:
        place = self.list.highlighted
        return self._items[place] if place is not None and place < len(self._items) else None

    def on_resize(self) -> None:
        """Wrap anew."""
        self._shown = -1

    def action_again(self) -> None:
        """Go through the checklist (again)."""
        if not self.lab.examination.start(options_for(self.lab.live, self.lab.options.serial)):
            self.notify("The checklist is being gone through.")

    def action_deep(self) -> None:
        """Convert, quantise and run a toy."""
        if not self.lab.examination.start_deep():
            self.notify("The deep look goes on: x ends it.")

    def action_end_deep(self) -> None:
        """End the deep look."""
        self.notify("Ending the deep look …" if self.lab.examination.cancel_deep() else "No deep look goes on.")

    def action_copy(self) -> None:
        """Put the cure's command into the clipboard."""
        item = self._chosen()
        if item is None or not item.cure:
            self.notify("Choose an item that has a cure.", severity="warning")
            return
        command = texts.clean(command_of(item.cure))
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {command}", markup=False)
