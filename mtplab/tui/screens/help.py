"""What every key does, written from the table of actions."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from mtplab.tui import texts
from mtplab.tui.actions import ACTIONS, GROUPS

SIGNS = (
    "Behind a sentence stands the command line that does the same without a screen.",
    "Glyphs: · pending  ▶ running  ✓ done  ≡ cached  ✗ failed  ■ cancelled  – skipped.",
    "Verdicts: ✓ FULL  ◐ PARTIAL  ▼ DOWNGRADED  ✗ FALLBACK TO CPU, FAILED, CRASHED  ? UNKNOWN. Silence is UNKNOWN.",
    "Intervals in [ ] are 95 %; n is how many measurements stand behind it. Rounds `apart` are marked, such as hot.",
    "SIMULATED marks all that came from the stand-in; it says nothing about a real phone.",
)


WIDTH = 100
KEY_CELLS, LABEL_CELLS = 8, 11


def help_content(width: int) -> Content:
    """All actions by group, then what the signs mean, in `width` cells."""
    indent = KEY_CELLS + LABEL_CELLS
    parts: list[texts.Part] = []
    for group in GROUPS:
        parts.append((f"{group}\n", "bold $text-accent"))
        for action in ACTIONS:
            if action.group == group:
                room = max(20, width - indent)
                told = f"\n{' ' * indent}".join(textwrap.wrap(action.help, room))
                parts += [(f"{action.shown_key:>6}  ", "bold"), f"{action.label:<{LABEL_CELLS}}", told]
                used = len(told.rpartition("\n")[2]) + (0 if "\n" in told else indent)
                gap = "  " if used + 2 + len(action.twin) <= width else f"\n{' ' * indent}"
                parts.append((f"{gap}{action.twin}\n" if action.twin else "\n", "$text-muted"))
    parts.append(("Signs\n", "bold $text-accent"))
    parts += [f"{row}\n" for sign in SIGNS for row in textwrap.wrap(sign, width)]
    return Content.assemble(*parts)


class HelpScreen(ModalScreen[None]):
    """Scrolls with the arrows; Esc, q or ? closes it."""

    CSS_PATH = "dialogs.tcss"
    CSS = f"HelpScreen .dialog {{ width: {WIDTH}; height: 90%; padding: 0 2; }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "back", show=False)]

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll(classes="dialog"):
            yield Static(help_content(min(WIDTH, self.app.size.width * 95 // 100) - 8))
