"""The ways to leave a command before its end: `break`, `continue`, `return`, `exit`."""

from __future__ import annotations


class Break(Exception):
    """`break n`."""

    def __init__(self, levels: int) -> None:
        self.levels = levels


class Continue(Break):
    """`continue n`."""


class Return(Exception):
    """`return status`."""

    def __init__(self, status: int) -> None:
        self.status = status


class Exit(Return):
    """`exit status`."""
