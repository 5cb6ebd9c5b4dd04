"""Hostile text made harmless: escapes and control characters out, length bounded."""

from __future__ import annotations

import re

# CSI, OSC (ended by BEL or ST, or cut off) and two-character escapes; then every other control but tab.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]|[\x80-\x9f]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MAX_TEXT_CHARS = 4000


def clean_text(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """One line of text from a phone, a log or a file, safe to draw; longer than `limit` characters is cut with …."""
    if len(text) > limit:
        text = text[:limit] + "…"
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\n", " ")))
