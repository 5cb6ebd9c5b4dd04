"""What adb's device list says: every entry with its state explained, the cure, and how it is connected."""

from __future__ import annotations

import re

import msgspec

from mtplab.session.text import clean_text

# state -> (what it means, what to do)
STATES = {
    "device": ("ready", ""),
    "offline": (
        "attached, but it does not answer",
        "Unplug and replug the cable; if that does not help, switch USB debugging off and on.",
    ),
    "unauthorized": (
        "the phone has not allowed this computer",
        "Unlock the phone and tap Allow in the dialog “Allow USB debugging?”; if none shows, replug the cable.",
    ),
    "authorizing": ("the phone is checking this computer's key", "Wait a second; unlock the phone if it asks."),
    "connecting": ("the connection is being set up", "Wait a second, then look again."),
    "no permissions": (
        "this computer's user may not open the USB device",
        "Install the Android udev rules (Debian: android-sdk-platform-tools-common), join the group plugdev, replug.",
    ),
    "recovery": ("booted into recovery", "Reboot into Android: adb reboot."),
    "rescue": ("booted into rescue mode", "Reboot into Android: adb reboot."),
    "sideload": ("waiting for a sideload", "Finish or leave the sideload, then reboot into Android."),
    "bootloader": ("stopped in the bootloader", "Reboot into Android: fastboot reboot."),
    "host": ("is a host, not a phone", "Choose another device."),
    "detached": ("detached from adb", "Attach it again: adb attach."),
}
_LISTED = re.compile(r"^([!-~]+)[ \t]+(no permissions\b[^;]*(?:;[^\]]*\]?)?|[a-z]+)(?:[ \t]+(.*))?$")
_WIRELESS = re.compile(r"(:\d{1,5}|\._adb(-tls-connect)?\._tcp\.?)$")
_LOOPBACK = re.compile(r"^(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+$")

# Said of a usable entry that was asked and whose `simulated` is None all the same.
SILENT = "It gave no answer, so whether it is a stand-in is not known: it hangs, or is very busy."


class DeviceEntry(msgspec.Struct, frozen=True):
    """One line of adb's device list, explained.

    `simulated` is None where the phone was not asked or did not say; so is `hardware_serial`, the phone's own serial
    number, which only a wireless connection has another name than (over USB it *is* adb's name). `transport_id` is
    adb's number of this connection: another one for the same serial means that the cable was out.
    """

    serial: str
    state: str
    explanation: str
    cure: str
    wireless: bool
    model: str | None = None
    simulated: bool | None = None
    usb: str | None = None
    transport_id: int | None = None
    hardware_serial: str | None = None

    @property
    def usable(self) -> bool:
        """Whether commands can run on it now."""
        return self.state == "device"

    @property
    def phone(self) -> str:
        """What names the phone itself, whichever way it is connected: what is locked and remembered."""
        return self.serial if self.hardware_serial is None else self.hardware_serial

    @property
    def connection(self) -> str:
        """How it is connected, in one word; "cable or emulator" where adb names no USB port."""
        if self.wireless:
            return "wireless"
        if _LOOPBACK.match(self.serial):
            return "loopback"
        return "usb" if self.usb else "cable or emulator"

    @property
    def problem(self) -> str:
        """A sentence on why it cannot be used, with the cure; "" where it can."""
        return "" if self.usable else f"{self.serial} is {self.state}: {self.explanation}. {self.cure}".strip()


def parse_devices(text: str) -> list[DeviceEntry]:
    """The devices in the output of `adb devices [-l]` or of the server's list; other lines are skipped."""
    found = []
    for raw in text.splitlines():
        line = raw.strip()
        match = None if line.startswith(("*", "#", "List of devices", "adb server")) else _LISTED.match(line)
        if match is None:
            continue
        serial, state, rest = match.group(1), match.group(2), match.group(3) or ""
        state = "no permissions" if state.startswith("no permissions") else state
        if state not in STATES and "transport_id:" not in rest and rest:
            continue  # prose, not a device
        found.append(_entry(serial, state, dict(tag.split(":", 1) for tag in rest.split() if ":" in tag)))
    return found


def _entry(serial: str, state: str, tags: dict[str, str]) -> DeviceEntry:
    meaning, cure = STATES.get(state, (f"in a state unknown to this program: {state}", "Replug the cable."))
    number = tags.get("transport_id", "")
    return DeviceEntry(
        serial,
        state,
        meaning,
        cure,
        wireless=bool(_WIRELESS.search(serial)) and not _LOOPBACK.match(serial),
        model=clean_text(tags["model"], 64) if "model" in tags else None,
        usb=clean_text(tags["usb"], 64) if "usb" in tags else None,
        transport_id=int(number) if re.fullmatch(r"\d{1,9}", number, re.ASCII) else None,
    )


def wireless_warning(entry: DeviceEntry) -> str | None:
    """What to say before anything is measured over a wireless connection; None over a cable or on this machine."""
    if not entry.wireless:
        return None
    return (
        f"{entry.serial} is connected without a cable: the radio's work and heat are measured too, and the phone "
        "runs on its battery. Plug in USB and choose that entry (`mtplab devices`)."
    )


def over_tcp(serial: str) -> bool:
    """Whether adb reaches this device through the network, be it this machine's own."""
    return bool(_WIRELESS.search(serial))
