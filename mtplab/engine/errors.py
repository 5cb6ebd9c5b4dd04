"""What can go wrong between a viewer and the engine, as sentences."""

from __future__ import annotations


class EngineError(Exception):
    """The engine cannot be started, found or spoken to; the message says what, why and what to do."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code
