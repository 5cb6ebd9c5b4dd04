"""Host stages run by a command, without engine, phone and session: one after the other, told on a line of stderr."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from mtplab.model.files import is_factory
from mtplab.pipeline.cache import Store
from mtplab.pipeline.choices import choose, choose_model
from mtplab.pipeline.host_run import run_host_stage
from mtplab.pipeline.stage import RunParameters, StageResult, inputs_for, params_for
from mtplab.session.text import clean_text


def run_stages(names: Sequence[str], run: RunParameters, store: Store) -> list[StageResult]:
    """The results of the stages, up to the first that did not end well; Ctrl-C and SIGTERM cancel what runs.

    For command lines: `run` names its model and head as those do. Raises `ModelError` for what is none.
    """
    run = as_named(run)
    params = {name: params_for(name, run) for name in names}  # bad names are refused before anything begins
    results: dict[str, StageResult] = {}
    cancel = threading.Event()
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name in names:
            told = ProgressLine(name).take
            fresh = name == "freeze" and is_factory(run.model)  # what a factory returns is known when it has run
            results[name] = run_host_stage(
                name, params[name], inputs_for(name, results), store, told, cancel, fresh=fresh
            )
            ProgressLine.close()
            if results[name].status not in ("done", "cached"):
                break
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ProgressLine.close()
    return list(results.values())


def as_named(run: RunParameters) -> RunParameters:
    """`run` with a folder by its absolute path and a head's file by its bytes, as a command line named them."""
    model = choose_model(run.model, from_command_line=True)
    head = choose(run.head, None, model) if isinstance(run.head, str) else run.head
    return msgspec.structs.replace(run, model=model, head=head)


class ProgressLine:
    """Progress on one line of stderr with the time left, where that is a terminal; else a line every ten seconds."""

    _open = False

    def __init__(self, stage: str) -> None:
        self._stage, self._began, self._told = stage, time.monotonic(), 0.0

    def take(self, event: dict[str, Any]) -> None:
        """An event of a stage's worker."""
        if event["e"] == "progress":
            self(event["done"], event.get("total") or 0, str(event.get("note") or ""))

    def __call__(self, done: float, total: float, note: str) -> None:
        """How far it is."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if now - self._told < (0.1 if terminal else 10.0):
            return
        self._told = now
        left = (now - self._began) * (total - done) / done if total and 0 < done < total else None
        text = f"{self._stage} {done:.4g}/{total:.4g} {note}" + ("" if left is None else f" · {left:.0f} s left")
        click.echo(("\r\x1b[K" if terminal else "") + clean_text(text, 110), err=True, nl=not terminal)
        ProgressLine._open = terminal

    @classmethod
    def close(cls) -> None:
        """End the line, so that the next word begins its own."""
        if cls._open:
            click.echo("\r\x1b[K", err=True, nl=False)
        cls._open = False
