"""Every screen test has places of its own and an engine that is only a handle over a growing journal."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # the generator and the terminal are shared by these tests and by a subprocess
    sys.path.insert(0, str(HERE))

from mtplab.session import events as ev  # noqa: E402
from mtplab.session.archive import JOURNAL  # noqa: E402
from mtplab.session.journal import JournalWriter  # noqa: E402
from mtplab.tui import LabOptions  # noqa: E402
from mtplab.tui.app import LabApp  # noqa: E402
from mtplab.tui.connect import Connected  # noqa: E402


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions, locks and the user's own themes below a fresh folder."""
    monkeypatch.setenv("MTPLAB_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "sessions").mkdir()
    return tmp_path


class FakeEngine:
    """An engine as the lab sees it: a journal that this test writes, and a record of what was commanded."""

    def __init__(self, folder: Path) -> None:
        import synthetic

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


@pytest.fixture
def engine(places: Path) -> FakeEngine:
    """An engine that has recorded nothing yet."""
    return FakeEngine(places / "sessions" / "20261129T101500Z-pixel-9-pro-test")


@pytest.fixture
def live_app(engine: FakeEngine) -> LabApp:
    """A lab over that engine."""
    return LabApp(LabOptions(), lambda _: Connected(engine, owned=True))


async def until(pilot: Any, true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Let the application run until something is true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        await pilot.pause(0.05)


def shown(app: LabApp, selector: str) -> str:
    """The plain text that a painted widget of the bench shows."""
    return app.bench.query_one(selector).render().plain  # type: ignore[attr-defined]


Until = Callable[[Any, Callable[[], bool]], Awaitable[None]]
