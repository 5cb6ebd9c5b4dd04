"""The terminal lab: a viewer of a session's journal."""

from __future__ import annotations

from pathlib import Path

import msgspec


class LabOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the lab opens: a phone (the default), the stand-in, a running engine, or a saved session."""

    standin: str | None = None
    """Scenario of the stand-in Pixel; None means a real phone."""
    attach: str | None = None
    """Session of a running engine; "" means the only one there is."""
    replay: Path | None = None
    """A saved session, by path or by (the beginning of) its name."""
    at_s: float | None = None
    """Where the replay begins, in seconds."""
    serial: str | None = None
    theme: str | None = None
    or_standin: bool = False
    """Where no phone is ready, open on the stand-in instead, and say so."""


def run(options: LabOptions) -> int:
    """Open the lab and return the exit code once it is closed; it says itself why it had to close."""
    from mtplab.tui.app import LabApp

    app = LabApp(options)
    app.run()
    return app.return_code or 0
