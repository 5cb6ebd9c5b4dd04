"""What an experiment has come to so far, on the disk after every step, and its rounds back from their sessions."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from mtplab.engine.errors import EngineError
from mtplab.engine.experiment import Experiment
from mtplab.measure.figures import from_builtins
from mtplab.measure.protocol import parse
from mtplab.pipeline.stages.measure import Measured
from mtplab.pipeline.stages.measure_round import Ran
from mtplab.session import archive, paths
from mtplab.session import events as ev
from mtplab.session.atomic import write_atomic
from mtplab.session.foreign import Unfit, convert_foreign, decode_foreign
from mtplab.session.identity import Identity
from mtplab.session.journal import SessionError

Status = Literal["left", "done", "failed"]
FORMAT = "mtplab-experiment"
# Rounds of another phone, build or AICore are no rounds of this experiment.
_SAME = ("device_model", "serial_hash", "build_fingerprint", "aicore_version", "simulated", "scenario")


class CellState(msgspec.Struct, kw_only=True):
    """Where a cell stands: left (with the reason, where it was tried), done (with its session), failed (why)."""

    status: Status = "left"
    reason: str | None = None
    session: str | None = None


class Ledger(msgspec.Struct, kw_only=True):
    """The experiment's file: which sessions hold rounds of which recipe, and where every cell stands."""

    experiment: str
    key: str
    created_utc: str
    format: str = FORMAT
    rounds: int = 0
    parts: dict[str, list[str]] = {}
    cells: dict[str, CellState] = {}


class Store:
    """The ledger of one experiment; written whole after each change, so that a kill loses nothing."""

    def __init__(self, experiment: Experiment, *, again: bool = False) -> None:
        folder = paths.sessions_dir() / "experiments"
        self.path = folder / f"{archive.slug(experiment.name)}-{experiment.key()[:8]}.json"
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        fresh = Ledger(experiment=experiment.name, key=experiment.key(), created_utc=now)
        self.ledger = fresh if again else self._read() or fresh
        if self.ledger.rounds < experiment.rounds:
            for cell in self.ledger.cells.values():  # more rounds were asked for: done cells go on
                cell.status = "left" if cell.status == "done" else cell.status
        self.ledger.rounds = experiment.rounds

    def _read(self) -> Ledger | None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EngineError(f"The experiment's file {self.path} cannot be read ({error.strerror}).", 4) from None
        try:
            ledger: Ledger = convert_foreign(decode_foreign(data), Ledger)
        except Unfit as error:
            raise EngineError(
                f"The experiment's file {self.path} is damaged ({error}); begin anew with --again, "
                "the sessions are kept.", 4,
            ) from None  # fmt: skip
        return ledger

    def save(self) -> None:
        """Write the ledger; EngineError with exit code 4 where it cannot be."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(self.path, msgspec.json.format(msgspec.json.encode(self.ledger)), mode=0o600)
        except OSError as error:
            raise EngineError(
                f"The experiment's file {self.path} cannot be written ({error.strerror}); make room and run again.", 4
            ) from None

    def cell(self, name: str) -> CellState:
        """Where a cell stands."""
        return self.ledger.cells.setdefault(name, CellState())

    def add_part(self, recipe: str, session: Path) -> None:
        """Note the session in which rounds are about to be measured, before the first of them."""
        self.ledger.parts.setdefault(recipe, []).append(session.name)
        self.save()

    def rounds_done(self, recipe: str) -> dict[str, int]:
        """Whole rounds of each configuration that the sessions of a recipe hold, by its name."""
        done: dict[str, set[int]] = {}
        for _, events in self._parts(recipe):
            for event in events:
                if isinstance(event, ev.RoundMeasured) and event.reason is None:
                    done.setdefault(event.configuration, set()).add(event.index)
        return {name: len(indices) for name, indices in done.items()}

    def earlier(
        self, recipe: str, names: Collection[str], hashes: Mapping[str, str], identity: Identity
    ) -> tuple[list[Measured], list[str]]:
        """The rounds of interrupted sessions that belong to the same graphs on the same phone; and what does not.

        `hashes` are those of the deployed files by artefact name.
        """
        found, notes = [], []
        for folder, events in self._parts(recipe):
            state = archive.reduce_events(list(events))
            if not any(isinstance(e, ev.RoundMeasured) for e in events):
                continue
            odd = [n for n in _SAME if getattr(state.identity, n) != getattr(identity, n)]
            own = {name: artefact.sha256 for name, artefact in state.artefacts.items()}
            odd += [name for name, sha256 in hashes.items() if own.get(name) != sha256]
            if odd:
                notes.append(f"The rounds of {folder.name} are left where they are: {', '.join(odd)} differ.")
                continue
            found += [m for m in _measured(folder, events) if m.event.configuration in names]
        return found, notes

    def _parts(self, recipe: str) -> Iterator[tuple[Path, Sequence[ev.Event]]]:
        for name in self.ledger.parts.get(recipe, []):
            with contextlib.suppress(SessionError):  # a session that somebody removed or damaged has no rounds for us
                opened = archive.open_session(paths.sessions_dir() / name)
                yield opened.path, opened.events


def _measured(folder: Path, events: Sequence[ev.Event]) -> Iterator[Measured]:
    """The rounds that were measured in one session, with what their processes said out of its logs."""
    for event in events:
        if isinstance(event, ev.RoundMeasured) and event.resumed_from is None:
            logs = list(folder.glob(f"logs/*/measure-{event.order:03d}-{event.configuration}.jsonl"))
            ran = Ran(parse(logs[0].read_bytes()), lost=event.reason) if logs else None
            told = msgspec.structs.replace(event, resumed_from=folder.name)
            yield Measured(told, from_builtins(event.prompts), ran)
