"""Serves one stand-in device from the first JSON line to the last process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mtplab.standin import backends
from mtplab.standin.adbd import EMULATOR_PORTS, Adbd, read_allowed
from mtplab.standin.clockwork import Clockwork
from mtplab.standin.control import Control
from mtplab.standin.files import DeviceFiles
from mtplab.standin.phone import Phone
from mtplab.standin.physics import HeatModel
from mtplab.standin.processes import Processes
from mtplab.standin.programs import Programs
from mtplab.standin.settings import UsageError, load_profile, load_scenario, names

MARKER = ".mtplab-standin"
EXIT_FINE, EXIT_USAGE = 0, 1
FASTEST = 1000.0  # a tick of the clock then already lasts longer than any run


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(message)


def _check_numbers(options: argparse.Namespace) -> None:
    """UsageError for a number that no phone can be served with."""
    for name, value, least, most in (
        ("--port", options.port, 0, 65535),
        ("--speed", options.speed, 0.001, FASTEST),
        ("--max-processes", options.max_processes, 1, 1 << 20),
        ("--max-bytes", options.max_bytes, 1, 1 << 62),
    ):
        if not least <= value <= most:  # nan is between no two numbers
            raise UsageError(f"{name} {value} is out of range: give {least:g} to {most:g}")


def _parse(args: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="mtplab standin", description="Serve a Pixel that isn't there to any adb client.")
    add = parser.add_argument
    add("--scenario", default="normal", help=f"one of {', '.join(names('scenarios'))}")
    add("--profile", default="pixel-9-pro", help=f"one of {', '.join(names('profiles'))}")
    add("--root", type=Path, help="folder that keeps the device's files between runs (default: a temporary one)")
    add("--port", type=int, default=0, help="port on 127.0.0.1 (default: any free one)")
    add("--speed", type=float, default=1.0, help="how much faster heat moves than the clock")
    add("--backend", default="auto", help=f"auto, {', '.join(backends.NAMES)}")
    add("--allow-key", type=Path, action="append", default=[], metavar="ADBKEY.PUB", help="trust this key")
    add("--program", action="append", default=[], metavar="DEVICE_PATH=JSON_ARGV", help="run ARGV there")
    add("--exit-with-parent", action="store_true", help="end when standard input ends")
    add("--max-processes", type=int, default=64)
    add("--max-bytes", type=int, default=4 << 30, help="how much the user's folders may hold")
    return parser.parse_args(args)


def main(args: list[str]) -> int:
    """Serve until a signal; 0 at a clean end, 1 for what cannot be served (one sentence on stderr)."""
    try:
        options = _parse(args)
        _check_numbers(options)
        with _device_folder(options.root) as folder:
            return asyncio.run(_serve(options, folder))
    except UsageError as error:
        print(f"mtplab standin: {error}", file=sys.stderr)
        return EXIT_USAGE


@contextlib.contextmanager
def _device_folder(wanted: Path | None) -> Iterator[Path]:
    """A private folder that belongs to this run alone; a temporary one is removed at the end."""
    if wanted is None:
        folder = Path(tempfile.mkdtemp(prefix="mtplab-device-"))
    else:
        folder = wanted
        foreign = folder.exists() and not (folder / MARKER).exists()
        if foreign and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} holds something else than a stand-in's files; name an empty folder")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"cannot make {folder}: {error.strerror}") from None
        folder.chmod(0o700)  # a shell's request pipe lies inside: nobody else may reach it
    try:
        with (folder / MARKER).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"another stand-in serves {folder}; end it or name another folder") from None
            yield folder
    finally:
        if wanted is None:
            shutil.rmtree(folder, ignore_errors=True)


def _parse_programs(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        path, _, text = word.partition("=")
        try:
            argv = json.loads(text)
        except ValueError:
            argv = None
        good = isinstance(argv, list) and argv and all(isinstance(item, str) for item in argv)
        if not path.startswith("/data/local/tmp/") or not good:
            form = '/data/local/tmp/NAME=["program", "argument"]'
            raise UsageError(f"--program {word!r} is not of the form {form}")
        found[path] = argv
    return found


class _Device:
    """All parts of one device, wired together."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        profile, scenario = load_profile(options.profile), load_scenario(options.scenario)
        if options.port in EMULATOR_PORTS:
            raise UsageError(f"port {options.port} is one adb takes for an emulator's; choose another")
        extra = _parse_programs(options.program)
        try:
            keys = read_allowed(options.allow_key)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot use the key of --allow-key: {error}") from None
        root = folder / "device"
        root.mkdir(exist_ok=True)
        root.chmod(0o755)
        self.files = DeviceFiles(str(root))
        self.phone = Phone(self.files, profile, scenario, HeatModel.start(profile, scenario))
        self.phone.build("unknown")
        self.phone.write_uptime()
        self.backend = backends.choose(options.backend, self.files)
        self.phone.build(self.backend.name)
        limits = {"limit": options.max_processes, "max_file_bytes": options.max_bytes}
        self.processes = Processes(self.files, **limits)
        self.clockwork = Clockwork(
            self.phone, self.processes, speed=options.speed, limit_bytes=options.max_bytes
        )
        self.programs = Programs(
            self.files, self.processes, scenario, self.clockwork, self.backend.has_trampolines
        )
        self.programs.install(extra)
        self.adbd = Adbd(
            profile, self.files, self.backend, self.processes, self.programs,
            keys=keys, limit_bytes=options.max_bytes,
        )  # fmt: skip
        if not scenario.authorised:
            self.adbd.mode = "unauthorized"
        self.control = Control(self.adbd, self.clockwork, self.processes)


