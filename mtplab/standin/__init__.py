"""A Pixel that isn't there: the device side of adb, a shell, files and heat."""

from __future__ import annotations


def serve(args: list[str]) -> int:
    """Serve one stand-in device until a signal ends it; `args` are those of `python -m mtplab.standin`."""
    from mtplab.standin.server import main

    return main(args)


__all__ = ["serve"]
