"""A folder of sessions that is the test's own, records written into it, and the commands called on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mtplab.report.command import compare_command, sessions_command, show_command

COMMANDS: dict[str, click.Command] = {
    "show": show_command,
    "sessions": sessions_command,
    "compare": compare_command,
}
IDENTITY = {
    "device_model": "P", "os_version": "16", "aicore_version": "absent", "quantisation": "q", "gamma": 3,
    "temperature": 0.0,
}  # fmt: skip
MEASURED = [{"name": "mtp-on", "figures": {"ttft_ms": {"value": 1.0, "n": 5}}}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sessions folder, empty."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    monkeypatch.setenv("MTPLAB_SESSIONS", str(folder))
    return folder


@pytest.fixture
def identity() -> dict[str, Any]:
    """The identity of the records that `write` makes."""
    return dict(IDENTITY)


@pytest.fixture
def write(home: Path) -> Callable[..., str]:
    """Writes a comparable record with changes; gives its path."""

    def written(name: str, **changes: Any) -> str:
        folder = home / name
        folder.mkdir()
        record = {
            "format": "mtplab-session", "schema": 1, "session": name, "created_utc": "2026",
            "identity": IDENTITY, "policy": {"prompt_set_sha256": "x"}, "configurations": MEASURED, **changes,
        }  # fmt: skip
        (folder / "session.json").write_text(json.dumps(record))
        return str(folder)

    return written


@pytest.fixture
def call() -> Callable[..., Result]:
    """Calls a command; the value it returns is the exit code, as in the program."""

    def called(name: str, *arguments: str) -> Result:
        result = CliRunner().invoke(COMMANDS[name], arguments, standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            result.exit_code = result.exception.exit_code
        elif result.exception is None:
            result.exit_code = result.return_value
        return result

    return called
