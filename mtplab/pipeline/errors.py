"""The one error that the pipeline raises towards people: what happened, why, and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """A stage that cannot be run or a store that cannot be used; its text is one complete sentence."""
