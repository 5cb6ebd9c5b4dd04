"""The sync service: stat, list, pull and push, in versions 1 and 2."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path

from mtplab.standin.files import DeviceFiles
from mtplab.standin.wire import Stream

MAX_DATA = 65536
MAX_PATH = 1024
STAT2 = struct.Struct("<IQQIIIIQqqq")
_V1_STAT = struct.Struct("<III")
PART = ".adb-part"


class SyncError(Exception):
    """What the client is told in a FAIL."""


class SyncSession:
    """One sync: stream, request after request until QUIT."""

    def __init__(
        self,
        stream: Stream,
        files: DeviceFiles,
        *,
        room_bytes: Callable[[], int],
        content: Callable[[str], str],
        pushed: Callable[[str], None],
    ) -> None:
        """How the session meets its device.

        `room_bytes` tells how much may still be written; `content` gives the device path of a file's own bytes;
        `pushed` hears of every file that arrived.
        """
        self._stream, self._files, self._room_bytes = stream, files, room_bytes
        self._content, self._pushed = content, pushed

    async def run(self) -> None:
        """Answer requests."""
        handlers = {
            b"STAT": self._stat1, b"LST2": self._lstat2, b"STA2": self._stat2, b"LIST": self._list1,
            b"LIS2": self._list2, b"RECV": self._pull1, b"RCV2": self._pull2, b"SEND": self._push1,
            b"SND2": self._push2,
        }  # fmt: skip
        while True:
            command, size = await self._head()
            if command == b"QUIT" or command not in handlers or size > MAX_PATH + 16:
                return
            path = (await self._stream.read_exactly(size)).decode("utf-8", "surrogateescape")
            try:
                await handlers[command](path)
            except SyncError as error:
                await self._fail(str(error))
            except OSError as error:
                await self._fail(error.strerror or str(error))

    async def _head(self) -> tuple[bytes, int]:
        head = await self._stream.read_exactly(8)
        return head[:4], int.from_bytes(head[4:], "little")

    async def _fail(self, message: str) -> None:
        text = message.encode()
        await self._stream.write(b"FAIL" + struct.pack("<I", len(text)) + text)

    def _facts(self, path: str, follow: bool) -> tuple[int, ...]:
        try:
            canonical = self._files.resolve(path, follow=follow)
            found = os.lstat(self._files.root + canonical)
        except OSError as error:
            return (error.errno or errno.EIO, *[0] * 10)
        size = found.st_size
        if stat.S_ISREG(found.st_mode):
            size = Path(self._files.root + self._content(canonical)).lstat().st_size
        return (
            0, found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_uid, found.st_gid, size,
            int(found.st_atime), int(found.st_mtime), int(found.st_ctime),
        )  # fmt: skip

    async def _stat1(self, path: str) -> None:
        facts = self._facts(path, follow=False)
        await self._stream.write(b"STAT" + _V1_STAT.pack(facts[3], facts[7] & 0xFFFFFFFF, facts[9]))

    async def _lstat2(self, path: str) -> None:
        await self._stream.write(b"LST2" + STAT2.pack(*self._facts(path, follow=False)))

    async def _stat2(self, path: str) -> None:
        await self._stream.write(b"STA2" + STAT2.pack(*self._facts(path, follow=True)))

    def _entries(self, path: str) -> list[tuple[bytes, tuple[int, ...]]]:
        try:
            names = [".", "..", *sorted(os.listdir(self._files.host(path)))]  # noqa: PTH208
        except OSError:
            return []
        return [(os.fsencode(name), self._facts(f"{path}/{name}", follow=False)) for name in names]

    async def _list1(self, path: str) -> None:
        answer = bytearray()
        for name, facts in self._entries(path):
            head = struct.pack("<IIII", facts[3], facts[7] & 0xFFFFFFFF, facts[9], len(name))
            answer += b"DENT" + head + name
        await self._stream.write(bytes(answer) + b"DONE" + bytes(16))

    async def _list2(self, path: str) -> None:
        answer = bytearray()
        for name, facts in self._entries(path):
            answer += b"DNT2" + STAT2.pack(*facts) + struct.pack("<I", len(name)) + name
        await self._stream.write(bytes(answer) + b"DONE" + bytes(STAT2.size + 4))

    async def _pull1(self, path: str) -> None:
        handle = self._files.open(self._content(self._files.resolve(path)), os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb", buffering=0) as source:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SyncError("not a regular file")
            while data := source.read(MAX_DATA):
                await self._stream.write(b"DATA" + struct.pack("<I", len(data)) + data)
        await self._stream.write(b"DONE" + bytes(4))

    async def _pull2(self, path: str) -> None:
        await self._flags(b"RCV2", 8)
        await self._pull1(path)

    async def _flags(self, command: bytes, size: int) -> int:
        body = await self._stream.read_exactly(size)
        if body[:4] != command or body[-4:] != bytes(4):
            raise SyncError("compression is not supported")
        return int.from_bytes(body[4:8], "little")

    async def _push1(self, request: str) -> None:
        path, _, mode = request.rpartition(",")
        await self._push(path, int(mode) if mode.isdigit() else 0o100644)

    async def _push2(self, path: str) -> None:
        await self._push(path, await self._flags(b"SND2", 12))

    async def _push(self, path: str, mode: int) -> None:
        reason, draft = "", None
        try:
            target = self._files.check_writable(path)
            target = self._files.check_writable(self._files.resolve(target))
            self._files.make_folders(target.rpartition("/")[0])
            if Path(self._files.root + target).is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISLNK(mode):
                draft = self._files.open(target + PART, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            target, reason = path, f"couldn't create file: {error.strerror}"
        try:
            # The client has sent everything before it looks for an answer: on failure too, read to the end.
            link, modified, late = await self._receive(draft)
            reason = reason or late
        except BaseException:
            self._drop(target, draft)
            raise
        if reason:
            self._drop(target, draft)
            raise SyncError(reason)
        self._finish(target, draft, link, mode, modified)
        self._pushed(target)
        await self._stream.write(b"OKAY" + bytes(4))

    async def _receive(self, draft: int | None) -> tuple[bytes, int, str]:
        room = self._room_bytes()
        small, reason = bytearray(), ""
        while True:
            command, size = await self._head()
            if command == b"DONE":
                return bytes(small), size, reason
            if command != b"DATA" or size > MAX_DATA:
                return b"", 0, "invalid data message"
            data = await self._stream.read_exactly(size)
            room -= len(data)
            if draft is None:
                small += data[: MAX_PATH - len(small)]
            elif not reason and room < 0:
                reason = f"write failed: {os.strerror(errno.ENOSPC)}"
            elif not reason:
                try:
                    os.write(draft, data)
                except OSError as error:
                    reason = f"write failed: {error.strerror}"

    def _finish(self, target: str, draft: int | None, link: bytes, mode: int, modified: int) -> None:
        host = self._files.root + target
        if draft is None:
            Path(host).unlink(missing_ok=True)
            Path(host).symlink_to(os.fsdecode(link.rstrip(b"\0")))
            return
        os.fchmod(draft, (mode & 0o777) or 0o644)
        os.utime(draft, (time.time(), modified))
        os.close(draft)
        self._files.give_to_shell(target + PART)
        Path(host + PART).replace(host)

    def _drop(self, target: str, draft: int | None) -> None:
        if draft is not None:
            with contextlib.suppress(OSError):
                os.close(draft)
            Path(self._files.root + target + PART).unlink(missing_ok=True)
