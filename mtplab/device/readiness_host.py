"""Preconditions on this computer: system, space, adb, packages, and the data that a run needs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mtplab.device.adb import AdbServer, client_version, find_adb
from mtplab.device.errors import DeviceError
from mtplab.device.readiness import Item, Options, python_version
from mtplab.session import paths

_SPACE_BYTES = 5_000_000_000  # two conversions of a model of a few hundred MB, with their intermediate files
_CALIBRATION = (200, 1000)

_CONVERT_TOY = """
import torch, litert_torch
from ai_edge_quantizer import quantizer
from ai_edge_litert.interpreter import Interpreter
class Toy(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1
litert_torch.convert(Toy().eval(), sample_kwargs={"x": torch.zeros(1, 4)})
"""


def host(options: Options) -> Iterator[Item]:
    """Operating system, Python, free space."""
    system = platform.system()
    if system in ("Linux", "Darwin"):
        yield Item("host.system", "host", "pass", f"{system} {platform.release()} on {platform.machine()}")
    else:
        yield Item("host.system", "host", "fail", f"{system} is not supported", "Use Linux or macOS.")
    # An older Python cannot get here: the package refuses to be installed, and the syntax to be read.
    yield Item("host.python", "host", "pass", f"Python {python_version()}")
    yield _space(options.sessions_dir or paths.sessions_dir())


def _space(folder: Path) -> Item:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as problem:
        return Item("host.space", "host", "unknown", f"the free space of {place} cannot be read ({problem.strerror})")
    cause = f"{free / 1e9:.1f} GB free for sessions and artefacts in {place}"
    if free >= _SPACE_BYTES:
        return Item("host.space", "host", "pass", cause)
    cure = f"Free {(_SPACE_BYTES - free) / 1e9:.1f} GB, or set MTPLAB_SESSIONS."
    return Item("host.space", "host", "fail", cause, cure)


def adb(server: AdbServer | None) -> Iterator[Item]:
    """The adb binary and the server's version."""
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
        chosen = server or AdbServer.users().ensure()
        mismatch = chosen.mismatch()
    except DeviceError as problem:
        yield Item("adb.server", "toolchain", "fail", str(problem), "adb start-server")
        return
    running = chosen.version()
    if mismatch:
        yield Item("adb.server", "toolchain", "unknown", mismatch, "Use one adb everywhere, then: adb kill-server")
    elif running is None:
        yield Item("adb.server", "toolchain", "fail", f"nothing answers on port {chosen.port}", "adb start-server")
    else:
        yield Item("adb.server", "toolchain", "pass", f"answers on port {chosen.port} with protocol {running}")


# --- packages ---------------------------------------------------------------------------------------------------

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;(.*))?$")
# Older names under which the same thing may be installed.
_OTHER_NAMES = {"litert-torch": ("ai-edge-torch",), "ai-edge-quantizer": ("litert-quantizer",)}
_EMPTY_SHIMS = {("ai-edge-torch", "0.7.2")}  # publishes the new name's package, has no `convert`


def packages() -> Iterator[Item]:
    """Every package that mtplab's own metadata asks for: present, and in a version that fits. Imports nothing."""
    try:
        wanted = importlib.metadata.requires("mtplab") or []
    except importlib.metadata.PackageNotFoundError:
        yield Item(
            "packages", "toolchain", "unknown", "mtplab is not installed as a package, so its needs are not known",
            "pip install -e .",
        )  # fmt: skip
        return
    for requirement in wanted:
        match = _REQUIREMENT.match(requirement)
        if match is None:
            continue
        name, versions, marker = match.group(1), match.group(2).strip(), match.group(3) or ""
        if "dev" in marker or ("python_version" in marker and sys.version_info >= (3, 11)):
            continue
        yield _package(name, versions, pipeline="pipeline" in marker)


def _package(name: str, versions: str, pipeline: bool) -> Item:
    identifier, cure = f"package.{name}", "pip install 'mtplab[pipeline]'" if pipeline else "pip install mtplab"
    for candidate in (name, *_OTHER_NAMES.get(name, ())):
        try:
            found = importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
        if (candidate, found) in _EMPTY_SHIMS:
            continue
        if candidate != name:
            cause = f"{candidate} {found} stands in for {name}; the two have not been compared here"
            return Item(identifier, "toolchain", "unknown", cause, cure)
        fits = satisfies(found, versions)
        if fits is None:
            return Item(identifier, "toolchain", "unknown", f"{found} cannot be compared with {versions}", cure)
        if fits:
            return Item(identifier, "toolchain", "pass", f"{name} {found}")
        return Item(identifier, "toolchain", "fail", f"{name} {found} is installed, {versions} is needed", cure)
    why = "needed to export and quantise" if pipeline else "needed"
    cause = f"{name} is not installed ({why}: {versions or 'any version'})"
    return Item(identifier, "toolchain", "fail", cause, cure)


def satisfies(version: str, wanted: str) -> bool | None:
    """Whether a version fits `>=2.13,<3` or `==0.10.0`; None for forms that this short reader does not know."""
    have = _release(version)
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|<=|==|<|>)\s*([\d.]+)", clause)
        if match is None or have is None:
            return None
        limit = _release(match.group(2)) or ()
        width = max(len(have), len(limit))
        a, b = have + (0,) * (width - len(have)), limit + (0,) * (width - len(limit))
        if not {">=": a >= b, "<=": a <= b, "==": a == b, "<": a < b, ">": a > b}[match.group(1)]:
            return False
    return True


def _release(version: str) -> tuple[int, ...] | None:
    match = re.match(r"\d+(\.\d+)*", version, re.ASCII)
    return tuple(int(part) for part in match.group(0).split(".")) if match else None


def converts(timeout_s: float = 300.0) -> Iterator[Item]:
    """Really import the converters and convert a toy, in a process of its own."""
    command = [sys.executable, "-c", _CONVERT_TOY]
    cure = "pip install 'mtplab[pipeline]', then look at the last line of the cause"
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired:
        yield Item("convert.toy", "toolchain", "fail", f"converting a toy took more than {timeout_s:g} s", cure)
        return
    if done.returncode == 0:
        yield Item("convert.toy", "toolchain", "pass", "a toy graph was converted")
    else:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        yield Item("convert.toy", "toolchain", "fail", f"a toy graph was not converted: {said[0][:300]}", cure)


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
    cure = f"Give {low}–{high} prompts from your own logs; static recipes need them, dynamic ones do not."
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
    """Lines that are JSON objects with text or tokens; None if unreadable, or if a line is something else."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError):
        return None
    good = [row for row in rows if isinstance(row, dict) and ("text" in row or "tokens" in row)]
    return len(good) if len(good) == len(rows) else None
