"""The saved sessions: which there are, what became of them, Enter opens one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from mtplab.session import archive
from mtplab.session.journal import SessionError
from mtplab.session.record import SessionRecord, read_record
from mtplab.tui import texts


class Listed(msgspec.Struct, frozen=True):
    """One session as a line of the list."""

    path: Path
    record: SessionRecord | None
    problem: str | None = None


def read_listed(path: Path) -> Listed:
    """A session's record; without one it can still be recovered by opening it."""
    file = path / archive.RECORD
    if not file.is_file():
        return Listed(path, None, "not sealed: opening recovers it from its events")
    try:
        return Listed(path, read_record(file))
    except SessionError as error:
        return Listed(path, None, str(error))


def listed_line(listed: Listed, width: int) -> Content:
    """Name, phone, outcome and worst verdict, SIMULATED; on two lines where one is too short."""
    name = texts.clean(listed.path.name, 80)
    name = texts.pad(name, 44) if width >= 110 else f"{name}\n "
    record = listed.record
    if record is None:
        return Content.assemble((name, "bold"), "  ", (texts.clean(listed.problem), "$text-warning"))
    outcome = texts.clean(record.outcome or "only watched", 12)
    look = texts.summed(record.verdicts, ((s.name, s.status) for s in record.stages))
    return Content.assemble(
        (name, "bold"),
        f"  {texts.pad(texts.clean(record.identity.device_model or 'phone unknown'), 16)}",
        f"  {texts.clock(record.duration_s)}  {outcome:<13}",
        (f"{look[0]} {look[1]}" if look else "", look[2] if look else ""),
        (" recovered", "$text-warning") if record.recovered else "",
        ("  SIMULATED", "bold $text-warning") if record.simulated else "",
    )


class SessionsScreen(Screen[Path | None]):
    """Returns the folder of the chosen session, None for Esc."""

    CSS_PATH = "sessions.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,s", "leave", "back", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Listed] = []

    def compose(self) -> ComposeResult:
        """A list that fills when the records have been read."""
        yield Static(Content(" Saved sessions, newest first"), id="title")
        yield OptionList(id="list")
        yield Static(Content.assemble((" enter ", "bold $text-accent"), "open and replay ",
                                      (" esc ", "bold $text-accent"), "back"), id="keys")  # fmt: skip

    def on_mount(self) -> None:
        """Read them without holding up the screen."""
        self.query_one(OptionList).loading = True
        self.read()

    @work(thread=True, exclusive=True)
    def read(self) -> None:
        """Read every record, newest first."""
        try:
            found = [read_listed(path) for path in reversed(archive.list_sessions())]
        except SessionError as error:
            found = []
            self.app.call_from_thread(
                self.app.notify, texts.clean(error, 400), severity="error", timeout=15, markup=False
            )
        self.app.call_from_thread(self.fill, found)

    def fill(self, found: list[Listed]) -> None:
        """Show what was found."""
        self.found = found
        options = self.query_one(OptionList)
        options.loading = False
        options.add_options([Option(listed_line(listed, self.app.size.width)) for listed in found])
        if not found:
            options.add_option(Option(Content("No session yet.  esc, then r runs the pipeline."), disabled=True))
        options.focus()
        if found:
            options.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        event.stop()
        self.dismiss(self.found[event.option_index].path)

    def action_leave(self) -> None:
        """Back to the bench."""
        self.dismiss(None)
