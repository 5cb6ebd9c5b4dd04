"""Who is let in: one key at a time, seen before it is trusted; strangers keep nobody out."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pty
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mtplab.standin import adbd as module
from mtplab.standin.adbd import Adbd
from mtplab.standin.settings import Cable, load_profile
from mtplab.standin.wire import AUTH, AUTH_PUBLIC_KEY, CNXN, HEADER

from .conftest import PATIENCE_S, StartDevice, read_line, until


def packet(command: int, first: int, data: bytes) -> bytes:
    return HEADER.pack(command, first, 1 << 20, len(data), 0, command ^ 0xFFFFFFFF) + data


def public_key(number: int, owner: str) -> bytes:
    """A key that nobody can sign with: it can only ask."""
    modulus = (1 << 2047) + 2 * number + 1
    raw = struct.pack("<II", 64, 0) + modulus.to_bytes(256, "little") + bytes(256) + struct.pack("<I", 65537)
    return base64.b64encode(raw) + b" " + owner.encode() + b"\0"


class Client:
    """A client on a raw socket that asks with a key."""

    def __init__(self, serial: str) -> None:
        host, port = serial.split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self.socket.settimeout(PATIENCE_S)

    def ask(self, number: int, owner: str) -> None:
        self.socket.sendall(packet(CNXN, 0x01000001, b"host::\0"))
        assert self.answer() == AUTH
        self.socket.sendall(packet(AUTH, AUTH_PUBLIC_KEY, public_key(number, owner)))

    def answer(self) -> int:
        """The command of the next packet."""
        stream = self.socket.makefile("rb")
        head = HEADER.unpack(stream.read(HEADER.size))
        stream.read(head[3])
        return int(head[0])

    def hears_nothing(self) -> bool:
        return not select.select([self.socket], [], [], 0.3)[0]


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    opened: list[Client] = []
    yield opened
    for client in opened:
        client.socket.close()


def test_allow_trusts_exactly_the_key_that_is_named(start_device: StartDevice, clients: list[Client]) -> None:
    device = start_device("--backend", "portable", trusted=False, connect=False)
    assert device.control("allow") == {"allowed": []}
    clients += [Client(device.serial), Client(device.serial), Client(device.serial)]
    clients[0].ask(1, "owner@laptop")
    clients[1].ask(2, "stranger@\x1b[31mlaptop")
    until(lambda: len(device.control("status")["asking"]) == 2, "they do not ask")
    asking = {one["owner"]: one for one in device.control("status")["asking"]}
    assert set(asking) == {"owner@laptop", "stranger@?[31mlaptop"}
    assert all(one["peer"].startswith("127.0.0.1:") for one in asking.values())
    wanted = asking["owner@laptop"]["fingerprint"]
    refusal = device.control("allow")["error"]
    assert all(one["fingerprint"] in refusal for one in asking.values())
    assert "no key 00:11" in device.control("allow 00:11")["error"]
    assert [one["owner"] for one in device.control("status")["asking"]] == list(asking)
    assert device.control(f"allow {wanted}") == {"allowed": ["owner@laptop"]}
    assert clients[0].answer() == CNXN
    assert clients[1].hears_nothing()
    assert [one["owner"] for one in device.control("status")["asking"]] == ["stranger@?[31mlaptop"]


def test_a_terminal_is_shown_every_key_before_it_can_allow_one(clients: list[Client]) -> None:
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mtplab.standin", "--backend", "portable"], stdin=side, stdout=subprocess.PIPE,
        stderr=side, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    said = b""

    def says(*words: str) -> bool:
        nonlocal said
        if select.select([main], [], [], 0.05)[0]:
            said += os.read(main, 65536)
        return all(word.encode() in said for word in words)

    try:
        serial = json.loads(read_line(process))["serial"]
        for number, owner in ((1, "owner@laptop"), (2, "stranger@laptop")):
            clients.append(Client(serial))
            clients[-1].ask(number, owner)
        peers = [f"127.0.0.1:{client.socket.getsockname()[1]}" for client in clients]
        until(lambda: says("(owner@laptop) asks", "(stranger@laptop) asks", *peers), "the keys were not shown")
        os.write(main, b"allow\n")
        until(lambda: says("2 keys are asking"), "one word was enough for two keys")
        assert clients[0].hears_nothing()
        assert clients[1].hears_nothing()
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        os.close(main)
        assert process.stdout is not None
        process.stdout.close()


def test_idle_strangers_keep_no_trusted_computer_out(start_device: StartDevice, clients: list[Client]) -> None:
    device = start_device("--backend", "portable", connect=False)
    clients += [Client(device.serial) for _ in range(60)]
    until(lambda: device.control("status")["connections"] == module.MAX_STRANGERS, "they are not counted")
    device.adb("connect", device.serial)
    device.wait_for("device")
    assert device.out("id -u") == "2000\n"


def bare_daemon() -> Adbd:
    """A daemon with nothing behind it: whoever is not let in needs no more."""
    nothing: object = None
    return Adbd(
        load_profile("pixel-8"), nothing, nothing, nothing, nothing, keys=[],  # type: ignore[arg-type]
        room_bytes=lambda: 1, cable=Cable(),
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "asks", "is_ended"), [("normal", False, True), ("offline", False, False),
                                                         ("normal", True, False)])  # fmt: skip
def test_who_neither_proves_nor_asks_anything_is_turned_away(
    monkeypatch: pytest.MonkeyPatch, mode: str, asks: bool, is_ended: bool
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)

    async def run() -> bool:
        daemon = bare_daemon()
        daemon.set_mode(mode)
        port = await daemon.listen(0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if asks:
            writer.write(packet(CNXN, 0x01000001, b"host::\0"))
            head = HEADER.unpack(await reader.readexactly(HEADER.size))
            await reader.readexactly(head[3])
            writer.write(packet(AUTH, AUTH_PUBLIC_KEY, public_key(1, "a")))
        ended = asyncio.ensure_future(reader.read())
        with contextlib.suppress(ConnectionError):
            await asyncio.wait({ended}, timeout=PATIENCE_S if is_ended else 1.0)
        found = ended.done()
        if found:
            ended.exception()
        daemon.close()
        writer.close()
        return found

    assert asyncio.run(run()) is is_ended
