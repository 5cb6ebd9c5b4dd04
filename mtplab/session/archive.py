"""The sessions on disk: make a new folder, list, find, open, recover, seal."""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path

import msgspec

from mtplab.session import paths
from mtplab.session.events import SCHEMA, Event, Header
from mtplab.session.journal import JournalScan, SessionError, read_journal
from mtplab.session.record import SessionRecord, read_record, record_of, write_record
from mtplab.session.state import LabState
from mtplab.session.text import clean_text

JOURNAL = "events.jsonl"
RECORD = "session.json"


class OpenSession(msgspec.Struct):
    """A session opened: its record and, where the journal is there, its events."""

    path: Path
    record: SessionRecord
    events: list[Event]
    header: Header | None
    journal_note: str | None = None
    """What is wrong with the journal beside a sealed record, as a sentence; None where nothing is known to be."""

    def replayable(self) -> bool:
        """Whether the events are there, not only the record."""
        return bool(self.events)


def slug(text: str, longest: int = 40) -> str:
    """A name safe for a folder: lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest] or "session"


def new_session(device: str, purpose: str, versions: dict[str, str], base: Path | None = None) -> tuple[Path, Header]:
    """Make the folder `<UTC>-<device>-<purpose>` and the header of its journal."""
    base = base or paths.sessions_dir()
    now = datetime.datetime.now(datetime.timezone.utc)
    stem = f"{now:%Y%m%dT%H%M%SZ}-{slug(device)}-{slug(purpose, 100)}"
    for attempt in range(100):
        path = base / (stem if attempt == 0 else f"{stem}-{attempt + 1}")
        try:
            (path / "logs").mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise SessionError(
                f"No session can be kept in {base} ({error.strerror}); set MTPLAB_SESSIONS to a folder you can write."
            ) from None
        header = Header(
            schema=SCHEMA,
            session=path.name,
            created_utc=now.isoformat(timespec="seconds"),
            t0=time.monotonic(),
            versions=versions,
        )
        return path, header
    raise SessionError(f"No free session name beside {base / stem}.")


def reduce_events(events: list[Event]) -> LabState:
    """The state after all `events`."""
    state = LabState()
    for event in events:
        state.apply(event)
    return state


def recover(scan: JournalScan, why: str) -> SessionRecord:
    """The record of a session whose engine died before sealing it, from the events that were kept."""
    state = reduce_events(scan.events)
    lost = []
    if scan.torn:
        lost.append("its last line was torn")
    if scan.damaged_lines:
        lost.append(f"{scan.damaged_lines} damaged lines were left out")
    recovery = why + "".join(f", {text}" for text in lost)
    return record_of(state, scan.header, events_sha256=scan.sha256, sealed=False, recovery=recovery)


def open_session(name: str | Path) -> OpenSession:
    """Open a session by folder, by a `session.json` or `events.jsonl`, or by (the beginning of) its name.

    Raises SessionError with a sentence where there is nothing to open.
    """
    path = find(name)
    if path.is_file() and path.name != JOURNAL:
        return OpenSession(path, read_record(path), [], None)
    folder = path.parent if path.is_file() else path
    journal, record = folder / JOURNAL, folder / RECORD
    scan, unread = None, None
    if _is_file(journal):
        try:
            scan = read_journal(journal)
        except SessionError as error:
            unread = error
    if _is_file(record):
        try:
            kept = read_record(record)
        except SessionError:
            # A torn session.json beside a whole journal is recovered; a newer schema is refused by both.
            if scan is None:
                raise
            return _recovered(folder, scan, "session.json was torn")
        if kept.sealed or scan is None:
            note = str(unread) if unread else _journal_note(kept, scan)
            return OpenSession(folder, kept, scan.events if scan else [], scan.header if scan else None, note)
        return _recovered(folder, scan, "its engine still runs, or was killed before sealing it")
    if unread is not None:
        raise unread
    if scan is None:
        raise SessionError(f"{folder} holds neither {RECORD} nor {JOURNAL}: it is no session.")
    return _recovered(folder, scan, "session.json was missing")


def _journal_note(kept: SessionRecord, scan: JournalScan | None) -> str | None:
    if scan is None or kept.events_sha256 in (None, scan.sha256):
        return None
    return f"The journal beside it is not the one that was sealed: the hash of {JOURNAL} differs."


def _recovered(folder: Path, scan: JournalScan, why: str) -> OpenSession:
    return OpenSession(folder, recover(scan, why), scan.events, scan.header)


def find(name: str | Path) -> Path:
    """Where a session is: a path, or a unique (beginning of a) name among the user's and the shipped sessions."""
    path = Path(name)
    if _exists(path):
        return path
    text = str(name)
    shown = clean_text(text, 80)
    if "/" not in text and text not in ("", ".", ".."):
        known = list_sessions()
        if text == "last" and known:
            return known[-1]
        matches = [p for p in known if p.name == text] or [p for p in known if p.name.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise SessionError(
                f"{shown!r} names {len(matches)} sessions ({', '.join(p.name for p in matches[:4])}): "
                "give more of the name."
            )
    raise SessionError(f"There is no session {shown!r}; `mtplab sessions` lists what there is.")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have, or a folder that may not be looked into
        return False


def _is_file(path: Path) -> bool:
    return _exists(path) and path.is_file()


def list_sessions() -> list[Path]:
    """Folders of all sessions: those that came with mtplab, then the user's own, oldest first."""
    found: list[Path] = []
    for base in (paths.shipped("sessions"), paths.sessions_dir()):
        if not base.is_dir():
            continue
        try:
            inside = sorted(base.iterdir())
        except OSError as error:
            raise SessionError(f"The sessions in {base} cannot be listed ({error.strerror}).") from None
        found += [p for p in inside if _is_file(p / RECORD) or _is_file(p / JOURNAL)]
    return found


def seal(folder: Path, state: LabState, header: Header, events_sha256: str) -> SessionRecord:
    """Write the final `session.json`."""
    record = record_of(state, header, events_sha256=events_sha256)
    write_record(folder / RECORD, record)
    return record
