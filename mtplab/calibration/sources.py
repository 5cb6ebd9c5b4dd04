"""Read prompts out of real logs: JSON Lines in the usual forms, text files, folders of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mtplab.calibration.errors import CalibrationError
from mtplab.model.prompts import PROMPTS_FOLDER, SHIPPED
from mtplab.session.calibrated import SourceFile

Unit = Literal["line", "paragraph", "file"]
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TEXT_SUFFIXES = (".txt", ".md", ".log")
MOST_CHARACTERS = 200_000  # of one prompt; what is longer is no prompt but a dump
FORMS = '{"text": …}, {"prompt": …} or {"messages": [{"role": …, "content": …}, …]}'


class Turn(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: str
    content: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of a log: all turns up to the last of the user, and the system prompt it carries itself."""

    turns: tuple[Turn, ...]
    place: str
    """File and row, for people."""
    system: str | None = None
    prompt_class: str = "unclassified"
    raw: bool = False

    @property
    def said(self) -> str:
        """All that is not the system prompt: what tells one prompt from another."""
        return "\n".join(turn.content for turn in self.turns)


class Log(msgspec.Struct, frozen=True):
    """Everything read, in order; `empty` counts rows without a prompt in them."""

    records: tuple[Record, ...]
    files: tuple[SourceFile, ...]
    empty: int


def read_logs(paths: Sequence[Path | str], unit: Unit | None = None) -> Log:
    """All prompts of files and folders (and of shipped sets by name), in the order given, folders sorted by name.

    A text file holds one prompt a line, inside a folder one prompt a file; `unit` says otherwise. Raises
    `CalibrationError` naming the file and row that cannot be used.
    """
    records: list[Record] = []
    files: list[SourceFile] = []
    empty = 0
    for path, inside in _files(paths):
        data = _bytes(path)
        found = [one for one in _records(path, data, unit or ("file" if inside else "line")) if one is not None]
        kept = [one for one in found if one.said.strip()]
        empty += len(found) - len(kept)
        records += kept
        files.append(SourceFile(path.name, hashlib.sha256(data).hexdigest(), len(kept)))
    if not records:
        raise CalibrationError(
            f"No prompt was found in {', '.join(str(path) for path in paths) or 'no file'}; give JSON Lines of "
            f"{FORMS}, or text files."
        )
    return Log(tuple(records), tuple(files), empty)


def _files(paths: Sequence[Path | str]) -> Iterator[tuple[Path, bool]]:
    """Every file to read, and whether it was found inside a folder."""
    for path in map(Path, paths):
        if str(path) in SHIPPED:
            yield PROMPTS_FOLDER / f"{path}.jsonl", False
        elif path.is_dir():
            inside = [one for one in sorted(path.rglob("*")) if one.suffix in (*JSON_SUFFIXES, *TEXT_SUFFIXES)]
            yield from ((one, True) for one in inside if one.is_file())
        elif path.is_file():
            yield path, False
        else:
            raise CalibrationError(
                f"There is no file or folder {path}; give the logs of your own application, or one of "
                f"{', '.join(SHIPPED)}."
            )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CalibrationError(f"The log {path} cannot be read ({error.strerror}); check its rights.") from error


def _records(path: Path, data: bytes, unit: Unit) -> Iterator[Record | None]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CalibrationError(
            f"The log {path.name} is no UTF-8 text (byte {error.start}); convert it, since other bytes would give "
            "other tokens."
        ) from error
    if path.suffix in JSON_SUFFIXES:
        return _json_records(path.name, text)
    return _text_records(path.name, text, unit)


def _text_records(name: str, text: str, unit: Unit) -> Iterator[Record]:
    if unit == "file":
        yield _record(f"{name}", [Turn("user", text.strip())], {})
        return
    # Not splitlines(): it also breaks at characters that stand inside a prompt.
    lines = text.replace("\r\n", "\n").split("\n")
    if unit == "line":
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _record(f"{name}:{number}", [Turn("user", line.strip())], {})
        return
    start = 0
    for number in range(len(lines) + 1):
        if number == len(lines) or not lines[number].strip():
            if number > start:
                yield _record(f"{name}:{start + 1}", [Turn("user", "\n".join(lines[start:number]))], {})
            start = number + 1


def _json_records(name: str, text: str) -> Iterator[Record | None]:
    stripped = text.lstrip()
    if stripped.startswith("["):  # one array instead of lines
        rows = list(enumerate(_decode(name, 1, stripped, list), 1))
    else:
        lines = enumerate(text.split("\n"), 1)
        rows = [(number, _decode(name, number, line, object)) for number, line in lines if line.strip()]
    for number, row in rows:
        yield _row(f"{name}:{number}", row)


def _decode(name: str, number: int, text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CalibrationError(
            f"Row {number} of {name} is torn or no JSON ({error}); remove it, or write rows as {FORMS}."
        ) from error


def _row(place: str, row: Any) -> Record | None:
    if isinstance(row, str):
        return _record(place, [Turn("user", row)], {})
    if not isinstance(row, dict):
        raise CalibrationError(f"{place} is no prompt but {type(row).__name__}; write rows as {FORMS}.")
    if "messages" in row:
        return _conversation(place, row)
    for name in ("text", "prompt"):
        if isinstance(row.get(name), str):
            return _record(place, [Turn("user", row[name])], row)
    raise CalibrationError(f"{place} has neither text, prompt nor messages; write rows as {FORMS}.")


def _conversation(place: str, row: dict[str, Any]) -> Record | None:
    """Turns up to the last of the user (what follows is the answer); None where the user says nothing."""
    messages = row["messages"]
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        raise CalibrationError(f"The messages of {place} are no list of role and content; write rows as {FORMS}.")
    turns = [Turn(str(one["role"]), _content(place, one.get("content"))) for one in messages]
    system = "\n\n".join(turn.content for turn in turns if turn.role in ("system", "developer"))
    turns = [turn for turn in turns if turn.role not in ("system", "developer")]
    while turns and turns[-1].role != "user":
        turns.pop()
    return _record(place, turns, {"system": system or None, **row}) if turns else None


def _content(place: str, content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [one.get("text") if isinstance(one, dict) else None for one in content]
        if all(isinstance(part, str) for part in parts):
            return "".join(map(str, parts))
    raise CalibrationError(f"A message of {place} is no text (an image, a tool?); leave such conversations out.")


def _record(place: str, turns: list[Turn], row: dict[str, Any]) -> Record:
    if sum(len(turn.content) for turn in turns) > MOST_CHARACTERS:
        raise CalibrationError(
            f"{place} holds more than {MOST_CHARACTERS} characters, a dump and no prompt; split or remove it."
        )
    system, prompt_class = row.get("system"), row.get("class")
    return Record(
        turns=tuple(turns),
        place=place,
        system=system if isinstance(system, str) and system.strip() else None,
        prompt_class=prompt_class if isinstance(prompt_class, str) else "unclassified",
        raw=row.get("raw") is True,
    )
