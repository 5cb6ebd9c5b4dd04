"""Reads which AICore a phone has from `dumpsys package`: absent is an answer, unknown is not."""

from __future__ import annotations

import re

import msgspec

from mtplab.device.paths import AICORE_PACKAGE


class AICore(msgspec.Struct, frozen=True):
    """`state` is installed, disabled, absent, or None with a reason; `blocks` counts the package's records."""

    state: str | None
    version: str | None
    code: int | None
    blocks: int
    reason: str | None = None


UNANSWERED = AICore(None, None, None, 0, "the command gave no answer")

_HEADER = re.compile(r"^\s*(?:Package \[([\w.]+)\]|package=([\w.]+)\s*$)")
_CODE = re.compile(r"^\s*versionCode=([1-9]\d{0,14})\b", re.ASCII)
_NAME = re.compile(r"^\s*versionName=([\w.+-]{1,120})\s*$", re.ASCII)
_USER_0 = re.compile(r"^\s*User 0:.*?\binstalled=(true|false)\b(?:.*?\benabled=(\d))?")
_DISABLED = {"2", "3", "4"}  # PackageManager.COMPONENT_ENABLED_STATE_DISABLED, _USER, _UNTIL_USED


def parse(text: str, package: str = AICORE_PACKAGE) -> AICore:
    """An updated system app has two records; the first is the active one, the hidden second is what it replaced."""
    lines = text.replace("\r", "").split("\n")
    if any(line.strip() == f"Unable to find package: {package}" for line in lines):
        return AICore("absent", None, None, 0)
    blocks = _blocks(lines, package)
    if not blocks:
        said = "".join(c if " " <= c <= "~" else " " for c in text).split()
        return AICore(None, None, None, 0, f"no record of {package} in: {' '.join(said)[:80] or 'nothing'}")
    active = blocks[0]
    code = next((int(m.group(1)) for line in active if (m := _CODE.match(line))), None)
    name = next((m.group(1) for line in active if (m := _NAME.match(line))), None)
    user = next((m for line in active if (m := _USER_0.match(line))), None)
    if user is not None and user.group(1) == "false":
        return AICore("absent", None, None, len(blocks))
    if name is None and code is None:
        return AICore(None, None, None, len(blocks), "the package's record names no version")
    disabled = user is not None and user.group(2) in _DISABLED
    reason = None if name and code else "the package's record is incomplete"
    return AICore("disabled" if disabled else "installed", name, code, len(blocks), reason)


def _blocks(lines: list[str], package: str) -> list[list[str]]:
    """The package's records; lines before any header count only if there is no header at all (a grepped dump)."""
    headers = [i for i, line in enumerate(lines) if _HEADER.match(line)]
    if not headers:
        return [lines] if any(_CODE.match(line) or _NAME.match(line) for line in lines) else []
    blocks = []
    for i, end in zip(headers, [*headers[1:], len(lines)], strict=True):
        match = _HEADER.match(lines[i])
        if match is not None and package in (match.group(1), match.group(2)):
            blocks.append(lines[i + 1 : end])
    return blocks
