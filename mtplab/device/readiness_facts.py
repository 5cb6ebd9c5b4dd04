"""Preconditions on the phone as they follow from what is known of it, whoever asked it and when."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from mtplab.device import paths
from mtplab.device.binaries import release_of
from mtplab.device.readiness import Item, Status
from mtplab.device.thermal import STATUS_NAMES

if sys.version_info >= (3, 11):
    pass
else:
    pass

_SPACE_BYTES = 2_000_000_000
_BATTERY_PERCENT = 30
_SKIN_C = 37.0  # the gate people who measure on phones use


class KnownFact(Protocol):
    """A value, or None with a reason: what the facts of a phone and those of a session have in common."""

    @property
    def value(self) -> str | int | float | bool | None:
        """What is known."""

    @property
    def reason(self) -> str | None:
        """Why nothing is."""


class Warmth(msgspec.Struct, frozen=True):
    """Skin temperature (°C) and Android's thermal status; `reason` where the skin is not known."""

    skin_c: float | None
    status: int | None
    reason: str | None = None


class Seen:
    """What is known of a phone: by whom and when it was asked is told elsewhere."""

    def __init__(self, facts: Mapping[str, KnownFact], warmth: Warmth) -> None:
        self._facts, self.warmth = facts, warmth

    def value(self, name: str) -> str | int | float | bool | None:
        """A fact's value, None where unknown."""
        fact = self._facts.get(name)
        return fact.value if fact is not None else None

    def why(self, name: str) -> str:
        """Why a fact is not known."""
        fact = self._facts.get(name)
        return "it was not asked" if fact is None else fact.reason or "no reason was recorded"


def _item(identifier: str, status: Status, cause: str, cure: str = "") -> Item:
    return Item(identifier, "device", status, cause, cure)


def judged(seen: Seen) -> Iterator[Item]:
    """Connection where recorded, identity, AICore, programs, space, battery and temperature."""
    connection = seen.value("connection")
    if connection is not None:
        yield cable(connection == "wireless", str(connection))
    yield _real(seen)
    yield _identity(seen)
    yield _aicore(seen)
    yield from _program(seen, "benchmark_model", paths.BENCHMARK_MODEL, _PUSH_BENCHMARK)
    yield from _program(seen, "token_runner", paths.TOKEN_RUNNER, _PUSH_RUNNER)
    yield _limit(seen, "device.space", "free_bytes", (_SPACE_BYTES, 1e9, "GB free"), _MAKE_ROOM)
    charge = (_BATTERY_PERCENT, 1, "% charged")
    yield _limit(seen, "device.battery", "battery_level_percent", charge, "Charge the phone first.")
    yield _temperature(seen)


_PUSH_BENCHMARK = (
    f"adb push benchmark_model {paths.BENCHMARK_MODEL} && adb shell chmod +x {paths.BENCHMARK_MODEL}"
    "  (take android_aarch64_benchmark_model of an official release)"
)
_PUSH_RUNNER = (
    f"adb push RUNNER {paths.TOKEN_RUNNER} && adb shell chmod +x {paths.TOKEN_RUNNER}"
    "  (RUNNER: a program that prints the token protocol)"
)
_MAKE_ROOM = f"Delete something on the phone; mtplab's own files go with: adb shell rm -r {paths.WORK_DIR}"


def cable(wireless: bool, connection: str, serial: str = "it") -> Item:
    """Whether the phone hangs on a cable."""
    if not wireless:
        return _item("device.cable", "pass", f"not wireless ({connection})")
    cause = f"{serial} is attached over Wi-Fi: radio and its heat would be measured too"
    return _item("device.cable", "fail", cause, "adb disconnect  (then plug in a USB cable)")


def _real(seen: Seen) -> Item:
    simulated = seen.value("simulated")
    if simulated is True:
        return _item("device.real", "pass", "the stand-in: everything measured on it is SIMULATED")
    if simulated is False:
        return _item("device.real", "pass", "a real device by its own properties")
    return _item("device.real", "unknown", f"it does not say whether it is a stand-in: {seen.why('simulated')}")


