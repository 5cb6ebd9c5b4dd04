"""Follows which phones are attached, as they come and go, without asking again and again, until told to stop."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec

from mtplab.device.adb import AdbServer
from mtplab.device.devices import DeviceEntry
from mtplab.device.errors import DeviceError
from mtplab.device.link import list_devices, probed, translated

_RETRY_S = 1.0
# The probe of a phone that hung just then must not be the last word on it.
_LOOK_AGAIN_S = 15.0


class Attached(msgspec.Struct, frozen=True):
    """All devices at one time, or why they are not known (then `devices` is what was last seen)."""

    devices: tuple[DeviceEntry, ...]
    t: float
    problem: str | None = None


OnChange = Callable[[Attached], None]


class Tracker:
    """Calls `on_change(Attached)` once at the start and then whenever a device comes, goes or changes its state.

        with Tracker(AdbServer.users(), lambda seen: app.call_from_thread(show, seen)):
            ...

    The callback runs in the tracker's thread. It is never called twice with the same devices and problem. A server
    that is not there is started once, as adb itself does; one that goes away later is told as a problem and looked
    for every second, but not started behind its owner's back. `close` returns within a second or so, even while
    nothing happens (adbutils' own `track_devices` cannot be stopped).

    With `probe`, every usable device is asked once per connection whether it is a stand-in, and for its own serial.
    """

    def __init__(self, server: AdbServer, on_change: OnChange, probe: bool = True) -> None:
        self.problem: BaseException | None = None
        self.latest: Attached | None = None
        self._server = server
        self._on_change = on_change
        self._probe = probe
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="adb tracker", daemon=True)

    def start(self) -> Tracker:
        """Begin to follow."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; raises what the callback raised."""
        self._stopping.set()
        with self._guard:
            if self._socket is not None:
                with contextlib.suppress(OSError):  # gone already
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)
        if self.problem is not None:
            raise self.problem

    def __enter__(self) -> Tracker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        started = False
        try:
            while not self._stopping.is_set():
                try:
                    if not started:
                        self._server.ensure()
                        started = True
                    self._follow()
                except DeviceError as problem:
                    self._tell(self.latest.devices if self.latest else (), str(problem))
                self._stopping.wait(_RETRY_S)
        except Exception as problem:  # noqa: BLE001 - told by close(): a thread's traceback would tear the screen
            self.problem = problem

    def _follow(self) -> None:
        """One `host:track-devices` request until it breaks; every message of the server's rings for a fresh look."""
        where = f"The adb server on port {self._server.port}"
        with translated(where, "following the devices"), self._server.client().make_connection() as connection:
            sock: socket.socket = connection.conn.plain
            with self._guard:
                self._socket = sock
            try:
                connection.send_command("host:track-devices")
                connection.check_okay()
                while not self._stopping.is_set():
                    # The list itself comes without models and transports, so it is only taken as the bell.
                    if self._heard(sock):
                        connection.read_string_block()
                    self._look()
            finally:
                with self._guard:
                    self._socket = None

    def _heard(self, sock: socket.socket) -> bool:
        """Whether the server has something to say; False now and then, for a look all the same."""
        sock.settimeout(_LOOK_AGAIN_S)
        try:
            return len(sock.recv(1, socket.MSG_PEEK)) == 1 or self._gone()
        except TimeoutError:
            return False
        finally:
            sock.settimeout(5.0)

    def _gone(self) -> bool:
        if self._stopping.is_set():
            return False
        raise EOFError("the adb server ended")

    def _look(self) -> None:
        if self._stopping.is_set():
            return
        known = {(e.serial, e.transport_id): e for e in (self.latest.devices if self.latest else ())}
        found = []
        for entry in list_devices(self._server, probe=False):
            before = known.get((entry.serial, entry.transport_id))
            if self._probe and entry.usable:
                asked = before is not None and before.usable and before.simulated is not None
                entry = before if asked and before is not None else probed(self._server, entry)
            found.append(entry)
        self._tell(tuple(found), None)

    def _tell(self, devices: tuple[DeviceEntry, ...], problem: str | None) -> None:
        told = self.latest
        if self._stopping.is_set() or (told is not None and (told.devices, told.problem) == (devices, problem)):
            return
        self.latest = Attached(devices, time.monotonic(), problem)
        self._on_change(self.latest)
