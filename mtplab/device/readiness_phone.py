"""Preconditions on the phone: attached, allowed, cool, charged, with room and with the programs that run there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mtplab.device import choice, lock, paths
from mtplab.device.adb import AdbServer
from mtplab.device.errors import DeviceError
from mtplab.device.facts import Facts, read_facts
from mtplab.device.link import DeviceEntry, Link, list_devices
from mtplab.device.readiness import Item, Options, Status
from mtplab.device.thermal import STATUS_NAMES, ThermalService, parse_thermalservice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SPACE_BYTES = 2_000_000_000
_BATTERY_PERCENT = 30
_SKIN_C = 37.0  # the gate people who measure on phones use
_BINARIES = Path(__file__).with_name("binaries.toml")


def phone(link: Link | None, options: Options, server: AdbServer | None) -> Iterator[Item]:
    """Everything about the phone; without a usable one only the reason why not."""
    try:
        chosen = link.server if link else server or AdbServer.users().ensure()
        entries = list_devices(chosen)
    except DeviceError as problem:
        yield Item("device.attached", "device", "unknown", f"cannot be seen: {problem}", "adb start-server")
        return
    try:
        remembered = None if link else choice.remembered()
    except DeviceError as problem:
        remembered = None
        yield Item("device.remembered", "device", "unknown", str(problem), "mtplab devices --forget")
    entry, item = _choose(entries, link.serial if link else choice.serial_of(options.serial), remembered)
    yield item
    if entry is None or not entry.usable:
        return
    yield _cable(entry)
    yield _owner(entry.phone)
    target = link or Link(chosen, entry.serial)
    try:
        facts = read_facts(target)
        heat = parse_thermalservice(target.run(["dumpsys", "thermalservice"], timeout_s=8).stdout)
        runner = target.run(["test", "-f", paths.TOKEN_RUNNER], timeout_s=5).exit_code == 0
    except DeviceError as problem:
        yield Item("device.answers", "device", "fail", str(problem), "Replug the cable, then look again.")
        return
    yield from _what_it_is(facts)
    yield from _programs(facts, runner)
    yield from _state(facts, heat)


def _choose(
    entries: list[DeviceEntry], serial: str | None, remembered: str | None = None
) -> tuple[DeviceEntry | None, Item]:
    chosen = choice.choose(entries, serial, remembered)
    if chosen.entry is None or not chosen.usable:
        return chosen.entry, Item("device.attached", "device", "fail", chosen.cause, chosen.cure)
    cause = f"{chosen.entry.serial} is attached and allows this computer"
    if chosen.how == "remembered":
        cause += " (of several it is the remembered one)"
    return chosen.entry, Item("device.attached", "device", "pass", cause)


def _cable(entry: DeviceEntry) -> Item:
    if entry.wireless:
        cause = f"{entry.serial} is attached over Wi-Fi: radio and its heat would be measured too"
        return Item("device.cable", "device", "fail", cause, "Use a USB cable: adb disconnect, then plug it in.")
    return Item("device.cable", "device", "pass", f"not wireless ({entry.connection})")


def _owner(serial: str) -> Item:
    try:
        owner = lock.holder(serial)
    except DeviceError as problem:
        return Item("device.free", "device", "unknown", str(problem))
    if owner is None:
        return Item("device.free", "device", "pass", "no other lab holds it")
    cause = f"process {owner.pid} holds it (session {owner.session})"
    return Item("device.free", "device", "fail", cause, f"mtplab lab --attach {owner.session}, or end that process.")


def _what_it_is(facts: Facts) -> Iterator[Item]:
    simulated = facts.fact("simulated")
    if simulated.value is True:
        yield Item("device.real", "device", "pass", "the stand-in: everything measured on it is SIMULATED")
    elif simulated.value is False:
        yield Item("device.real", "device", "pass", "a real device by its own properties")
    else:
        cause = f"it does not say whether it is a stand-in ({simulated.reason})"
        yield Item("device.real", "device", "unknown", cause)
    known = [facts.get(name) for name in ("model", "android_release", "build_fingerprint")]
    cause = f"{known[0] or 'model unknown'}, Android {known[1] or 'unknown'}, build {known[2] or 'unknown'}"
    yield Item("device.identity", "device", "unknown" if None in known else "pass", cause)
    yield _aicore(facts)


def _aicore(facts: Facts) -> Item:
    def item(status: Status, cause: str, cure: str = "") -> Item:
        return Item("device.aicore", "device", status, cause, cure)

    state, version = facts.get("aicore_state"), facts.get("aicore_version")
    cure = "Install or enable “Android AICore” from the Play Store; without it there is no Gemini Nano baseline."
    if state is None:
        return item("unknown", f"not known: {facts.fact('aicore_state').reason}")
    if state != "installed":
        return item("fail", f"AICore is {state}", cure)
    if version is None:
        return item("unknown", f"installed, version not known: {facts.fact('aicore_version').reason}")
    return item("pass", f"AICore {version} (code {facts.get('aicore_code') or 'unknown'})")


def _programs(facts: Facts, runner: bool) -> Iterator[Item]:
    def item(identifier: str, status: Status, cause: str, cure: str = "") -> Item:
        return Item(identifier, "device", status, cause, cure)

    state, digest = facts.get("benchmark_model"), facts.get("benchmark_model_sha256")
    cure = f"adb push benchmark_model {paths.BENCHMARK_MODEL} && adb shell chmod +x {paths.BENCHMARK_MODEL}"
    if state == "absent":
        yield item("device.benchmark_model", "fail", f"there is no {paths.BENCHMARK_MODEL}", cure)
    elif digest is None:
        reason = facts.fact("benchmark_model_sha256").reason
        yield item("device.benchmark_model", "unknown", f"not readable: {reason}", cure)
    else:
        yield item("device.benchmark_model", "pass", f"{paths.BENCHMARK_MODEL}, sha256 {str(digest)[:12]}…")
        yield _origin(str(digest), facts.get("simulated") is True)
    if runner:
        yield item("device.token_runner", "pass", paths.TOKEN_RUNNER)
    else:
        cure = f"Push a program that prints the token protocol to {paths.TOKEN_RUNNER}."
        yield item("device.token_runner", "fail", f"there is no {paths.TOKEN_RUNNER}", cure)


def _origin(digest: str, simulated: bool) -> Item:
    known = {str(row.get("sha256")): row for row in _known_binaries()}
    if digest in known:
        cause = f"{known[digest].get('release', 'an official release')}"
        return Item("device.benchmark_model.origin", "device", "pass", cause)
    cause = "the stand-in's own program" if simulated else f"origin unverified: no known release has {digest}"
    cure = "" if simulated else "Use a binary of an official LiteRT release; known hashes stand in binaries.toml."
    return Item("device.benchmark_model.origin", "device", "unknown", cause, cure)


def _known_binaries() -> list[dict[str, Any]]:
    rows = tomllib.loads(_BINARIES.read_text(encoding="utf-8")).get("binary", [])
    return [row for row in rows if isinstance(row, dict)]


def _state(facts: Facts, heat: ThermalService) -> Iterator[Item]:
    yield _limit(facts, "device.space", "free_bytes", _SPACE_BYTES, 1e9, "GB free", "Delete something on the phone.")
    yield _limit(
        facts, "device.battery", "battery_level_percent", _BATTERY_PERCENT, 1, "% charged", "Charge the phone first."
    )
    if heat.skin_c is None:
        yield Item("device.temperature", "device", "unknown", f"skin temperature not known: {heat.reason}")
        return
    status = STATUS_NAMES.get(heat.status, "unknown") if heat.status is not None else "unknown"
    cause = f"skin {heat.skin_c:.1f} °C, thermal status {status}"
    if heat.skin_c > _SKIN_C or (heat.status or 0) > 0:
        cure = f"Let it cool to {_SKIN_C:g} °C: screen off, out of its case, unplugged from fast chargers."
        yield Item("device.temperature", "device", "fail", cause, cure)
    else:
        yield Item("device.temperature", "device", "pass", cause)


def _limit(facts: Facts, identifier: str, name: str, least: float, unit: float, words: str, cure: str) -> Item:
    fact = facts.fact(name)
    if not isinstance(fact.value, int | float):
        return Item(identifier, "device", "unknown", f"not known: {fact.reason}")
    cause = f"{fact.value / unit:.3g} {words}"
    if fact.value >= least:
        return Item(identifier, "device", "pass", cause)
    return Item(identifier, "device", "fail", f"{cause}, {least / unit:g} needed", cure)
