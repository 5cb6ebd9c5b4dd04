"""Memory on the phone: whether a run will fit, and whether a program was ended because it did not."""

from __future__ import annotations

import re
import time

import msgspec

from mtplab.device.errors import DeviceError
from mtplab.device.link import Link
from mtplab.session.text import clean_text

KILLED = 137  # 128 + SIGKILL
# What a runtime takes beside weights and caches: its code, its arena, the input buffers. An assumption, stated so.
RUNTIME_BYTES = 96 << 20
_LINES = 3000
_LOOKS_S = (0.0, 0.7)  # the killer may write its line after the deed
# lmkd's own lines, ActivityManager's, and the kernel's killer.
_KILLER = re.compile(r"lowmemorykiller|\blmkd\b|am_kill|oom-kill|oom_reaper|out of memory|\blowmem", re.IGNORECASE)


class Memory(msgspec.Struct, frozen=True):
    """What /proc/meminfo says, in bytes; None where it does not."""

    total_bytes: int | None
    available_bytes: int | None


def parse_meminfo(text: str) -> Memory:
    """Total and available memory; a field of another form is None."""

    def field(name: str) -> int | None:
        found = re.findall(rf"^{name}:[ \t]+(\d{{1,12}}) kB\r?$", text, re.MULTILINE | re.ASCII)
        return int(found[0]) * 1024 if len(found) == 1 and int(found[0]) > 0 else None

    return Memory(field("MemTotal"), field("MemAvailable"))


def read_memory(link: Link) -> Memory:
    """The phone's memory now."""
    return parse_meminfo(link.run(["cat", "/proc/meminfo"], timeout_s=10).stdout)


class Need(msgspec.Struct, frozen=True):
    """What a run is estimated to need, in bytes."""

    weights_bytes: int
    caches_bytes: int

    @property
    def least_bytes(self) -> int:
        """What must be there at once, whatever the runtime does: weights and one copy of the caches."""
        return self.weights_bytes + self.caches_bytes

    @property
    def likely_bytes(self) -> int:
        """With the weights packed once more for the kernels, caches as input and output, and the runtime itself."""
        return 2 * self.weights_bytes + 2 * self.caches_bytes + RUNTIME_BYTES


class Fit(msgspec.Struct, frozen=True):
    """Whether a run fits: `refused` where it cannot, `sentence` "" where there is nothing to say."""

    refused: bool
    sentence: str


def fits(need: Need, memory: Memory) -> Fit:
    """Judge an estimate against the phone's memory; nothing is refused that only might not fit."""
    mb = 1e6
    likely = f"about {need.likely_bytes / mb:.0f} MB (weights twice, caches twice, runtime; an estimate)"
    if memory.total_bytes is not None and need.least_bytes > memory.total_bytes:
        return Fit(
            True,
            f"The weights and caches alone take {need.least_bytes / mb:.0f} MB, and the phone has "
            f"{memory.total_bytes / mb:.0f} MB in all: use a smaller model, a recipe with fewer bits, "
            "or a shorter cache.",
        )
    if memory.available_bytes is None:
        return Fit(False, f"The phone does not tell its free memory; the run needs {likely}.")
    if need.likely_bytes > memory.available_bytes:
        return Fit(
            False,
            f"The run needs {likely}, and the phone has {memory.available_bytes / mb:.0f} MB available: the "
            "low-memory killer may end it. Close apps, or use a smaller model.",
        )
    return Fit(False, "")


class Kill(msgspec.Struct, frozen=True):
    """A program that ended with exit code 137. `proof` is the killer's log line, None where none was found."""

    program: str
    proof: str | None
    sentence: str


def killer_line(log: str, pid: int) -> str | None:
    """The last line of a log in which a memory killer names this process, or None."""
    ours = re.compile(rf"(?<!\d){pid}(?!\d)")
    for line in reversed(log.splitlines()):
        # The log's own columns hold process numbers too: those of the writer.
        message = line.partition(": ")[2] if ": " in line else line
        if _KILLER.search(line) and ours.search(message):
            return clean_text(line.strip(), 300)
    return None


def explain_kill(link: Link, program: str, exit_code: int | None, pid: int | None) -> Kill | None:
    """Why a program was killed, from the phone's log; None for any other end than 137.

    Never raises: where the log cannot be read the sentence says so, and claims no more than the exit code shows.
    """
    if exit_code != KILLED:
        return None
    proof, why = None, "the phone's log names no memory killer for it"
    if pid is None:
        why = "its process number is not known, so the phone's log could not be searched"
    else:
        try:
            for wait_s in _LOOKS_S:
                time.sleep(wait_s)
                log = link.run(["logcat", "-d", "-t", str(_LINES), "-v", "threadtime"], timeout_s=15).stdout
                if (proof := killer_line(log, pid)) is not None:
                    break
        except DeviceError as problem:
            why = f"the phone's log could not be read ({problem})"
    if proof is not None:
        said = f"{program} was ended by the phone's low-memory killer: close apps, or use a smaller model ({proof})."
    else:
        said = (
            f"{program} was killed (exit code {KILLED}), most often for want of memory, but {why}: "
            "look at `adb logcat -b all` and free memory."
        )
    return Kill(program, proof, said)
