"""The line to one phone: which phones there are, and commands, streams and files to and from the chosen one."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mtplab.device import shell, transfer
from mtplab.device.adb import AdbServer
from mtplab.device.devices import STATES, DeviceEntry, parse_devices
from mtplab.device.errors import CommandFailed, DeviceBusy, DeviceError, DeviceGone
from mtplab.device.shell import Command, CommandResult, OnLine, ShellConnection, Stream
from mtplab.device.transfer import PushResult

__all__ = [
    "CommandFailed", "CommandResult", "DeviceBusy", "DeviceEntry", "DeviceError", "DeviceGone", "Link",
    "PushResult", "Stream", "connect", "disconnect", "list_devices", "parse_devices",
]  # fmt: skip
_CLOSED_TELLS_S = 0.5  # so soon after a pulled cable adb's list says so
_PROBE = "getprop ro.mtplab.standin; getprop ro.serialno"


def list_devices(server: AdbServer, probe: bool = True) -> list[DeviceEntry]:
    """Every device the server knows. With `probe`, usable ones are asked whether they are a stand-in."""
    where = f"The adb server on port {server.port}"
    with translated(where, "listing devices"), server.client().make_connection() as connection:
        connection.send_command("host:devices-l")
        connection.check_okay()
        text = connection.read_string_block()
    entries = parse_devices(text)
    return [probed(server, entry) for entry in entries] if probe else entries


def probed(server: AdbServer, entry: DeviceEntry) -> DeviceEntry:
    if not entry.usable:
        return entry
    try:
        said = Link(server, entry.serial).run(_PROBE, timeout_s=2)
    except DeviceError:
        return entry
    words = said.stdout.split("\n")
    if said.exit_code != 0 or len(words) < 2:
        return entry
    own = words[1].strip() if entry.wireless else ""
    return msgspec.structs.replace(
        entry, simulated=words[0].strip() == "1", hardware_serial=own if re.fullmatch(r"[!-~]{1,64}", own) else None
    )


def connect(server: AdbServer, address: str, timeout_s: float = 10.0) -> str:
    """Attach a device by host:port and return its serial. It may need a moment, or the user's Allow, to be usable."""
    with translated(address, "connecting"):
        answer = server.client().connect(address, timeout=timeout_s)
    if not answer.startswith(("connected", "already connected", "failed to authenticate")):
        raise DeviceGone(f"adb could not connect to {address} ({answer.strip()}): is it on, and is the port right?")
    return address


def disconnect(server: AdbServer, address: str) -> None:
    """Detach a device that was attached by host:port; one that is not attached is no error."""
    with translated(address, "disconnecting"):
        server.client().disconnect(address, raise_error=False)


@contextlib.contextmanager
def translated(serial: str, doing: str) -> Iterator[None]:
    """Turn every odd way in which adbutils and sockets fail into one of our errors."""
    from adbutils import AdbError
    from adbutils.errors import AdbTimeout

    try:
        yield
    except DeviceError:
        raise
    except (AdbTimeout, TimeoutError) as problem:
        raise DeviceGone(
            f"{serial} did not answer in time ({doing}): check the cable, and whether the phone hangs."
        ) from problem
    except AdbError as problem:
        raise _refused(serial, doing, str(problem)) from problem
    except (EOFError, OSError, AssertionError, struct.error, ValueError) as problem:
        raise DeviceGone(
            f"The connection to {serial} broke ({doing}: {problem or type(problem).__name__}): "
            "check the cable and `adb devices`."
        ) from problem


def _refused(serial: str, doing: str, said: str) -> DeviceError:
    """The error for a refusal that the adb server put in words."""
    text = said.lower()
    if "connect to adb server" in text:
        return DeviceGone(f"No adb server answers ({doing}: {said}): start it with `adb start-server`.")
    if "unauthorized" in text or "authorizing" in text:
        return DeviceGone(f"{serial} cannot be used: {STATES['unauthorized'][0]}. {STATES['unauthorized'][1]}")
    if "offline" in text:
        return DeviceGone(f"{serial} is offline ({doing}). {STATES['offline'][1]}")
    if "not found" in text or "no devices" in text or "connection" in text or not text or "unknown data" in text:
        return DeviceGone(
            f"{serial} is not attached ({doing}{': ' + said if said else ''}): check the cable and `adb devices`."
        )
    return CommandFailed(f"{serial} refused ({doing}): {said}.")


