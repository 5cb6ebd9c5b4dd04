"""Preconditions on this computer: system, space, adb, and the data that a run needs."""

from __future__ import annotations

import importlib.util
import json
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from mtplab.device.adb import AdbServer, client_version, find_adb
from mtplab.device.errors import DeviceError
from mtplab.device.readiness import Item, Options, python_version
from mtplab.session import paths

_SPACE_BYTES = 5_000_000_000  # two conversions of a model of a few hundred MB, with their intermediate files
_CALIBRATION = (200, 1000)
_ROW = {"text", "prompt", "messages", "tokens"}


def host(options: Options) -> Iterator[Item]:
    """Operating system, Python, free space."""
    system = platform.system()
    if system in ("Linux", "Darwin"):
        yield Item("host.system", "host", "pass", f"{system} {platform.release()} on {platform.machine()}")
    else:
        yield Item("host.system", "host", "fail", f"{system} is not supported", "Use Linux or macOS.")
    # An older Python cannot get here: the package refuses to be installed, and the syntax to be read.
    yield Item("host.python", "host", "pass", f"Python {python_version()}")
    yield _space("host.space.sessions", "sessions", options.sessions_dir or paths.sessions_dir(), "MTPLAB_SESSIONS")
    yield _space("host.space.cache", "artefacts", paths.cache_dir(), "MTPLAB_CACHE")


def _space(identifier: str, what: str, folder: Path, variable: str) -> Item:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as problem:
        cause = f"the free space of {place} cannot be read ({problem.strerror})"
        return Item(identifier, "host", "unknown", cause, f"Set {variable} to a folder that can be read.")
    cause = f"{free / 1e9:.1f} GB free for {what} in {place}"
    if free >= _SPACE_BYTES:
        return Item(identifier, "host", "pass", cause)
    cure = f"Free {(_SPACE_BYTES - free) / 1e9:.1f} GB, or set {variable} to a folder on a larger disk."
    return Item(identifier, "host", "fail", cause, cure)


def adb(server: AdbServer | None, *, start: bool = True) -> Iterator[Item]:
    """The adb binary and the server's version; with `start` the user's server is started where it is absent."""
    try:
        binary = find_adb()
    except DeviceError as problem:
        yield Item("adb.binary", "toolchain", "fail", str(problem), "Install Android platform-tools.")
        return
    version = client_version(binary)
    if version is None:
        yield Item(
            "adb.binary", "toolchain", "fail", f"{binary} does not run as adb", "Reinstall Android platform-tools."
        )
        return
    yield Item("adb.binary", "toolchain", "pass", f"{binary}, protocol {version}")
    try:
        chosen = server or (AdbServer.users().ensure() if start else AdbServer.users())
        mismatch = chosen.mismatch()
    except DeviceError as problem:
        yield Item("adb.server", "toolchain", "fail", str(problem), "adb start-server")
        return
    running = chosen.version()
    if mismatch:
        yield Item("adb.server", "toolchain", "unknown", mismatch, "Use one adb everywhere, then: adb kill-server")
    elif running is None and not start:
        cause = f"nothing answers on port {chosen.port}; an engine may talk through a server of its own"
        yield Item("adb.server", "toolchain", "unknown", cause, "adb start-server")
    elif running is None:
        yield Item("adb.server", "toolchain", "fail", f"nothing answers on port {chosen.port}", "adb start-server")
    else:
        yield Item("adb.server", "toolchain", "pass", f"answers on port {chosen.port} with protocol {running}")


# --- data -------------------------------------------------------------------------------------------------------


def data(options: Options) -> Iterator[Item]:
    """Model with an MTP head, prompts to measure with, calibration set."""
    shipped = _shipped_models()
    yield _model(options.model_dir or (shipped / "tiny" if shipped else None))
    yield _prompts(options.prompts or (shipped / "prompts" / "demo.jsonl" if shipped else None))
    yield _calibration(options.calibration)


def _shipped_models() -> Path | None:
    spec = importlib.util.find_spec("mtplab.model")  # finds the folder; does not import the room
    return Path(spec.origin).parent if spec and spec.origin else None


def _model(folder: Path | None) -> Item:
    if folder is None or not folder.is_dir():
        cause = f"there is no model folder {folder}" if folder else "no model is named and none is shipped"
        return Item("data.model", "data", "fail", cause, "Name one with --model, or install mtplab again.")
    missing = [n for n in ("config.json", "tokenizer.json", "backbone.safetensors") if not (folder / n).is_file()]
    heads = sorted(path.stem for path in folder.glob("head*.safetensors"))
    if missing:
        return Item("data.model", "data", "fail", f"{folder} lacks {', '.join(missing)}", "Install mtplab again.")
    if not heads:
        return Item(
            "data.model", "data", "fail", f"{folder} has no MTP head (head*.safetensors)",
            "Train one, or name a model that has one.",
        )  # fmt: skip
    return Item("data.model", "data", "pass", f"{folder.name} with {', '.join(heads)}")


def _prompts(path: Path | None) -> Item:
    count = _count_prompts(path) if path is not None else None
    if not count:
        return Item("data.prompts", "data", "fail", f"no prompt can be read from {path}", "Name a prompt set.")
    return Item("data.prompts", "data", "pass", f"{count} prompts in {path.name if path else ''}")


def _calibration(path: Path | None) -> Item:
    low, high = _CALIBRATION
    cure = f"mtplab calibrate LOGS --out DIR  ({low}–{high} prompts; static recipes need them, dynamic ones do not)"
    if path is None:
        return Item("data.calibration", "data", "unknown", "no calibration set was named", cure)
    count = _count_prompts(path)
    if count is None:
        return Item("data.calibration", "data", "fail", f"{path} cannot be read as JSON lines", cure)
    cause = f"{count} prompts in {path.name}"
    if low <= count <= high:
        return Item("data.calibration", "data", "pass", cause)
    return Item("data.calibration", "data", "fail", cause, cure)


def _count_prompts(path: Path) -> int | None:
    """Rows with a text, a prompt, messages or tokens, in JSON lines or in a set that was built; else None."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError):
        return None
    if len(rows) == 1 and isinstance(rows[0], dict) and isinstance(rows[0].get("prompts"), list):
        rows = rows[0]["prompts"]
    good = [row for row in rows if isinstance(row, dict) and not _ROW.isdisjoint(row)]
    return len(good) if len(good) == len(rows) else None
