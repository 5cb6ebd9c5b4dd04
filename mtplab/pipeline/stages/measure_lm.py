"""One round of one configuration by LiteRT-LM's own program: a process a prompt, its text stamped as it arrives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.link import Stream
from mtplab.device.tools import LitertLmOptions, Requested
from mtplab.measure.protocol import ProtocolReader
from mtplab.measure.rounds import Slot
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed
from mtplab.pipeline.lm_phone import LmPrompt, ProgramFailed, run_on_phone
from mtplab.pipeline.stages.measure_round import Ran, RunnerFailed
from mtplab.session.configuration import Configuration
from mtplab.session.events import Message

WHY_LEFT_OUT = "LiteRT-LM's program takes no system prompt and puts the chat template around every text"
FIRST_TOKEN = (
    "LiteRT-LM hands out its first token together with what the first draft round accepted: with MTP on, the time to "
    "the first token holds that round."
)


class PushedPrompt(msgspec.Struct, frozen=True):
    """A row of the frozen prompts; see the freeze stage."""

    id: str
    text: str
    klass: str = msgspec.field(name="class")
    templated: bool = False
    system: bool = False
    bare: str | None = None


class LmRounds:
    """All rounds of one measurement: the prompts that the program can be asked, and those that it cannot."""

    def __init__(self, context: DeviceContext) -> None:
        from tokenizers import Tokenizer

        self._context = context
        self._tokenizer = Tokenizer.from_file(str(context.files["tokenizer"]))
        rows = self._rows()
        has_template = bool(context.figures["freeze"]["chat_template"])
        asked = [row for row in rows if not row.system and row.templated == has_template]
        self._prompts = [LmPrompt(row.id, row.klass, row.bare or row.text) for row in asked]
        self.left_out = [row.id for row in rows if row not in asked]
        self._tell()

    def figures(self) -> dict[str, Any]:
        """What was asked of the program, and what was not."""
        why = WHY_LEFT_OUT if self.left_out else None
        return {"prompts": len(self._prompts), "left_out": self.left_out, "why_left_out": why}

    def run_once(
        self, configuration: Configuration, slot: Slot, cool: CoolDown, _gammas: tuple[int, ...],
        _costs: Mapping[int, float], number: int,
    ) -> Ran:  # fmt: skip
        """Run and follow every prompt; RunnerFailed where the program cannot do what was asked.

        A pulled cable is no failure but is told in the result, which then holds no prompt.
        """
        context, policy = self._context, self._context.policy
        context.logs.mkdir(parents=True, exist_ok=True)
        ran = Ran(ProtocolReader().result())

        @contextlib.contextmanager
        def watched(stream: Stream) -> Iterator[None]:
            ran.stream = stream
            with context.ended_by_cancel(stream):
                yield

        def sample() -> None:
            if (found := cool.sample()) != (ran.during[-1] if ran.during else None):
                ran.during.append(found)

        options = LitertLmOptions(
            bundle=context.pushed["bundle"],
            prompt="",
            max_tokens=policy.output_limit,
            threads=configuration.threads,
            backend=cast(Requested, configuration.backend),
            core_mask=configuration.core_mask,
        )
        try:
            ran.result = run_on_phone(
                context.link, self._prompts, self._tokenizer, options,
                gamma=configuration.gamma if configuration.mtp else None, simulated=context.simulated,
                log=context.logs / f"measure-{number:03d}-{slot.configuration}.jsonl", flags=context.lm_flags,
                watched=watched, heard=sample,
            )  # fmt: skip
        except DeviceGone as error:
            context.check_cancelled()
            ran.lost = str(error)
        except (DeviceError, StageFailed) as error:
            if context.cancel.is_set():
                raise StageCancelled from None
            killed = self._killed(ran, error)
            raise RunnerFailed(f"Round {slot.index + 1} of {slot.configuration}: {killed or error}") from error
        return ran

    def _killed(self, ran: Ran, error: Exception) -> str | None:
        if not isinstance(error, ProgramFailed) or ran.stream is None or not error.exit_code:
            return None
        return self._context.explain_kill(ran.stream, "LiteRT-LM's program", error.exit_code)

    def _rows(self) -> list[PushedPrompt]:
        context = self._context
        lines = context.files["prompts"].read_bytes().split(b"\n")
        rows = [msgspec.json.decode(line, type=PushedPrompt) for line in lines if line.strip()]
        return [row for row in rows if not context.classes or row.klass in context.classes]

    def _tell(self) -> None:
        if not self._prompts:
            raise StageFailed(f"None of the prompts can be measured ({WHY_LEFT_OUT}); give others with --prompts.")
        now, post = time.monotonic(), self._context.post
        post(Message(t=now, text=FIRST_TOKEN, level="info"))
        if self.left_out:
            text = f"Left out of the measurement: {', '.join(self.left_out)}. {WHY_LEFT_OUT}."
            post(Message(t=now, text=text, level="warning"))
