"""Runs one command on the phone by adb's shell protocol, and calls it finished only when its exit code was seen."""

from __future__ import annotations

import codecs
import contextlib
import queue
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from mtplab.device.errors import Cancelled, CommandFailed, DeviceError, DeviceGone

if TYPE_CHECKING:
    from mtplab.device.link import Link

Command = str | Sequence[str]
OnLine = Callable[[str, str, float], None]

# Packet kinds of adb's shell protocol, version 2 (shell_protocol.h).
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = 0, 1, 2, 3, 4
_NAMES = {STDOUT: "stdout", STDERR: "stderr"}
_POLL_S = 0.5
_LONGEST_LINE_BYTES = 1 << 20

# Tells the process's number and, where /proc may be read, its kernel record: number plus start time is an
# identity that survives `exec` and cannot be confused with a later process of the same number.
_PRELUDE = 'mtp_s=; { read -r mtp_s </proc/$$/stat; } 2>/dev/null; echo "#P $$ ${mtp_s##*) }"; '
_MARK = b"#P "

# Ends a process and its group, but only if it is still the one we started. Prints what it found last.
_END = """\
p={pid}; want={start}; s=
if ! kill -s 0 -- "-$p" 2>/dev/null && ! kill -s 0 "$p" 2>/dev/null; then echo ended; exit 0; fi
{{ read -r s </proc/$p/stat; }} 2>/dev/null
if [ -n "$s" ] && [ -n "$want" ]; then
  set -- ${{s##*) }}; shift 9; shift 9; shift 1
  if [ "$1" != "$want" ]; then echo ended; exit 0; fi
fi
n=0
while kill -s 0 -- "-$p" 2>/dev/null || kill -s 0 "$p" 2>/dev/null; do
  if [ $n -ge 40 ]; then echo alive; exit 1; fi
  sig=TERM; if [ $n -ge 3 ]; then sig=KILL; fi
  kill -s $sig -- "-$p" 2>/dev/null; kill -s $sig "$p" 2>/dev/null
  sleep 0.05 2>/dev/null || sleep 1
  # After KILL only the dead are left of the group, waiting to be collected.
  if [ $sig = KILL ] && ! kill -s 0 "$p" 2>/dev/null; then echo ended; exit 0; fi
  n=$((n+1))
done
echo ended
"""


class CommandResult(msgspec.Struct, frozen=True):
    """What a finished command said; it exists only if the exit code was seen."""

    stdout: str
    stderr: str
    exit_code: int
    seconds: float


class Line(msgspec.Struct, frozen=True):
    """A whole line: `stream` is stdout or stderr, `t` the host's monotonic time when its end arrived."""

    stream: str
    text: str
    t: float


class Identity(msgspec.Struct, frozen=True):
    """A process on the phone; `start` is its start time in the kernel's ticks, "" where it may not be read."""

    pid: int
    start: str


def command_line(command: Command) -> str:
    """The text for the phone's shell: a script stays as it is, an argument list is quoted and replaces the shell."""
    if isinstance(command, str):
        return _PRELUDE + command
    return _PRELUDE + "exec " + " ".join(shlex.quote(word) for word in command)


def parse_mark(line: bytes) -> Identity | None:
    """The identity that the prelude printed, or None if the line is something else."""
    words = line[len(_MARK) :].split()
    if not line.startswith(_MARK) or not words or not words[0].isdigit():
        return None
    start = words[20].decode("ascii", "replace") if len(words) > 20 and words[20].isdigit() else ""
    return Identity(int(words[0]), start)


