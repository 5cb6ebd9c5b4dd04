"""adbutils' client with what it leaves out: no server started behind one's back, whole sends, refusals in words."""

from __future__ import annotations

import select
import socket
from typing import Any

ANSWER_TIMEOUT_S = 10.0
_FAIL = b"FAIL"
_LONGEST_REASON_BYTES = 4096


class _Wire:
    """A socket that sends everything or raises, and notices while it sends that the other side has refused.

    adbutils calls `send` and drops what a socket with a time limit did not take at once, which tears a frame; and it
    reads no answer before the last byte, so that a full phone would be sent the whole file.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.plain = self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def send(self, data: bytes) -> int:
        """All of `data`, in the place of `socket.send`."""
        if select.select([self._sock], [], [], 0)[0] and self._sock.recv(4, socket.MSG_PEEK) == _FAIL:
            self._sock.recv(4)
            raise refusal(self._sock)
        self._sock.sendall(data)
        return len(data)


def refusal(sock: Any) -> Exception:
    """The reason that stands behind a FAIL of the sync protocol: a length in four bytes, and the text."""
    from adbutils import AdbError

    length = int.from_bytes(_exactly(sock, 4), "little")
    return AdbError(_exactly(sock, min(length, _LONGEST_REASON_BYTES)).decode("utf-8", "replace"))


def _exactly(sock: Any, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError("the connection closed in the middle of a refusal")
        data += piece
    return data


def make_client(host: str, port: int) -> Any:
    """An adbutils client of the server at host:port; every wait of its connections is limited."""
    from adbutils import AdbClient, AdbConnection

    class Connection(AdbConnection):
        def _safe_connect(self) -> socket.socket:
            # adbutils would run `adb start-server` here, on whatever port the environment names.
            return self._create_socket()

        @property
        def conn(self) -> Any:
            return _Wire(super().conn)

        def read_string(self, n: int) -> str:
            text = super().read_string(n)
            if n == len(_FAIL) and text == _FAIL.decode():
                raise refusal(self.conn)  # adbutils would say "FAIL" and leave the reason unread
            return text

    class Client(AdbClient):
        def make_connection(self, timeout: float | None = None) -> Any:
            connection = Connection(host, port)
            connection.conn.settimeout(timeout or ANSWER_TIMEOUT_S)
            return connection

    return Client(host=host, port=port, socket_timeout=ANSWER_TIMEOUT_S)
