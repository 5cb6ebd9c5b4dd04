"""What a stage sees while it runs in its worker: its job, a way to report, and the shape of its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One stage to run: parameters, input files by name, and a folder to write artefacts into.

    With `lifeline` the worker ends as soon as its standard input closes, so that it never outlives its parent.
    """

    stage: str
    module: str
    params: dict[str, Any]
    inputs: dict[str, str]
    workdir: str
    lifeline: bool = False

    def input(self, name: str) -> Path:
        return Path(self.inputs[name])

    def output(self, name: str) -> Path:
        return Path(self.workdir) / name

    def settings(self, kind: type[T]) -> T:
        """The parameters as a typed struct."""
        return msgspec.convert(self.params, kind)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage gives: figures, files in its folder by name, records for the session, one line for people."""

    figures: dict[str, Any] = {}
    artefacts: tuple[str, ...] = ()
    records: dict[str, Any] = {}
    summary: str = ""


class StageFailed(Exception):
    """A stage found what it must not pass on; its text is one sentence, its figures are kept."""

    def __init__(
        self, message: str, figures: dict[str, Any] | None = None, records: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.figures, self.records = figures or {}, records or {}


class Emitter:
    """Reports of a running stage, as events `{"e": …}`."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send

    def progress(self, done: float, total: float | None = None, unit: str = "", note: str = "") -> None:
        self._send({"e": "progress", "done": done, "total": total, "unit": unit, "note": note})

    def figure(self, name: str, value: Any) -> None:
        self._send({"e": "figure", "name": name, "value": value})

    def log(self, text: str) -> None:
        self._send({"e": "log", "text": text, "stream": "stage"})