class ShellConnection:
    """One open shell-v2 service: whole packets in, packets out. Used by one thread at a time, but for `hang_up`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._arrived = 0.0
        sock.settimeout(_POLL_S)

    def read(self, deadline: float | None = None) -> tuple[int, bytes, float] | None:
        """The next packet with its arrival time; None when the other side is gone; TimeoutError after `deadline`."""
        while True:
            if len(self._buffer) >= 5:
                size = int.from_bytes(self._buffer[1:5], "little")
                if len(self._buffer) >= 5 + size:
                    kind, data = self._buffer[0], bytes(self._buffer[5 : 5 + size])
                    del self._buffer[: 5 + size]
                    return kind, data, self._arrived
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
            try:
                piece = self._sock.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return None
            if not piece:
                return None
            self._arrived = time.monotonic()
            self._buffer += piece

    def send(self, data: bytes) -> None:
        """Bytes for the program's standard input."""
        self._write(STDIN, data)

    def close_stdin(self) -> None:
        """The program reads end of file."""
        self._write(CLOSE_STDIN, b"")

    def _write(self, kind: int, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a lost connection is told by read(), with a proper sentence
            self._sock.sendall(bytes([kind]) + len(data).to_bytes(4, "little") + data)

    def hang_up(self) -> None:
        """Close at once; a thread that waits in read() wakes up."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class _Lines:
    """Cuts the two byte streams into lines and takes the prelude's mark out of the first one."""

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self._first = True
        self._rest = {STDOUT: bytearray(), STDERR: bytearray()}

    def feed(self, kind: int, data: bytes, t: float) -> Iterator[Line]:
        rest = self._rest[kind]
        rest += data
        while (end := rest.find(b"\n")) >= 0:
            raw = bytes(rest[:end])
            del rest[: end + 1]
            if kind == STDOUT and self._first and self.take_mark(raw):
                continue
            yield self._line(kind, raw, t)
        if len(rest) > _LONGEST_LINE_BYTES:  # a program that never ends its line must not fill the memory
            yield from self.flush(kind, t)

    def flush(self, kind: int, t: float) -> Iterator[Line]:
        """What stands after the last line end; to be used only when the end of the output was proven."""
        if self._rest[kind]:
            raw = bytes(self._rest[kind])
            self._rest[kind].clear()
            yield self._line(kind, raw, t)

    def torn(self) -> str:
        """Unfinished text that was on its way when the connection ended."""
        return b"".join(bytes(part) for part in self._rest.values()).decode("utf-8", "replace")

    def take_mark(self, raw: bytes) -> bool:
        """Whether this first line is the prelude's mark, which tells the identity and is nobody's output."""
        self._first = False
        self.identity = parse_mark(raw)
        return self.identity is not None

    @staticmethod
    def _line(kind: int, raw: bytes, t: float) -> Line:
        return Line(_NAMES[kind], raw.rstrip(b"\r").decode("utf-8", "replace"), t)


class _Pieces(_Lines):
    """Standard output as it comes, whatever it ends in; standard error by lines as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, kind: int, data: bytes, t: float) -> Iterator[Line]:
        if kind == STDOUT and self._first:
            self._rest[STDOUT] += data
            raw, end, data = bytes(self._rest[STDOUT]).partition(b"\n")
            if not end:
                return
            self._rest[STDOUT].clear()
            if not self.take_mark(raw):
                data = raw + end + data
        if kind != STDOUT:
            yield from super().feed(kind, data, t)
        elif text := self._decoder.decode(data):
            yield Line(_NAMES[kind], text, t)


def end_process(link: Link, identity: Identity) -> bool:
    """End a process (and its group) on the phone if it still is the one we started; True if none is left."""
    script = _END.format(pid=identity.pid, start=identity.start)
    return link.run(script, timeout_s=15).stdout.strip().endswith("ended")


class Stream:
    """A running command whose lines arrive as they are printed.

    Iterate it, or give `on_line(stream, text, t)`, which is called in the reading thread. The iteration ends
    normally only after the exit code was seen; a lost phone raises DeviceGone, a cancelled command Cancelled.
    Leaving the `with` block cancels what still runs. Without `whole_lines` standard output is handed on as it
    arrives: for programs that stream text.
    """

    def __init__(
        self, link: Link, connection: ShellConnection, name: str, on_line: OnLine | None = None,
        whole_lines: bool = True,
    ) -> None:  # fmt: skip
        self.exit_code: int | None = None
        self.packets, self.bytes_received = 0, 0
        self.torn = ""
        self._ended_there = False
        self.problem: BaseException | None = None
        self._link = link
        self._connection = connection
        self._name = name
        self._on_line = on_line
        self._lines = _Lines() if whole_lines else _Pieces()
        self._queue: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"adb {name}", daemon=True)
        self._thread.start()

    @property
    def identity(self) -> Identity | None:
        """The process on the phone, once it has told its number."""
        return self._lines.identity

    @property
    def pid(self) -> int | None:
        """The process's number on the phone, once it has told it."""
        return self.identity.pid if self.identity else None

    def _read(self) -> None:
        try:
            self._pump()
        except Exception as problem:  # noqa: BLE001 - a failing callback must reach the one who waits
            self.problem = problem
        finally:
            self._connection.hang_up()
            self._done.set()
            self._queue.put(None)

    def _pump(self) -> None:
        while (packet := self._connection.read()) is not None:
            kind, data, t = packet
            self.packets, self.bytes_received = self.packets + 1, self.bytes_received + len(data)
            if kind == EXIT and data:
                for stream in (STDOUT, STDERR):
                    self._deliver(self._lines.flush(stream, t))
                self.exit_code = data[0]
                return
            if kind in _NAMES:
                self._deliver(self._lines.feed(kind, data, t))
        self.torn = self._lines.torn()
        self.problem = Cancelled(f"{self._name} was cancelled.") if self._cancelled.is_set() else DeviceGone(
            f"The connection to {self._link.serial} was lost while {self._name} ran, so it cannot be called "
            "finished: check the cable, then run it again."
        )  # fmt: skip

    def _deliver(self, lines: Iterator[Line]) -> None:
        for line in lines:
            if self._on_line is not None:
                self._on_line(line.stream, line.text, line.t)
            else:
                self._queue.put(line)

    def __iter__(self) -> Iterator[Line]:
        while (line := self._queue.get()) is not None:
            yield line
        self._queue.put(None)  # so that a second iteration ends too
        if self.problem is not None:
            raise self.problem

    def line(self, timeout_s: float) -> Line | None:
        """The next line, None at the end of the output; TimeoutError if neither comes in time."""
        try:
            line = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"{self._name} says nothing for {timeout_s:g} s.") from None
        if line is None:
            self._queue.put(None)
        return line

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code. TimeoutError if the command still runs then (it goes on); DeviceGone if it was lost."""
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"{self._name} still runs after {timeout_s} s.")
        if self.problem is not None:
            raise self.problem
        if self.exit_code is None:
            raise DeviceGone(f"{self._name} ended without an exit code.")
        return self.exit_code

    @property
    def running(self) -> bool:
        """Whether the end has not been seen yet."""
        return not self._done.is_set()

    def send(self, data: bytes) -> None:
        """Bytes for the program's standard input."""
        self._connection.send(data)

    def close_stdin(self) -> None:
        """The program reads end of file."""
        self._connection.close_stdin()

    def cancel(self) -> bool:
        """End the command here and on the phone. True only if the phone confirmed that no process is left.

        Also the way to tidy up after a lost cable, once the phone is back.
        """
        if self.exit_code is not None or self._ended_there:
            return True
        deadline = time.monotonic() + 2
        while self.identity is None and self.running and time.monotonic() < deadline:
            time.sleep(0.01)  # just started: it tells its number within a round trip
        self._cancelled.set()
        self._connection.hang_up()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)
        if self.identity is None:
            return False
        try:
            self._ended_there = end_process(self._link, self.identity)
        except DeviceError:
            return False
        return self._ended_there

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_code is None:
            self.cancel()


