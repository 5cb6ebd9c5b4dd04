"""Nobody here touches the adb server of whoever runs this: port 5037 is a trap while the stand-in is used."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Adb, StartDevice

USERS_PORT = 5037
# Everything that could send a program to another server than the user's own.
STEERING = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_HOST", "ANDROID_ADB_SERVER_PORT")


class Trap:
    """Listens where the user's adb server would, hangs up on everybody, and counts them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.calls = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.calls += 1
            caller.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    try:
        listener = socket.create_server(("127.0.0.1", USERS_PORT))
    except OSError as problem:
        pytest.skip(f"port {USERS_PORT} is taken ({problem.strerror}): whoever holds it is left alone")
    with listener:
        yield Trap(listener)
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept, which would hold the port


def unsteered(home: Path) -> dict[str, str]:
    """The environment of a user who has set nothing: any adb would go to port 5037."""
    env = {name: value for name, value in os.environ.items() if name not in STEERING}
    return {**env, "HOME": str(home), "MTPLAB_RUNTIME": str(home), "MTPLAB_CACHE": str(home / "cache"),
            "MTPLAB_SESSIONS": str(home / "sessions")}  # fmt: skip


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path: sockets live in it."""
    with tempfile.TemporaryDirectory(prefix="mtplab-t-") as folder:
        yield Path(folder)


def test_the_trap_catches_an_adb_that_nobody_steers(trap: Trap, each_adb: Adb, home: Path) -> None:
    subprocess.run([each_adb.binary, "devices"], env=unsteered(home), capture_output=True, timeout=60)
    assert trap.calls > 0


def test_the_fixtures_of_these_tests_stay_away(trap: Trap, start_device: StartDevice, each_adb: Adb) -> None:
    device = start_device("--backend", "portable")
    assert device.out("id -u") == "2000\n"
    each_adb("connect", device.serial)
    assert device.serial.encode() in each_adb("devices").stdout
    assert trap.calls == 0


ENGINE = """
from mtplab.engine.options import EngineOptions
from mtplab.engine.service import Engine
with Engine(EngineOptions(standin="normal", keep=True)) as engine:
    print(engine.phone.identity.device_model)
"""
DOCTOR = """
import sys
from mtplab.cli import main
sys.argv[1:] = ["doctor", "--standin", "--json"]
main()
"""


@pytest.mark.parametrize(("program", "says"), [(ENGINE, "Pixel 9 Pro"), (DOCTOR, '"id"')], ids=["engine", "doctor"])
def test_the_lab_on_a_stand_in_stays_away(trap: Trap, home: Path, program: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], env=unsteered(home), capture_output=True, text=True, timeout=120
    )
    assert says in done.stdout, done.stderr
    assert trap.calls == 0
