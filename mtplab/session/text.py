"""Hostile text made harmless: escapes, controls and all that hides or reorders text out, length bounded."""

from __future__ import annotations

import re

# OSC and its kin (ended by BEL or ST, or cut off), CSI in both its forms, then every other escape.
_ESCAPES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]?|\x9b[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)
MAX_TEXT_CHARS = 4000


def clean_text(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """One line of text from a phone, a log or a file, safe to draw; longer than `limit` characters is cut with …."""
    if len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(map(_shown, _ESCAPES.sub("", text)))


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"  # a byte of a file name that is no UTF-8
    # Line ends and odd spaces become a space; controls, zero-width and bidirectional marks go without a trace.
    return " " if character.isspace() and character != "\r" else ""
