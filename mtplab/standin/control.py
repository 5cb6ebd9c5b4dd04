"""The stand-in's control socket: one command a line in, one JSON value a line out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from mtplab.standin.adb_services import BOOT_MODES
from mtplab.standin.adbd import MODES, Adbd
from mtplab.standin.clockwork import Clockwork
from mtplab.standin.processes import Processes
from mtplab.standin.settings import Cable

CABLE_FIELDS = tuple(field.name for field in fields(Cable))
HELP = {
    "allow [FINGERPRINT]": "trust the key that is asking, or the named one of several",
    "unplug [SECONDS]": "pull the cable, for good or for some seconds",
    "plug": "put it back",
    "drop": "break every connection once",
    "cable FIELD VALUE|never": f"how the cable behaves: {', '.join(CABLE_FIELDS)}",
    "reboot [NAME]": "as `adb reboot [recovery|sideload|bootloader]`",
    "mode NAME": f"one of {', '.join(MODES)}",
    "load DIE SHARE|auto": "force a die's load, or give it back to the programs",
    "low-memory": "the low-memory killer ends the largest program that runs",
    "battery LEVEL": "how full the battery is, in per cent",
    "temps": "temperatures, clocks, loads and status",
    "status": "connections and processes",
    "help": "this",
}


class Control:
    """Executes commands; every failure is an answer, never an exception."""

    def __init__(self, adbd: Adbd, clockwork: Clockwork, processes: Processes) -> None:
        self._adbd, self._clockwork, self._processes = adbd, clockwork, processes
        self.phones: list[Control] = []  # where one command serves several, `2 unplug` is for the second
        self._commands: dict[str, Callable[[list[str]], object]] = {
            "allow": lambda words: {"allowed": adbd.allow(words[0] if words else None)},
            "unplug": lambda words: adbd.unplug(_number(words[0]) if words else None),
            "plug": lambda words: adbd.plug(),
            "drop": lambda words: adbd.drop(),
            "mode": self._mode,
            "cable": self._cable,
            "reboot": lambda words: adbd.reboot(BOOT_MODES[words[0]] if words else "normal"),
            "load": self._load,
            "low-memory": lambda words: {"killed": clockwork.kill_for_memory()},
            "battery": lambda words: clockwork.set_battery(_number(words[0])),
            "temps": lambda words: clockwork.temperatures(),
            "status": lambda words: self._status(),
            "help": lambda words: HELP,
        }

    async def listen(self, path: Path) -> asyncio.AbstractServer:
        """Open the socket; its folder is private and its mode 0600."""
        server = await asyncio.start_unix_server(self._serve, str(path))
        path.chmod(0o600)
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.execute(line.decode("utf-8", "replace"))).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()

    def execute(self, line: str) -> object:
        """Run one command line; {"error": …} says what was wrong with it."""
        words = line.split()
        if words and words[0].isdecimal() and 0 < int(words[0]) <= len(self.phones):
            return self.phones[int(words[0]) - 1].execute(" ".join(words[1:]))
        if not words or words[0] not in self._commands:
            return {"error": f"unknown command {line.strip()!r}; there are {', '.join(self._commands)}"}
        try:
            answer = self._commands[words[0]](words[1:])
        except (ValueError, IndexError, KeyError) as error:
            return {"error": f"{words[0]}: {error}"}
        return {"ok": True} if answer is None else answer

    def _mode(self, words: list[str]) -> None:
        if not words or words[0] not in MODES:
            raise ValueError(f"there are {', '.join(MODES)}")
        self._adbd.set_mode(words[0])

    def _cable(self, words: list[str]) -> None:
        name, value = words[0], words[1]
        if name not in CABLE_FIELDS:
            raise ValueError(f"there are {', '.join(CABLE_FIELDS)}")
        number = None if value == "never" else _number(value)
        whole = name in ("pull_after_bytes", "times") and number is not None
        self._adbd.cable.set(**{name: int(number) if whole and number is not None else number})

    def _load(self, words: list[str]) -> None:
        die, share = words[0], words[1]
        self._clockwork.force(die, None if share == "auto" else _number(share))

    def _status(self) -> dict[str, object]:
        streams = sum(len(connection.streams) for connection in self._adbd.connections)
        return {
            "mode": self._adbd.mode,
            "asking": self._adbd.asking(),
            "connections": len(self._adbd.connections),
            "streams": streams,
            "processes": sorted(self._processes.live),
        }


def _number(word: str) -> float:
    number = float(word)
    if not 0 <= number <= 1e12:
        raise ValueError(f"{word} is not a number from 0 on")
    return number
