"""Prompt sets: shipped ones, a user's own, and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtplab.model.errors import ModelError
from mtplab.model.prompts import load_prompts


def rows(path: Path, *items: object) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def test_the_demo_set_has_three_classes_of_four_or_more() -> None:
    demo = load_prompts("demo")
    assert demo.classes() == ["templated", "code", "prose"]
    assert all(len(demo.of_class(name)) >= 4 for name in demo.classes())


def test_the_acceptance_set_has_sixty_rows_with_real_continuations() -> None:
    acceptance = load_prompts("acceptance")
    assert len(acceptance.prompts) >= 60
    assert acceptance.classes() == ["templated", "code", "prose"]
    assert all(prompt.continuation and prompt.source for prompt in acceptance.prompts)


def test_every_acceptance_prompt_comes_from_a_held_out_module() -> None:
    pytest.importorskip("torch")
    from mtplab.model.corpus import is_held_out

    sources = {prompt.source for prompt in load_prompts("acceptance").prompts}
    assert all(source is not None and is_held_out(source) for source in sources)


def test_the_set_of_classes_has_five_kinds_of_work_in_two_languages_and_chat_with_its_system_prompt() -> None:
    found = load_prompts("classes")
    assert found.classes() == ["templated", "extraction", "chat", "code", "open"]
    kinds = {(one.prompt_class, one.language) for one in found.prompts}
    assert len(kinds) == 10 and len(found.prompts) == 80
    assert all((one.system is not None) == (one.prompt_class == "chat") for one in found.prompts)
    assert any("\u4e00" <= letter <= "\u9fff" for one in found.prompts if one.language == "zh" for letter in one.text)
    assert not any("{" in one.text and "_zh" in one.text for one in found.prompts)


def test_a_few_of_each_class_are_taken_evenly_so_that_both_languages_stay() -> None:
    few, whole = load_prompts("classes:4"), load_prompts("classes")
    assert few.name == "classes:4" and few.classes() == whole.classes() and len(few.prompts) == 20
    kinds = [(one.prompt_class, one.language) for one in few.prompts]
    assert all(kinds.count(kind) == 2 for kind in kinds)
    assert [one for one in whole.prompts if one in few.prompts] == list(few.prompts)
    assert few.sha256 != whole.sha256 and load_prompts("classes:4") == few
    assert load_prompts("classes:16").prompts == whole.prompts


def test_a_class_with_fewer_is_taken_whole_and_a_file_named_like_a_few_is_itself(tmp_path: Path) -> None:
    items = [{"id": str(i), "class": "many" if i < 5 else "one", "text": "x"} for i in range(6)]
    path = rows(tmp_path / "mine.jsonl", *items)
    assert [one.id for one in load_prompts(f"{path}:3").prompts] == ["0", "1", "3", "5"]
    odd = rows(tmp_path / "mine.jsonl:3", items[0])
    assert [one.id for one in load_prompts(odd).prompts] == ["0"]
    with pytest.raises(ModelError, match="asks for no prompt"):
        load_prompts("classes:0")
    with pytest.raises(ModelError, match="no prompt set 'nothing'"):
        load_prompts("nothing:4")
    with pytest.raises(ModelError, match="no prompt set 'nnn"):
        load_prompts("n" * 5000)
    with pytest.raises(ModelError, match="no prompt set ''"):
        load_prompts("")


@pytest.mark.pipeline
def test_the_shipped_sets_are_what_their_scripts_write() -> None:
    pytest.importorskip("torch")
    from mtplab.model.class_prompts import class_prompts

    assert tuple(class_prompts()) == load_prompts("classes").prompts


def test_a_system_prompt_is_part_of_what_is_asked(tmp_path: Path) -> None:
    plain = load_prompts(rows(tmp_path / "a.jsonl", {"id": "1", "class": "c", "text": "x", "language": "en"}))
    kind = load_prompts(rows(tmp_path / "b.jsonl", {"id": "1", "class": "c", "text": "x", "system": "be kind"}))
    bare = load_prompts(rows(tmp_path / "c.jsonl", {"id": "1", "class": "c", "text": "x"}))
    assert bare.sha256 == plain.sha256 != kind.sha256


def test_the_hash_follows_what_is_asked_and_not_how_the_file_is_written(tmp_path: Path) -> None:
    one = load_prompts(rows(tmp_path / "a.jsonl", {"id": "1", "class": "c", "text": "x"}))
    other = load_prompts(rows(tmp_path / "b.jsonl", {"text": "x", "class": "c", "id": "1", "continuation": "y"}))
    changed = load_prompts(rows(tmp_path / "c.jsonl", {"id": "1", "class": "c", "text": "x "}))
    assert one.sha256 == other.sha256 != changed.sha256


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([], "holds no prompt"),
        ([{"id": "1"}], "Row 1 .* is not a prompt"),
        ([{"id": "1", "text": "x"}, {"id": "2", "text": "  "}], "Row 2 .* empty text"),
        ([{"id": "1", "text": "x"}, {"id": "1", "text": "y"}], "repeats the id '1'"),
    ],
)
def test_a_broken_set_is_refused_with_its_row(tmp_path: Path, items: list[object], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        load_prompts(rows(tmp_path / "set.jsonl", *items))


def test_an_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match="demo, acceptance"):
        load_prompts("nothing-here")


def test_prompts_and_file_hashes_need_no_torch() -> None:
    code = (
        "import sys; from mtplab.model.prompts import load_prompts; from mtplab.model.files import model_files;"
        "load_prompts('demo'); model_files('tiny'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("code", [0x2028, 0x2029, 0x85, 0x0C])
def test_a_text_may_hold_what_python_calls_a_line_end(tmp_path: Path, code: int) -> None:
    text = f"one{chr(code)}two"
    row = json.dumps({"id": "a", "text": text}, ensure_ascii=False)
    path = tmp_path / "set.jsonl"
    path.write_bytes(f"{row}\r\n\r\n".encode())
    assert [prompt.text for prompt in load_prompts(path).prompts] == [text]


def test_a_row_nested_without_end_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"id": "a", "text": "b", "x": ' + "[" * 100_000)
    with pytest.raises(ModelError, match="Row 1"):
        load_prompts(path)
