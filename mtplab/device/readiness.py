"""The checklist before a measurement: every precondition with its status, its cause and its cure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from mtplab.device.adb import AdbServer
from mtplab.device.link import Link

Group = Literal["host", "toolchain", "device", "data"]
Status = Literal["pass", "fail", "unknown"]
GROUPS: tuple[Group, ...] = ("host", "toolchain", "device", "data")


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
    session: str | None = None
    """Judge the phone of the engine that records this session, by what it recorded; the phone is not asked."""
    own: bool = False
    """Whether that engine is the caller's own, so that holding the phone is no obstacle."""


def walk(link: Link | None, options: Options | None = None, server: AdbServer | None = None) -> Iterator[Item]:
    """Go through the checklist, giving each item as it is judged. A check that cannot be made is `unknown`.

    Without a link the phone is looked for on `server`, by default the user's own (started if it is absent). A phone
    that another lab holds is not asked anything: it is judged by what that lab recorded.
    """
    # Imported here: the parts need Item.
    from mtplab.device import readiness_host, readiness_packages, readiness_phone

    wanted = options or Options()
    asking = link.server if link else server
    parts: list[tuple[str, Group, Callable[[], Iterable[Item]]]] = [
        ("host", "host", lambda: readiness_host.host(wanted)),
        ("adb", "toolchain", lambda: readiness_host.adb(asking, start=wanted.session is None)),
        ("packages", "toolchain", readiness_packages.packages),
        ("device", "device", lambda: readiness_phone.phone(link, wanted, server)),
        ("data", "data", lambda: readiness_host.data(wanted)),
    ]
    for name, group, part in parts:
        try:
            yield from part()
        except Exception as problem:  # noqa: BLE001 - a broken check must not hide the other answers
            cause = f"the check itself failed: {type(problem).__name__}: {problem}"
            yield Item(name, group, "unknown", cause, "Report this as a fault of mtplab.")


def check(link: Link | None, options: Options | None = None, server: AdbServer | None = None) -> list[Item]:
    """The whole checklist; see `walk`."""
    return list(walk(link, options, server))


def in_groups(items: Iterable[Item]) -> list[Item]:
    """Items by group, as people read them; within a group in the order in which they were judged."""
    return sorted(items, key=lambda item: GROUPS.index(item.group))


def ready(items: Iterable[Item]) -> bool:
    """Whether nothing failed and a phone was seen. What else is unknown does not block, but it is shown."""
    seen = list(items)
    attached = any(item.id == "device.attached" and item.status == "pass" for item in seen)
    return attached and all(item.status != "fail" for item in seen)


def python_version() -> str:
    """The running interpreter's version."""
    return ".".join(map(str, sys.version_info[:3]))
