"""Write the token protocol: one JSON object a line, numbered, and closed by a count and hash of all of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

import msgspec

VERSION = 1


def output_sha256(tokens: Sequence[int]) -> str:
    """Hash of an output: SHA-256 of its token ids in decimal, joined by commas."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()


class ProtocolWriter:
    """Numbers and hashes lines; they leave the process only on `flush`, so that printing is never measured."""

    def __init__(self, stream: BinaryIO, run: str) -> None:
        self._stream, self._run = stream, run
        self._encoder = msgspec.json.Encoder()
        self._hash = hashlib.sha256()
        self._seq = 0

    def write(self, kind: str, t_ns: int | None = None, **fields: Any) -> None:
        """Add a line of type `kind`; `t_ns` is when it happened (now, unless given)."""
        stamp = time.monotonic_ns() if t_ns is None else t_ns
        line = {"v": VERSION, "run": self._run, "seq": self._seq, "type": kind, "t_ns": stamp, **fields}
        data = self._encoder.encode(line) + b"\n"
        self._stream.write(data)
        self._hash.update(data)
        self._seq += 1

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Write `done` with the count and the SHA-256 of all earlier lines, newlines included."""
        self.write("done", count=self._seq, sha256=self._hash.hexdigest())
        self.flush()
