"""How a viewer starts an engine, finds a running one and talks to it; imports nothing heavy."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

import mtplab
from mtplab.engine.control import runtime_dir, send_command
from mtplab.engine.errors import EngineError
from mtplab.engine.options import EngineOptions
from mtplab.session import archive
from mtplab.session.journal import SessionError

START_TIMEOUT_S = 60.0

LaunchOptions = EngineOptions


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The one line an engine prints when it is ready, or when it cannot start."""

    session: str | None = None
    pid: int | None = None
    error: str | None = None
    exit_code: int = 0


class EngineHandle:
    """A running engine, seen from a viewer."""

    def __init__(self, session_dir: Path, pid: int) -> None:
        self.session_dir = session_dir
        self.pid = pid

    def send(self, command: dict[str, Any], timeout_s: float = 1.0) -> dict[str, Any]:
        """Send one command; the reply has `ok` and, where false, `error` as a sentence."""
        return send_command(self.session_dir, command, timeout_s)

    def alive(self) -> bool:
        """Whether the engine still answers."""
        try:
            return bool(self.send({"cmd": "status"}).get("ok"))
        except EngineError:
            return False


def launch(options: EngineOptions) -> EngineHandle:
    """Start an engine, in a process group of its own, that outlives the viewer; EngineError where it can't."""
    with tempfile.TemporaryFile() as noise:
        process = subprocess.Popen(
            [sys.executable, "-m", "mtplab.engine", msgspec.json.encode(options).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,
            start_new_session=True,
            # `-m` looks into the working folder first: it must be one that only our own code lies in.
            cwd=Path(mtplab.__file__).resolve().parents[1],
            env=_environment(),
        )
        line = _first_line(process)
        if not line:
            noise.seek(0)
            tail = noise.read()[-400:].decode("utf-8", "replace").strip()
            raise EngineError(f"The engine did not start (exit {process.poll()}): {tail or 'it said nothing'}", 4)
    try:
        hello = msgspec.json.decode(line, type=Hello)
    except msgspec.MsgspecError:
        raise EngineError(f"The engine began with {line[:80]!r}, which is no greeting of mtplab's.", 4) from None
    if hello.error is not None or hello.session is None or hello.pid is None:
        raise EngineError(hello.error or "The engine did not name its session.", hello.exit_code or 4)
    return EngineHandle(Path(hello.session), hello.pid)


def _environment() -> dict[str, str]:
    # The engine runs from another folder than the viewer: relative paths of ours must be made absolute for it.
    env = dict(os.environ)
    for name in ("MTPLAB_SESSIONS", "MTPLAB_CACHE", "MTPLAB_RUNTIME"):
        if env.get(name):
            env[name] = str(Path(env[name]).absolute())
    return env


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    if process.stdout is None:
        return b""
    deadline = time.monotonic() + START_TIMEOUT_S
    data = b""
    descriptor = process.stdout.fileno()
    while b"\n" not in data and (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], min(left, 0.5))[0]:
            continue
        chunk = os.read(descriptor, 4096)
        if not chunk:
            process.wait(5)
            break
        data += chunk
    return data.partition(b"\n")[0]


class Running(msgspec.Struct, frozen=True):
    """An engine that runs now."""

    session_dir: Path
    pid: int


def running_engines() -> list[Running]:
    """Engines of this user that answer now."""
    found = []
    for note in sorted(runtime_dir().glob("engine-*.json")):
        try:
            hello = msgspec.json.decode(note.read_bytes(), type=Hello)
        except (OSError, msgspec.MsgspecError, RecursionError):
            continue
        if hello.session is None or hello.pid is None:
            continue
        handle = EngineHandle(Path(hello.session), hello.pid)
        if handle.alive():
            found.append(Running(handle.session_dir, hello.pid))
    return found


def attach(session: str | None = None, option: str = "--attach") -> EngineHandle:
    """The running engine of a session (by name or its beginning), or the only one; EngineError with a sentence.

    `option` is what the user can name a session with.
    """
    engines = running_engines()
    if session:
        try:
            wanted = archive.find(session)
        except SessionError as error:
            raise EngineError(str(error), 1) from None
        engines = [e for e in engines if e.session_dir.resolve() == wanted.resolve()]
        if not engines:
            raise EngineError(
                f"No engine runs session {wanted.name}: it has ended. "
                f"`mtplab replay {wanted.name}` opens what it recorded.",
                2,
            )
    if not engines:
        raise EngineError("No engine is running: `mtplab lab` starts one.", 2)
    if len(engines) > 1:
        names = ", ".join(e.session_dir.name for e in engines)
        raise EngineError(f"{len(engines)} engines are running ({names}): name one with {option} SESSION.", 1)
    return EngineHandle(engines[0].session_dir, engines[0].pid)
