"""The command socket: one JSON line in, one JSON line out, for the user's own account only."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mtplab.engine.errors import EngineError
from mtplab.session import paths

MAX_COMMAND_BYTES = 1 << 16
MAX_SOCKET_PATH_BYTES = 100  # 108 on Linux, 104 on macOS, with room for the end mark


def socket_path(session_dir: Path) -> Path:
    """Where the engine of a session listens.

    Not in the session folder itself: a unix socket's path is limited to about 100 characters, folders are not.
    """
    digest = hashlib.sha256(str(session_dir.resolve()).encode()).hexdigest()[:16]
    path = runtime_dir() / f"engine-{digest}.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise EngineError(
            f"The folder {path.parent} is too deep for a socket; set MTPLAB_RUNTIME to a shorter path.", 2
        )
    return path


def runtime_dir() -> Path:
    """The folder of sockets and locks; EngineError where it cannot be used or is not the user's alone."""
    try:
        path = paths.runtime_dir()
        facts = path.stat()
    except OSError as error:
        raise EngineError(
            f"The folder for locks and sockets cannot be used ({error}); set MTPLAB_RUNTIME to a folder of yours.", 2
        ) from None
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise EngineError(
            f"The folder {path} for locks and sockets can be written by others; "
            "set MTPLAB_RUNTIME to a folder that only you can write.",
            2,
        )
    return path


class CommandServer:
    """Answers commands from a thread; `handle` takes a dict and returns the reply."""

    def __init__(self, session_dir: Path, handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.path = socket_path(session_dir)
        self._handle = handle
        self.path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The folder is the user's alone (see runtime_dir), so nobody can reach the socket before this.
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)
        self._socket.listen(8)
        threading.Thread(target=self._serve, name="commands", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5.0)
            try:
                line = _read_line(connection)
                command = msgspec.json.decode(line, type=dict[str, Any])
                reply = self._handle(command)
            except (OSError, msgspec.MsgspecError, RecursionError) as error:
                reply = {
                    "ok": False,
                    "error": f"The command could not be read ({error}); send one JSON object a line.",
                }
            except Exception as error:  # noqa: BLE001 - a fault in the engine must not leave its viewer unanswered
                reply = {
                    "ok": False,
                    "error": f"The engine failed on this command ({type(error).__name__}: {error}).",
                }
            try:
                connection.sendall(msgspec.json.encode(reply) + b"\n")
            except OSError:
                return  # the viewer left before its answer: nothing to tell anyone

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._socket.close()
        self.path.unlink(missing_ok=True)


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < MAX_COMMAND_BYTES:
        chunk = connection.recv(4096)
        if not chunk:
            break
        data += chunk
    return data


def send_command(session_dir: Path, command: dict[str, Any], timeout_s: float = 1.0) -> dict[str, Any]:
    """Send one command to the engine of a session and return its reply; EngineError where none answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(socket_path(session_dir)))
            connection.sendall(msgspec.json.encode(command) + b"\n")
            reply: dict[str, Any] = msgspec.json.decode(_read_line(connection), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise EngineError(
                f"No engine answers for session {session_dir.name} ({error}); it has ended, its session is kept."
            ) from None
    return reply
