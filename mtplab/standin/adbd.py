"""The device's daemon: who may connect, what services there are, and what becomes of the cable."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from mtplab.standin.adb_services import AdbServices
from mtplab.standin.backends import Backend
from mtplab.standin.cable import CableKeeper
from mtplab.standin.files import DeviceFiles
from mtplab.standin.keys import TOKEN_BYTES, PublicKey, parse_public_key
from mtplab.standin.processes import Processes
from mtplab.standin.programs import Programs
from mtplab.standin.settings import Cable, Profile
from mtplab.standin.wire import (
    AUTH,
    AUTH_PUBLIC_KEY,
    AUTH_SIGNATURE,
    AUTH_TOKEN,
    CNXN,
    MAX_PAYLOAD,
    VERSION,
    Connection,
    Stream,
)  # fmt: skip

FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,fixed_push_symlink_timestamp,sendrecv_v2"
# offline: takes connections and says nothing (adb shows `offline`). hung: the same in the middle of its connections
# (adb still shows `device`). The banners after them are what adb shows by their names.
BANNERS = {"normal": "device", "recovery": "recovery", "sideload": "sideload", "bootloader": "bootloader"}
MODES = ("offline", "hung", "unauthorized", *BANNERS)
# adb adopts an "emulator" by itself on these ports.
EMULATOR_PORTS = range(5554, 5586)
MAX_CONNECTIONS = 32  # of trusted clients
# Strangers have places of their own, and not for ever: they cannot keep a trusted client out.
MAX_STRANGERS = 16
HANDSHAKE_S, ASKING_S = 10.0, 600.0
REBOOT_S = 3.0


class Adbd:
    """Accepts clients on 127.0.0.1 and serves them, once their key is trusted."""

    def __init__(
        self,
        profile: Profile,
        files: DeviceFiles,
        backend: Backend,
        processes: Processes,
        programs: Programs,
        *,
        keys: list[PublicKey],
        room_bytes: Callable[[], int],
        cable: Cable,
    ) -> None:
        """`room_bytes` tells how much may still be pushed."""
        self._profile, self._processes = profile, processes
        self._services = AdbServices(
            profile, files, backend, processes, programs, room_bytes=room_bytes, reboot=self.reboot
        )
        self.cable = CableKeeper(cable, self.unplug)
        self._keys = list(keys)
        self._asking: dict[Connection, PublicKey] = {}
        self.announce: Callable[[str], None] = lambda text: None  # told of every key that begins to wait
        # In order of arrival; the timer ends a stranger that neither proves who it is nor asks to be trusted.
        self.connections: dict[Connection, asyncio.TimerHandle] = {}
        self._mode = "normal"
        self._answers = asyncio.Event()
        self._answers.set()
        self._plugged = True
        self._server: asyncio.Server | None = None
        self._returning: asyncio.TimerHandle | None = None
        self.rebooted: Callable[[], None] = lambda: None

    async def listen(self, port: int) -> int:
        """Open the port (0: any free one outside the emulators' range) and return it."""
        for _ in range(len(EMULATOR_PORTS) + 1):
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=4 << 20)
            chosen: int = self._server.sockets[0].getsockname()[1]
            if port or chosen not in EMULATOR_PORTS:
                return chosen
            self._server.close()
        raise OSError("no free port outside the emulators' range")

    def close(self) -> None:
        """Drop everybody and listen no more."""
        if self._server is not None:
            self._server.close()
        self.drop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._plugged:
            writer.transport.abort()
            return
        strangers = [connection for connection in self.connections if not connection.online]
        if len(strangers) >= MAX_STRANGERS:
            idle = [connection for connection in strangers if connection not in self._asking]
            self._turn_away((idle or strangers)[0])
        connection = Connection(self, reader, writer)
        self.connections[connection] = self._limit_time(connection, HANDSHAKE_S)
        await connection.run()

    def _limit_time(self, connection: Connection, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._time_is_up, connection)

    def _time_is_up(self, connection: Connection) -> None:
        if self.mode in ("offline", "hung"):  # this phone answers nobody: clients are not to blame
            self.connections[connection] = self._limit_time(connection, HANDSHAKE_S)
        else:
            self._turn_away(connection)

    def _turn_away(self, connection: Connection) -> None:
        connection.abort()
        self.gone(connection)  # its place is free at once

    # --- trust

    async def on_connect(self, connection: Connection) -> None:
        """Answer a client's CNXN: with a token to sign, never with trust."""
        if self.mode not in ("offline", "hung"):
            self._challenge(connection)

    async def on_auth(self, connection: Connection, kind: int, data: bytes) -> None:
        """A signature is verified; an unknown key waits for somebody to allow it."""
        if kind == AUTH_SIGNATURE and connection.token:
            token, connection.token = connection.token, b""
            if self.mode != "unauthorized" and any(key.verifies(token, data) for key in self._keys):
                self._welcome(connection)
            else:
                self._challenge(connection)
        elif kind == AUTH_PUBLIC_KEY:
            with contextlib.suppress(ValueError):
                key = parse_public_key(data.rstrip(b"\0").decode("ascii", "replace"))
                if connection not in self._asking and connection in self.connections:
                    self.connections[connection].cancel()
                    self.connections[connection] = self._limit_time(connection, ASKING_S)
                self._asking[connection] = key
                self.announce(f"{connection.peer} ({key.owner or 'no name'}) asks to be trusted: {key.fingerprint}")

    def _challenge(self, connection: Connection) -> None:
        connection.token = os.urandom(TOKEN_BYTES)
        connection.send(AUTH, AUTH_TOKEN, 0, connection.token)

    def _welcome(self, connection: Connection) -> None:
        if not connection.online and sum(other.online for other in self.connections) >= MAX_CONNECTIONS:
            self._turn_away(connection)
            return
        if connection in self.connections:
            self.connections[connection].cancel()
        self._asking.pop(connection, None)
        connection.online = True
        self.cable.came_online()
        names = ("ro.product.name", "ro.product.model", "ro.product.device")
        facts = ";".join(f"{name}={self._profile.properties[name]}" for name in names)
        banner = f"{BANNERS.get(self.mode, 'device')}::{facts};features={FEATURES}"
        connection.send(CNXN, VERSION, MAX_PAYLOAD, banner.encode())

    def asking(self) -> list[dict[str, str]]:
        """The keys that wait to be allowed: fingerprint, owner as the key names it, peer."""
        return [
            {"fingerprint": key.fingerprint, "owner": key.owner, "peer": connection.peer}
            for connection, key in self._asking.items()
        ]

    def allow(self, fingerprint: str | None = None) -> list[str]:
        """Somebody taps Allow: one key is trusted until the stand-in ends. Its owner; nobody when none was asking.

        Which one may stay unsaid while only one is asking; ValueError where it must be said, or nobody asks with it.
        """
        waiting = {key.fingerprint for key in self._asking.values()}
        if fingerprint is not None and fingerprint.upper() not in waiting:
            raise ValueError(f"no key {fingerprint} is asking; asking: {', '.join(sorted(waiting)) or 'none'}")
        if fingerprint is None and len(waiting) > 1:
            raise ValueError(f"{len(waiting)} keys are asking; say which: allow {' | '.join(sorted(waiting))}")
        chosen = fingerprint.upper() if fingerprint else next(iter(waiting), None)
        if self.mode == "unauthorized":
            self._mode = "normal"
        let_in = {connection: key for connection, key in self._asking.items() if key.fingerprint == chosen}
        for connection, key in let_in.items():
            self._keys.append(key)
            self._welcome(connection)
        return [key.owner for key in list(let_in.values())[:1]]

    # --- the state adb shows

    @property
    def mode(self) -> str:
        """One of MODES."""
        return self._mode

    def set_mode(self, mode: str) -> None:
        """Change it: connections break, so that clients see; only a phone that hangs, or wakes up, keeps them."""
        hangs = "hung" in (mode, self._mode)
        self._mode = mode
        if mode == "hung":
            self._answers.clear()
        else:
            self._answers.set()
        if not hangs:
            self.drop()

    def reboot(self, mode: str = "normal") -> None:
        """Every process ends, the phone goes away for some seconds and comes back in `mode`."""
        self._processes.kill_all()
        self.rebooted()
        self._mode = mode
        self._answers.set()
        self.unplug(REBOOT_S)

    # --- the cable

    async def carry(self, count: int) -> bool:
        """Let bytes pass; False when the cable was pulled within them. A phone that hangs lets nothing pass."""
        await self._answers.wait()
        return await self.cable.carry(count)

    def drop(self) -> None:
        """A glitch: every connection breaks at once; clients may come back."""
        for connection in list(self.connections):
            connection.abort()

    def unplug(self, seconds: float | None = None) -> None:
        """Pull the cable, for some seconds or until `plug`."""
        self._stop_returning()
        self._plugged = False
        self.drop()
        if seconds is not None:
            self._returning = asyncio.get_running_loop().call_later(seconds, self.plug)

    def plug(self) -> None:
        """Put the cable back."""
        self._stop_returning()
        self._plugged = True

    def _stop_returning(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None

    def gone(self, connection: Connection) -> None:
        """A connection has ended."""
        timer = self.connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._asking.pop(connection, None)

    # --- services

    def service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        """The service of this name, bound to its arguments."""
        return self._services.find(name, self.mode)


def read_allowed(paths: list[Path]) -> list[PublicKey]:
    """The keys in the files of --allow-key; ValueError or OSError if one cannot be used."""
    keys: list[PublicKey] = []
    for path in paths:
        keys += [parse_public_key(line) for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    return keys
