"""`mtplab calibrate`: a set out of a log with its picture, or a sentence and an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")
pytest.importorskip("datasketch")

from mtplab.pipeline.calibrate_command import calibrate_command
from mtplab.session.calibrated import calibrated

pytestmark = pytest.mark.pipeline


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(calibrate_command, [str(one) for one in arguments], standalone_mode=False)


def refused(*arguments: Any) -> tuple[str, int]:
    """The sentence and exit code of a call that must not succeed."""
    error: Any = run(*arguments).exception
    return error.format_message(), error.exit_code


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    rows = [{"prompt": " ".join(f"{n * 37 % 91}{k * n}" for k in range(3 + n % 9))} for n in range(1, 241)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_set_is_built_matched_shown_and_can_be_read_by_scripts(log: Path, tmp_path: Path) -> None:
    lengths, system = tmp_path / "prod.csv", tmp_path / "system.txt"
    lengths.write_text("low,high,count\n20,40,3\n40,60,1\n")
    system.write_text("Answer politely.")
    asked = (log, "--out", tmp_path / "out", "--set-only", "--size", 200, "--lengths", lengths, "--system", system)
    shown = run(*asked)
    assert shown.exit_code == 0, shown.exception
    assert "system prompt given" in shown.stdout and "Wasserstein distance" in shown.stdout
    assert "production" in shown.stdout and "█" in shown.stdout
    value = json.loads(run(*asked, "--json").stdout)
    found = calibrated(value)
    assert found is not None and found.set.counts.chosen == 200 and found.statistics is None
    saved = json.loads((tmp_path / "out" / "calibration.json").read_text())
    assert saved["sha256"] == found.set.sha256 and len(saved["prompts"]) == 200


def test_every_refusal_is_a_sentence_with_its_exit_code(log: Path, tmp_path: Path) -> None:
    few, characters = tmp_path / "few.txt", tmp_path / "prod.json"
    few.write_text("\n".join(f"prompt number {n}" for n in range(20)))
    characters.write_text('{"unit": "characters", "lengths": [12]}')
    out = ("--out", tmp_path / "out", "--set-only")
    text, code = refused(few, *out, "--no-system")
    assert code == 2 and "needs at least 200" in text
    text, code = refused(log, *out)
    assert code == 2 and "240 of 240 prompts carry no system prompt" in text
    text, code = refused(log, *out, "--no-system", "--lengths", characters)
    assert code == 2 and "not in tokens" in text
    text, code = refused(tmp_path / "absent.txt", *out)
    assert code == 2 and "no file or folder" in text
    text, code = refused(log, *out, "--model", "absent")
    assert code == 2 and "not known" in text
    text, code = refused(log, *out, "--no-system", "--size", 1001)
    assert code == 2 and "1001" in text  # click's own code for a bad call; `mtplab` makes it 1
