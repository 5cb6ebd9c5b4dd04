"""Writes the shipped set `classes`: five kinds of work, English and Chinese, chat with a system prompt."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.distil_prompts import PromptSource
from mtplab.model.prompts import PROMPTS_FOLDER, Prompt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SEED = 23
PER_CLASS_AND_LANGUAGE = 8
CHAT = "chat"


class _Classes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    systems: dict[str, str]
    slots: dict[str, list[str]]
    families: dict[str, list[str]]


def class_prompts() -> list[Prompt]:
    """The rows of the set; every family of a class is used about equally often."""
    text = (PROMPTS_FOLDER / "classes.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), _Classes)
    source = PromptSource(seed=SEED, held_out=True)
    source.slots = {**source.slots, **found.slots}
    prompts = []
    for key, families in found.families.items():
        prompt_class, _, language = key.partition("-")
        turns = [families[n % len(families)] for n in range(PER_CLASS_AND_LANGUAGE)]
        for number, text in enumerate(_different(source, turns), 1):
            prompts.append(
                Prompt(
                    id=f"{key}-{number:02d}",
                    text=text,
                    prompt_class=prompt_class,
                    language=language,
                    system=found.systems[language] if prompt_class == CHAT else None,
                )
            )
    return prompts


def _different(source: PromptSource, families: list[str]) -> list[str]:
    texts: list[str] = []
    for family in families:
        text = source.fill(family)
        while text in texts:
            text = source.fill(family)
        texts.append(text)
    random.Random(SEED).shuffle(texts)  # a cut set still holds every family
    return texts


def write(path: Path = PROMPTS_FOLDER / "classes.jsonl") -> int:
    """Write the shipped set anew; returns how many prompts it holds."""
    prompts = class_prompts()
    rows: list[dict[str, Any]] = []
    for one in prompts:
        row: dict[str, Any] = {"id": one.id, "class": one.prompt_class, "language": one.language, "text": one.text}
        rows.append(row | ({"system": one.system} if one.system else {}))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


if __name__ == "__main__":
    print(write())
