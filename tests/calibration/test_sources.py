"""Prompts out of real logs: every usual form, and what is refused with its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtplab.calibration.errors import CalibrationError
from mtplab.calibration.sources import read_logs


def log(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_json_lines_in_all_usual_forms_are_prompts(tmp_path: Path) -> None:
    path = log(
        tmp_path / "log.jsonl",
        {"text": "one", "class": "chat"},
        {"prompt": "two", "system": "be brief"},
        "three",
        {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": [{"text": "four"}]}]},
    )
    found = read_logs([path])
    assert [one.said for one in found.records] == ["one", "two", "three", "four"]
    assert [one.system for one in found.records] == [None, "be brief", None, "be kind"]
    assert found.records[0].prompt_class == "chat"
    assert (found.files[0].name, found.files[0].prompts) == ("log.jsonl", 4)


def test_a_conversation_ends_with_the_user_and_the_answer_is_no_part_of_the_prompt(tmp_path: Path) -> None:
    turns = [("user", "hello"), ("assistant", "hi"), ("user", "why?"), ("assistant", "because")]
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}
    (record,) = read_logs([log(tmp_path / "log.jsonl", row)]).records
    assert [turn.content for turn in record.turns] == ["hello", "hi", "why?"]


def test_a_text_file_holds_a_prompt_a_line_or_a_paragraph_and_a_folder_a_prompt_a_file(tmp_path: Path) -> None:
    text = tmp_path / "log.txt"
    text.write_text("one\ntwo\n\n three\n", encoding="utf-8")
    assert [one.said for one in read_logs([text]).records] == ["one", "two", "three"]
    assert [one.said for one in read_logs([text], "paragraph").records] == ["one\ntwo", " three"]
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("first\nsecond", encoding="utf-8")
    log(folder / "deep" / "c.jsonl", "row")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    assert [one.said for one in read_logs([folder]).records] == ["first\nsecond", "row"]


def test_a_line_separator_inside_a_prompt_does_not_end_it(tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl", "a\u2028b")
    assert [one.said for one in read_logs([path]).records] == ["a\u2028b"]


def test_rows_without_a_prompt_are_counted(tmp_path: Path) -> None:
    nobody = {"messages": [{"role": "assistant", "content": "anybody there?"}]}
    found = read_logs([log(tmp_path / "log.jsonl", "  ", "one", nobody)])
    assert (len(found.records), found.empty) == (1, 1)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"text": "torn', "Row 1 of log.jsonl is torn"),
        ('"fine"\n{"answer": "x"}', "log.jsonl:2 has neither text, prompt nor messages"),
        ("7", "log.jsonl:1 is no prompt but int"),
        ('{"messages": "x"}', "no list of role and content"),
        ('{"messages": [{"role": "user", "content": [{"image": 1}]}]}', "is no text"),
        ("[" * 2000, "is torn or no JSON"),
        ("", "No prompt was found"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_with_its_row(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CalibrationError, match=sentence):
        read_logs([path])


def test_bytes_that_are_no_utf8_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes("grüße".encode("latin-1"))
    with pytest.raises(CalibrationError, match=r"no UTF-8 text \(byte 2\)"):
        read_logs([path])
    with pytest.raises(CalibrationError, match="no file or folder"):
        read_logs([tmp_path / "absent"])
