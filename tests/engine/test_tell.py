"""`mtplab tell`: the lab's commands for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mtplab.engine import client
from mtplab.engine.client import EngineHandle, Hello
from mtplab.engine.control import CommandServer, socket_path
from mtplab.engine.tell_command import tell_command
from mtplab.session.atomic import write_atomic


@pytest.fixture
def engine(places: Path) -> Iterator[list[dict[str, Any]]]:
    """An engine that only notes what it is told."""
    import msgspec

    folder = places / "sessions" / "20261129T101500Z-pixel-9-pro-bench"
    folder.mkdir(parents=True)
    told: list[dict[str, Any]] = []

    def handle(command: dict[str, Any]) -> dict[str, Any]:
        if command["cmd"] != "status":  # which is also how it is found
            told.append(command)
        if command.get("label") == "refuse":
            return {"ok": False, "error": "The disk is \x1b[2Jfull."}
        return {"ok": True, "error": None, "running": True, "cancelled": False}

    server = CommandServer(folder, handle)
    write_atomic(socket_path(folder).with_suffix(".json"), msgspec.json.encode(Hello(session=str(folder), pid=1)))
    yield told
    server.close()


def tell(*arguments: str) -> Result:
    return CliRunner().invoke(tell_command, list(arguments), standalone_mode=False)


def test_what_is_told_reaches_the_engine_and_its_answer_is_a_sentence(engine: list[dict[str, Any]]) -> None:
    said = {word: tell(word) for word in ("status", "cancel", "keep", "stop")}
    assert tell("mark", "fan on").return_value == 0
    assert engine == [{"cmd": "cancel"}, {"cmd": "keep"}, {"cmd": "stop"}, {"cmd": "mark", "label": "fan on"}]
    assert said["status"].output.endswith("bench: a run goes on.\n")
    assert said["cancel"].output.endswith("no run went on.\n")
    assert {result.return_value for result in said.values()} == {0}


def test_json_is_one_value_with_the_session(engine: list[dict[str, Any]]) -> None:
    said = json.loads(tell("status", "--json").output)
    assert said["ok"] is True and said["session"].endswith("-bench")


def test_a_refusal_and_wrong_use_end_with_1_and_no_engine_with_2(engine: list[dict[str, Any]]) -> None:
    refused = tell("mark", "refuse")
    assert (refused.return_value, refused.output) == (1, "The disk is full.\n")
    wrong = tell("keep", "label")
    assert "Only `mark` takes a label" in str(wrong.exception)


def test_without_an_engine_it_says_how_to_start_one(places: Path) -> None:
    done = tell("status")
    assert (done.return_value, "No engine is running" in done.output) == (2, True)


def test_of_several_engines_the_one_meant_is_named_with_this_commands_own_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engines = [EngineHandle(tmp_path / name, 1) for name in ("one", "two")]
    monkeypatch.setattr(client, "running_engines", lambda: engines)
    said = tell("status")
    assert "2 engines are running (one, two): name one with --session SESSION." in said.output + said.stderr
