"""`mtplab standin`: serve the stand-in Pixel to any adb client."""

from __future__ import annotations

import click


@click.command("standin", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def standin_command(arguments: tuple[str, ...]) -> int:
    """Serve a phone that isn't there on 127.0.0.1 until stopped; prints one JSON line with its serial.

    Takes --scenario, --profile, --heat, --seed, --trace, --speed, --root, --port, --backend, --allow-key, --program;
    see --help.
    """
    from mtplab.standin import serve

    return serve(list(arguments))
