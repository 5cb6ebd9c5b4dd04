"""The one error that the calibration room raises towards people: what happened, why, and what to do."""

from __future__ import annotations


class CalibrationError(Exception):
    """Prompts, lengths or a set that cannot be used; its text is one complete sentence."""
