"""The NPU's own count of inferences: only its increase proves that the NPU did any work."""

from __future__ import annotations

import msgspec

from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link

# Pixel phones with a Tensor: three fields, one for each kind of client; their sum is what counts.
COUNTER = "/sys/devices/platform/1a000000.rio/inference_count"


class NpuCount(msgspec.Struct, frozen=True):
    """The count, or None with the reason why it cannot be read."""

    value: int | None
    reason: str | None = None


def parse_count(text: str) -> int | None:
    """The sum of the counter's fields; None where the text is something else."""
    words = text.split()
    if not 1 <= len(words) <= 16 or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        return None
    return sum(map(int, words))


def read_count(link: Link) -> NpuCount:
    """Read the counter now. Raises DeviceGone where the phone went away."""
    try:
        said = link.run(["cat", COUNTER], timeout_s=5)
    except CommandFailed as problem:
        return NpuCount(None, str(problem))
    value = parse_count(said.stdout) if said.exit_code == 0 else None
    if value is not None:
        return NpuCount(value)
    return NpuCount(None, f"{COUNTER} cannot be read on this phone")
