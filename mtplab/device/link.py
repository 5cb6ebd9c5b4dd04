"""The line to one phone: which phones there are, and commands, streams and files to and from the chosen one."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mtplab.device import shell, transfer
from mtplab.device.adb import AdbServer
from mtplab.device.errors import CommandFailed, DeviceBusy, DeviceError, DeviceGone
from mtplab.device.shell import Command, CommandResult, OnLine, ShellConnection, Stream
from mtplab.device.transfer import PushResult
from mtplab.session.text import clean_text

__all__ = [
    "CommandFailed", "CommandResult", "DeviceBusy", "DeviceEntry", "DeviceError", "DeviceGone", "Link",
    "PushResult", "Stream", "connect", "disconnect", "list_devices", "parse_devices",
]  # fmt: skip

# state -> (what it means, what to do)
_STATES = {
    "device": ("ready", ""),
    "offline": (
        "attached, but it does not answer",
        "Unplug and replug the cable; if that does not help, switch USB debugging off and on.",
    ),
    "unauthorized": (
        "the phone has not allowed this computer",
        "Unlock the phone and tap Allow in the dialog “Allow USB debugging?”; if none shows, replug the cable.",
    ),
    "authorizing": ("the phone is checking this computer's key", "Wait a second; unlock the phone if it asks."),
    "connecting": ("the connection is being set up", "Wait a second, then look again."),
    "no permissions": (
        "this computer's user may not open the USB device",
        "Install the Android udev rules (Debian: android-sdk-platform-tools-common), join the group plugdev, replug.",
    ),
    "recovery": ("booted into recovery", "Reboot into Android: adb reboot."),
    "rescue": ("booted into rescue mode", "Reboot into Android: adb reboot."),
    "sideload": ("waiting for a sideload", "Finish or leave the sideload, then reboot into Android."),
    "bootloader": ("stopped in the bootloader", "Reboot into Android: fastboot reboot."),
    "host": ("is a host, not a phone", "Choose another device."),
    "detached": ("detached from adb", "Attach it again: adb attach."),
}
_LISTED = re.compile(r"^([!-~]+)[ \t]+(no permissions\b[^;]*(?:;[^\]]*\]?)?|[a-z]+)(?:[ \t]+(.*))?$")
_WIRELESS = re.compile(r"(:\d{1,5}|\._adb(-tls-connect)?\._tcp\.?)$")
_LOOPBACK = re.compile(r"^(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+$")


class DeviceEntry(msgspec.Struct, frozen=True):
    """One line of adb's device list, explained. `simulated` is None where the phone was not asked or did not say."""

    serial: str
    state: str
    explanation: str
    cure: str
    wireless: bool
    model: str | None = None
    simulated: bool | None = None

    @property
    def usable(self) -> bool:
        """Whether commands can run on it now."""
        return self.state == "device"


def parse_devices(text: str) -> list[DeviceEntry]:
    """The devices in the output of `adb devices [-l]` or of the server's list; other lines are skipped."""
    found = []
    for raw in text.splitlines():
        line = raw.strip()
        match = None if line.startswith(("*", "#", "List of devices", "adb server")) else _LISTED.match(line)
        if match is None:
            continue
        serial, state, rest = match.group(1), match.group(2), match.group(3) or ""
        state = "no permissions" if state.startswith("no permissions") else state
        if state not in _STATES and "transport_id:" not in rest and rest:
            continue  # prose, not a device
        meaning, cure = _STATES.get(state, (f"in a state unknown to this program: {state}", "Replug the cable."))
        tags = dict(tag.split(":", 1) for tag in rest.split() if ":" in tag)
        model = clean_text(tags["model"], 64) if "model" in tags else None
        wireless = bool(_WIRELESS.search(serial)) and not _LOOPBACK.match(serial)
        found.append(DeviceEntry(serial, state, meaning, cure, wireless, model))
    return found


