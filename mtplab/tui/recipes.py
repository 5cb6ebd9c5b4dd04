"""The names of the recipes that a run can take, read from their file without loading the room that uses them."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).resolve().parents[1] / "litert" / "recipes.toml"


def recipe_names() -> tuple[str, ...]:
    """Recipes in the file's order; none where it cannot be read (any name may still be typed)."""
    try:
        return tuple(tomllib.loads(FILE.read_text("utf-8")))
    except (OSError, tomllib.TOMLDecodeError):
        return ()
