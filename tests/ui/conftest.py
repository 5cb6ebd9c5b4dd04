"""Every screen test has places of its own and an engine that is only a handle over a growing journal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:  # the generator and the driver are shared by these tests and by a subprocess
    sys.path.insert(0, str(HERE))

from bench_driver import FakeEngine  # noqa: E402

from mtplab.device.adb import free_port  # noqa: E402
from mtplab.tui import LabOptions  # noqa: E402
from mtplab.tui.app import LabApp  # noqa: E402
from mtplab.tui.connect import Connected  # noqa: E402


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions, locks and the user's own themes below a fresh folder."""
    monkeypatch.setenv("MTPLAB_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))  # nothing here talks to the user's adb server
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "sessions").mkdir()
    return tmp_path


@pytest.fixture
def engine(places: Path) -> FakeEngine:
    """An engine that has recorded nothing yet."""
    return FakeEngine(places / "sessions" / "20261129T101500Z-pixel-9-pro-test")


@pytest.fixture
def live_app(engine: FakeEngine) -> LabApp:
    """A lab over that engine."""
    return LabApp(LabOptions(), lambda _: Connected(engine, owned=True))
