"""Sets a phone up for a measurement and puts everything back, also after a crash: what to put back is noted first."""

from __future__ import annotations

import functools
import re
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mtplab.device.devices import over_tcp
from mtplab.device.errors import DeviceError
from mtplab.device.link import Link
from mtplab.device.lock import kept_dir
from mtplab.session.atomic import write_atomic
from mtplab.session.text import clean_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UNSET = "null"  # what `settings get` prints where there is no value
POLICIES = ("bench", "none")
_TABLE = Path(__file__).with_name("prepare.toml")
# A setting that a service applies a moment later must not be called refused.
_PATIENCE_S = 2.0
_LOOK_S = 0.3

Seen = tuple[str | None, str]
"""A value, or None where it could not be read, and what the phone said."""


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of prepare.toml, where the fields are explained."""

    name: str
    words: str
    read: list[str]
    pattern: str
    want: str
    write: list[str] = []
    writes: dict[str, list[str]] = {}
    clear: list[str] = []
    same: list[list[str]] = []
    needs_cable: bool = False

    def value_in(self, text: str) -> str | None:
        """The value in what `read` printed, or None where it says something else."""
        found = re.findall(self.pattern, text.replace("\r", ""), re.MULTILINE | re.ASCII)
        return str(found[0]) if len(set(found)) == 1 else None

    def command(self, value: str) -> list[str] | None:
        """The command that sets this value, or None where there is none."""
        if value == UNSET and self.clear:
            return self.clear
        if value in self.writes:
            return self.writes[value]
        return [word.replace("{value}", value) for word in self.write] if self.write and value != UNSET else None

    def alike(self, a: str | None, b: str | None) -> bool:
        """Whether two values mean the same state."""
        return a == b or any(a in group and b in group for group in self.same)


class Change(msgspec.Struct, frozen=True):
    """What is to be put back: the setting, its value before, and the value that was (to be) set."""

    name: str
    before: str
    set: str


class Note(msgspec.Struct, frozen=True):
    """What stands on the host while a phone is prepared; `phone` is the keyed hash of its serial."""

    phone: str
    about: str
    since_unix_s: float
    changes: list[Change]


class Told(msgspec.Struct, frozen=True):
    """What became of one setting, in words: `text` as "before → now", `problem` where it is not as it should be."""

    name: str
    words: str
    before: str | None
    now: str | None
    source: str
    problem: str | None = None

    @property
    def text(self) -> str:
        """The course of the value."""
        if self.before is None:
            return "unknown"
        return self.before if self.now in (None, self.before) else f"{self.before} → {self.now}"

    @property
    def sentence(self) -> str:
        """One line for a person."""
        tail = f" ({self.problem})" if self.problem else ""
        return f"{self.words}: {self.text}{tail}"


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every setting that can be prepared."""
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["setting"]
    return tuple(msgspec.convert(rows, list[Setting]))


def names_of(policy: str) -> tuple[str, ...]:
    """The settings that a policy names: `bench` all, `none` none, else names separated by commas; ValueError."""
    known = tuple(setting.name for setting in settings())
    if policy in POLICIES:
        return known if policy == "bench" else ()
    wanted = [name.strip() for name in policy.split(",")]
    odd = [name for name in wanted if name not in known]
    if odd:
        raise ValueError(f"There is no setting {odd[0]!r} to prepare: {', '.join((*POLICIES, *known))}.")
    return tuple(name for name in known if name in wanted)


# --- notes ------------------------------------------------------------------------------------------------------


def _note_path(phone: str) -> Path:
    return kept_dir() / "restore" / f"{phone}.json"


def note_of(phone: str) -> Note | None:
    """What is still to be put back on this phone (by the keyed hash of its serial); DeviceError if unreadable."""
    path = _note_path(phone)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as problem:
        raise DeviceError(
            f"The note of what to put back on the phone, {path}, cannot be read ({problem}): look at the phone's "
            "airplane mode and brightness by hand, then delete that file."
        ) from problem


def notes() -> tuple[list[Note], list[str]]:
    """Every note on this machine (of this user), and a sentence for each that cannot be read."""
    found, unreadable = [], []
    for path in sorted((kept_dir() / "restore").glob("*.json")):
        try:
            note = note_of(path.stem)
        except DeviceError as problem:
            unreadable.append(str(problem))
            continue
        found += [note] if note is not None else []
    return found, unreadable


def keep(note: Note) -> None:
    """Write the note of a phone in one step, or remove it where it says nothing; DeviceError if that fails."""
    path = _note_path(note.phone)
    try:
        if note.changes:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomic(path, msgspec.json.encode(note), mode=0o600)
        else:
            path.unlink(missing_ok=True)
    except OSError as problem:
        raise DeviceError(
            f"What is to be put back on the phone cannot be noted in {path} ({problem.strerror}): make room, "
            "or set MTPLAB_RUNTIME to another folder."
        ) from problem


# --- the phone --------------------------------------------------------------------------------------------------


