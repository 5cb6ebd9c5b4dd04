"""Which of the attached phones is meant: the named one, the remembered one, or the only one; never a guess."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from mtplab.device.devices import DeviceEntry
from mtplab.device.errors import DeviceError
from mtplab.device.lock import kept_dir, serial_hash
from mtplab.session.atomic import write_atomic

USE_STANDIN = "Plug a phone in with USB debugging on, or use the stand-in: --standin."


class Choice(msgspec.Struct, frozen=True):
    """The phone that a run would take, or why there is none.

    `how` is how it was chosen: "named", "remembered", "only" or, of one phone's two connections, "cable".
    `cause` and `cure` are sentences where `entry` is None or not usable; `ambiguous` where the user has to choose.
    """

    entry: DeviceEntry | None
    how: str = ""
    cause: str = ""
    cure: str = ""
    ambiguous: bool = False

    @property
    def usable(self) -> bool:
        """Whether a run can begin on it."""
        return self.entry is not None and self.entry.usable

    @property
    def sentence(self) -> str:
        """Cause and cure where no run can begin."""
        return f"{self.cause[:1].upper()}{self.cause[1:]}. {self.cure}".strip()


class _Remembered(msgspec.Struct, frozen=True):
    """The remembered phone, by the keyed hash of its serial number."""

    phone: str


def choose(entries: Sequence[DeviceEntry], serial: str | None = None, remembered: str | None = None) -> Choice:
    """The phone that is meant by `serial` (adb's name of it), by the `remembered` hash, or by being the only one.

    A remembered phone that is attached but not usable is not passed over for another: that would measure the wrong
    one in silence.
    """
    names = ", ".join(f"{e.serial} ({e.state})" for e in entries) or "none"
    if serial is not None:
        named = next((e for e in entries if e.serial == serial), None)
        if named is None:
            cause = f"the phone {serial} is not attached (attached: {names})"
            return Choice(None, cause=cause, cure="Check the cable.")
        return _explained(named, "named")
    if not entries:
        return Choice(None, cause="no phone is attached", cure=USE_STANDIN)
    if remembered is not None:
        known = _preferred([e for e in entries if serial_hash(e.phone) == remembered])
        if len(known) == 1 and len(entries) > 1:
            return _explained(known[0], "remembered")
    usable = [e for e in entries if e.usable]
    candidates = _preferred(usable or list(entries))
    if len(candidates) == 1:
        return _explained(candidates[0], "cable" if len(usable) > 1 else "only")
    cause = f"{len(candidates)} devices are attached: {names}"
    return Choice(None, cause=cause, cure="Choose one with --serial.", ambiguous=True)


def _explained(entry: DeviceEntry, how: str) -> Choice:
    if entry.usable:
        return Choice(entry, how)
    return Choice(entry, how, f"{entry.serial} is {entry.state}: {entry.explanation}", entry.cure)


def _preferred(entries: Sequence[DeviceEntry]) -> list[DeviceEntry]:
    """The entries without the wireless ones of a phone that is connected by cable too."""
    wired = {e.serial for e in entries if not e.wireless}
    return [e for e in entries if not (e.wireless and e.phone in wired)]


def serial_of(option: str | None) -> str | None:
    """The serial that the user named: by option, else by adb's own variable ANDROID_SERIAL."""
    return option or os.environ.get("ANDROID_SERIAL") or None


def remembered() -> str | None:
    """The hash of the phone to take where several are attached, or None."""
    try:
        return msgspec.json.decode((kept_dir() / "phone.json").read_bytes(), type=_Remembered).phone
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as problem:
        raise DeviceError(
            f"The remembered phone cannot be read ({problem}): `mtplab devices --forget` forgets it."
        ) from problem


def remember(entry: DeviceEntry) -> None:
    """Take this phone from now on where several are attached; only a keyed hash of its serial is kept."""
    path = kept_dir() / "phone.json"
    try:
        write_atomic(path, msgspec.json.encode(_Remembered(serial_hash(entry.phone))), mode=0o600)
    except OSError as problem:
        raise DeviceError(f"The choice cannot be kept in {path} ({problem.strerror}).") from problem


def forget() -> bool:
    """Remember no phone any more; False where none was."""
    path = kept_dir() / "phone.json"
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
