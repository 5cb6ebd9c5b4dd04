"""The one error that the model room raises towards people: a sentence that says what, why and what to do."""

from __future__ import annotations


class ModelError(Exception):
    """A model, head, prompt set or freeze that cannot be used; its text is one complete sentence."""
