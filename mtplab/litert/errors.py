"""The one error that the litert room raises towards people: what happened, why, and what to do."""

from __future__ import annotations


class LiteRtError(Exception):
    """A graph that cannot be exported, quantised, read or run; its text is one complete sentence."""
