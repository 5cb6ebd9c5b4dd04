"""What a stage that needs the phone is given, and what it gives back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtplab.device.link import Link, Stream
from mtplab.device.memory import explain_kill
from mtplab.pipeline.job import StageFailed
from mtplab.session.configuration import Configuration
from mtplab.session.events import Event, Heat, Message, PitfallFound, StageProgress
from mtplab.session.identity import Policy


class StageCancelled(Exception):
    """Somebody asked the run to stop."""


__all__ = ["DeviceContext", "Outcome", "StageCancelled", "StageFailed"]


@contextlib.contextmanager
def ended_when(stream: Stream, due: Callable[[], bool], every_s: float) -> Iterator[None]:
    """While inside, `stream` is ended, here and on the phone, as soon as `due()`, asked every `every_s` seconds."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            if due():
                stream.cancel()
                return

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@dataclass
class DeviceContext:
    """The phone, the files to deploy and the way to tell the session; shared by the device stages of one run."""

    link: Link
    post: Callable[[Event], None]
    cancel: threading.Event
    logs: Path
    heat: Callable[[], Heat | None]
    throttled_since: Callable[[float], bool]
    """Whether the phone throttles, or has throttled since a monotonic time."""
    simulated: bool
    token_runner: str
    options: Any
    files: dict[str, Path] = field(default_factory=dict)
    """Local files by artefact name: backbone, head, tokenizer, prompts, and the bundle where LiteRT-LM decodes."""
    pushed: dict[str, str] = field(default_factory=dict)
    """Paths on the phone by artefact name, once the push stage has verified them."""
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Figures of the stages that ran before, by stage."""
    measured: dict[str, Any] = field(default_factory=dict)
    """What the measure stage leaves for the conclusion."""
    policy: Policy = field(default_factory=Policy)
    configurations: Sequence[Configuration] = ()
    """What the measure stage measures, in the order of a round."""
    classes: Sequence[str] = ()
    """Classes of prompts to measure; all where none is named."""
    essential: frozenset[str] = frozenset()
    """Names of the configurations without which the run has nothing to say."""
    lm_flags: frozenset[str] = frozenset()
    """Flags of LiteRT-LM's program on the phone, where it decodes."""
    earlier: Sequence[Any] = ()
    """Rounds (`stages.measure.Measured`) that an interrupted run of the same plan has measured already."""

    def check_cancelled(self) -> None:
        """Raise StageCancelled where the run was cancelled."""
        if self.cancel.is_set():
            raise StageCancelled

    def ended_by_cancel(self, stream: Stream) -> contextlib.AbstractContextManager[None]:
        """While inside, a cancelled run ends `stream` here and on the phone, even while it is silent."""
        return ended_when(stream, self.cancel.is_set, 0.05)

    def explain_kill(self, stream: Stream, program: str, exit_code: int) -> str | None:
        """Why a program was killed (exit code 137), as a sentence and as a finding of the session; else None."""
        kill = explain_kill(self.link, program, exit_code, stream.pid)
        if kill is None:
            return None
        now, evidence = time.monotonic(), kill.proof or f"exit code {exit_code}; the phone's log names no killer"
        self.post(Message(t=now, text=kill.sentence, level="error"))
        self.post(PitfallFound(t=now, pitfall="low-memory kill", text=kill.sentence, evidence=evidence))
        return kill.sentence

    def progress(
        self, stage: str, done: float, total: float | None, unit: str = "", note: str = "",
        began: float | None = None, eta_s: float | None = None,
    ) -> None:  # fmt: skip
        """Tell how far a stage is; the time left is estimated from `began` (monotonic) where it is not given."""
        now = time.monotonic()
        if eta_s is None and began is not None and total and 0 < done < total:
            eta_s = round((now - began) * (total - done) / done, 1)
        self.post(StageProgress(t=now, name=stage, done=done, total=total, unit=unit, note=note, eta_s=eta_s))


@dataclass
class Outcome:
    """What a device stage found: figures for scripts, one line for people, and whether nothing had to be done."""

    figures: dict[str, Any] = field(default_factory=dict)
    summary: str = ""
    cached: bool = False
