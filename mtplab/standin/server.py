"""Serves the phones of a scenario from the first JSON line to the last process."""

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
from dataclasses import replace
from pathlib import Path

from mtplab.standin import backends
from mtplab.standin.adbd import EMULATOR_PORTS, read_allowed
from mtplab.standin.assembly import Device, Order
from mtplab.standin.keys import PublicKey
from mtplab.standin.physics import presets
from mtplab.standin.settings import UsageError, load_scenario, names

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
    add("--heat", choices=presets(), help="how well the phone gives heat away (default: its profile's or scenario's)")
    add("--seed", type=int, default=0, help="another specimen of the same phone, with other noise")
    add("--trace", type=Path, help="play recorded heat: a session's events.jsonl, or a CSV file with a column t_s")
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
            _watch_children_cheaply()
            return asyncio.run(_serve(options, folder))
    except UsageError as error:
        print(f"mtplab standin: {error}", file=sys.stderr)
        return EXIT_USAGE


def _watch_children_cheaply() -> None:
    """Before Python 3.12 asyncio starts a thread for each process unless it is told of the kernel's better way."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # a kernel or sandbox without it
            os.close(os.pidfd_open(os.getpid()))
            asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


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


async def _serve(options: argparse.Namespace, folder: Path) -> int:
    if options.port in EMULATOR_PORTS:
        raise UsageError(f"port {options.port} is one adb takes for an emulator's; choose another")
    scenario = replace(load_scenario(options.scenario), seed=options.seed)
    if options.heat is not None:
        scenario = replace(scenario, heat_preset=options.heat)
    order = Order(
        scenario=scenario, keys=_read_keys(options.allow_key), programs=_parse_programs(options.program),
        backend=options.backend, speed=options.speed,
        max_processes=options.max_processes, max_bytes=options.max_bytes, trace=options.trace,
    )  # fmt: skip
    phones = [
        Device(order, profile or options.profile, folder / ("device" if number == 0 else f"device{number + 1}"))
        for number, profile in enumerate(scenario.profiles)
    ]
    private = Path(tempfile.mkdtemp(prefix="mtplab-", dir="/tmp"))  # a socket's path must be short
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(ending, stop.set)
    try:
        lines = []
        for number, phone in enumerate(phones):
            phone.control.phones = [other.control for other in phones]
            port = options.port + number if options.port else 0
            control = private / ("control" if number == 0 else f"control{number + 1}")
            try:
                lines.append(await phone.open(port, control))
            except OSError as error:
                raise UsageError(f"cannot listen on port {port}: {error.strerror}") from None
        first = {"scenario": options.scenario, "pid": os.getpid(), "phones": lines, **lines[0]}
        print(json.dumps(first), flush=True)
        if sys.stderr.isatty():
            _explain(lines, options.scenario, bool(options.allow_key))
            for phone in phones:
                phone.adbd.announce = _announce
        _watch_stdin(phones[0], stop, options.exit_with_parent)
        await _wait(stop, [phone.ticking for phone in phones if phone.ticking is not None])
    finally:
        for phone in phones:
            phone.close()
        await asyncio.sleep(0)
        shutil.rmtree(private, ignore_errors=True)
    return EXIT_FINE


def _read_keys(paths: list[Path]) -> list[PublicKey]:
    try:
        return read_allowed(paths)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot use the key of --allow-key: {error}") from None


def _announce(text: str) -> None:
    print(f"{text}\n  `allow` trusts it; where several ask, `allow FINGERPRINT` trusts that one.", file=sys.stderr)


async def _wait(stop: asyncio.Event, ticking: list[asyncio.Task[None]]) -> None:
    """Until a signal, or until a clockwork fails, which is then raised."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({stopping, *ticking}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    for task in ticking:
        if task.done():
            task.result()


def _explain(phones: list[dict[str, object]], scenario: str, has_key: bool) -> None:
    what = "A stand-in phone is" if len(phones) == 1 else f"{len(phones)} stand-in phones are"
    print(f"{what} waiting (SIMULATED; scenario {scenario}). In another terminal:", file=sys.stderr)
    for phone in phones:
        print(f"  adb connect {phone['serial']}    # like a {phone['title']}", file=sys.stderr)
    if not has_key:
        print("It trusts no computer yet: after connecting, compare its key and type `allow`.", file=sys.stderr)
    print("`help` lists what can be typed here (unplug, load BIG 1, …); Ctrl-C ends it.", file=sys.stderr)


def _watch_stdin(device: Device, stop: asyncio.Event, exit_with_parent: bool) -> None:
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
