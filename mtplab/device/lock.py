"""One lab per phone: a lock that the kernel frees when its owner dies, and that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import time
from pathlib import Path
from types import TracebackType

import msgspec
import platformdirs

from mtplab.device.errors import DeviceBusy, DeviceError
from mtplab.session import paths

_TRIES = 5  # another process's momentary look at the lock must not read as "busy"


class Holder(msgspec.Struct, frozen=True):
    """Who owns a phone: process, the session it records (a path or name), and since when (seconds since 1970)."""

    pid: int
    session: str
    since_unix_s: float
    serial_hash: str = ""


def runtime_dir() -> Path:
    """The user's own folder for locks (`MTPLAB_RUNTIME` overrides it); DeviceError if it cannot be used."""
    try:
        place = paths.runtime_dir()
        if place.stat().st_uid == os.getuid() and os.access(place, os.W_OK):
            return place
        problem = f"{place} belongs to somebody else"
    except OSError as failure:
        problem = str(failure)
    raise DeviceError(f"No folder for locks can be used ({problem}): set MTPLAB_RUNTIME to a folder of yours.")


def kept_dir() -> Path:
    """The user's own folder for what must outlast a restart: the key, the chosen phone, what is to be put back."""
    named = os.environ.get("MTPLAB_RUNTIME")
    folder = Path(named) if named else platformdirs.user_data_path("mtplab")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise DeviceError(f"{folder} cannot be made ({problem.strerror}): set MTPLAB_RUNTIME.") from problem
    return folder


def _key() -> bytes:
    """This user's key for serial numbers: the same phone has the same hash here, and says nothing elsewhere."""
    path = kept_dir() / "serial.key"
    try:
        if not path.exists():
            fresh = path.with_name(f"serial.key.{secrets.token_hex(4)}")
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)  # of two processes that start together, one key wins for both
            fresh.unlink()
        key = path.read_bytes()
    except OSError as problem:
        raise DeviceError(f"The key for serial numbers cannot be kept at {path} ({problem.strerror}).") from problem
    if len(key) != 32:
        raise DeviceError(f"{path} is damaged: delete it (phones will then get new hashes).")
    return key


def serial_hash(serial: str) -> str:
    """A keyed hash of a serial number, 16 hex digits: what sessions and lock files carry in its place."""
    return hashlib.blake2b(serial.encode(), key=_key(), digest_size=8).hexdigest()


def standin_key(root: Path) -> str:
    """What is locked for a stand-in: the folder of its files, which outlasts it; its port does not."""
    return f"standin:{root.resolve()}"


def _locks_dir() -> Path:
    folder = runtime_dir() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class PhoneLock:
    """The right to use a phone. Held until `release`, the end of the `with` block, or the process's death."""

    def __init__(self, serial: str, session: str, key: str | None = None) -> None:
        """`key` is what is locked where the serial does not name it (a stand-in's port changes, its folder not)."""
        self.serial = serial
        self.session = session
        self._key = key or serial
        self._fd: int | None = None

    def acquire(self) -> PhoneLock:
        """Take the lock; DeviceBusy, with a sentence that names the owner, if somebody has it."""
        if self._fd is not None:
            return self
        name = serial_hash(self._key)
        path = _locks_dir() / f"{name}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _try_lock(fd):
            owner = _read(fd, name)
            os.close(fd)
            raise DeviceBusy(_busy_sentence(self.serial, owner))
        self._fd = fd
        self.name_session(self.session)
        return self

    @property
    def phone_hash(self) -> str:
        """The keyed hash under which this phone is known here; also of a stand-in, whose port changes."""
        return serial_hash(self._key)

    def name_session(self, session: str) -> None:
        """Say which session the owner records; known only once the phone has been opened."""
        self.session = session
        if self._fd is not None:
            content = {"pid": os.getpid(), "session": session, "since": time.time()}
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(content).encode(), 0)

    def release(self) -> None:
        """Give the phone back; the file stays, so that no two processes ever lock different files."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.ftruncate(fd, 0)
            os.close(fd)

    def __enter__(self) -> PhoneLock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _busy_sentence(serial: str, owner: Holder | None) -> str:
    if owner is None:
        return f"{serial} is in use by another mtplab: end it first."
    since = time.strftime("%H:%M:%S", time.localtime(owner.since_unix_s))
    return (
        f"{serial} is in use by process {owner.pid} (session {owner.session}, since {since}): "
        f"watch it with `mtplab lab --attach {owner.session}`, or end that process."
    )


def _try_lock(fd: int) -> bool:
    for attempt in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < _TRIES - 1:
                time.sleep(0.02)
    return False


def _read(fd: int, name: str) -> Holder | None:
    try:
        content = json.loads(os.pread(fd, 65536, 0))
        return Holder(int(content["pid"]), str(content["session"]), float(content["since"]), name)
    except (ValueError, KeyError, TypeError):
        return None


def _holder_of(path: Path) -> Holder | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd, path.stem)
    finally:
        os.close(fd)
    return None  # nobody holds it: what stands in it was left by a process that died


def holder(serial: str) -> Holder | None:
    """Who owns this phone now, or None."""
    return _holder_of(_locks_dir() / f"{serial_hash(serial)}.lock")


def all_holders() -> list[Holder]:
    """Every owner of any phone on this machine (of this user), oldest first."""
    found = [_holder_of(path) for path in _locks_dir().glob("*.lock")]
    return sorted((h for h in found if h is not None), key=lambda h: h.since_unix_s)
