"""A private adb server and stand-in devices for tests; other rooms may copy these fixtures."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BACKENDS = ("chroot", "userns", "portable")
PATIENCE_S = 60


def bundled_adb() -> Path | None:
    """The adb in adbutils' wheel, found without importing it."""
    for folder in map(Path, sys.path):
        candidate = folder / "adbutils" / "binaries" / "adb"
        if candidate.is_file():
            return candidate
    return None


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Adb:
    """One adb binary with a server, a key and a home of its own."""

    binary: str
    env: dict[str, str]
    home: Path

    def __call__(
        self, *words: str, data: bytes | None = None, check: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.binary, *words], env=self.env, input=data if data is not None else b"", capture_output=True,
            timeout=PATIENCE_S * 2, check=check,
        )  # fmt: skip

    @property
    def port(self) -> int:
        """The server's."""
        return int(self.env["ANDROID_ADB_SERVER_PORT"])

    @property
    def public_key(self) -> Path:
        return self.home / ".android" / "adbkey.pub"


def start_adb(binary: str, home: Path) -> Iterator[Adb]:
    """Start a private server; never the user's, never port 5037."""
    (home / ".android").mkdir(parents=True)
    env = {
        **os.environ, "HOME": str(home), "TMPDIR": str(home), "ANDROID_ADB_SERVER_PORT": str(free_port()),
        "ADB_USB": "0", "ADB_EMU": "0", "ADB_MDNS": "0", "ANDROID_SDK_HOME": str(home), SECRET: "secret",
    }  # fmt: skip
    env.pop("ANDROID_SERIAL", None)
    adb = Adb(binary, env, home)
    adb("keygen", str(home / ".android" / "adbkey"), check=True)
    server = subprocess.Popen(
        [binary, "nodaemon", "server"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # Not by `adb start-server`: asked too early it would start a second server, one that nobody ends.
    until(lambda: server.poll() is not None or listens(adb.port), f"{binary} does not serve on port {adb.port}")
    assert server.poll() is None, f"{binary} could not serve on port {adb.port}"
    yield adb
    server.terminate()
    server.wait(PATIENCE_S)


def listens(port: int) -> bool:
    """Whether somebody takes connections on this port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module", params=["bundled", "system"])
def each_adb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adb]:
    """Each adb in turn: the one in adbutils' wheel, and the system's; with a server and a key of its own."""
    binary = bundled_adb() if request.param == "bundled" else shutil.which("adb")
    if binary is None:
        pytest.skip(f"there is no {request.param} adb here")
    yield from start_adb(str(binary), tmp_path_factory.mktemp(f"adb-{request.param}"))


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adb]:
    binary = shutil.which("adb") or bundled_adb()
    if binary is None:
        pytest.skip("no adb on PATH and none in an adbutils wheel")
    yield from start_adb(str(binary), tmp_path_factory.mktemp("adb"))


@dataclass
class Device:
    """A running stand-in and the adb that talks to it."""

    adb: Adb
    process: subprocess.Popen[bytes]
    info: dict[str, Any]
    errors: Path
    ended: list[int] = field(default_factory=list)

    @property
    def serial(self) -> str:
        return str(self.info["serial"])

    @property
    def root(self) -> Path:
        return Path(self.info["root"])

    def __call__(self, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return self.adb("-s", self.serial, *words, data=data)

    def shell(self, script: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a device command."""
        done = self("shell", script)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def out(self, script: str) -> str:
        """The stdout of a device command that must end well."""
        code, out, err = self.shell(script)
        assert code == 0, (script, out, err)
        return out

    def control(self, command: str) -> Any:
        """One command on the control socket."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(PATIENCE_S)
            link.connect(self.info["control"])
            link.sendall(command.encode() + b"\n")
            return json.loads(link.makefile("rb").readline())

    def state(self) -> str:
        """What `adb devices` says of it."""
        for line in self.adb("devices").stdout.decode().splitlines():
            if line.startswith(self.serial):
                return line.split("\t")[1].split()[0]
        return "absent"

    def wait_for(self, wanted: str) -> None:
        until(lambda: self.state() == wanted, f"{self.serial} is {self.state()} and not {wanted}")

    def stop(self) -> int:
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)
            self.ended.append(self.process.wait(PATIENCE_S))
            self.adb("disconnect", self.serial)
        return self.ended[0]


def until(happened: Callable[[], bool], complaint: str) -> None:
    """Wait for something that needs a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """The first line of a process, or what it said until it ended."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    return process.stdout.readline() if ready else b""


StartDevice = Callable[..., Device]


def device_starter(adb: Adb, folder: Path, started: list[Device]) -> StartDevice:
    def start(*options: str, trusted: bool = True, connect: bool = True) -> Device:
        errors = folder / f"errors-{len(started)}"
        words = [sys.executable, "-m", "mtplab.standin", *options]
        if trusted:
            words += ["--allow-key", str(adb.public_key)]
        with errors.open("wb") as err:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, env=adb.env
            )
        line = read_line(process)
        assert line, errors.read_text()
        device = Device(adb, process, json.loads(line), errors)
        started.append(device)
        if connect:
            adb("connect", device.serial)
            device.wait_for("device" if trusted else "unauthorized")
        return device

    return start


@pytest.fixture
def start_device(adb: Adb, tmp_path: Path) -> Iterator[StartDevice]:
    """Starts stand-ins and ends them after the test."""
    started: list[Device] = []
    yield device_starter(adb, tmp_path, started)
    for device in started:
        device.stop()


def skip_unless_possible(backend: str) -> None:
    """Skip, with the reason, where this host cannot run a backend."""
    from mtplab.standin.backends import choose
    from mtplab.standin.files import DeviceFiles
    from mtplab.standin.phone import Phone
    from mtplab.standin.physics import HeatModel
    from mtplab.standin.settings import UsageError, load_profile, load_scenario

    if backend == "portable":
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "device"
        root.mkdir()
        root.chmod(0o755)
        files = DeviceFiles(str(root))
        profile, scenario = load_profile("pixel-8"), load_scenario("normal")
        phone = Phone(files, profile, scenario, HeatModel.start(profile, scenario))
        phone.build("probe")
        phone.write_uptime()
        try:
            choose(backend, files)
        except UsageError as reason:
            pytest.skip(str(reason))


ECHO = "import sys; print(sys.argv[1:], flush=True); print('to stderr', file=sys.stderr); sys.exit(7)"
COUNT = "import time\nfor i in range(10**6): print('tick', i, flush=True); time.sleep(0.05)"
READ = "import sys; print(open(sys.argv[1].partition('=')[2]).read(), sys.argv[1])"
ABORT = "import os; print('before', flush=True); os.abort()"
GROW = "import time; kept = b'1' * (400 << 20); print('grown', flush=True); time.sleep(60)"
IMPORT = "import os, json; print(json.dumps([dict(os.environ), os.listdir('.')])); import guest"
PROGRAMS = {
    "echo_tool": ECHO, "count_tool": COUNT, "read_tool": READ, "abort_tool": ABORT, "import_tool": IMPORT,
    "grow_tool": GROW,
}  # fmt: skip
SECRET = "OWNERS_TOKEN"


def program_options() -> list[str]:
    """--program options for the little tools of these tests, at /data/local/tmp/tools/NAME."""
    options = []
    for name, code in PROGRAMS.items():
        options += ["--program", f"/data/local/tmp/tools/{name}={json.dumps([sys.executable, '-c', code])}"]
    return options


@pytest.fixture(scope="session", params=BACKENDS)
def device(request: pytest.FixtureRequest, adb: Adb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """One device for each backend that works here, shared by all tests that only use it."""
    skip_unless_possible(request.param)
    started: list[Device] = []
    start = device_starter(adb, tmp_path_factory.mktemp("device"), started)
    yield start("--backend", request.param, *program_options())
    for one in started:
        assert one.stop() == 0, one.errors.read_text()


@pytest.fixture(scope="session")
def spare(adb: Adb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """One portable device for tests that change its state and put it back."""
    started: list[Device] = []
    yield device_starter(adb, tmp_path_factory.mktemp("spare"), started)("--backend", "portable", *program_options())
    for one in started:
        assert one.stop() == 0, one.errors.read_text()
