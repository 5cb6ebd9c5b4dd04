"""Builds the acceptance prompt set from held-out modules: three classes, each with its real continuation."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from mtplab.model.corpus import Document

PER_CLASS = 24
PROMPT_CHARS = 200
CONTINUATION_CHARS = 260
_MOST_PER_MODULE = 3


def build(documents: list[Document]) -> list[dict[str, str]]:
    """Rows {id, class, text, continuation, source} from the held-out documents, the same on every call."""
    held_out = [document for document in documents if document.held_out]
    rows: list[dict[str, str]] = []
    for name, find in (("templated", _templated), ("code", _code), ("prose", _prose)):
        found = _spread(held_out, find)
        for number, (source, text, continuation) in enumerate(found, 1):
            identity = {"id": f"{name}-{number:02d}", "class": name, "text": text}
            rows.append({**identity, "continuation": continuation, "source": source})
    return rows


def write(rows: list[dict[str, str]], path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _spread(documents: list[Document], find: object) -> list[tuple[str, str, str]]:
    """Up to PER_CLASS spans, taken in turn from the modules so that none dominates."""
    assert callable(find)
    queues = [(document.name, list(find(document.text))) for document in documents]
    found: list[tuple[str, str, str]] = []
    for turn in range(_MOST_PER_MODULE):
        for name, spans in queues:
            # Step through a module instead of taking its first spans, which are headers.
            step = max(1, len(spans) // _MOST_PER_MODULE)
            if turn * step < len(spans) and len(found) < PER_CLASS:
                text, continuation = spans[turn * step]
                found.append((name, text, continuation))
    return found


def _cut(lines: list[str], start: int, middle: int) -> tuple[str, str] | None:
    """Prompt = lines[start:middle], continuation = what follows; None when either is too short."""
    text = "".join(lines[start:middle])
    while len(text) > PROMPT_CHARS and start < middle - 1:
        start += 1
        text = "".join(lines[start:middle])
    # A newline and the indentation after it are one token: a prompt that ends in a newline would cut it.
    stripped = text.rstrip()
    continuation = (text[len(stripped) :] + "".join(lines[middle : middle + 12]))[:CONTINUATION_CHARS]
    text = stripped
    if not 40 <= len(text) <= PROMPT_CHARS + 60 or len(continuation) < CONTINUATION_CHARS // 2:
        return None
    if "@" in text + continuation:  # author lines: addresses of people are no test of anything
        return None
    return text, continuation


def _shape(line: str) -> str:
    """A line with names, numbers and strings blanked: equal shapes make a template."""
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "S", line.rstrip())
    return re.sub(r"\w+", "w", line)


def _templated(text: str) -> Iterator[tuple[str, str]]:
    """Runs whose next lines have shapes already seen: tables, accessors, chains of branches."""
    lines = text.splitlines(keepends=True)
    shapes = [_shape(line) for line in lines]
    start = 0
    while start + 12 <= len(lines):
        seen = {shape for shape in shapes[start : start + 6] if len(shape) > 4}
        following = [shape for shape in shapes[start + 6 : start + 12] if len(shape) > 4]
        if len(following) >= 4 and sum(shape in seen for shape in following) >= 0.6 * len(following):
            cut = _cut(lines, start, start + 6)
            if cut:
                yield cut
            start += 12
        else:
            start += 1


def _functions(text: str) -> Iterator[ast.FunctionDef]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _code(text: str) -> Iterator[tuple[str, str]]:
    """Bodies of functions, cut after the first third."""
    lines = text.splitlines(keepends=True)
    for node in _functions(text):
        end = node.end_lineno or node.lineno
        body = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        if end - body.lineno >= 8:
            cut = _cut(lines, body.lineno - 1, body.lineno - 1 + max(3, (end - body.lineno) // 3))
            if cut:
                yield cut


def _prose(text: str) -> Iterator[tuple[str, str]]:
    """Docstrings, and whole documents that are no code, cut at a word near the first third."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        blocks = [block for block in re.split(r"\n{3,}", text) if len(block) > 600]
        yield from (cut for block in blocks if (cut := _cut_words(block)))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node, clean=False)
            if docstring and (cut := _cut_words('"""' + docstring)):
                yield cut


def _cut_words(block: str) -> tuple[str, str] | None:
    middle = min(PROMPT_CHARS, len(block) // 3)
    space = block.rfind(" ", 0, middle)
    if space < 40 or block[:space].count("\n") > 6:
        return None
    continuation = block[space : space + CONTINUATION_CHARS]
    if "@" in block[: space + CONTINUATION_CHARS]:
        return None
    return (block[:space], continuation) if len(continuation) >= CONTINUATION_CHARS // 2 else None
