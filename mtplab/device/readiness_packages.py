"""Preconditions among Python packages by their metadata: installed, findable, fit for us and for each other."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion

from mtplab.device.readiness import Item, Status

# Older names under which the same thing may be installed.
_OTHER_NAMES = {"litert-torch": ("ai-edge-torch",), "ai-edge-quantizer": ("litert-quantizer",)}
_EMPTY_SHIMS = {("ai-edge-torch", "0.7.2")}  # publishes the new name's package, has no `convert`
_LIGHT, _PIPELINE = "pip install mtplab", "pip install 'mtplab[pipeline]'"


def packages() -> Iterator[Item]:
    """Every package that mtplab's own metadata asks for, and whether those installed fit each other. Imports none."""
    try:
        lines = importlib.metadata.requires("mtplab") or []
    except importlib.metadata.PackageNotFoundError:
        cause = "mtplab is not installed as a package, so its needs are not known"
        yield Item("packages", "toolchain", "unknown", cause, "pip install -e '.[pipeline]'")
        return
    wanted = [(need, extra) for need in map(Requirement, lines) if (extra := _extra_of(need)) is not None]
    for need, extra in wanted:
        yield package(need, _PIPELINE if extra else _LIGHT)
    yield compatible([need.name for need, extra in wanted if extra])


def _extra_of(need: Requirement) -> str | None:
    """The extra that brings a requirement here: "" for none; None where it is not needed on this machine."""
    for extra in ("", "pipeline"):
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            return extra
    return None


def package(need: Requirement, cure: str) -> Item:
    """One package: in a version that fits, and where Python would find it."""

    def item(status: Status, cause: str) -> Item:
        return Item(f"package.{need.name}", "toolchain", status, cause, "" if status == "pass" else cure)

    versions = str(need.specifier) or "any version"
    for name in (need.name, *_OTHER_NAMES.get(need.name, ())):
        found = _version(name)
        if found is None or (name, found) in _EMPTY_SHIMS:
            continue
        if name != need.name:
            return item("unknown", f"{name} {found} stands in for {need.name}; the two have not been compared here")
        fits = _fits(need, found)
        if fits is None:
            return item("unknown", f"{found} cannot be compared with {versions}")
        if not fits:
            return item("fail", f"{name} {found} is installed, {versions} is needed")
        modules = _modules(name)
        if all(importlib.util.find_spec(module) is None for module in modules):
            return item("fail", f"{name} {found} is registered, but Python finds no module {modules[0]}: it is torn")
        return item("pass", f"{name} {found}")
    why = "needed to export and quantise" if cure == _PIPELINE else "needed"
    return item("fail", f"{need.name} is not installed ({why}: {versions})")


def _modules(name: str) -> list[str]:
    """What a package is imported as: by its own list where it has one, else by its name."""
    listed = importlib.metadata.distribution(name).read_text("top_level.txt")
    return (listed or "").split() or [name.replace("-", "_")]


def compatible(names: list[str]) -> Item:
    """Whether the installed ones of `names` have what their own metadata asks of other packages."""
    problems: list[str] = []
    for name in names:
        for line in _needs_of(name):
            try:
                need = Requirement(line)
                if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                    continue
            except InvalidRequirement:
                continue  # a line that pip could not read either says nothing about what is installed
            found = _version(need.name)
            if found is None:
                problems.append(f"{name} needs {need.name}, which is not installed")
            elif _fits(need, found) is False:
                problems.append(f"{name} needs {need.name}{need.specifier}, {found} is installed")
    if problems:
        return Item("packages.compatible", "toolchain", "fail", "; ".join(problems[:4]), _PIPELINE)
    missing = [name for name in names if _version(name) is None]
    if missing:
        cause = f"not known while {', '.join(missing)} is missing"
        return Item("packages.compatible", "toolchain", "unknown", cause, _PIPELINE)
    cause = f"{', '.join(names)} have what their own metadata asks for"
    return Item("packages.compatible", "toolchain", "pass", cause)


def _needs_of(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _fits(need: Requirement, version: str) -> bool | None:
    """Whether a version satisfies a requirement; None for a version that is none."""
    try:
        return need.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return None