async def _serve(options: argparse.Namespace, folder: Path) -> int:
    device = _Device(options, folder)
    private = Path(tempfile.mkdtemp(prefix="mtplab-", dir="/tmp"))  # a socket's path must be short
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    ticking: asyncio.Task[None] | None = None
    try:
        device.programs.listen()
        try:
            port = await device.adbd.listen(options.port)
        except OSError as error:
            raise UsageError(f"cannot listen on port {options.port}: {error.strerror}") from None
        control = await device.control.listen(private / "control")
        ticking = asyncio.ensure_future(device.clockwork.run(device.backend.writes_uptime))
        line = {
            "serial": f"127.0.0.1:{port}",
            "scenario": options.scenario,
            "profile": options.profile,
            "backend": device.backend.name,
            "root": device.files.root,
            "control": str(private / "control"),
            "pid": os.getpid(),
        }
        print(json.dumps(line), flush=True)
        if sys.stderr.isatty():
            _explain(port, options.scenario, bool(options.allow_key))
            device.adbd.announce = _announce
        _watch_stdin(device, stop, options.exit_with_parent)
        await _wait(stop, ticking)
        control.close()
    finally:
        if ticking is not None:
            ticking.cancel()
        device.programs.close()
        device.adbd.close()
        device.processes.kill_all()
        await asyncio.sleep(0)
        shutil.rmtree(private, ignore_errors=True)
    return EXIT_FINE


def _announce(text: str) -> None:
    print(f"{text}\n  `allow` trusts it; where several ask, `allow FINGERPRINT` trusts that one.", file=sys.stderr)


async def _wait(stop: asyncio.Event, ticking: asyncio.Task[None]) -> None:
    """Until a signal, or until the clockwork fails, which is then raised."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({stopping, ticking}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if ticking.done():
        ticking.result()


def _explain(port: int, scenario: str, has_key: bool) -> None:
    print(f"A stand-in Pixel (scenario {scenario}) is waiting. In another terminal:", file=sys.stderr)
    print(f"  adb connect 127.0.0.1:{port}", file=sys.stderr)
    if not has_key:
        print("It trusts no computer yet: after connecting, compare its key and type `allow`.", file=sys.stderr)
    print("Ctrl-C ends it.", file=sys.stderr)


def _watch_stdin(device: _Device, stop: asyncio.Event, exit_with_parent: bool) -> None:
    """On a terminal, control commands may be typed; with a parent behind it, its end is our end."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if not (terminal or exit_with_parent):
        return
    loop = asyncio.get_running_loop()

    def readable() -> None:
        data = os.read(0, 4096)
        if not data:
            loop.remove_reader(0)
            if exit_with_parent:
                stop.set()
        elif terminal:
            for line in data.decode("utf-8", "replace").splitlines():
                print(json.dumps(device.control.execute(line)), file=sys.stderr)

    try:
        loop.add_reader(0, readable)
    except (OSError, ValueError) as error:  # a file cannot be watched; it has no parent behind it either
        if exit_with_parent:
            raise UsageError(f"--exit-with-parent needs a pipe as standard input ({error})") from None
