"""Prompt sets with classes: the shipped ones and a user's own JSON Lines files, whole or a few of each class.

Never imports torch.
"""

from __future__ import annotations

import hashlib
import json
import re
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
    """A shipped set by name, or a JSON Lines file of {id, class, text}; raises `ModelError` otherwise.

    With `:N` behind it, at most N prompts of each class, taken evenly over the class in file order.
    """
    path, name, most = prompts_path(name_or_path)
    whole = _read(path, name)
    return whole if most is None else _few_of_each_class(whole, most)


def prompts_path(name_or_path: str | Path) -> tuple[Path, str, int | None]:
    """The file of a set, what the set is called, and how many prompts of each class are wanted at most (None: all).

    Raises `ModelError` where there is no such file. A file whose own name ends in `:N` is that file.
    """
    asked = str(name_or_path)
    few = None if _is_file(Path(asked)) else re.fullmatch(r"(.+):([0-9]{1,6})", asked, re.DOTALL)
    given, most = (few[1], int(few[2])) if few else (asked, None)
    if most == 0:
        raise ModelError(
            f"The prompt set {asked!r} asks for no prompt of each class; give 1 or more, as in {given}:4."
        )
    if given in SHIPPED:
        return PROMPTS_FOLDER / f"{given}.jsonl", given, most
    path = Path(given)
    if not _is_file(path):
        raise ModelError(
            f"There is no prompt set {given[:200]!r}; give one of {', '.join(SHIPPED)} or the path of a "
            "JSON Lines file with id, class and text in every row (:N behind it takes at most N of each class)."
        )
    return path, path.stem, most


def _is_file(path: Path) -> bool:
    """Whether it is one; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _few_of_each_class(whole: PromptSet, most: int) -> PromptSet:
    """Evenly over each class, so that what stands in order there (languages, kinds) is represented."""
    chosen: set[str] = set()
    for prompt_class in whole.classes():
        rows = whole.of_class(prompt_class)
        each = min(most, len(rows))
        chosen |= {rows[i * len(rows) // each].id for i in range(each)}
    prompts = tuple(prompt for prompt in whole.prompts if prompt.id in chosen)
    return PromptSet(name=f"{whole.name}:{most}", prompts=prompts, sha256=prompts_sha256(prompts))


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
