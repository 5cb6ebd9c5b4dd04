"""Finds adb and talks to an adb server: the user's own, which is never touched, or a private one, which is ours."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from mtplab.device.connection import make_client
from mtplab.device.errors import DeviceError

DEFAULT_PORT = 5037
# Variables through which a caller's environment would reach into a private server, or send us elsewhere.
_FOREIGN_VARIABLES = (
    "ADB_SERVER_SOCKET", "ADB_TRACE", "ADB_VENDOR_KEYS", "ANDROID_ADB_SERVER_ADDRESS",
    "ANDROID_ADB_SERVER_HOST", "ANDROID_SDK_HOME", "ANDROID_SERIAL", "ANDROID_USER_HOME",
)  # fmt: skip
# Ends the server on a word from us, or when our end of stdin closes: then it also tidies up, so that even a killed
# lab leaves nothing behind.
_KEEPER = """\
"$@" </dev/null &
child=$!
echo "$child"
read -r line
kill -s TERM "$child" 2>/dev/null
wait "$child"
if [ -z "$line" ]; then case $HOME in */mtplab-adb-*) rm -rf -- "$HOME" ;; esac; fi
"""


def find_adb() -> Path:
    """The adb binary: `MTPLAB_ADB`, else `adb` on PATH, else the one inside the adbutils wheel."""
    named = os.environ.get("MTPLAB_ADB")
    if named:
        if _is_executable(Path(named)):
            return Path(named)
        raise DeviceError(f"MTPLAB_ADB names {named}, which is no executable file: correct it or unset it.")
    on_path = shutil.which("adb")
    if on_path:
        return Path(on_path)
    spec = importlib.util.find_spec("adbutils")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder) / "binaries" / "adb"
        if _is_executable(bundled):
            return bundled
    raise DeviceError(
        "No adb was found on PATH or in the adbutils package: install Android platform-tools, "
        "or set MTPLAB_ADB to the adb binary."
    )


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def client_version(adb: Path) -> int | None:
    """The protocol number that this adb binary wants of a server (41 for 1.0.41); None if it does not say."""
    try:
        text = subprocess.run([str(adb), "version"], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    words = text.split("\n", 1)[0].split()
    number = words[-1].rsplit(".", 1)[-1] if words else ""
    return int(number) if number.isascii() and number.isdigit() else None


class AdbServer:
    """An adb server that listens on host:port. Requests are single exchanges; every one has a time limit."""

    def __init__(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        self.host = host
        self.port = port
        self._client: Any = None
        self._look_again = 0.0

    @classmethod
    def users(cls) -> AdbServer:
        """The user's own server, as adb itself would find it; not contacted yet."""
        spoken = os.environ.get("ADB_SERVER_SOCKET", "")
        if spoken.startswith("tcp:"):
            host, _, port = spoken[4:].rpartition(":")
            return cls(host or "127.0.0.1", _port(port, "ADB_SERVER_SOCKET"))
        named = os.environ.get("ANDROID_ADB_SERVER_ADDRESS") or os.environ.get("ANDROID_ADB_SERVER_HOST")
        port = os.environ.get("ANDROID_ADB_SERVER_PORT") or str(DEFAULT_PORT)
        return cls(named or "127.0.0.1", _port(port, "ANDROID_ADB_SERVER_PORT"))

    def version(self, timeout_s: float = 2.0) -> int | None:
        """The server's protocol number, or None if nothing there answers as an adb server."""
        try:
            with socket.create_connection((self.host, self.port), timeout_s) as link:
                link.settimeout(timeout_s)
                link.sendall(b"000chost:version")
                answer = b""
                while len(answer) < 12 and (piece := link.recv(64)):
                    answer += piece
            return int(answer[8:12], 16) if answer[:4] == b"OKAY" else None
        except (OSError, ValueError):
            return None

    def ensure(self) -> AdbServer:
        """Start the server if nothing listens there. A running one is left alone, whatever its version."""
        if self.version() is not None:
            return self
        if self._port_taken():
            raise DeviceError(
                f"Something on {self.host}:{self.port} does not answer as an adb server: "
                "end that program, or choose another port with ANDROID_ADB_SERVER_PORT."
            )
        if self.host not in ("127.0.0.1", "localhost", "::1"):
            raise DeviceError(f"No adb server answers on {self.host}:{self.port}: start it on that machine.")
        self._start()
        if self.version() is None:
            raise DeviceError(f"adb was started but does not answer on port {self.port}: try `adb start-server`.")
        return self

    def revive(self) -> None:
        """Start the server again if it has ended; one that answers, in whatever version, is left alone."""
        if time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + 1.0
        if self.version() is None:
            self.ensure()

    def _port_taken(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1.0):
                return True
        except OSError:
            return False

    def _start(self) -> None:
        env = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(self.port)}
        env.pop("ADB_SERVER_SOCKET", None)
        try:
            done = subprocess.run(
                [str(find_adb()), "start-server"], env=env, capture_output=True, text=True, timeout=20,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as problem:
            raise DeviceError(f"adb could not be started ({problem}): try `adb start-server`.") from problem
        if done.returncode != 0:
            why = " ".join(done.stderr.split())[-200:] or f"exit code {done.returncode}"
            raise DeviceError(f"adb could not start its server ({why}): try `adb start-server`.")

    def mismatch(self) -> str | None:
        """A sentence if the server and our adb binary are of different versions, else None.

        We speak the server's protocol ourselves, so work goes on; but the *binary* would kill this server.
        """
        running, ours = self.version(), client_version(find_adb())
        if running is None or ours is None or running == ours:
            return None
        return (
            f"The adb server on port {self.port} has version {running}, the adb on this machine {ours}: "
            "it is used as it is; use one adb everywhere (`adb kill-server` when nobody needs it)."
        )

    def client(self) -> Any:
        """An adbutils client bound to this server; every thread may use it, each call is its own connection."""
        if self._client is None or self._client.port != self.port:
            self._client = make_client(self.host, self.port)
        return self._client


def _port(text: str, variable: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise DeviceError(f"{variable} holds {text!r}, which is no port number: correct it or unset it.")


def free_port() -> int:
    """A port that was free a moment ago, outside 5554–5585, where adb looks for emulators."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if not 5554 <= port <= 5585:
            return port


class PrivateServer(AdbServer):
    """An adb server of our own: own port, own home, own key; no USB, no emulators; gone at the end.

    adb asks nobody on its port who they are, so any account of this machine may use it while it runs: only stand-ins
    are ever attached to it, whose shell has no way to the host's files, and never a phone.

    `public_key_path` is the key it shows to devices, so that a stand-in can be told to allow it.
    """

    def __init__(self, adb: Path | None = None) -> None:
        super().__init__("127.0.0.1", free_port())
        self.adb = adb
        self.pid: int | None = None
        self._keeper: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def revive(self) -> None:
        """A private server belongs to its `with` block: it is not started again outside of it."""

    @property
    def home(self) -> Path:
        """The folder that the server believes to be the user's home."""
        if self._folder is None:
            raise DeviceError("The private adb server is not running: use it inside its `with` block.")
        return Path(self._folder.name)

    @property
    def public_key_path(self) -> Path:
        """The server's public key file."""
        return self.home / ".android" / "adbkey.pub"

    def environment(self) -> dict[str, str]:
        """The environment in which any adb binary talks to this server and to no other."""
        env = {k: v for k, v in os.environ.items() if k not in _FOREIGN_VARIABLES}
        env.update(
            HOME=str(self.home), TMPDIR=str(self.home), ANDROID_ADB_SERVER_PORT=str(self.port),
            ADB_USB="0", ADB_EMU="0", ADB_MDNS="0", ADB_MDNS_AUTO_CONNECT="0",
        )  # fmt: skip
        return env

    def __enter__(self) -> PrivateServer:
        self._folder = tempfile.TemporaryDirectory(prefix="mtplab-adb-")
        try:
            self.adb = self.adb or find_adb()
            self._make_key()
            for _attempt in range(3):
                if self._launch():
                    return self
                self.port = free_port()  # the port was free a moment before adb wanted it
            raise DeviceError(f"The private adb server did not start: {self._log_tail()}")
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_key(self) -> None:
        folder = self.home / ".android"
        folder.mkdir(mode=0o700)
        done = subprocess.run(
            [str(self.adb), "keygen", str(folder / "adbkey")],
            env=self.environment(), capture_output=True, text=True, timeout=20,
        )  # fmt: skip
        if done.returncode != 0 or not self.public_key_path.is_file():
            raise DeviceError(f"{self.adb} could not make a key pair: {done.stderr.strip()[-200:]}")

    def _launch(self) -> bool:
        with (self.home / "server.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "adb-keeper", str(self.adb), "nodaemon", "server"],
                env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
        if self._keeper.stdout is None:  # pragma: no cover - Popen was given a pipe
            raise DeviceError("The private adb server has no output pipe.")
        self.pid = int(self._keeper.stdout.readline() or 0) or None
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._alive():
            if self.version(0.5) is not None:
                return True
            time.sleep(0.02)
        self._stop()
        return False

    def _alive(self) -> bool:
        """Whether the server process runs; a zombie that its keeper has not collected counts as ended."""
        if self.pid is None:
            return False
        import psutil

        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self.home / "server.log").read_text(errors="replace").split("\n")
            return " ".join(" ".join(lines[-4:]).split())[-300:] or "it printed nothing."
        return "it left no log."

    def _stop(self) -> None:
        keeper, self._keeper, self.pid = self._keeper, None, None
        if keeper is None:
            return
        try:
            keeper.communicate("stop\n", timeout=5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(keeper.pid, signal.SIGKILL)
            keeper.communicate(timeout=5)

    def close(self) -> None:
        """End the server and remove everything it wrote."""
        self._stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
