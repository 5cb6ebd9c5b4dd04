"""Runs the stand-in phone as a process of its own beside a private adb server, and ends both."""

from __future__ import annotations

import contextlib
import json
import os
import select
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from mtplab.device.adb import PrivateServer
from mtplab.device.errors import DeviceError
from mtplab.device.link import Link, connect

_START_S = 30.0
# The folder of the whole package: nobody writes there who could not change mtplab itself.
_PACKAGE = Path(__file__).resolve().parents[1]
# `python -m` would look for modules in the folder it is started from, which for a program of the stand-in holds what
# was pushed to the phone. -I looks neither there nor at PYTHONPATH; what it leaves out besides is named here.
_ISOLATED = """import sys
sys.path.insert(0, {home!r})
import mtplab
del sys.path[0]
sys.path += {user_sites!r}
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def isolated_python(module: str) -> list[str]:
    """The argument list that runs a module of this mtplab, whatever lies in the folder it is started from."""
    user_sites = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    code = _ISOLATED.format(home=str(_PACKAGE.parent), user_sites=user_sites, module=module)
    return [sys.executable, "-I", "-c", code]


def token_runner() -> list[str]:
    """The argument list behind the stand-in's token runner."""
    return isolated_python("mtplab.tokenrunner")


def litert_lm() -> list[str]:
    """The argument list behind the stand-in's litert_lm_advanced_main."""
    return isolated_python("mtplab.standin.litert_lm_main")


class StandinProcess:
    """A running stand-in: `.serial`, `.server` (private), `.link()`, `.control(command)`.

    `programs` maps a path on the device to the host's argument list that runs there. Without `root` the device's
    files live in a temporary folder of the stand-in's own. `allow_key` defaults to the private server's key;
    `allow=False` leaves the phone unauthorised, as a new phone is. Paths among `options` must be absolute: the
    stand-in does not run in the caller's folder.
    """

    def __init__(
        self, scenario: str = "normal", root: Path | None = None,
        programs: Mapping[str, Sequence[str]] | None = None, allow_key: Path | None = None,
        speed: float | None = None, allow: bool = True, server: PrivateServer | None = None,
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.serial = ""
        self.about: dict[str, Any] = {}
        self._root, self._programs, self._speed = root, dict(programs or {}), speed
        self._allow_key, self._allow, self._options = allow_key, allow, list(options)
        self._server = server
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None

    @property
    def server(self) -> PrivateServer:
        """The private adb server that the stand-in is attached to."""
        if self._server is None:
            raise DeviceError("The stand-in is not running: use it inside its `with` block.")
        return self._server

    @property
    def serials(self) -> list[str]:
        """Every phone's serial: a scenario may serve several; `serial` is the first."""
        return [str(phone["serial"]) for phone in self.about.get("phones", [self.about])]

    def link(self, serial: str | None = None) -> Link:
        """A link to the stand-in, or to the named one of its phones."""
        return Link(self.server, serial or self.serial)

    def __enter__(self) -> StandinProcess:
        with contextlib.ExitStack() as stack:
            if self._server is None:
                self._server = stack.enter_context(PrivateServer())
            stack.callback(self._end)
            self._launch()
            for serial in self.serials:
                connect(self.server, serial)
                if self._allow:
                    Link(self.server, serial).wait_for_return(_START_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _arguments(self) -> list[str]:
        arguments = ["--exit-with-parent", "--scenario", self.scenario]
        if self._root is not None:
            arguments += ["--root", str(self._root.absolute())]
        if self._allow:
            key = self._allow_key or self.server.public_key_path
            arguments += ["--allow-key", str(key.absolute())]
        if self._speed is not None:
            arguments += ["--speed", str(self._speed)]
        for path, argv in self._programs.items():
            arguments += ["--program", f"{path}={json.dumps(list(argv))}"]
        return arguments + self._options

    def _launch(self) -> None:
        # In the server's private folder, which goes away with the server, even if this process is killed.
        descriptor, name = tempfile.mkstemp(prefix="standin-", suffix=".log", dir=self.server.home)
        log = Path(name)
        with os.fdopen(descriptor, "wb") as errors:
            self._process = subprocess.Popen(
                [*isolated_python("mtplab.standin"), *self._arguments()], cwd=_PACKAGE,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        line = self._first_line()
        try:
            self.about = json.loads(line)
            self.serial = str(self.about["serial"])
        except (ValueError, KeyError, TypeError):
            said = " ".join(log.read_text(errors="replace").strip().splitlines()[-1:]) or f"it printed {line[:80]!r}"
            raise DeviceError(f"The stand-in did not start with scenario {self.scenario!r}: {said}") from None

    def _first_line(self) -> str:
        output = self._process.stdout if self._process else None
        if output is None or not select.select([output], [], [], _START_S)[0]:
            return ""
        return output.readline()

    def control(self, command: str, timeout_s: float = 10.0) -> Any:
        """Tell the stand-in something (`unplug`, `allow`, …) and return its answer, decoded from JSON."""
        address = self.about.get("control")
        try:
            with _control_socket(address) as sock:
                sock.settimeout(timeout_s)
                sock.sendall(command.encode() + b"\n")
                answer = sock.makefile("rb").readline()
            return json.loads(answer)
        except (OSError, ValueError) as problem:
            raise DeviceError(f"The stand-in did not answer {command!r} ({problem}).") from problem

    @property
    def pid(self) -> int | None:
        """The stand-in's process."""
        return self._process.pid if self._process else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _control_socket(address: object) -> socket.socket:
    """The stand-in's control socket: a port on this machine or a path."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address), 5)
    text = str(address or "")
    if text.startswith("/"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(5)
        sock.connect(text)
        return sock
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise OSError(f"no control address in {text!r}")
    return socket.create_connection((host or "127.0.0.1", int(port)), 5)
