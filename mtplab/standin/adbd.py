"""The device's daemon: who may connect, what services there are, and what becomes of the cable."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from mtplab.standin.backends import Backend, device_environment
from mtplab.standin.files import DeviceFiles
from mtplab.standin.keys import TOKEN_BYTES, PublicKey, parse_public_key
from mtplab.standin.processes import Processes
from mtplab.standin.programs import Programs
from mtplab.standin.settings import Profile
from mtplab.standin.shell import ShellRun, parse_request
from mtplab.standin.sync import SyncSession
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
MODES = ("normal", "silent", "recovery", "unauthorized")
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
        limit_bytes: int,
    ) -> None:
        self._profile, self._files, self._backend = profile, files, backend
        self._processes, self._programs, self._limit_bytes = processes, programs, limit_bytes
        self._keys = list(keys)
        self._asking: dict[Connection, PublicKey] = {}
        self.announce: Callable[[str], None] = lambda text: None  # told of every key that begins to wait
        # In order of arrival; the timer ends a stranger that neither proves who it is nor asks to be trusted.
        self.connections: dict[Connection, asyncio.TimerHandle] = {}
        self.mode = "normal"
        self._plugged = True
        self._server: asyncio.Server | None = None
        self._later: set[asyncio.TimerHandle] = set()

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
        if self.mode == "silent":  # this phone answers nobody: clients are not to blame
            self.connections[connection] = self._limit_time(connection, HANDSHAKE_S)
        else:
            self._turn_away(connection)

    def _turn_away(self, connection: Connection) -> None:
        connection.abort()
        self.gone(connection)  # its place is free at once

    # --- trust

    async def on_connect(self, connection: Connection) -> None:
        """Answer a client's CNXN: with a token to sign, never with trust."""
        if self.mode != "silent":
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
        state = "recovery" if self.mode == "recovery" else "device"
        names = ("ro.product.name", "ro.product.model", "ro.product.device")
        facts = ";".join(f"{name}={self._profile.properties[name]}" for name in names)
        connection.send(CNXN, VERSION, MAX_PAYLOAD, f"{state}::{facts};features={FEATURES}".encode())

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
        self.mode = "normal" if self.mode == "unauthorized" else self.mode
        let_in = {connection: key for connection, key in self._asking.items() if key.fingerprint == chosen}
        for connection, key in let_in.items():
            self._keys.append(key)
            self._welcome(connection)
        return [key.owner for key in list(let_in.values())[:1]]

    # --- the cable

    def drop(self) -> None:
        """A glitch: every connection breaks at once; clients may come back."""
        for connection in list(self.connections):
            connection.abort()

    def unplug(self, seconds: float | None = None) -> None:
        """Pull the cable, for some seconds or until `plug`."""
        self._plugged = False
        self.drop()
        if seconds is not None:
            handle = asyncio.get_running_loop().call_later(seconds, self.plug)
            self._later.add(handle)

    def plug(self) -> None:
        """Put the cable back."""
        self._plugged = True

    def gone(self, connection: Connection) -> None:
        """A connection has ended."""
        timer = self.connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._asking.pop(connection, None)

    # --- services

    def service(self, name: str) -> Callable[[Stream], Awaitable[None]] | None:
        """The service of this name, bound to its arguments."""
        kind = name.split(":", 1)[0].split(",", 1)[0]
        services = {
            "shell": self._shell, "exec": self._shell, "sync": self._sync, "tcp": self._socket,
            "localfilesystem": self._socket, "reboot": self._reboot, "root": self._root,
        }  # fmt: skip
        found = services.get(kind)
        return None if found is None else lambda stream: found(stream, name)

    async def _shell(self, stream: Stream, name: str) -> None:
        request = parse_request(name)
        env = device_environment(self._profile.properties["ro.product.device"])
        run = ShellRun(request, stream, self._processes)
        await run.run(self._backend.command(request.command), env, self._files.root)

    async def _sync(self, stream: Stream, _name: str) -> None:
        session = SyncSession(
            stream, self._files, limit_bytes=self._limit_bytes,
            content=self._programs.content, pushed=self._programs.adopt,
        )  # fmt: skip
        await session.run()

    async def _socket(self, stream: Stream, name: str) -> None:
        kind, _, address = name.partition(":")
        try:
            if kind == "tcp":
                reader, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[0]))
            else:
                reader, writer = await asyncio.open_unix_connection(self._files.host(address))
        except (OSError, ValueError):
            return

        async def upward() -> None:
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
            writer.close()

        feeding = asyncio.ensure_future(upward())
        try:
            while data := await reader.read(65536):
                await stream.write(data)
        finally:
            feeding.cancel()
            writer.close()

    async def _reboot(self, _stream: Stream, _name: str) -> None:
        self._processes.kill_all()
        self.unplug(REBOOT_S)

    async def _root(self, stream: Stream, _name: str) -> None:
        await stream.write(b"adbd cannot run as root in production builds\n")


def read_allowed(paths: list[Path]) -> list[PublicKey]:
    """The keys in the files of --allow-key; ValueError or OSError if one cannot be used."""
    keys: list[PublicKey] = []
    for path in paths:
        keys += [parse_public_key(line) for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    return keys