class Link:
    """One phone, by serial. Threads may share a Link: every operation opens its own connection."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        self.server = server
        self.serial = serial

    def open(self, service: str, timeout_s: float = 10.0) -> socket.socket:
        """A socket speaking `service` with the phone's adbd; the time limit also stands on the socket."""
        if len(service.encode()) > 0xFFFF:
            raise CommandFailed(f"A command of {len(service)} characters is too long for adb: push it as a file.")
        try:
            with translated(self.serial, "opening a connection"):
                connection = self.server.client().make_connection(timeout_s)
                sock: socket.socket = connection.conn.plain
                try:
                    for request in (f"host:transport:{self.serial}", service):
                        connection.send_command(request)
                        connection.check_okay()
                except BaseException:
                    sock.close()
                    raise
        except CommandFailed as refusal:
            if "closed" in str(refusal):
                self._gone_meanwhile(refusal)
            raise
        return sock

    def _gone_meanwhile(self, refusal: CommandFailed) -> None:
        """Raise DeviceGone where the cable fell out just then: adb says "closed", as it does of a refused service."""
        deadline = time.monotonic() + _CLOSED_TELLS_S
        while time.monotonic() < deadline:
            if (state := self.state()) != "device":
                sentence = f"{self.serial} went away ({state}): check the cable and `adb devices`."
                raise DeviceGone(sentence) from refusal
            time.sleep(0.05)

    def _shell(self, command: Command, timeout_s: float = 10.0) -> ShellConnection:
        return ShellConnection(self.open("shell,v2,raw:" + shell.command_line(command), min(10.0, timeout_s)))

    def run(
        self, command: Command, timeout_s: float = 30.0, stdin: bytes = b"", check: bool = False
    ) -> CommandResult:
        """Run to the end. A script (str) is given to the phone's shell; an argument list is quoted.

        Raises DeviceGone if the end was not seen, CommandFailed on timeout (the command is ended) and, with
        `check`, on an exit code other than 0.
        """
        name = _name(command)
        result = shell.run(self, self._shell(command, timeout_s), name, timeout_s, stdin)
        if check and result.exit_code != 0:
            said = (result.stderr or result.stdout).strip().splitlines()
            why = f": {said[-1]}" if said else ""
            raise CommandFailed(
                f"{name} failed on {self.serial} with exit code {result.exit_code}{why}.",
                result.exit_code, result.stderr,
            )  # fmt: skip
        return result

    def stream(self, command: Command, on_line: OnLine | None = None, whole_lines: bool = True) -> Stream:
        """Start a command and follow its lines; see `Stream`. `on_line(stream, text, t)` runs in its thread."""
        return Stream(self, self._shell(command), _name(command), on_line, whole_lines)

    def push(
        self, src: Path, dst: str, on_progress: transfer.OnProgress | None = None,
        cancel: transfer.Cancel | None = None, mode: int = 0o644, attempts: int = 3,
    ) -> PushResult:  # fmt: skip
        """Copy a file to the phone and prove by its hash that it arrived; see `transfer.push`."""
        return transfer.push(self, src, dst, on_progress, cancel, mode, attempts)

    def push_all(
        self, files: Sequence[tuple[Path, str]], on_progress: transfer.OnProgressAll | None = None,
        cancel: transfer.Cancel | None = None, mode: int = 0o644, attempts: int = 3,
    ) -> list[PushResult]:  # fmt: skip
        """Copy several files with few round trips; see `transfer.push_all`."""
        return transfer.push_all(self, files, on_progress, cancel, mode, attempts)

    def pull(self, path: str, limit_bytes: int = 64 << 20) -> bytes:
        """The bytes of a file on the phone; see `transfer.pull`."""
        return transfer.pull(self, path, limit_bytes)

    def sha256(self, path: str) -> str:
        """The hash of a file on the phone, computed there."""
        return transfer.sha256_on_device(self, path)

    def free_bytes(self, path: str) -> int | None:
        """Free space where `path` lies, or None if the phone's `df` could not be understood."""
        return transfer.parse_df(self.run(["df", "-k", path], timeout_s=10).stdout)

    def state(self) -> str:
        """adb's word for the phone's state, or "absent"."""
        for entry in list_devices(self.server, probe=False):
            if entry.serial == self.serial:
                return entry.state
        return "absent"

    def wait_for_return(self, timeout_s: float = 30.0) -> float:
        """Wait until the phone can run commands (again) and return how long that took; DeviceGone if it cannot.

        A phone reached by host:port is connected again by us; over USB the server does that itself. A server of the
        user's that was ended meanwhile (`adb kill-server`) is started again: without one no phone comes back.
        """
        began = time.monotonic()
        next_connect, state = 0.0, "absent"
        while time.monotonic() - began < timeout_s:
            with contextlib.suppress(DeviceError):
                state = self.state()
                if state == "device" and self.run(":", timeout_s=3).exit_code == 0:
                    return time.monotonic() - began
                if ":" in self.serial and state in ("absent", "offline") and time.monotonic() >= next_connect:
                    next_connect = time.monotonic() + 1.5
                    self._reconnect(state)
            with contextlib.suppress(DeviceError):
                self.server.revive()
            time.sleep(0.1)
        meaning, cure = STATES.get(state, ("not attached", ""))
        raise DeviceGone(
            f"{self.serial} could not be used within {timeout_s:g} s (state: {state}, {meaning}): "
            f"{cure or 'check the cable and the phone.'}"
        )

    def _reconnect(self, state: str) -> None:
        if state == "offline":
            disconnect(self.server, self.serial)
        connect(self.server, self.serial, timeout_s=3)


def _name(command: Command) -> str:
    """A short name of a command for sentences."""
    words = command.split() if isinstance(command, str) else list(command)
    name = words[0].rsplit("/", 1)[-1] if words else "the command"
    return f"`{name}`" if re.fullmatch(r"[\w.+-]+", name) else "the script"