def _batch(link: Link, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Exit code and output of each command, all run in one shell: a command alone costs a round trip."""
    if not commands:
        return []
    mark = f"#{secrets.token_hex(8)}"  # a text from the phone cannot guess it
    tail = f"</dev/null 2>&1; c=$?; echo; echo '{mark}' $c\n"
    script = "".join(f"{shlex.join(words)} {tail}" for words in commands)
    parts = re.split(rf"\n{mark} (\d{{1,3}})\n", link.run(script, timeout_s=30).stdout)
    answers = [(int(code), text) for text, code in zip(parts[0::2], parts[1::2], strict=False)]
    if len(answers) != len(commands):
        raise DeviceError(f"{link.serial} answered {len(answers)} of {len(commands)} commands: try again.")
    return answers


def _values(link: Link, rows: Sequence[Setting]) -> dict[str, Seen]:
    """By name: the value, or None, and what the phone printed."""
    answers = _batch(link, [row.read for row in rows])
    return {
        row.name: (row.value_in(text) if code == 0 else None, clean_text(" ".join(text.split()), 100))
        for row, (code, text) in zip(rows, answers, strict=True)
    }


def _write(link: Link, wanted: Sequence[tuple[Setting, str]]) -> dict[str, Seen]:
    """Set each value and read back until it is there or patience ends; by name the value and what was said."""
    if not wanted:
        return {}
    commands = [row.command(value) or ["false"] for row, value in wanted]
    said = _batch(link, commands)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        now = _values(link, [row for row, _ in wanted])
        there = all(row.alike(now[row.name][0], value) for row, value in wanted)
        if there or time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_S)
    answers = zip(wanted, said, strict=True)
    return {row.name: (now[row.name][0], _complaint(code, text)) for (row, _), (code, text) in answers}


def _complaint(code: int, text: str) -> str:
    words = clean_text(" ".join(text.split()), 160)
    return words or (f"exit code {code}" if code else "the phone took the command, and the value did not change")


def prepare(link: Link, phone: str, names: Sequence[str], about: str, simulated: bool = False) -> list[Told]:
    """Set what `names` says, after noting on the host what to put back; one entry for every name.

    `about` says in the note who did it (a session's name). Nothing is changed whose value could not be read before.
    What the phone refuses is told as a problem. The caller holds the phone's lock and has put back what an earlier
    preparation left. Raises DeviceError where the phone is gone or the note cannot be kept.
    """
    rows = [row for row in settings() if row.name in names]
    before = _values(link, rows)
    apart = [row.name for row in rows if row.needs_cable and over_tcp(link.serial) and not simulated]
    todo = [
        row for row in rows
        if row.name not in apart and before[row.name][0] is not None and not row.alike(before[row.name][0], row.want)
    ]  # fmt: skip
    changes = [Change(row.name, before[row.name][0] or "", row.want) for row in todo]
    left = note_of(phone)
    kept = [c for c in left.changes if c.name not in {n.name for n in changes}] if left else []
    keep(Note(phone, about, time.time(), [*kept, *changes]))
    after = _write(link, [(row, row.want) for row in todo])
    # What the phone made of it is what will be found there, and known as ours, when it is put back.
    made = [
        msgspec.structs.replace(change, set=after[row.name][0] or change.set)
        for row, change in zip(todo, changes, strict=True)
        if not row.alike(after[row.name][0], change.before)
    ]
    if made != changes:
        keep(Note(phone, about, time.time(), [*kept, *made]))
    return [_prepared(row, before[row.name], after.get(row.name), row.name in apart) for row in rows]


def _prepared(row: Setting, before: Seen, after: Seen | None, apart: bool) -> Told:
    value, said = before
    problem, now = None, value
    if value is None:
        problem = f"not set: its value could not be read ({said or 'no answer'})"
    elif apart:
        problem = None if row.alike(value, row.want) else "not set: adb is not on a cable, and it would be cut off"
    elif after is not None:
        now = after[0]
        if not row.alike(now, row.want):
            problem = f"not set: {after[1]}"
    return Told(row.name, row.words, value, now, shlex.join(row.command(row.want) or row.read), problem)


def put_back(link: Link, phone: str) -> list[Told]:
    """Put back what the note of this phone says and drop the note; nothing where there is none.

    What somebody changed meanwhile is left as it is. What the phone refuses is told once, with the command to try by
    hand. What cannot be read (a phone that has just booted answers adb before its services run) stays noted, and all
    does where the phone is gone: then DeviceError is raised.
    """
    note = note_of(phone)
    if note is None:
        return []
    known = {row.name: row for row in settings()}
    changes = [change for change in reversed(note.changes) if change.name in known]
    rows = [known[change.name] for change in changes]
    found = _values(link, rows)
    ours = [
        (row, change.before) for row, change in zip(rows, changes, strict=True)
        if row.alike(found[row.name][0], change.set)
    ]  # fmt: skip
    after = _write(link, ours)
    told = [
        _restored(row, change, found[row.name], after.get(row.name))
        for row, change in zip(rows, changes, strict=True)
    ]
    # A setting that this version does not know is a later one's to put back.
    later = [change for change in note.changes if change.name not in known or found[change.name][0] is None]
    keep(msgspec.structs.replace(note, changes=later))
    return told


def _restored(row: Setting, change: Change, found: Seen, after: Seen | None) -> Told:
    value, said = found
    now, problem = value, None
    by_hand = shlex.join(row.command(change.before) or row.read)
    if value is None:
        why = f"its value could not be read ({said or 'no answer'})"
        problem = f"not put back yet: {why}; `mtplab restore` tries again, by hand: adb shell {by_hand}"
    elif after is not None:
        now = after[0]
        if not row.alike(now, change.before):
            problem = f"not put back to {change.before}: {after[1]}; by hand: adb shell {by_hand}"
    elif not row.alike(value, change.before):
        problem = f"left as it is: somebody changed it meanwhile (it was {change.before} before the measurement)"
    return Told(row.name, row.words, change.set if after is not None else value, now, by_hand, problem)
