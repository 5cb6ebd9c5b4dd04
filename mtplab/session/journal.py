"""The journal: append events, flush every tick, read them back whole even after a crash."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mtplab.session.events import SCHEMA, AnyEvent, Event, Header, decoder, encoder
from mtplab.session.foreign import Unfit, convert_foreign, decode_foreign, is_plain
from mtplab.session.text import clean_text

SYNC_EVERY_S = 2.0


class SessionError(Exception):
    """A session cannot be opened or written; the message says what, why and what to do."""

    def __init__(self, sentence: str) -> None:
        # Names of files and folders stand in it, and they may come from anywhere.
        super().__init__(clean_text(sentence, 2000))


class JournalWriter:
    """Appends events to `events.jsonl`; `tick()` often, `sync()` at the ends of stages.

    After `kill -9` all that was flushed is kept (the operating system holds it); after a power cut all that was
    synced, at most SYNC_EVERY_S seconds earlier.
    """

    def __init__(self, path: Path, header: Header) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Raw prompts' hashes and device facts are the user's own: not for other accounts on the machine.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._file = os.fdopen(fd, "wb", buffering=1 << 16)
        self._hash = hashlib.sha256()
        self.count = 0
        self._synced_at = time.monotonic()
        self._write(encoder.encode(header))
        self.sync()

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._hash.update(line + b"\n")

    def append(self, event: Event) -> None:
        """Add one event; it is safe after the next `tick`."""
        self._write(encoder.encode(event))
        self.count += 1

    def tick(self) -> None:
        """Hand everything to the operating system, and to the disk every SYNC_EVERY_S seconds."""
        self._file.flush()
        if time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Bring everything onto the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def close(self) -> str:
        """Sync, close and return the sha256 of the whole file."""
        self.sync()
        self._file.close()
        return self._hash.hexdigest()


def read_header(line: bytes, path: Path) -> Header:
    """The header of a journal, or SessionError where the file is foreign or newer than this program."""
    try:
        header: Header = convert_foreign(decode_foreign(line), Header)
    except Unfit:
        raise SessionError(
            f"{path} is not an mtplab journal: its first line is no header. "
            "Give a session folder or its session.json."
        ) from None
    if header.format != "mtplab-journal":
        raise SessionError(f"{path} is not an mtplab journal (it calls itself {header.format[:40]!r}).")
    check_schema(header.schema, path)
    return header


def check_schema(schema: int, path: Path) -> None:
    """Refuse what this program cannot read rightly."""
    if schema > SCHEMA:
        raise SessionError(
            f"{path} was written with session schema {schema}, newer than this mtplab's {SCHEMA}: "
            "update mtplab to open it."
        )
    if schema < 1:
        raise SessionError(f"{path} names session schema {schema}, which never existed: the file is damaged.")


class JournalReader:
    """Follows a journal from its beginning; `poll()` gives the events that are there and were not given yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise SessionError(
                f"The journal {path} cannot be read ({error.strerror}); is this a session folder?"
            ) from None
        self._rest = b""
        self.header: Header | None = None
        self.damaged_lines = 0

    def poll(self, max_bytes: int = 1 << 22) -> list[Event]:
        """New whole events since the last call; a line still being written stays for the next one."""
        chunk = self._file.read(max_bytes)
        if not chunk:
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if self.header is None and lines:
            self.header = read_header(lines.pop(0), self.path)
        found: list[Event] = []
        for line in lines:
            event = _decode(line)
            if event is None:
                self.damaged_lines += 1
            else:
                found.append(event)
        return found

    def poll_tail(self, max_bytes: int) -> list[Event]:
        """The whole events of the file's last `max_bytes`; what lies between is skipped, nothing is given twice."""
        behind = os.fstat(self._file.fileno()).st_size - self._file.tell() - max_bytes
        if behind > 0:
            self._file.seek(behind, os.SEEK_CUR)
            self._file.readline()  # it most likely began in the middle of a line
            self._rest = b""
        return self.poll(max_bytes)

    @property
    def torn(self) -> bool:
        """Whether the file ends in the middle of a line."""
        return bool(self._rest)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _decode(line: bytes) -> AnyEvent | None:
    try:
        if is_plain(line):
            return decoder.decode(line)
        return convert_foreign(decode_foreign(line), AnyEvent)
    except (msgspec.MsgspecError, Unfit):
        return None


class JournalScan(msgspec.Struct):
    """A journal read to its end: events, their hash and what was damaged."""

    header: Header
    events: list[Event]
    sha256: str
    damaged_lines: int
    torn: bool


def read_journal(path: Path) -> JournalScan:
    """All events of a journal; damaged lines are counted and left out, a torn last line is lost."""
    reader = JournalReader(path)
    try:
        events: list[Event] = []
        while True:
            before = reader._file.tell()
            events += reader.poll()
            if reader._file.tell() == before:
                break
        if reader.header is None:
            raise SessionError(f"{path} is empty or holds no whole line: nothing was recorded in it.")
        return JournalScan(reader.header, events, file_sha256(path), reader.damaged_lines, reader.torn)
    finally:
        reader.close()


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in _chunks(file):
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(file) -> Iterator[bytes]:  # type: ignore[no-untyped-def]
    while chunk := file.read(1 << 20):
        yield chunk
