"""Whole processes over real parts: one stage cache for all, so that the slow host stages run once."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtplab.device.adb import free_port

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "ui"):  # the terminal of the screen tests serves here too
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from e2e_bench import Bench  # noqa: E402


@pytest.fixture(scope="session")
def shared_cache() -> Iterator[Path]:
    """Where the stages of all these tests keep what they made."""
    folder = Path(tempfile.mkdtemp(prefix="mtplab-e2e-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def few_prompts(shared_cache: Path) -> Path:
    """Three prompts of each class of the demo set: enough to conclude, quick to measure."""
    from mtplab.model.prompts import load_prompts

    demo = load_prompts("demo")
    rows = [
        {"id": p.id, "class": p.prompt_class, "text": p.text}
        for name in demo.classes()
        for p in demo.of_class(name)[:3]
    ]
    path = shared_cache / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def bench(tmp_path: Path, shared_cache: Path) -> Iterator[Bench]:
    """Sessions and locks of this test alone; the user's adb server is out of reach."""
    runtime = Path(tempfile.mkdtemp(prefix="mtplab-t-"))  # short: sockets live in it
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    # COLUMNS and LINES of whoever runs the tests would win over a terminal's own size.
    env = {
        **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
        "MTPLAB_SESSIONS": str(sessions),
        "MTPLAB_CACHE": str(shared_cache / "cache"),
        "MTPLAB_RUNTIME": str(runtime),
        "ANDROID_ADB_SERVER_PORT": str(free_port()),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    yield Bench(sessions, env)
    shutil.rmtree(runtime, ignore_errors=True)
