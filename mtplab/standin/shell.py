"""The shell and exec services: v1, v2 with exit codes and separate stderr, raw or with a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from dataclasses import dataclass
from typing import Any

from mtplab.standin.processes import Processes, TooManyProcesses
from mtplab.standin.wire import Stream, StreamClosed

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN, WINDOW_SIZE = range(6)
CHUNK = 32768
FEED_PATIENCE_S = 5.0
PIPE = asyncio.subprocess.PIPE


@dataclass(frozen=True)
class ShellRequest:
    """What `shell,v2,TERM=xterm,raw:COMMAND` asks for."""

    v2: bool
    terminal: bool
    term: str
    command: str


def parse_request(service: str) -> ShellRequest:
    """Read a service name; a terminal is given to an interactive shell or on request."""
    head, _, command = service.partition(":")
    kind, *options = head.split(",")
    term = next((option[5:] for option in options if option.startswith("TERM=")), "dumb")
    interactive = not command and "raw" not in options and kind == "shell"
    return ShellRequest("v2" in options, "pty" in options or interactive, term, command)


class ShellRun:
    """One shell from its start to the packet with its exit code."""

    def __init__(self, request: ShellRequest, stream: Stream, processes: Processes) -> None:
        self._request, self._stream, self._processes = request, stream, processes
        self._write_lock = asyncio.Lock()
        self._master: int | None = None

    async def run(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        """Serve the stream until the shell ends or the client goes."""
        try:
            process, outputs = await self._start(argv, {**env, "TERM": self._request.term}, cwd)
        except (TooManyProcesses, OSError) as error:
            why = getattr(error, "strerror", None) or "Resource temporarily unavailable"
            await self._say(STDERR, f"fork failed: {why}\n".encode())
            await self._exit(1)
            return
        feeding = asyncio.ensure_future(self._feed(process))
        pumps = [asyncio.ensure_future(self._pump(reader, kind)) for reader, kind in outputs]
        try:
            if await self._until_end(pumps):
                code = await self._processes.reap(process)
                await self._exit(code if code >= 0 else 128 - code)
            else:
                if not self._request.v2:  # what `adb exec-in` has sent before it went still belongs to the command
                    await asyncio.wait({feeding}, timeout=FEED_PATIENCE_S)
                self._hang_up(process)
        finally:
            for task in (feeding, *pumps):
                task.cancel()
            if self._master is not None:
                os.close(self._master)

    async def _start(
        self, argv: list[str], env: dict[str, str], cwd: str
    ) -> tuple[asyncio.subprocess.Process, list[tuple[asyncio.StreamReader, int]]]:
        shown = ["/system/bin/sh", *(["-c", self._request.command] if self._request.command else ["-"])]
        if self._request.terminal:
            return await self._start_on_terminal(argv, shown, env, cwd)
        merged = PIPE if self._request.v2 else asyncio.subprocess.STDOUT
        process = await self._processes.start(
            argv, shown=shown, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, stderr=merged
        )
        assert process.stdout is not None
        outputs = [(process.stdout, STDOUT)]
        if process.stderr is not None:
            outputs.append((process.stderr, STDERR))
        return process, outputs

    async def _start_on_terminal(
        self, argv: list[str], shown: list[str], env: dict[str, str], cwd: str
    ) -> tuple[asyncio.subprocess.Process, list[tuple[asyncio.StreamReader, int]]]:
        master, slave = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        try:
            process = await self._processes.start(
                argv, shown=shown, env=env, cwd=cwd,
                stdin=slave, stdout=slave, stderr=slave, before=take_terminal,
            )  # fmt: skip
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        self._master = master
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(os.dup(master), "rb", 0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        return process, [(reader, STDOUT)]

    async def _until_end(self, pumps: list[asyncio.Task[None]]) -> bool:
        """True when all output was sent; False when the client went first."""
        gone: asyncio.Future[Any] = asyncio.ensure_future(self._stream.closed.wait())
        pending: set[asyncio.Future[Any]] = {*pumps}
        try:
            while pending and not self._stream.closed.is_set():
                await asyncio.wait({*pending, gone}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
            return not self._stream.closed.is_set()
        finally:
            gone.cancel()

    async def _pump(self, reader: asyncio.StreamReader, kind: int) -> None:
        with contextlib.suppress(StreamClosed, OSError):  # a terminal ends with EIO
            while data := await reader.read(CHUNK):
                await self._say(kind, data)

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(StreamClosed, ConnectionError, OSError):
            while True:
                kind, data = await self._next_input()
                if kind == STDIN:
                    await self._to_shell(process, data)
                elif kind == CLOSE_STDIN and process.stdin is not None:
                    process.stdin.close()
                elif kind == WINDOW_SIZE and self._master is not None:
                    self._resize(data)

    async def _next_input(self) -> tuple[int, bytes]:
        if not self._request.v2:
            data = await self._stream.read()
            if not data:
                raise StreamClosed
            return STDIN, data
        head = await self._stream.read_exactly(5)
        return head[0], await self._stream.read_exactly(int.from_bytes(head[1:], "little"))

    async def _to_shell(self, process: asyncio.subprocess.Process, data: bytes) -> None:
        if self._master is not None:
            os.write(self._master, data)
        elif process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(data)
            await process.stdin.drain()

    def _resize(self, data: bytes) -> None:
        assert self._master is not None
        with contextlib.suppress(ValueError):
            rows, columns = data.decode("ascii", "replace").split(",")[0].split("x")
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", int(rows), int(columns), 0, 0))

    def _hang_up(self, process: asyncio.subprocess.Process) -> None:
        # What adbd does: a v2 or terminal shell gets SIGHUP; a raw v1 one only loses its pipes.
        if self._request.v2 or self._request.terminal:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)
        transport = getattr(process, "_transport", None)
        for number in (0, 1, 2):
            pipe = transport.get_pipe_transport(number) if transport is not None else None
            if pipe is not None:
                pipe.close()
        task = asyncio.ensure_future(self._processes.reap(process))
        _waiting.add(task)
        task.add_done_callback(_waiting.discard)

    async def _say(self, kind: int, data: bytes) -> None:
        async with self._write_lock:
            head = struct.pack("<BI", kind, len(data)) if self._request.v2 else b""
            await self._stream.write(head + data)

    async def _exit(self, code: int) -> None:
        if self._request.v2:
            await self._say(EXIT, bytes([code & 0xFF]))


_waiting: set[asyncio.Task[int]] = set()  # a task nobody refers to may be collected before it ends
