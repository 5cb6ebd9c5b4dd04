"""How the lab gets an engine: start one, or find the one that runs."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mtplab.engine.errors import EngineError
from mtplab.tui import LabOptions
from mtplab.tui.source import Engine

NOT_READY = 2


class Connected(msgspec.Struct, frozen=True):
    """An engine, and whether this lab started it (then closing the lab ends it)."""

    engine: Engine
    owned: bool
    note: str = ""
    """What the person should know about how it was found."""


class Connector(Protocol):
    """Gives an engine or raises EngineError; may take seconds, so it is called from a thread."""

    def __call__(self, options: LabOptions) -> Connected:
        """Find or start what `options` ask for."""


def connect(options: LabOptions) -> Connected:
    """Attach where asked to, else start an engine for the stand-in's scenario or for the phone."""
    from mtplab.engine import client
    from mtplab.engine.options import EngineOptions

    if options.attach is not None:
        return Connected(client.attach(options.attach or None), owned=False)
    wanted = EngineOptions(standin=options.standin, serial=options.serial)
    try:
        return Connected(client.launch(wanted), owned=True)
    except EngineError as error:
        if not options.or_standin or options.standin is not None or error.exit_code != NOT_READY:
            raise
        note = f"No phone: {error} This is the stand-in Pixel: all of it is SIMULATED."
        return Connected(client.launch(EngineOptions(standin="normal")), owned=True, note=note)
