"""Prompts for self-distillation, and the held-out set `assistant`, from families with slots and library sources."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.corpus import Document, library_documents
from mtplab.model.prompts import Prompt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CLASSES = ("templated", "code", "chat", "open")
HELD_OUT_PER_CLASS = 30
_FOLDER = Path(__file__).parent / "prompts"
_HELD_OUT_ENTRIES = 6  # of the entries of a list, one in six
_CODE_CHARS = 240
_SENTENCE = re.compile(r"(?<=\s)[A-Z][^.\n\"'`<>_|*=]{50,150}\.(?=\s)")


class _Families(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slots: dict[str, list[str]]
    families: dict[str, list[str]]


def _families() -> _Families:
    return msgspec.convert(tomllib.loads((_FOLDER / "families.toml").read_text(encoding="utf-8")), type=_Families)


def _side(entries: list[str], held_out: bool) -> list[str]:
    def is_out(entry: str) -> bool:
        return int(hashlib.sha256(entry.encode()).hexdigest(), 16) % _HELD_OUT_ENTRIES == 0

    return [entry for entry in entries if is_out(entry) == held_out]


class PromptSource:
    """An endless, seeded stream of prompts per class from one side of the split."""

    def __init__(self, seed: int, held_out: bool, documents: list[Document] | None = None) -> None:
        found = _families()
        self.random = random.Random(f"{seed} {held_out}")
        self.families = found.families
        self.slots = {name: _side(entries, held_out) for name, entries in found.slots.items()}
        mine = [one for one in documents or library_documents() if one.held_out == held_out]
        self.functions = [text for one in mine for text in _function_heads(one.text)]
        self.sentences = sorted({one for document in mine for one in _SENTENCE.findall(document.text)})

    def draw(self, prompt_class: str) -> Prompt:
        """The next prompt of the class; code is half instructions and half the bare head of a function."""
        if prompt_class == "code" and self.random.random() < 0.5:
            return Prompt(id="", text=self.random.choice(self.functions), prompt_class="code", raw=True)
        text = self.fill(self.random.choice(self.families[prompt_class]))
        return Prompt(id="", text=text, prompt_class=prompt_class)

    def fill(self, text: str) -> str:
        """A family's text with every {slot} filled, slots inside of what fills them, too."""
        while slot := re.search(r"\{(\w+)\}", text):
            text = text[: slot.start()] + self._fill(slot[1]) + text[slot.end() :]
        return text

    def _fill(self, slot: str) -> str:
        pick = self.random
        if slot == "sentence":
            return pick.choice(self.sentences)
        if slot == "number":
            return str(pick.randint(1000, 9999))
        if slot == "price":
            return str(pick.randint(5, 400))
        if slot == "date":
            return f"{self._fill('month')} {pick.randint(1, 28)}, {pick.randint(1990, 2024)}"
        if slot == "person":
            name, who = f"{self._fill('first')} {self._fill('last')}", f"{pick.randint(19, 75)}-year-old"
            where = f"{self._fill('job')} from {self._fill('city')} who joined on {self._fill('date')}"
            return f"{name} is a {who} {where}. The phone number is 555-{pick.randint(1000, 9999)}."
        return pick.choice(self.slots[slot])

    def distinct(self, per_class: dict[str, int]) -> Iterator[Prompt]:
        """That many different prompts of every class, classes in turn, with ids like chat-01."""
        seen: set[str] = set()
        left = dict(per_class)
        while any(left.values()):
            for name in [name for name, count in left.items() if count]:
                prompt = self.draw(name)
                while prompt.text in seen:
                    prompt = self.draw(name)
                seen.add(prompt.text)
                yield msgspec.structs.replace(prompt, id=f"{name}-{per_class[name] - left[name] + 1:02d}")
                left[name] -= 1


def _function_heads(source: str) -> list[str]:
    """The first lines of functions and classes: signature, docstring and the beginning of the body."""
    starts = [found.start() for found in re.finditer(r"^(?:def |class |    def )", source, re.MULTILINE)]
    heads = []
    for start in starts:
        # The mailbox of an author is no test of anything.
        cut = source[start : start + _CODE_CHARS]
        end = cut.rfind("\n")
        if end > 80 and "@" not in cut:
            heads.append(cut[:end].rstrip())
    return heads


def held_out_prompts() -> list[Prompt]:
    """The rows of the shipped set `assistant`."""
    source = PromptSource(seed=7, held_out=True)
    found = list(source.distinct(dict.fromkeys(CLASSES, HELD_OUT_PER_CLASS)))
    return sorted(found, key=lambda prompt: CLASSES.index(prompt.prompt_class))


def write_held_out(path: Path = _FOLDER / "assistant.jsonl") -> None:
    """Write the shipped set anew."""
    rows: list[dict[str, Any]] = []
    for prompt in held_out_prompts():
        row: dict[str, Any] = {"id": prompt.id, "class": prompt.prompt_class, "text": prompt.text}
        rows.append(row | ({"raw": True} if prompt.raw else {}))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")