def _identity(seen: Seen) -> Item:
    known = {name: seen.value(name) for name in ("model", "android_release", "build_fingerprint")}
    model, release, build = (value or "unknown" for value in known.values())
    lacks = "; ".join(f"{name}: {seen.why(name)}" for name, value in known.items() if value is None)
    cause = f"{model}, Android {release}, build {build}{f' ({lacks})' if lacks else ''}"
    cure = "adb shell getprop ro.product.model: what cannot be named cannot be compared" if lacks else ""
    return _item("device.identity", "unknown" if lacks else "pass", cause, cure)


def _aicore(seen: Seen) -> Item:
    state, version = seen.value("aicore_state"), seen.value("aicore_version")
    cure = "Install or enable “Android AICore” from the Play Store; without it there is no Gemini Nano baseline."
    look = f"adb shell dumpsys package {paths.AICORE_PACKAGE}"
    if state is None:
        return _item("device.aicore", "unknown", f"not known: {seen.why('aicore_state')}", look)
    if state != "installed":
        return _item("device.aicore", "fail", f"AICore is {state}", cure)
    if version is None:
        return _item("device.aicore", "unknown", f"installed, version: {seen.why('aicore_version')}", look)
    return _item("device.aicore", "pass", f"AICore {version} (code {seen.value('aicore_code') or 'unknown'})")


def _program(seen: Seen, name: str, path: str, cure: str) -> Iterator[Item]:
    """Present, by its hash, and whether that hash is one of an official release."""
    digest = seen.value(f"sha256 {path.rpartition('/')[2]}")
    if digest is None:
        status, cause = _missing(seen, path)
        yield _item(f"device.{name}", status, cause, cure)
        return
    yield _item(f"device.{name}", "pass", f"{path}, sha256 {str(digest)[:12]}…")
    identifier = f"device.{name}.origin"
    release = release_of(str(digest))
    if release is not None:
        yield _item(identifier, "pass", release)
    elif seen.value("simulated") is True:
        yield _item(identifier, "pass", "the stand-in's own program: what it gives is SIMULATED")
    else:
        cause = f"origin unverified: no known release has sha256 {digest}"
        yield _item(identifier, "unknown", cause, "Use a binary of an official release.")


def _missing(seen: Seen, path: str) -> tuple[Status, str]:
    """What it means that a program stands without a hash among those that lie on the phone."""
    listed = seen.value("litert_binaries")
    if listed is None:
        return "unknown", f"not known whether there is {path}: {seen.why('litert_binaries')}"
    if str(listed).endswith(" more"):
        return "unknown", f"not known whether there is {path}: too many programs lie there to list all"
    return "fail", f"there is no {path} (there: {listed})"


def _limit(seen: Seen, identifier: str, name: str, limit: tuple[float, float, str], cure: str) -> Item:
    """A number against the least that is needed: (least, unit, words)."""
    (least, unit, words), value = limit, seen.value(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _item(identifier, "unknown", f"not known: {seen.why(name)}", "adb shell 'dumpsys battery; df -k'")
    cause = f"{value / unit:.3g} {words}"
    if value >= least:
        return _item(identifier, "pass", cause)
    return _item(identifier, "fail", f"{cause}, {least / unit:g} needed", cure)


def _temperature(seen: Seen) -> Item:
    warmth, look = seen.warmth, "adb shell dumpsys thermalservice"
    if warmth.skin_c is None:
        cause = f"skin temperature not known: {warmth.reason or 'no skin sensor answered'}"
        return _item("device.temperature", "unknown", cause, look)
    status = "unknown" if warmth.status is None else STATUS_NAMES.get(warmth.status, "unknown")
    cause = f"skin {warmth.skin_c:.1f} °C, thermal status {status}"
    if warmth.skin_c > _SKIN_C or (warmth.status or 0) > 0:
        cure = f"Let it cool to {_SKIN_C:g} °C: screen off, out of its case, unplugged from fast chargers."
        return _item("device.temperature", "fail", cause, cure)
    if status == "unknown":
        return _item("device.temperature", "unknown", cause, look)
    return _item("device.temperature", "pass", cause)
