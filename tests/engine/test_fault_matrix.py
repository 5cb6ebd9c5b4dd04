"""Every scenario of the stand-in against every operation of an engine, in one table; nothing is left running."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mtplab.engine.options import scenarios
from mtplab.standin.settings import read_toml

HERE = Path(__file__).parent
EXPECTED = read_toml(HERE / "fault_matrix.toml")
OPERATIONS = ("facts", "sample", "push", "bench", "cancel")
PLAYERS = 2
PATIENCE_S = 500.0  # a busy machine is no fault

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(PATIENCE_S + 60)]


class Player:
    """A process that plays its share of the scenarios, in places of its own; `wait` gives one scenario's result."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self._places = Path(tempfile.mkdtemp(prefix="mtplab-t-"))  # short: sockets live in it
        places = {"MTPLAB_SESSIONS": folder / "sessions", "MTPLAB_CACHE": folder / "cache"}
        env = {**os.environ, **{name: str(path) for name, path in places.items()}}
        env["MTPLAB_RUNTIME"] = str(self._places)
        env.pop("ANDROID_SERIAL", None)
        self._done = {name: threading.Event() for name in names}
        self._results: dict[str, dict[str, Any]] = {}
        self._errors = folder / "errors.txt"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "fault_matrix.py"), *names], env=env, stdout=subprocess.PIPE,
            stderr=self._errors.open("wb"), text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            result = json.loads(line)
            self._results[result["scenario"]] = result
            self._done[result["scenario"]].set()
        for event in self._done.values():  # it ended: what has no result will have none
            event.set()

    def wait(self, name: str) -> dict[str, Any]:
        assert self._done[name].wait(PATIENCE_S), f"{name} is not played within {PATIENCE_S:g} s"
        assert name in self._results, self._errors.read_text()[-2000:]
        return self._results[name]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join(30)
        shutil.rmtree(self._places, ignore_errors=True)


@pytest.fixture(scope="module")
def play(
    tmp_path_factory: pytest.TempPathFactory, tiny_tflite: object
) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Begins to play all scenarios, on two cores, and gives the result of one as soon as it is there."""
    names = scenarios()
    players = [Player(names[i::PLAYERS], tmp_path_factory.mktemp("player")) for i in range(PLAYERS)]
    yield lambda name: players[names.index(name) % PLAYERS].wait(name)
    for player in players:
        player.close()


def test_every_scenario_has_its_expectation_and_no_other() -> None:
    missing = sorted(set(scenarios()) - set(EXPECTED))
    assert not missing, f"{', '.join(missing)}: say in fault_matrix.toml what each operation must come to there"
    stale = sorted(set(EXPECTED) - {"default", *scenarios()})
    assert not stale, f"fault_matrix.toml speaks of {', '.join(stale)}, which the stand-in does not play"


@pytest.mark.parametrize("scenario", scenarios())
def test_each_operation_comes_to_what_is_expected_and_leaves_nothing(
    scenario: str, play: Callable[[str], dict[str, Any]], record_property: Callable[[str, object], None]
) -> None:
    assert scenario in EXPECTED, f"say in fault_matrix.toml what each operation must come to in {scenario}"
    result = play(scenario)
    rows = {row["operation"]: row for row in result["rows"]}
    for name, row in rows.items():
        code = "–" if row["exit_code"] is None else str(row["exit_code"])
        kept = ", ".join(row["kept"]) or "nothing"
        record_property("fault_matrix", [scenario, name, row["outcome"], code, kept, row["sentence"]])
    assert result["problem"] is None
    assert tuple(rows) == OPERATIONS
    wrong = [text for name in OPERATIONS for text in differences(scenario, rows[name])]
    assert not wrong, "\n".join(wrong)
    assert result["left"] == [], "still running on the host"


def differences(scenario: str, row: dict[str, Any]) -> Iterator[str]:
    """In what a row is not as expected, one sentence each."""
    name = row["operation"]
    expected = EXPECTED[scenario].get(name, EXPECTED["default"][name])
    where = f"{scenario} × {name}"
    if row["outcome"] != expected["outcome"]:
        yield f"{where}: {row['outcome']!r} in place of {expected['outcome']!r} ({row['sentence']})"
    if row["exit_code"] != expected.get("exit"):
        yield f"{where}: exit code {row['exit_code']} in place of {expected.get('exit')}"
    if not re.search(expected.get("sentence", ""), row["sentence"], re.DOTALL):
        yield f"{where}: {row['sentence']!r} does not say {expected['sentence']!r}"
    if not set(expected["kept"]) <= set(row["kept"]):
        yield f"{where}: the session kept {row['kept']} in place of {expected['kept']}"
