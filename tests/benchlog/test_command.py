"""`mtplab log`: files, folders and pipes; a table for people, JSON for scripts, and the documented exit code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mtplab.benchlog.command import log_command
from mtplab.benchlog.reader import LogReader

KEYS = [
    "file", "tool", "requested", "verdict", "delegated_nodes", "total_nodes", "partitions", "init_us", "first_us",
    "inference_avg_us", "reason", "findings", "evidence", "complete",
]  # fmt: skip


def _run(*arguments: Any, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(log_command, [str(a) for a in arguments], input=stdin)


def _paths(samples: Any, *numbers: str) -> list[Path]:
    return [next(s.path for s in samples if s.name.startswith(number)) for number in numbers]


def test_one_file_is_one_object_with_the_contracts_fields(samples: Any) -> None:
    result = _run(samples[0].path, "--json")
    value = json.loads(result.stdout)
    assert list(value) == KEYS
    assert value["file"] == str(samples[0].path)
    assert (value["verdict"], value["delegated_nodes"], value["complete"]) == ("full_delegate", 41, True)
    assert value["evidence"][0] == {
        "line": 20,
        "text": samples[0].lines[19].removeprefix("VERBOSE: "),
        "rule": "replacing",
    }
    assert result.exit_code == 0


def test_several_files_are_an_array_and_the_worst_code(samples: Any) -> None:
    paths = _paths(samples, "30", "02", "34", "05", "38", "11", "21", "43", "16", "42")
    result = _run(*paths, "--json")
    values = json.loads(result.stdout)
    assert [value["file"] for value in values] == [str(path) for path in paths]
    expected = [json.loads(path.with_suffix(".json").read_text())["verdict"] for path in paths]
    assert [value["verdict"] for value in values] == expected
    assert result.exit_code == 4
    assert _run(*_paths(samples, "02", "34", "05")).exit_code == 3
    assert _run(*_paths(samples, "34", "05")).exit_code == 5
    assert _run(*_paths(samples, "16", "05")).exit_code == 0


def test_several_folders_and_files_in_one_call_keep_their_order(samples: Any, tmp_path: Path) -> None:
    picked = random.Random(4).sample(samples, 10)
    folders = [tmp_path / "first", tmp_path / "second"]
    for place, sample in enumerate(picked[:8]):
        folder = folders[place % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{place}-{sample.name}.txt").write_bytes(sample.path.read_bytes())
    arguments = [folders[1], picked[8].path, folders[0], picked[9].path]
    values = json.loads(_run(*arguments, "--json").stdout)
    wanted = [*picked[1:8:2], picked[8], *picked[0:8:2], picked[9]]
    assert [value["verdict"] for value in values] == [sample.expected["verdict"] for sample in wanted]
    rows = [line.split()[1] for line in _run(*arguments).stdout.splitlines()[1:] if not line.startswith("     ")]
    assert rows == [sample.expected["verdict"] for sample in wanted]


def test_a_folder_stands_for_its_logs(samples: Any, tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(samples[0].path.read_bytes())
    (tmp_path / "a.txt").write_bytes(samples[1].path.read_bytes())
    (tmp_path / "c.json").write_text("{}")
    values = json.loads(_run(tmp_path, "--json").stdout)
    assert [Path(value["file"]).name for value in values] == ["a.txt", "b.log"]
    (tmp_path / "a.txt").unlink()
    assert isinstance(json.loads(_run(tmp_path, "--json").stdout), list)
    (tmp_path / "b.log").unlink()
    assert (_run(tmp_path).exit_code, _run(tmp_path).stdout) == (1, "")


def test_people_get_a_table_with_glyph_word_reason_and_proof(samples: Any) -> None:
    result = _run(*_paths(samples, "01", "06"))
    lines = result.stdout.splitlines()
    assert lines[1].split()[:4] == ["✓", "full_delegate", "gpu", "41/41"]
    failed = next(line for line in lines if line.startswith("✗"))
    assert failed.split()[1:3] == ["failed", "gpu"]
    assert any(line.strip().startswith("because: Attempting to use a delegate") for line in lines)
    assert any(line.strip().startswith("to do: Export static shapes") for line in lines)
    assert any(line.strip().startswith("line 27: ") for line in lines)
    assert "\x1b" not in result.stdout


def test_a_conversation_shows_its_speed_where_others_show_their_average(samples: Any) -> None:
    row = _run(*_paths(samples, "43")).stdout.splitlines()[1]
    assert "  11.21 tok/s  " in row


def test_a_pipe_is_read_and_its_verdict_shown_as_it_forms(samples: Any) -> None:
    data = samples[0].path.read_bytes()
    result = _run("-", "--json", stdin=data)
    assert json.loads(result.stdout)["verdict"] == "full_delegate"
    assert result.stderr.splitlines()[0].startswith("✓ full_delegate (provisional)  line 20: Replacing 41 out of 41")
    assert result.exit_code == 0


def test_a_pipe_that_changes_its_mind_says_so_each_time(samples: Any) -> None:
    path = _paths(samples, "24")[0]
    result = _run("-", stdin=path.read_bytes())
    words = [line.split()[1] for line in result.stderr.splitlines()]
    assert words[:3] == ["failed", "backend_downgrade", "failed"]
    assert result.exit_code == 4


def test_requested_overrides_the_log(samples: Any) -> None:
    result = _run(samples[0].path, "--requested", "npu", "--json")
    value = json.loads(result.stdout)
    assert (value["requested"], value["verdict"], result.exit_code) == ("npu", "unknown", 5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere/x.txt"], "cannot be read (No such file or directory)"),
        ([], "no log was named"),
        (["x", "--requested", "tpu"], "--requested takes cpu, gpu, nnapi or npu"),
    ],
)
def test_misuse_is_one_sentence_and_exit_code_1(arguments: list[str], words: str) -> None:
    result = _run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_hostile_file_name_is_printed_harmless(samples: Any, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31mb.txt"
    path.write_bytes(samples[0].path.read_bytes())
    result = _run(path)
    assert "\x1b" not in result.stdout
    assert "ab.txt" in result.stdout


def test_a_reader_stands_on_its_own_without_files() -> None:
    assert LogReader("cpu").finish().verdict == "unknown"
