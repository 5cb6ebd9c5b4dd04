"""What a stage's result may depend on besides its inputs: source files, package versions, the machine."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import mtplab

_PACKAGE = Path(mtplab.__file__).parent
# Imports are read, not executed: the key of a stage must not load torch.
_IMPORT = re.compile(
    r"^\s*(?:from\s+(mtplab[\w.]*)\s+import\s+(\([^)]*\)|[^#\n]*)|import\s+(mtplab[\w.]*))", re.MULTILINE
)


def source_hashes(modules: Iterable[str], data: Iterable[str] = ()) -> dict[str, str]:
    """Hashes of the named modules, of every module of ours that they import, and of data files of the package.

    `data` holds paths relative to the package, such as `litert/recipes.toml`.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        path = _file(module)
        if path is None:
            continue
        digest, imports = _read(path, path.stat().st_mtime_ns)
        found[module] = digest
        waiting += imports
    for name in data:
        found[name] = hashlib.sha256((_PACKAGE / name).read_bytes()).hexdigest()
    return found


def _file(module: str) -> Path | None:
    base = _PACKAGE.joinpath(*module.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@functools.lru_cache(maxsize=512)
def _read(path: Path, mtime_ns: int) -> tuple[str, tuple[str, ...]]:
    """Hash and our own imports of a source file; the time stamp makes an edited file be read again."""
    data = path.read_bytes()
    imports: list[str] = []
    for package, names, plain in _IMPORT.findall(data.decode("utf-8")):
        imports.append(package or plain)
        # `from mtplab.model import heads` names a module, not something inside one.
        imports += [f"{package}.{name.split()[0]}" for name in names.strip("() \n").split(",") if name.split()]
    return hashlib.sha256(data).hexdigest(), tuple(imports)


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Installed versions without importing anything; None where a package is absent."""
    return {name: _version(name) for name in packages}


@functools.cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def machine() -> dict[str, str]:
    """CPU and ABI of this host: kernels, and so rounding, are chosen by them."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "cpu": hashlib.sha256(_cpu_features().encode()).hexdigest(),
    }


def _cpu_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return _sysctl() or platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _sysctl() -> str:
    """The processor's name on macOS, which has no /proc."""
    try:
        done = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
