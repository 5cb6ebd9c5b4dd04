"""The adb wire protocol from the device's side: packets, streams and one connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
AUTH_TOKEN, AUTH_SIGNATURE, AUTH_PUBLIC_KEY = 1, 2, 3
VERSION = 0x01000001  # from this version on packets carry no checksum
MAX_PAYLOAD = 1 << 20
MAX_STREAMS = 256
HEADER = struct.Struct("<6I")


class StreamClosed(Exception):
    """The other side has closed the stream or the cable is gone."""


class Host(Protocol):
    """What a connection asks of the device behind it."""

    async def on_connect(self, connection: Connection) -> None:
        """The client said CNXN."""

    async def on_auth(self, connection: Connection, kind: int, data: bytes) -> None:
        """The client answered a token."""

    def service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        """The service a client opens, or None when there is none."""

    async def carry(self, count: int) -> bool:
        """Let bytes pass over the cable; False when it was pulled within them."""

    def gone(self, connection: Connection) -> None:
        """The connection has ended."""


class Stream:
    """One open service: ordered bytes both ways, one unacknowledged packet in each direction."""

    def __init__(self, connection: Connection, local_id: int, remote_id: int) -> None:
        self._connection = connection
        self.local_id, self.remote_id = local_id, remote_id
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._acknowledged = asyncio.Event()
        self._buffer = bytearray()
        self.closed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """The next bytes as they come; b"" when the other side has closed."""
        if self.closed.is_set() and self._inbox.empty():
            return b""
        data = await self._inbox.get()
        if data:
            self._connection.send(OKAY, self.local_id, self.remote_id)
        return data

    async def read_exactly(self, count: int) -> bytes:
        """`count` bytes, or StreamClosed."""
        while len(self._buffer) < count:
            data = await self.read()
            if not data:
                raise StreamClosed
            self._buffer += data
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def write(self, data: bytes) -> None:
        """Send, waiting for each packet to be taken; StreamClosed when nobody takes it."""
        view = memoryview(data)
        for start in range(0, len(view), self._connection.max_payload):
            if self.closed.is_set():
                raise StreamClosed
            self._acknowledged.clear()
            piece = bytes(view[start : start + self._connection.max_payload])
            if not await self._connection.carry(HEADER.size + len(piece)):
                raise StreamClosed
            self._connection.send(WRTE, self.local_id, self.remote_id, piece)
            await self._connection.drain()
            await self._acknowledged.wait()
        if self.closed.is_set():
            raise StreamClosed

    def received(self, data: bytes) -> bool:
        """Take a packet in; False when the client sends more than the protocol lets it."""
        if self._inbox.qsize() >= 2:
            return False
        self._inbox.put_nowait(data)
        return True

    def acknowledged(self) -> None:
        """The last packet was taken."""
        self._acknowledged.set()

    def peer_closed(self) -> None:
        """Nothing more comes and nothing more is taken."""
        self.closed.set()
        self._inbox.put_nowait(b"")
        self._acknowledged.set()


class Connection:
    """One client on the cable."""

    def __init__(self, host: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host, self._reader, self._writer = host, reader, writer
        self.max_payload = 4096
        self.streams: dict[int, Stream] = {}
        self._next_id = 1
        self.online = False
        self.token = b""

    @property
    def peer(self) -> str:
        """The client's address."""
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "unknown"

    def send(self, command: int, first: int, second: int, data: bytes = b"") -> None:
        """Queue one packet."""
        if not self._writer.is_closing():
            self._writer.write(HEADER.pack(command, first, second, len(data), 0, command ^ 0xFFFFFFFF) + data)

    async def carry(self, count: int) -> bool:
        """Let bytes pass over the cable; False when it was pulled within them."""
        return await self._host.carry(count)

    async def drain(self) -> None:
        """Wait until the socket takes more."""
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise StreamClosed from error

    def abort(self) -> None:
        """Pull the cable: nothing is said, nothing is flushed."""
        self._writer.transport.abort()

    async def run(self) -> None:
        """Read packets until the client goes or breaks the protocol."""
        try:
            while True:
                head = await self._reader.readexactly(HEADER.size)
                command, first, second, size, _checksum, magic = HEADER.unpack(head)
                if magic != command ^ 0xFFFFFFFF or size > MAX_PAYLOAD:
                    break
                data = await self._reader.readexactly(size) if size else b""
                if not await self._host.carry(HEADER.size + size):
                    break  # the cable was pulled within this packet
                if not await self._handle(command, first, second, data):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.online = False
            for stream in list(self.streams.values()):
                stream.peer_closed()
            self._host.gone(self)
            self._writer.close()

    async def _handle(self, command: int, first: int, second: int, data: bytes) -> bool:
        if command == CNXN:
            self.max_payload = max(1, min(second, MAX_PAYLOAD))
            await self._host.on_connect(self)
        elif command == AUTH:
            await self._host.on_auth(self, first, data)
        elif not self.online:
            return False  # a client that was not let in may not speak
        elif command == OPEN:
            self._open(first, data.rstrip(b"\0").decode("utf-8", "surrogateescape"))
        elif command in (OKAY, WRTE, CLSE):
            return self._for_stream(command, first, second, data)
        return True

    def _for_stream(self, command: int, remote: int, local: int, data: bytes) -> bool:
        stream = self.streams.get(local)
        if stream is None:
            if command != CLSE:
                self.send(CLSE, 0, remote)
        elif command == OKAY:
            stream.acknowledged()
        elif command == WRTE:
            return stream.received(data)
        else:
            del self.streams[local]
            stream.peer_closed()
        return True

    def _open(self, remote: int, name: str) -> None:
        service = self._host.service(name)
        if service is None or len(self.streams) >= MAX_STREAMS:
            self.send(CLSE, 0, remote)
            return
        stream = Stream(self, self._next_id, remote)
        self.streams[self._next_id] = stream
        self._next_id += 1
        self.send(OKAY, stream.local_id, remote)
        stream.task = asyncio.ensure_future(self._serve(stream, service))

    async def _serve(self, stream: Stream, service: Callable[[Stream], Awaitable[None]]) -> None:
        try:
            await service(stream)
        except (StreamClosed, ConnectionError, BrokenPipeError):
            return
        finally:
            if self.streams.pop(stream.local_id, None) is not None:
                self.send(CLSE, stream.local_id, stream.remote_id)
