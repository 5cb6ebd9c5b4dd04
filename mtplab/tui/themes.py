"""Themes are files: those that came with mtplab and the user's own, checked before Textual sees them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import platformdirs
from textual.color import Color, ColorParseError
from textual.theme import Theme

from mtplab.session.paths import shipped
from mtplab.session.text import clean_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COLOURS = ("primary", "secondary", "warning", "error", "success", "accent", "foreground", "background", "surface",
           "panel", "boost")  # fmt: skip
# What the panes add to Textual's own variables: plates that must be seen, whatever the theme.
LOUD = {
    "loud-text": "#ffffff",
    "loud-error": "#b3001b",
    "loud-warning": "#8a4b00",
    "loud-unknown": "#7a1fa2",
    "loud-replay": "#00518a",
}
MAX_BYTES = 1 << 16


def user_folder() -> Path:
    """Where a user's own themes lie."""
    return Path(platformdirs.user_config_dir("mtplab")) / "themes"


def load_themes(*folders: Path) -> tuple[list[Theme], list[str]]:
    """(themes, sentences about files that could not be used) of `folders`; a later one of the same name wins."""
    loaded: dict[str, Theme] = {}
    failed: list[str] = []
    for folder in folders or (shipped("themes"), user_folder()):
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else []:
            try:
                theme = read_theme(path)
            except (ValueError, OSError) as error:
                failed.append(f"The theme {clean_text(path.name, 60)} was left out: {clean_text(str(error), 200)}.")
            else:
                loaded[theme.name] = theme
    return list(loaded.values()), failed


def read_theme(path: Path) -> Theme:
    """One theme; ValueError says which key is wrong."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError("it is too large to be a theme")
    data: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    name, dark = data.pop("name", path.stem), data.pop("dark", True)
    variables = data.pop("variables", {})
    if not isinstance(name, str) or not isinstance(dark, bool) or not isinstance(variables, dict):
        raise ValueError("name is a text, dark is true or false, variables is a table")
    unknown = sorted(set(data) - set(COLOURS))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no colour of a theme ({', '.join(COLOURS)})")
    if "primary" not in data:
        raise ValueError("it names no primary colour")
    for key, value in [*data.items(), *((k, v) for k, v in variables.items() if k in LOUD)]:
        _check_colour(key, value)
    if not all(isinstance(v, str) for v in variables.values()):
        raise ValueError("a variable's value is a text")
    return Theme(name=clean_text(name, 40), dark=dark, variables=variables, **data)


def _check_colour(key: str, value: object) -> None:
    # Textual accepts any text here and fails much later, in the middle of drawing.
    try:
        Color.parse(value if isinstance(value, str) else "")
    except ColorParseError:
        raise ValueError(f'{key} = {value!r} is no colour; write it as "#rrggbb"') from None
