"""`mtplab restore --list`: what is left on phones is named; a note that cannot be read is never called nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mtplab.device import prepare
from mtplab.device.prepare import Change, Note
from mtplab.engine.restore_command import restore_command

LEFT = Note("a" * 16, "20260101T000000Z-bench", 1_770_000_000.0, [Change("brightness", "102", "25")])


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for notes that only this test sees."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path))
    return tmp_path


def restore(*arguments: str) -> Result:
    return CliRunner().invoke(restore_command, ["--list", *arguments], standalone_mode=False)


def test_nothing_left_is_said_and_fine() -> None:
    said = restore()
    assert (said.return_value, said.output) == (0, "No phone has anything to be put back.\n")


def test_a_note_names_phone_session_and_what_was_there() -> None:
    prepare.keep(LEFT)
    said = restore()
    assert said.return_value == 0
    assert f"phone {LEFT.phone}, set by {LEFT.about}" in said.output
    assert "brightness (was 102)" in said.output
    assert json.loads(restore("--json").stdout)["left"][0]["before"] == {"brightness": "102"}


def test_a_torn_note_is_a_problem_with_its_place_and_exit_code_4(runtime: Path) -> None:
    prepare.keep(LEFT)
    (runtime / "restore" / f"{'b' * 16}.json").write_text('{"phone":"bb')
    said, value = restore(), json.loads(restore("--json").stdout)
    assert said.return_value == 4
    assert "No phone has anything" not in said.stdout
    assert f"{'b' * 16}.json" in said.stderr
    assert len(value["left"]) == 1
    assert f"{'b' * 16}.json, cannot be read" in value["problem"]
