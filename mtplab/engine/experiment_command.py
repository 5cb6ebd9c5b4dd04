"""`mtplab run --experiment FILE`: an experiment without a screen, its table of cells, and what is left of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from mtplab.engine.campaign import Campaign
from mtplab.engine.experiment import Cell, read_experiment
from mtplab.engine.experiment_store import Store
from mtplab.engine.options import EngineOptions
from mtplab.engine.progress import duration
from mtplab.report.comparisons import rows_of, table, times
from mtplab.report.contract import figures_of
from mtplab.session import archive, paths
from mtplab.session.journal import SessionError
from mtplab.session.record import ConfigurationRecord, SessionRecord
from mtplab.session.text import clean_text

Done = dict[str, dict[str, int]]  # whole rounds by recipe and configuration
_HEAD = ("cell", "status", "rounds", "tok/s", "decoding", "end to end", "says", "session, or why not")


def run_experiment(
    path: Path, phone: EngineOptions, *, listen: Any, dry_run: bool, again: bool, as_json: bool
) -> int:
    """Work the experiment off, or only list its cells; the exit code. EngineError where it cannot begin."""
    from mtplab.report.command import print_json

    experiment = read_experiment(path)
    phone = msgspec.structs.replace(
        phone, standin=phone.standin or experiment.standin, serial=phone.serial or experiment.serial
    )
    experiment = msgspec.structs.replace(experiment, standin=phone.standin, serial=phone.serial)
    store = Store(experiment, again=again)
    campaign = Campaign(experiment, phone, store, listen=listen, tell=_say)
    campaign.check()
    code = 0
    if not dry_run:
        _say("\n".join(_lines(campaign, {})))
        with _interruptible(campaign):
            code = campaign.run()
    records = {cell.name: record for cell in campaign.cells if (record := _record(store, cell)) is not None}
    if as_json:
        print_json(contract(campaign, records, None if dry_run else code))
    else:
        click.echo("\n".join(_lines(campaign, records)))
    return code


def contract(campaign: Campaign, records: dict[str, SessionRecord], code: int | None) -> dict[str, Any]:
    """The experiment as one JSON value; every cell is a row, whatever became of it."""
    experiment, store = campaign.experiment, campaign.store
    states = [store.cell(cell.name).status for cell in campaign.cells]
    done = campaign.rounds_done()
    return {
        "experiment": experiment.name,
        "key": experiment.key(),
        "file": str(store.path),
        "exit_code": code,
        "cells": [_row(campaign, cell, records.get(cell.name), done) for cell in campaign.cells],
        "done": states.count("done"),
        "failed": states.count("failed"),
        "left": states.count("left"),
        "rounds_left": campaign.progress.left,
        "eta_s": campaign.progress.eta_s,
        "parts": store.ledger.parts,
    }


def _row(campaign: Campaign, cell: Cell, record: SessionRecord | None, done: Done) -> dict[str, Any]:
    state = campaign.store.cell(cell.name)
    row: dict[str, Any] = {
        "cell": cell.name,
        "status": state.status,
        "reason": state.reason,
        "session": state.session,
        "recipe": cell.recipe,
        "class": cell.klass,
        "configuration": msgspec.to_builtins(cell.configuration),
        "rounds": done[cell.recipe].get(cell.configuration.name, 0),
        "figures": None,
        "speedup": None,
        "decode_speedup": None,
        "says": None,
        "simulated": None,
    }
    if record is None:
        return row
    overall = _overall(record)
    names = ("speedup", "decode_speedup", "says")
    found = {"figures": figures_of(_deployed(record), record), "simulated": record.simulated}
    return {**row, **found, **{name: overall.get(name) for name in names}}


def _deployed(record: SessionRecord) -> ConfigurationRecord | None:
    from mtplab.report.contract import deployed

    return deployed(record)


def _overall(record: SessionRecord) -> dict[str, Any]:
    """The row over all classes, or the only one."""
    rows = rows_of(record.comparisons[0]) if record.comparisons else []
    return rows[-1] if rows else {}


def _record(store: Store, cell: Cell) -> SessionRecord | None:
    session = store.cell(cell.name).session
    if session is None:
        return None
    try:
        return archive.open_session(paths.sessions_dir() / session).record
    except SessionError:
        return None


def _lines(campaign: Campaign, records: dict[str, SessionRecord]) -> list[str]:
    """The table of all cells, and what is left."""
    done = campaign.rounds_done()
    rows = [_HEAD, *(_cells(campaign, cell, records.get(cell.name), done) for cell in campaign.cells)]
    states = [campaign.store.cell(cell.name).status for cell in campaign.cells]
    simulated = "  SIMULATED" if any(r.simulated for r in records.values()) else ""
    told = ", ".join(f"{states.count(s)} {s}" for s in ("done", "failed", "left") if states.count(s))
    return [
        f"Experiment {campaign.experiment.name}: {_cell_count(len(states))}, {told}{simulated}",
        *table(rows),
        _what_is_left(campaign),
    ]


def _cell_count(cells: int) -> str:
    return "1 cell" if cells == 1 else f"{cells} cells"


def _what_is_left(campaign: Campaign) -> str:
    left, eta_s = campaign.progress.left, campaign.progress.eta_s
    if not left:
        return "No round is left to measure."
    when = "the time is known once a round was measured" if eta_s is None else f"about {duration(eta_s)} of measuring"
    return f"Left: {left} rounds, {when}; run it again to go on."


def _cells(campaign: Campaign, cell: Cell, record: SessionRecord | None, done: Done) -> Sequence[str]:
    state = campaign.store.cell(cell.name)
    rounds = f"{done[cell.recipe].get(cell.configuration.name, 0)}/{campaign.experiment.rounds}"
    overall = _overall(record) if record is not None else {}
    configuration = _deployed(record) if record is not None else None
    rate = configuration.figures.get("tokens_per_s") if configuration is not None else None
    return (
        cell.name,
        state.status,
        rounds,
        "–" if rate is None or rate.value is None else f"{rate.value:.1f}",
        times(overall.get("decode_speedup")),
        times(overall.get("speedup")),
        clean_text(str(overall.get("says") or "–"), 16),
        clean_text(state.session or state.reason or "", 160),
    )


def _say(text: str) -> None:
    try:
        sys.stderr.write(clean_lines(text) + "\n")
        sys.stderr.flush()
    except OSError:
        return  # nobody reads stderr any more: no reason to lose a measurement


def clean_lines(text: str) -> str:
    """Each line harmless for a terminal."""
    return "\n".join(clean_text(line, 400) for line in text.split("\n"))


@contextmanager
def _interruptible(campaign: Campaign) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the experiment after sealing its session; what was measured is kept."""

    def stop(number: int, _frame: object) -> None:
        if campaign.stopping.is_set():
            os._exit(130)
        _say("stopping; the session is being sealed (again to end at once)")
        campaign.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
