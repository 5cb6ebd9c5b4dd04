"""Every engine test has places of its own: sessions, cache, locks, and no adb server of the user's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtplab.device.adb import free_port


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sessions, cache and locks below a fresh folder; the user's adb server is out of reach."""
    runtime = Path(tempfile.mkdtemp(prefix="mtplab-t-"))  # short: sockets live in it
    monkeypatch.setenv("MTPLAB_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("MTPLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MTPLAB_RUNTIME", str(runtime))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    yield tmp_path
    shutil.rmtree(runtime, ignore_errors=True)
