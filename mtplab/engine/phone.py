"""Opens the phone for an engine: the stand-in or the attached one, its lock and its identity."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from mtplab.device import paths as device_paths
from mtplab.device.adb import AdbServer
from mtplab.device.choice import choose, remembered, serial_of
from mtplab.device.devices import DeviceEntry
from mtplab.device.errors import DeviceError
from mtplab.device.facts import Facts, read_facts
from mtplab.device.link import Link, list_devices
from mtplab.device.lock import PhoneLock, standin_key
from mtplab.device.standin_host import StandinProcess, litert_lm, token_runner
from mtplab.device.thermal import ThermalService, parse_thermalservice
from mtplab.engine.errors import EngineError
from mtplab.engine.options import EngineOptions
from mtplab.session import paths
from mtplab.session.events import Fact
from mtplab.session.identity import Identity
from mtplab.session.text import clean_text

STARTING = "not begun yet"


@dataclass
class Phone:
    """An open phone: its link, what was read of it, and how its token runner is started."""

    link: Link
    facts: Facts
    identity: Identity
    simulated: bool
    token_runner: str
    lock: PhoneLock
    thermal: ThermalService
    entry: DeviceEntry | None = None
    """How adb lists it; None for a stand-in of our own."""
    how: str = ""
    """How it was chosen of those attached (`device/choice.py`)."""


def open_phone(options: EngineOptions, stack: contextlib.ExitStack) -> Phone:
    """Lock and open the phone that `options` names; everything is undone by `stack`.

    Raises EngineError (exit code 2) where there is no usable phone, or somebody else holds it.
    """
    try:
        opened = connect_phone(options, stack)
        link, lock = opened.link, opened.lock
        facts = read_facts(link)
        thermal = parse_thermalservice(link.run(["dumpsys", "thermalservice"]).stdout)
    except DeviceError as error:
        raise EngineError(str(error), 2) from error
    # A phone that does not say whether it is one is not taken for one.
    simulated = options.standin is not None or facts.get("simulated") is not False
    return Phone(
        link=link,
        facts=facts,
        identity=identity_of(facts, simulated, options.standin, lock.phone_hash),
        simulated=simulated,
        token_runner=device_paths.TOKEN_RUNNER,
        lock=lock,
        thermal=thermal,
        entry=opened.entry,
        how=opened.how,
    )


@dataclass
class Connected:
    """A phone that is ours, and of which nothing was read yet."""

    link: Link
    lock: PhoneLock
    entry: DeviceEntry | None = None
    how: str = ""


def connect_phone(options: EngineOptions, stack: contextlib.ExitStack) -> Connected:
    """Choose, lock and connect the phone that `options` names; DeviceError or EngineError where that fails."""
    return _standin(options, stack) if options.standin is not None else _attached(options, stack)


def _standin(options: EngineOptions, stack: contextlib.ExitStack) -> Connected:
    root = paths.cache_dir() / "standin"
    # The stand-in's files outlast it, as a phone's do; so its folder is what can have only one user.
    lock = stack.enter_context(PhoneLock("The stand-in", STARTING, key=standin_key(root)))
    standin = stack.enter_context(
        StandinProcess(
            scenario=options.standin or "normal",
            root=root,
            programs={device_paths.TOKEN_RUNNER: token_runner(), device_paths.LITERT_LM: litert_lm()},
            speed=options.standin_speed,
        )
    )
    return Connected(Link(standin.server, standin.serial), lock)


def _attached(options: EngineOptions, stack: contextlib.ExitStack) -> Connected:
    server = AdbServer.users().ensure()
    chosen = choose(list_devices(server), serial_of(options.serial), remembered())
    entry = chosen.entry
    if entry is None or not entry.usable:
        # That the user has to choose is a matter of usage; all else is a phone that is not ready.
        sentence = chosen.sentence
        raise EngineError(sentence, 1 if chosen.ambiguous else 2)
    lock = stack.enter_context(PhoneLock(entry.serial, STARTING, key=entry.phone))
    return Connected(Link(server, entry.serial), lock, entry, chosen.how)


def identity_of(facts: Facts, simulated: bool, scenario: str | None, serial_hash: str) -> Identity:
    """The device's share of the five metadata; unknown stays None."""

    def text(name: str) -> str | None:
        value = facts.get(name)
        return None if value is None else clean_text(str(value), 200)

    release = text("android_release")
    return Identity(
        device_model=text("model"),
        os_version=f"Android {release}" if release else None,
        aicore_version=text("aicore_version"),
        build_fingerprint=text("build_fingerprint"),
        soc=text("soc"),
        serial_hash=serial_hash,
        simulated=simulated,
        scenario=scenario,
    )


def fact_events(facts: Facts, thermal: ThermalService) -> dict[str, Fact]:
    """Facts in the session's vocabulary, with the skin's throttling limits (°C by status 0 … 6)."""
    limits = thermal.skin_thresholds_c
    return {
        "skin_thresholds_c": Fact(
            value=",".join("nan" if limit is None else f"{limit:g}" for limit in limits) or None,
            source="dumpsys thermalservice",
            reason=None if limits else thermal.reason or "it names no limits of a skin sensor",
        )
    } | {
        f.name: Fact(
            value=clean_text(f.value, 300) if isinstance(f.value, str) else f.value,
            source=f.source,
            reason=clean_text(f.reason, 300) if f.reason else None,
        )
        for f in facts
    }
