"""Works an experiment off: a session for each group of cells, rounds kept whatever happens, what is left told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from mtplab.engine.cell_session import write_cell
from mtplab.engine.errors import EngineError
from mtplab.engine.experiment import Cell, Experiment, Group, cells_of, groups_of, run_options
from mtplab.engine.experiment_store import Store
from mtplab.engine.measuring import MeasurePlan
from mtplab.engine.options import EngineOptions
from mtplab.engine.progress import Progress
from mtplab.engine.runner import PipelineRun, check_run
from mtplab.engine.service import Engine
from mtplab.measure.plan import plain_of
from mtplab.model.errors import ModelError
from mtplab.model.prompts import PromptSet, load_prompts
from mtplab.pipeline.choices import prompt_sets
from mtplab.session import events as ev
from mtplab.session.events import Event
from mtplab.session.journal import SessionError

NOT_READY = 2
RETRY_S = 2.0
Tell = Callable[[str], None]


class Campaign:
    """One experiment on one phone. `run` may be called again after any interruption: what is done is kept."""

    def __init__(
        self, experiment: Experiment, phone: EngineOptions, store: Store, *, listen: Callable[[Event], None],
        tell: Tell,
    ) -> None:  # fmt: skip
        self.experiment, self._phone, self.store = experiment, phone, store
        self._listen, self._tell = listen, tell
        self.stopping = threading.Event()
        self.cells = cells_of(experiment)
        self._groups = groups_of(experiment)
        self.progress = Progress(self._rounds_left())
        self._verdict_codes: list[int] = []
        self._given_up: set[str] = set()

    # -- the loop -----------------------------------------------------------------
    def run(self) -> int:
        """Measure what is left; the documented exit code: 0 all done, 4 a cell failed or is left, 130 stopped."""
        self.store.save()
        for index, group in enumerate(self._groups):
            if self.stopping.is_set():
                break
            if self._left(group):
                self._tell(f"experiment {self.experiment.name}: recipe {group.recipe}, group {index + 1} of "
                           f"{len(self._groups)}, {len(self._left(group))} cells left")  # fmt: skip
                if not self._group(group):
                    break
        return self._exit_code()

    def _group(self, group: Group) -> bool:
        """One group; False where the phone is gone and going on makes no sense."""
        try:
            self._measure(group)
        except EngineError as error:
            if error.exit_code == NOT_READY:
                self._leave([c for g in self._groups for c in self._left(g)], str(error))
                return False
            self._fail(self._left(group), str(error))
        except SessionError as error:
            self._leave(self._left(group), str(error))
            return False
        return True

    def _measure(self, group: Group) -> None:
        options = run_options(self.experiment, group)
        check_run(options)
        self._given_up = set()
        self._phone = msgspec.structs.replace(self._phone, purpose=f"{self.experiment.name}-{group.recipe}")
        with contextlib.ExitStack() as stack:
            engine = self._opened(stack)
            if engine is None:
                return
            self.store.add_part(group.recipe, engine.recorder.path)
            plan = MeasurePlan(
                configurations=group.configurations,
                classes=tuple(self.experiment.axes.classes),
                earlier=lambda hashes: self._earlier(engine, group, hashes),
                experiment=self.experiment.name,
            )
            run = engine.start_run(options, plan)
            while run.running:
                run.join(0.2)
                if self.stopping.is_set():
                    engine.cancel()
            engine.recorder.settle()
            self._settle(engine, group, run)

    def _opened(self, stack: contextlib.ExitStack) -> Engine | None:
        """An engine on the phone; a phone that is not ready is waited for. None where the experiment was stopped."""
        deadline = time.monotonic() + self.experiment.limits.reconnect_s
        told = ""
        while True:
            try:
                return stack.enter_context(Engine(self._phone, listen=self._heard))
            except EngineError as error:
                if error.exit_code != NOT_READY or time.monotonic() > deadline:
                    raise
                if str(error) != told:
                    told = str(error)
                    self._tell(f"  ! {told} Waiting for it.")
            if self.stopping.wait(RETRY_S):
                return None

    def _heard(self, event: Event) -> None:
        self._listen(event)
        if isinstance(event, ev.StageChanged) and (event.name, event.status) == ("measure", "running"):
            self.progress.begins()
        if isinstance(event, ev.ConfigurationMeasured) and event.reason and event.name not in self._given_up:
            self._given_up.add(event.name)
            self.progress.given_up(self.experiment.rounds)
        if isinstance(event, ev.RoundMeasured) and event.resumed_from is None and event.reason is None:
            self.progress.round_done()
            self._tell(f"    {event.configuration} round {event.index + 1} · {self.progress.text()}")

    def _earlier(self, engine: Engine, group: Group, hashes: Mapping[str, str]) -> Sequence[Any]:
        names = {c.name for c in group.configurations}
        identity = engine.recorder.state.identity
        found, notes = self.store.earlier(group.recipe, names, hashes, identity)
        for note in notes:
            engine.recorder.say(note, "warning")
        if found:
            engine.recorder.say(f"{len(found)} rounds were measured before and are kept.")
        return found

    # -- what came of it ------------------------------------------------------------
    def _settle(self, engine: Engine, group: Group, run: PipelineRun) -> None:
        """Give every cell of the group that was not done its outcome, and the done ones their sessions."""
        state, header = engine.recorder.state, engine.recorder.header
        ended = state.run_end
        why = ended.reason if ended is not None and ended.reason else "its run did not end"
        gone = state.link == "lost" or (ended is not None and ended.outcome == "cancelled")
        for cell in self._left(group):
            view = state.configurations.get(cell.configuration.name)
            if view is not None and view.reason:
                self._fail([cell], view.reason)
            elif not self._measured(run, cell, group):
                (self._leave if gone or self._kept(state, cell) else self._fail)([cell], why)
            else:
                outputs = run.measured["outputs"]
                folder = write_cell(
                    cell, self.experiment, state, header, group.configurations, outputs, self.prompts()
                )
                told = self.store.cell(cell.name)
                told.status, told.reason, told.session = "done", None, folder.name
            self.store.save()
        if run.code:
            self._verdict_codes.append(run.code)

    def _measured(self, run: PipelineRun, cell: Cell, group: Group) -> bool:
        """Whether the cell and plain decoding beside it have all their rounds."""
        plain = plain_of(cell.configuration, group.configurations)
        rounds = run.measured.get("rounds", {})
        names = [cell.configuration.name, plain.name if plain is not None else ""]
        return all(len(rounds.get(name, [])) >= self.experiment.rounds for name in names)

    @staticmethod
    def _kept(state: Any, cell: Cell) -> bool:
        """Whether rounds of it were measured: then it was cut off, and goes on when the experiment is run again."""
        view = state.configurations.get(cell.configuration.name)
        return view is not None and bool(view.rounds)

    def _fail(self, cells: Sequence[Cell], why: str) -> None:
        self._set(cells, "failed", why)

    def _leave(self, cells: Sequence[Cell], why: str) -> None:
        self._set(cells, "left", why)

    def _set(self, cells: Sequence[Cell], status: Any, why: str) -> None:
        for cell in cells:
            state = self.store.cell(cell.name)
            state.status, state.reason, state.session = status, why, None
        self.store.save()

    # -- what is left -----------------------------------------------------------------
    def _left(self, group: Group) -> list[Cell]:
        """Cells that are not done; one that failed is tried again once, when the experiment is run again."""
        return [cell for cell in group.cells if self.store.cell(cell.name).status != "done"]

    def _rounds_left(self) -> int:
        left = 0
        for group in self._groups:
            if self._left(group):
                done = self.store.rounds_done(group.recipe)
                left += sum(max(0, self.experiment.rounds - done.get(c.name, 0)) for c in group.configurations)
        return left

    def rounds_done(self) -> dict[str, dict[str, int]]:
        """Whole rounds that there are, by recipe and configuration."""
        return {group.recipe: self.store.rounds_done(group.recipe) for group in self._groups}

    def prompts(self) -> PromptSet:
        """The prompt set; EngineError with exit code 1 where it cannot be used, or lacks a class of the axes."""
        try:
            prompts = load_prompts(self.experiment.prompts or prompt_sets(self.experiment.model)[0])
        except ModelError as error:
            raise EngineError(str(error), 1) from None
        without = [k for k in self.experiment.axes.classes if k not in prompts.classes()]
        if without:
            raise EngineError(
                f"The prompt set {prompts.name} has no class {without[0]!r}, only "
                f"{', '.join(prompts.classes())}.", 1,
            )  # fmt: skip
        return prompts

    def _exit_code(self) -> int:
        if self.stopping.is_set():
            return 130
        states = {self.store.cell(cell.name).status for cell in self.cells}
        if states == {"done"}:
            return next((code for code in (4, 3, 5) if code in self._verdict_codes), 0)
        return 4

    def check(self) -> None:
        """Refuse before anything begins what no run could be asked: EngineError with exit code 1."""
        self.prompts()
        for group in self._groups:
            check_run(run_options(self.experiment, group))

