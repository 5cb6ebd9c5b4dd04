"""Prompt sets with classes: the shipped ones and a user's own JSON Lines files. Never imports torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.errors import ModelError

PROMPTS_FOLDER = Path(__file__).parent
SHIPPED = ("demo", "acceptance", "assistant", "classes", "calibration")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt. `continuation` is the real text that follows it, where that is known.

    `raw` text stands as it is; all other prompts go through the chat template of a model that has one, with their
    `system` prompt where they carry one.
    """

    id: str
    text: str
    prompt_class: str = msgspec.field(name="class", default="unclassified")
    continuation: str | None = None
    source: str | None = None
    raw: bool = False
    system: str | None = None
    language: str | None = None


class PromptSet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts in file order; `sha256` says what is asked (id, class, text, system), not how the file is written."""

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str

    def classes(self) -> list[str]:
        """The classes in order of first appearance."""
        return list(dict.fromkeys(prompt.prompt_class for prompt in self.prompts))

    def of_class(self, prompt_class: str) -> list[Prompt]:
        return [prompt for prompt in self.prompts if prompt.prompt_class == prompt_class]


def prompts_sha256(prompts: tuple[Prompt, ...]) -> str:
    """sha256 over canonical JSON: sorted keys, no spaces, UTF-8."""
    rows: list[dict[str, Any]] = []
    for p in prompts:
        row: dict[str, Any] = {"id": p.id, "class": p.prompt_class, "text": p.text}
        # Only where they say something, so that sets without them keep their hash.
        row |= ({"raw": True} if p.raw else {}) | ({"system": p.system} if p.system else {})
        rows.append(row)
    canonical = json.dumps(rows, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def load_prompts(name_or_path: str | Path) -> PromptSet:
    """A shipped set by name, or a JSON Lines file of {id, class, text}; raises `ModelError` otherwise."""
    if str(name_or_path) in SHIPPED:
        return _read(PROMPTS_FOLDER / f"{name_or_path}.jsonl", str(name_or_path))
    path = Path(name_or_path)
    if not path.is_file():
        raise ModelError(
            f"There is no prompt set {str(name_or_path)!r}; give one of {', '.join(SHIPPED)} or the path of a "
            "JSON Lines file with id, class and text in every row."
        )
    return _read(path, path.stem)


def _read(path: Path, name: str) -> PromptSet:
    try:
        # Not splitlines(): it also breaks at U+2028 and its like, which may stand inside a JSON string.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"The prompt set {path.name} cannot be read ({error}); give a readable UTF-8 file."
        ) from error
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompts.append(_prompt(path, number, line))
    if not prompts:
        raise ModelError(f"The prompt set {path.name} holds no prompt; give at least one row.")
    ids = [prompt.id for prompt in prompts]
    repeated = sorted({one for one in ids if ids.count(one) > 1})
    if repeated:
        raise ModelError(f"The prompt set {path.name} repeats the id {repeated[0]!r}; ids must be unique.")
    return PromptSet(name=name, prompts=tuple(prompts), sha256=prompts_sha256(tuple(prompts)))


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        prompt = msgspec.json.decode(line, type=Prompt)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelError(
            f"Row {number} of the prompt set {path.name} is not a prompt ({error}); "
            "write it as a JSON object with id, class and text."
        ) from error
    if not prompt.text.strip():
        raise ModelError(f"Row {number} of the prompt set {path.name} has an empty text; fill or remove it.")
    return prompt