def list_devices(server: AdbServer, probe: bool = True) -> list[DeviceEntry]:
    """Every device the server knows. With `probe`, usable ones are asked whether they are a stand-in."""
    where = f"The adb server on port {server.port}"
    with _translated(where, "listing devices"), server.client().make_connection() as connection:
        connection.send_command("host:devices-l")
        connection.check_okay()
        text = connection.read_string_block()
    entries = parse_devices(text)
    return [_probed(server, entry) for entry in entries] if probe else entries


def _probed(server: AdbServer, entry: DeviceEntry) -> DeviceEntry:
    if not entry.usable:
        return entry
    try:
        said = Link(server, entry.serial).run(["getprop", "ro.mtplab.standin"], timeout_s=2)
    except DeviceError:
        return entry
    simulated = said.stdout.strip() == "1" if said.exit_code == 0 else None
    return msgspec.structs.replace(entry, simulated=simulated)


def connect(server: AdbServer, address: str, timeout_s: float = 10.0) -> str:
    """Attach a device by host:port and return its serial. It may need a moment, or the user's Allow, to be usable."""
    with _translated(address, "connecting"):
        answer = server.client().connect(address, timeout=timeout_s)
    if not answer.startswith(("connected", "already connected", "failed to authenticate")):
        raise DeviceGone(f"adb could not connect to {address} ({answer.strip()}): is it on, and is the port right?")
    return address


def disconnect(server: AdbServer, address: str) -> None:
    """Detach a device that was attached by host:port; one that is not attached is no error."""
    with _translated(address, "disconnecting"):
        server.client().disconnect(address, raise_error=False)


@contextlib.contextmanager
def _translated(serial: str, doing: str) -> Iterator[None]:
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
        return DeviceGone(f"{serial} cannot be used: {_STATES['unauthorized'][0]}. {_STATES['unauthorized'][1]}")
    if "offline" in text:
        return DeviceGone(f"{serial} is offline ({doing}). {_STATES['offline'][1]}")
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
        with _translated(self.serial, "opening a connection"):
            connection = self.server.client().make_connection(timeout_s)
            sock: socket.socket = connection.conn
            try:
                for request in (f"host:transport:{self.serial}", service):
                    connection.send_command(request)
                    connection.check_okay()
            except BaseException:
                sock.close()
                raise
        return sock

    def _shell(self, command: Command) -> ShellConnection:
        return ShellConnection(self.open("shell,v2,raw:" + shell.command_line(command)))

    def run(
        self, command: Command, timeout_s: float = 30.0, stdin: bytes = b"", check: bool = False
    ) -> CommandResult:
        """Run to the end. A script (str) is given to the phone's shell; an argument list is quoted.

        Raises DeviceGone if the end was not seen, CommandFailed on timeout (the command is ended) and, with
        `check`, on an exit code other than 0.
        """
        name = _name(command)
        result = shell.run(self, self._shell(command), name, timeout_s, stdin)
        if check and result.exit_code != 0:
            said = (result.stderr or result.stdout).strip().splitlines()
            why = f": {said[-1]}" if said else ""
            raise CommandFailed(
                f"{name} failed on {self.serial} with exit code {result.exit_code}{why}.",
                result.exit_code, result.stderr,
            )  # fmt: skip
        return result

    def stream(self, command: Command, on_line: OnLine | None = None) -> Stream:
        """Start a command and follow its lines; see `Stream`. `on_line(stream, text, t)` runs in its thread."""
        return Stream(self, self._shell(command), _name(command), on_line)

    def push(
        self, src: Path, dst: str, on_progress: transfer.OnProgress | None = None,
        cancel: transfer.Cancel | None = None, mode: int = 0o644, attempts: int = 3,
    ) -> PushResult:  # fmt: skip
        """Copy a file to the phone and prove by its hash that it arrived; see `transfer.push`."""
        return transfer.push(self, src, dst, on_progress, cancel, mode, attempts)

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

        A phone reached by host:port is connected again by us; over USB the server does that itself.
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
            time.sleep(0.1)
        meaning, cure = _STATES.get(state, ("not attached", ""))
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
