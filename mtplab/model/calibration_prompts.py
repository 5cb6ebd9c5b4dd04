"""Writes the shipped calibration source: prompts of every class from the side of the split that heads learn from.

It stands in for the logs that only a user has, so that a static recipe works out of the box; whoever measures for
production gives their own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mtplab.model.corpus import library_documents
from mtplab.model.distil_prompts import CLASSES, PromptSource
from mtplab.model.prompts import PROMPTS_FOLDER, Prompt

SEED = 19
PER_CLASS = 60
PROSE = 80
_PROSE_CHARS = (120, 700)


def calibration_prompts() -> list[Prompt]:
    """Instructions of every family, and paragraphs of the library's documentation as they stand."""
    documents = library_documents()
    source = PromptSource(seed=SEED, held_out=False, documents=documents)
    found = list(source.distinct(dict.fromkeys(CLASSES, PER_CLASS)))
    topics = next(one.text for one in documents if one.name == "pydoc_data/topics.py")
    low, high = _PROSE_CHARS
    paragraphs = [one.strip() for one in topics.split("\n\n")]
    paragraphs = sorted({one for one in paragraphs if low <= len(one) <= high and "@" not in one})
    step = len(paragraphs) / PROSE
    found += [
        Prompt(id=f"prose-{n + 1:02d}", text=paragraphs[int(n * step)], prompt_class="prose", raw=True)
        for n in range(PROSE)
    ]
    return found


def write(path: Path = PROMPTS_FOLDER / "calibration.jsonl") -> int:
    """Write the shipped source anew; returns how many prompts it holds."""
    rows: list[dict[str, Any]] = []
    for prompt in calibration_prompts():
        row: dict[str, Any] = {"id": prompt.id, "class": prompt.prompt_class, "text": prompt.text}
        rows.append(row | ({"raw": True} if prompt.raw else {}))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


if __name__ == "__main__":
    print(write())