def run(
    link: Link, connection: ShellConnection, name: str, timeout_s: float, stdin: bytes = b"",
    limit_bytes: int = 16 << 20,
) -> CommandResult:  # fmt: skip
    """Collect a command's output until its exit code; see `Link.run`."""
    began = time.monotonic()
    out = {STDOUT: bytearray(), STDERR: bytearray()}
    try:
        connection.send(stdin)
        connection.close_stdin()
        code = _collect(connection, out, began + timeout_s, limit_bytes)
        if code is None:
            raise DeviceGone(
                f"The connection to {link.serial} was lost while {name} ran: check the cable, then try again."
            )
    except (TimeoutError, OverflowError) as problem:
        connection.hang_up()
        identity, printed = _split_mark(bytes(out[STDOUT]))
        if identity is not None:
            end_process(link, identity)
        why = "printed too much" if isinstance(problem, OverflowError) else f"did not finish within {timeout_s:g} s"
        sentence = f"{name} {why} on {link.serial} and was ended."
        raise CommandFailed(sentence, stdout=_text(printed)) from None
    finally:
        connection.hang_up()
    stdout = _split_mark(bytes(out[STDOUT]))[1]
    return CommandResult(_text(stdout), _text(bytes(out[STDERR])), code, time.monotonic() - began)


def _collect(
    connection: ShellConnection, out: dict[int, bytearray], deadline: float, limit_bytes: int
) -> int | None:
    while (packet := connection.read(deadline)) is not None:
        kind, data, _t = packet
        if kind == EXIT and data:
            return data[0]
        if kind in out:
            out[kind] += data
        if sum(map(len, out.values())) > limit_bytes:
            raise OverflowError
    return None


def _split_mark(stdout: bytes) -> tuple[Identity | None, bytes]:
    first, _, rest = stdout.partition(b"\n")
    identity = parse_mark(first)
    return (identity, rest) if identity else (None, stdout)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
