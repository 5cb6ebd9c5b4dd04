"""A phone whose token runner is scripted: what it prints, and what goes wrong on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from mtplab.device.errors import DeviceGone
from mtplab.device.shell import Line
from mtplab.tokenrunner.protocol import ProtocolWriter, output_sha256

MS = 1_000_000
Flags = dict[str, str]


class Spool:
    """Collects what a ProtocolWriter writes."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        """Nothing is held back."""


def said(flags: Flags, tokens: int = 9) -> list[str]:
    """What a runner would print for three prompts: drafting takes half the time.

    Asked for prose as well (the class that was named last), it has three prompts of that, too.
    """
    spool = Spool()
    writer = ProtocolWriter(cast(Any, spool), flags["run"])
    writer.write("hello", 0, pid=1)
    writer.write("env", 0, backbone={"init_ms": 12.0, "first_run_ms": {"decode": 3.0}}, head={"init_ms": 1.0})
    mtp = flags["mtp"] == "on"
    kind, _, length = flags.get("draft-length", "").partition(":")
    gamma = int(length) if kind == "fixed" else 2
    at = 0
    prose = ("p4", "p5", "p6") if flags.get("class") == "prose" else ()
    for name in ("p1", "p2", "p3", *prose):
        klass = "prose" if name in prose else "code"
        writer.write("begin", at, prompt=name, **{"class": klass}, input_tokens=4, warmup=False)
        ids, step = list(range(tokens)), (5 if mtp else 10) * MS
        for i, token in enumerate(ids):
            at += step
            if mtp and i:
                writer.write(
                    "round", at, round=i - 1, gamma=gamma, accepted=0, emitted=1, ranks=[1] + [None] * (gamma - 1),
                    draft_ns=MS, verify_ns=2 * MS, handover_ns=MS // 10,
                )  # fmt: skip
            margin = {} if mtp else {"margin": 2.0}
            writer.write("token", at, id=token, round=i - 1 if mtp and i else None, **margin)
        at += 1
        writer.write("end", at, reason="limit", output_tokens=tokens, output_sha256=output_sha256(ids))
    writer.close()
    return spool.data.decode().splitlines()


class FakeLink:
    """A phone whose runner prints what `answer` gives for its flags; an exception in it is raised on the way."""

    def __init__(self, answer: Callable[[Flags], Iterator[str]]) -> None:
        self.answer, self.commands, self.returns = answer, list[Flags](), True
        self.tidied = 0

    @contextlib.contextmanager
    def stream(self, words: list[str]) -> Iterator[Any]:
        flags = dict(word.removeprefix("--").split("=", 1) for word in words[1:])
        self.commands.append(flags)
        yield FakeStream(self, flags)

    def wait_for_return(self, timeout_s: float) -> float:
        if not self.returns:
            raise DeviceGone("emulator is not attached: check the cable.")
        return 0.0


class FakeStream:
    def __init__(self, link: FakeLink, flags: Flags) -> None:
        self.link, self.flags, self.code, self.pid = link, flags, 0, 1

    def __iter__(self) -> Iterator[Line]:
        for text in self.link.answer(self.flags):
            if text.startswith("exit "):
                self.code = int(text.split()[1])
                return
            yield Line("stderr" if text.startswith("!") else "stdout", text, 0.0)

    def wait(self, timeout_s: float) -> int:
        return self.code

    def cancel(self) -> bool:
        self.link.tidied += 1
        return True


def fine(flags: Flags) -> Iterator[str]:
    """Nothing goes wrong."""
    yield from said(flags)
