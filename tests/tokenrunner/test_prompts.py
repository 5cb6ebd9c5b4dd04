"""The token runner reads a prompt file by its lines, and by nothing else that looks like an end of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert")

from mtplab.tokenrunner.runner import UsageError, read_prompts


@pytest.mark.parametrize("code", [0x2028, 0x2029, 0x85, 0x0C])
def test_a_text_may_hold_what_python_calls_a_line_end(tmp_path: Path, code: int) -> None:
    text = f"one{chr(code)}two"
    row = json.dumps({"id": "a", "text": text}, ensure_ascii=False)
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(f"{row}\r\n\r\n".encode())
    assert [prompt.text for prompt in read_prompts(path)] == [text]


def test_a_line_nested_without_end_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "text": "b", "x": ' + "[" * 100_000)
    with pytest.raises(UsageError, match="Line 1"):
        read_prompts(path)
