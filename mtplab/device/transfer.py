"""Copies files to the phone by adb's sync protocol, with progress, cancel, and proof by hash that they arrived."""

from __future__ import annotations

import hashlib
import re
import select
import shlex
import socket
import stat
import time
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from mtplab.device.errors import Cancelled, CommandFailed, DeviceError, DeviceGone

if TYPE_CHECKING:
    from mtplab.device.link import Link

OnProgress = Callable[[int, int], None]
Cancel = Callable[[], bool]

_FRAME_BYTES = 64 * 1024  # the largest that adbd accepts (SYNC_DATA_MAX)
_STALL_S = 20.0
_SPARE_BYTES = 16 << 20  # a phone filled to the last byte misbehaves


class PushResult(msgspec.Struct, frozen=True):
    """A file that is on the phone: its hash was computed there and equals the local one."""

    dst: str
    sha256: str
    bytes: int
    seconds: float
    skipped: bool
    attempts: int = 1


def sha256_file(path: Path) -> str:
    """The hash of a local file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def parse_sha256(text: str) -> str | None:
    """The hash in the output of `sha256sum FILE`."""
    match = re.match(r"\\?([0-9a-f]{64})(?:\s|$)", text)
    return match.group(1) if match else None


def parse_df(text: str) -> int | None:
    """Available bytes in the output of `df -k PATH`; None if it has another form."""
    words = [word for line in text.splitlines()[1:] for word in line.split()]
    for i, word in enumerate(words):
        if i >= 3 and re.fullmatch(r"\d{1,3}%", word) and re.fullmatch(r"\d{1,15}", words[i - 1], re.ASCII):
            return int(words[i - 1]) * 1024
    return None


def sha256_on_device(link: Link, path: str, timeout_s: float = 300.0) -> str:
    """The hash of a file on the phone, computed there; CommandFailed if it cannot be had."""
    result = link.run(["sha256sum", path], timeout_s=timeout_s, check=True)
    found = parse_sha256(result.stdout)
    if found is None:
        raise CommandFailed(f"sha256sum on {link.serial} said nothing usable about {path}.", result.exit_code)
    return found


def push(
    link: Link, src: Path, dst: str, on_progress: OnProgress | None = None, cancel: Cancel | None = None,
    mode: int = 0o644, attempts: int = 3,
) -> PushResult:  # fmt: skip
    """Copy `src` to the absolute path `dst`; an equal file (by hash, never by size or date) is not sent again.

    The file appears under its name only complete and verified. After a lost cable the transfer waits for the
    phone and starts from the beginning, at most `attempts` times in all.
    """
    if not dst.startswith("/") or dst.endswith("/"):
        raise CommandFailed(f"{dst!r} is no absolute file path on the phone.")
    try:
        wanted, size = sha256_file(src), src.stat().st_size
    except OSError as problem:
        raise CommandFailed(f"{src} cannot be read ({problem.strerror}): check the path.") from problem
    began = time.monotonic()
    for attempt in range(1, attempts + 1):
        try:
            if _already_there(link, dst, wanted, size, mode):
                return PushResult(dst, wanted, size, time.monotonic() - began, True, attempt)
            _send_verified(link, src, dst, wanted, size, mode, on_progress, cancel)
            return PushResult(dst, wanted, size, time.monotonic() - began, False, attempt)
        except DeviceGone:
            if attempt == attempts:
                raise
            link.wait_for_return(15)
    raise CommandFailed("A push needs at least one attempt.")


def _already_there(link: Link, dst: str, wanted: str, size: int, mode: int) -> bool:
    file = shlex.quote(dst)
    script = (
        f'if [ -f {file} ] && [ $(wc -c <{file}) -eq {size} ]; then '
        f"chmod {mode:o} {file} 2>/dev/null; sha256sum {file}; fi"
    )
    return parse_sha256(link.run(script, timeout_s=300).stdout) == wanted


def _send_verified(
    link: Link, src: Path, dst: str, wanted: str, size: int, mode: int, on_progress: OnProgress | None,
    cancel: Cancel | None,
) -> None:  # fmt: skip
    folder = str(PurePosixPath(dst).parent)
    link.run(["mkdir", "-p", folder], timeout_s=10, check=True)
    free = link.free_bytes(folder)
    if free is not None and free < size + _SPARE_BYTES:
        raise CommandFailed(
            f"{src.name} needs {size / 1e6:.1f} MB, but {folder} on {link.serial} has {free / 1e6:.1f} MB free: "
            "delete something on the phone."
        )
    part = f"{dst}.part-{uuid.uuid4().hex[:8]}"
    try:
        # Parts of earlier pushes of this file that a pulled cable left behind.
        link.run(f"rm -f {shlex.quote(dst)}.part-*", timeout_s=10)
        _send(link, src, part, size, mode, on_progress, cancel)
        arrived = sha256_on_device(link, part)
        if arrived != wanted:
            raise CommandFailed(
                f"{src.name} arrived on {link.serial} changed (sha256 {arrived[:12]}… instead of {wanted[:12]}…): "
                "was the file written to meanwhile? Push it again."
            )
        link.run(["mv", "-f", part, dst], timeout_s=30, check=True)
    except DeviceError as problem:
        if not isinstance(problem, DeviceGone):
            link.run(["rm", "-f", part], timeout_s=10)
        raise


def _send(
    link: Link, src: Path, part: str, size: int, mode: int, on_progress: OnProgress | None, cancel: Cancel | None
) -> None:
    """One SEND of the sync protocol (adb's SYNC.TXT), in the largest frames and with a limit on every wait."""
    sock = link.open("sync:", timeout_s=_STALL_S)
    try:
        target = f"{part},{stat.S_IFREG | mode}".encode()
        sock.sendall(b"SEND" + len(target).to_bytes(4, "little") + target)
        done = 0
        with src.open("rb") as file:
            while piece := file.read(_FRAME_BYTES):
                if cancel is not None and cancel():
                    raise Cancelled(f"The push of {src.name} was cancelled.")
                if select.select([sock], [], [], 0)[0]:
                    _answer(sock, link, src)  # the phone speaks early only to refuse
                sock.sendall(b"DATA" + len(piece).to_bytes(4, "little") + piece)
                done += len(piece)
                if on_progress is not None:
                    on_progress(done, size)
        sock.sendall(b"DONE" + int(src.stat().st_mtime).to_bytes(4, "little"))
        _answer(sock, link, src)
    except OSError as problem:
        raise DeviceGone(
            f"The connection to {link.serial} was lost while pushing {src.name}: check the cable, then push again."
        ) from problem
    finally:
        sock.close()


def _answer(sock: socket.socket, link: Link, src: Path) -> None:
    kind, length = _exactly(sock, 4), int.from_bytes(_exactly(sock, 4), "little")
    if kind == b"OKAY":
        return
    if kind == b"FAIL":
        reason = _exactly(sock, min(length, 4096)).decode("utf-8", "replace")
        raise CommandFailed(f"{link.serial} refused {src.name}: {reason}.")
    raise DeviceGone(f"{link.serial} answered a push with {kind!r}, which is not adb's sync protocol: replug it.")


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise OSError("connection closed")
        data += piece
    return data
