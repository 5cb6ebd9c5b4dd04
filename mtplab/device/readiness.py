"""The checklist before a measurement: every precondition with its status, its cause and its cure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from mtplab.device.adb import AdbServer
from mtplab.device.link import Link

Group = Literal["host", "toolchain", "device", "data"]
Status = Literal["pass", "fail", "unknown"]


class Item(msgspec.Struct, frozen=True):
    """One precondition. `cause` says what was seen; `cure` is what to do, "" where nothing is to be done."""

    id: str
    group: Group
    status: Status
    cause: str
    cure: str = ""


class Options(msgspec.Struct, frozen=True):
    """What to check against. Paths that are None are looked for where mtplab ships them."""

    serial: str | None = None
    model_dir: Path | None = None
    prompts: Path | None = None
    calibration: Path | None = None
    sessions_dir: Path | None = None


def check(
    link: Link | None, options: Options | None = None, deep: bool = False, server: AdbServer | None = None
) -> list[Item]:
    """Go through the checklist. Never raises: a check that cannot be made is `unknown` with the reason.

    Without a link the phone is looked for on `server`, by default the user's own (started if it is absent).
    `deep` really imports the converters and converts a toy in a process of its own, which takes many seconds.
    """
    # Imported here: the two halves need Item.
    from mtplab.device import readiness_host, readiness_phone

    options = options or Options()
    items: list[Item] = []
    parts: list[tuple[str, Group, Callable[[], Iterable[Item]]]] = [
        ("host", "host", lambda: readiness_host.host(options)),
        ("adb", "toolchain", lambda: readiness_host.adb(link.server if link else server)),
        ("packages", "toolchain", readiness_host.packages),
        ("device", "device", lambda: readiness_phone.phone(link, options, server)),
        ("data", "data", lambda: readiness_host.data(options)),
    ]
    if deep:
        parts.insert(3, ("convert", "toolchain", readiness_host.converts))
    for name, group, part in parts:
        try:
            items.extend(part())
        except Exception as problem:  # noqa: BLE001 - a broken check must not hide the other answers
            cause = f"the check itself failed: {type(problem).__name__}: {problem}"
            items.append(Item(name, group, "unknown", cause, "Report this as a fault of mtplab."))
    return items


def ready(items: Iterable[Item]) -> bool:
    """Whether nothing failed and a phone was seen. What else is unknown does not block, but it is shown."""
    seen = list(items)
    attached = any(item.id == "device.attached" and item.status == "pass" for item in seen)
    return attached and all(item.status != "fail" for item in seen)


def python_version() -> str:
    """The running interpreter's version."""
    return ".".join(map(str, sys.version_info[:3]))
