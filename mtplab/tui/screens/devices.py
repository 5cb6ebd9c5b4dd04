"""The device picker: every attached phone as it comes and goes, with its state, cure and owner; Enter takes one."""

from __future__ import annotations

import contextlib
import threading
from typing import Literal

import msgspec
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from mtplab.device import choice, lock, readiness_held
from mtplab.device.adb import AdbServer
from mtplab.device.devices import SILENT, DeviceEntry, wireless_warning
from mtplab.device.errors import DeviceError
from mtplab.device.tracking import Attached, Tracker
from mtplab.tui import texts
from mtplab.tui.screens.page import Page
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import wrapped

STANDIN = "the stand-in Pixel"
# So many looks (two a second) adb is waited for before the stand-in is offered alone.
PATIENCE_LOOKS = 6


class Pick(msgspec.Struct, frozen=True):
    """One line of the picker: what it stands for, who holds it, and whether this lab shows it now."""

    kind: Literal["phone", "standin"]
    entry: DeviceEntry | None = None
    held_by: str | None = None
    """The session of the engine that holds it."""
    shown: bool = False
    chosen: bool = False
    """Whether a run without a named phone would take it."""


def picks(seen: Attached | None, session: str | None, serial: str | None) -> list[Pick]:
    """The phones of `seen` and the stand-in; `session` is the one that this lab shows."""
    entries = seen.devices if seen is not None else ()
    try:
        chosen = choice.choose(entries, choice.serial_of(serial), choice.remembered()).entry
    except DeviceError:
        chosen = None  # a memory that cannot be read chooses nothing; `mtplab devices` says why
    found = [
        Pick("phone", entry, held := _holder(entry), held is not None and held == session, entry == chosen)
        for entry in entries
    ]
    owner = None
    with contextlib.suppress(DeviceError):
        owner = readiness_held.standin_session()
    return [*found, Pick("standin", None, owner, owner is not None and owner == session)]


def _holder(entry: DeviceEntry) -> str | None:
    with contextlib.suppress(DeviceError):  # without a folder for locks nobody can hold one
        owner = lock.holder(entry.phone)
        return owner.session if owner is not None else None
    return None


def pick_content(pick: Pick, width: int) -> Content:
    """Name, model, connection and state; below what is wrong, the cure, the owner and the warning."""
    entry = pick.entry
    mark: Part = ("● ", "bold $text-success") if pick.shown else ("▸ ", "$text-accent") if pick.chosen else "  "
    simulated: Part = ("  SIMULATED", "bold $text-warning")
    rows: list[list[Part]] = []
    if entry is None:
        rows.append([mark, (STANDIN, "bold"), simulated, ("  needs no phone and no cable", "$text-muted")])
    else:
        model = texts.clean(entry.model, 30).replace("_", " ") if entry.model else "model unknown"
        state = ("✓ ready", "$text-success") if entry.usable else (f"✗ {entry.state}", "bold $text-error")
        row: list[Part] = [mark, (texts.clean(entry.serial, 40), "bold"), f"  {model}  {entry.connection}  ", state]
        rows.append([*row, simulated] if entry.simulated else row)
        if not entry.usable:
            said = f"{entry.explanation}. {entry.cure}".strip()
            rows += [["    ", *r] for r in wrapped(texts.clean(said), width - 4, "$text-warning")]
        elif entry.simulated is None:
            rows += [["    ", *r] for r in wrapped(f"! {SILENT}", width - 4, "$text-warning")]
        warning = wireless_warning(entry)
        if warning:
            rows += [["    ", *r] for r in wrapped(f"! {texts.clean(warning)}", width - 4, "$text-warning")]
    if pick.shown:
        rows.append([("    this lab shows it", "$text-muted")])
    elif pick.held_by:
        held = f"held by session {texts.clean(pick.held_by, 60)}: Enter watches that"
        rows += [["    ", *r] for r in wrapped(held, width - 4, "$text-muted")]
    return texts.lines(rows, width)


class DevicesScreen(Page[Pick | None]):
    """Returns what was picked, None for Esc."""

    BINDINGS = [("w", "leave", "back")]  # noqa: RUF012 - Textual's own form
    KEYS = (("↑ ↓", "choose"), ("enter", "take it, and remember it"))

    def __init__(self, server: AdbServer | None = None) -> None:
        super().__init__()
        self.list = OptionList(classes="page-body")
        self._server = server
        self._tracker: Tracker | None = None
        self._picks: list[Pick] = []
        self._looks = 0

    def body(self) -> Widget:
        """A list, one entry a phone."""
        return self.list

    def on_mount(self) -> None:
        """Follow the phones from now on."""
        self.list.focus()
        try:
            self._tracker = Tracker(self._server or AdbServer.users(), lambda _: None).start()
        except DeviceError as problem:
            self.notify(texts.clean(problem), severity="error", markup=False)

    def on_unmount(self) -> None:
        """Stop following; that may take a second, which nobody should wait for."""
        if self._tracker is not None:
            threading.Thread(target=_close, args=(self._tracker,), daemon=True).start()

    def draw(self, view: View, count: int) -> None:
        """Look twice a second: who holds a phone changes without adb's knowing."""
        super().draw(view, count)
        if count % 5:
            return
        seen = self._tracker.latest if self._tracker is not None else None
        self.entitle("Devices   ", _how_it_stands(seen))
        self._looks += 1
        if seen is None and self._looks < PATIENCE_LOOKS:
            return
        live = self.lab.live
        session = live.session_dir.name if live is not None and not live.ended else None
        found = picks(seen, session, self.lab.options.serial)
        if found != self._picks:
            self._fill(found)

    def _fill(self, found: list[Pick]) -> None:
        place = self.list.highlighted
        before = self._picks[place] if place is not None and place < len(self._picks) else None
        self._picks = found
        width = max(30, self.app.size.width - 8)
        self.list.clear_options().add_options([Option(pick_content(pick, width)) for pick in found])
        # The cursor stays on its phone when others come and go above it; it begins on the one that is shown.
        same = [i for i, p in enumerate(found) if before is not None and _name(p) == _name(before)]
        first = [i for i, p in enumerate(found) if p.shown] or [i for i, p in enumerate(found) if p.chosen]
        self.list.highlighted = (same or first or [0])[0]

    def on_resize(self) -> None:
        """Wrap anew."""
        self._picks = []

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take it, if it can be used."""
        event.stop()
        pick = self._picks[event.option_index]
        if pick.entry is not None and not pick.entry.usable:
            self.notify(texts.clean(pick.entry.problem), severity="warning", markup=False)
        else:
            self.dismiss(pick)


def _name(pick: Pick) -> str:
    return pick.entry.serial if pick.entry is not None else ""


def _close(tracker: Tracker) -> None:
    with contextlib.suppress(DeviceError):
        tracker.close()


def _how_it_stands(seen: Attached | None) -> Part:
    if seen is None:
        return "asking adb …"
    if seen.problem:
        return (texts.clean(seen.problem), "bold $text-error")
    usable = sum(entry.usable for entry in seen.devices)
    if not seen.devices:
        return ("no phone is attached: plug one in with USB debugging on; it appears by itself", "$text-warning")
    return f"{len(seen.devices)} attached, {usable} ready; they come and go by themselves"
