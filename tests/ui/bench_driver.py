"""Hands and eyes of the screen tests: an engine that is only a journal, and waits for what a pane shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import synthetic

from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL
from mtplab.session.journal import JournalWriter
from mtplab.tui.app import LabApp


class FakeEngine:
    """An engine as the lab sees it: a journal that this test writes, and a record of what was commanded."""

    def __init__(self, folder: Path) -> None:
        self.session_dir = folder
        self.commands: list[dict[str, Any]] = []
        self.living = True
        self.refuse: str | None = None
        self.writer = JournalWriter(folder / JOURNAL, synthetic.header(1000.0, folder.name))

    def write(self, *events: ev.Event) -> None:
        """Record events as the engine would."""
        for event in events:
            self.writer.append(event)
        self.writer.tick()

    def send(self, command: dict[str, Any]) -> dict[str, Any]:
        """Note the command; `stop` ends the engine."""
        self.commands.append(command)
        if command["cmd"] == "stop":
            self.living = False
        return {"ok": self.refuse is None, "error": self.refuse}

    def alive(self) -> bool:
        """Whether it was not stopped."""
        return self.living


async def until(pilot: Any, true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Let the application run until something is true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        await pilot.pause(0.05)


def shown(app: LabApp, selector: str) -> str:
    """The plain text that a painted widget of the bench shows."""
    return app.bench.query_one(selector).render().plain  # type: ignore[attr-defined]


BIG, SMALL = (120, 40), (80, 24)


def drive(app: LabApp, steps: Callable[[Any], Coroutine[Any, Any, None]], size: tuple[int, int] = BIG) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(pilot)

    asyncio.run(run())


def log_text(app: LabApp) -> str:
    return "\n".join(app.bench.log_pane.text.lines)


def running(engine: FakeEngine) -> None:
    """The first minute of a run: the phone, stages, both logs, nothing measured yet."""
    engine.write(*[e for e in synthetic.whole_run() if e.t < 1055])
