"""The ways a phone lets one down, each with a sentence that says what happened, why, and what to do."""

from __future__ import annotations

from mtplab.session.text import clean_text


class DeviceError(Exception):
    """Anything about the phone or adb that stops an operation; `str()` is a sentence for a person.

    Sentences quote what phones and adb said; escapes and control characters are taken out here, once for all.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(clean_text(sentence, 2000))


class DeviceGone(DeviceError):
    """The phone, the cable or the adb server went away: whatever was running is *not* known to have finished."""


class DeviceBusy(DeviceError):
    """Somebody else owns the phone."""


class CommandFailed(DeviceError):
    """The phone answered, and the answer is no. `exit_code` is None where no exit code exists (file transfer).

    `stdout` is what a command that was ended for its time or its length had printed until then.
    """

    def __init__(self, sentence: str, exit_code: int | None = None, stderr: str = "", stdout: str = "") -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.stderr = stderr
        self.stdout = stdout


class Cancelled(DeviceError):
    """The operation was ended because somebody asked for it."""
