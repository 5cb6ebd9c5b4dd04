"""A content store: files by their hash, and what finished stages gave by their key.

Nothing half-written ever stands under its name: everything is written aside, synced and renamed. A blob's
hash is checked in full when its size or time stamp is not the one it had when it was last found right.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mtplab.pipeline.errors import PipelineError

_CHUNK_BYTES = 1 << 20
_STALE_S = 24 * 3600.0


class ArtefactRef(msgspec.Struct, frozen=True):
    """A file in the store."""

    sha256: str
    bytes: int


class Finished(msgspec.Struct, frozen=True):
    """What a finished stage left behind under its key."""

    stage: str
    seconds: float
    figures: dict[str, Any] = {}
    artefacts: dict[str, ArtefactRef] = {}
    records: dict[str, Any] = {}
    summary: str = ""


class _Stamp(msgspec.Struct, frozen=True):
    """Size and time at which a blob was last seen to have its hash."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> _Stamp:
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)

    @classmethod
    def read(cls, mark: Path) -> _Stamp | None:
        """The stamp stored at `mark`; None when there is none to trust."""
        try:
            return msgspec.json.decode(mark.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None


class Store:
    """The content store under `root`; made on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs, self._keys, self._scratch = root / "blobs", root / "keys", root / "scratch"
        try:
            for folder in (self._blobs, self._keys, self._scratch):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PipelineError(
                f"The stage cache {root} cannot be made ({error.strerror}); set MTPLAB_CACHE to a writable folder."
            ) from error

    def path(self, sha256: str) -> Path:
        """Where the blob of that hash stands (or would)."""
        return self._blobs / sha256[:2] / sha256

    def has(self, sha256: str, size: int | None = None) -> bool:
        """Whether the blob is there and still is what its name says."""
        path = self.path(sha256)
        try:
            stamp = _Stamp.of(path)
        except OSError:
            return False
        if size is not None and stamp.size != size:
            return False
        mark = path.with_suffix(".ok")
        if _Stamp.read(mark) == stamp:
            return True
        if file_sha256(path) != sha256:
            return False
        _write(mark, msgspec.json.encode(stamp))
        return True

    def put(self, source: Path) -> ArtefactRef:
        """Take a file into the store; a file already there is kept. `source` stays where it is."""
        aside = self._scratch / f"blob-{secrets.token_hex(8)}"
        digest, size = hashlib.sha256(), 0
        try:
            with source.open("rb") as reader, aside.open("wb") as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    writer.write(chunk)
                writer.flush()
                os.fsync(writer.fileno())
            sha256 = digest.hexdigest()
            if not self.has(sha256, size):
                target = self.path(sha256)
                target.parent.mkdir(exist_ok=True)
                aside.replace(target)
                _write(target.with_suffix(".ok"), msgspec.json.encode(_Stamp.of(target)))
        finally:
            aside.unlink(missing_ok=True)
        return ArtefactRef(sha256, size)

    def scratch(self) -> Path:
        """A fresh folder to work in, on the store's own file system; leftovers of dead runs are swept."""
        for old in self._scratch.iterdir():
            if time.time() - old.stat().st_mtime > _STALE_S:
                shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        folder = self._scratch / f"work-{secrets.token_hex(8)}"
        folder.mkdir()
        return folder

    def lookup(self, key: str) -> Finished | None:
        """What the stage of that key gave, if it finished and every file of it is still whole."""
        try:
            found = msgspec.json.decode((self._keys / f"{key}.json").read_bytes(), type=Finished)
        except (OSError, msgspec.DecodeError):
            return None
        whole = all(self.has(ref.sha256, ref.bytes) for ref in found.artefacts.values())
        return found if whole else None

    def finish(self, key: str, finished: Finished) -> None:
        """Record a finished stage; its artefacts must be in the store already."""
        missing = [name for name, ref in finished.artefacts.items() if not self.has(ref.sha256, ref.bytes)]
        if missing:
            raise PipelineError(
                f"The stage {finished.stage} cannot be kept because {missing[0]} is not in the store; run it again."
            )
        _write(self._keys / f"{key}.json", msgspec.json.encode(finished))


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def stage_key(
    stage: str,
    *,
    sources: Mapping[str, str],
    versions: Mapping[str, str | None],
    machine: Mapping[str, str],
    params: Mapping[str, Any],
    inputs: Mapping[str, str],
) -> str:
    """The key of a stage: a hash of all that its result may depend on. The mappings' order does not matter."""
    everything = {
        "stage": stage,
        "sources": dict(sources),
        "versions": dict(versions),
        "machine": dict(machine),
        "params": dict(params),
        "inputs": dict(inputs),
    }
    return hashlib.sha256(msgspec.json.encode(everything, order="deterministic")).hexdigest()
