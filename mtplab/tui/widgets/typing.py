"""A text field that takes its keys in the order in which they were typed."""

from __future__ import annotations

from textual import events
from textual.widgets import Input


class TypedInput(Input):
    """An Input whose editing keys act at once.

    Textual gives a letter to the field itself but lets a bound key (Home, ctrl-k) bubble up to the app first: in a
    fast burst the letters overtook it, and what was typed was deleted behind itself.
    """

    async def on_key(self, event: events.Key) -> None:
        """Act on an editing key here; Enter and what the field does not know go on to those around it."""
        if event.is_printable or event.key == "enter":
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
