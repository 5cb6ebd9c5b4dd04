"""One round of one configuration by LiteRT-LM's own program: a process a prompt, its text stamped as it arrives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from mtplab.device import paths
from mtplab.device.binaries import lm_flags_of
from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.link import Stream
from mtplab.device.tools import LitertLmOptions, Requested
from mtplab.measure.protocol import ProtocolReader
from mtplab.measure.rounds import Slot
from mtplab.model.prompts import load_prompts
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed
from mtplab.pipeline.lm_phone import LmPrompt, run_on_phone
from mtplab.pipeline.stages.measure_round import Ran, RunnerFailed
from mtplab.session.configuration import Configuration
from mtplab.session.events import Message


class _Pushed(msgspec.Struct, frozen=True):
    """What of a row of the pushed prompts matters here."""

    id: str
    templated: bool = False


class LmRounds:
    """All rounds of one measurement: the prompts that the program can be asked, and the flags that it knows."""

    def __init__(self, context: DeviceContext) -> None:
        from tokenizers import Tokenizer

        self._context = context
        self._tokenizer = Tokenizer.from_file(str(context.files["tokenizer"]))
        self._prompts = self._askable()
        self._flags = self._known_flags()

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
                log=context.logs / f"measure-{number:03d}-{slot.configuration}.log", flags=self._flags,
                watched=watched, heard=sample,
            )  # fmt: skip
        except DeviceGone as error:
            context.check_cancelled()
            ran.lost = str(error)
        except (DeviceError, StageFailed) as error:
            if context.cancel.is_set():
                raise StageCancelled from None
            raise RunnerFailed(f"Round {slot.index + 1} of {slot.configuration}: {error}") from error
        return ran

    def _askable(self) -> list[LmPrompt]:
        """The bare texts: the program puts the template around each, and takes no system prompt."""
        context = self._context
        rows = context.files["prompts"].read_bytes().splitlines()
        pushed = {row.id: row for row in (msgspec.json.decode(line, type=_Pushed) for line in rows)}
        has_template = any(row.templated for row in pushed.values())
        asked, left_out = [], []
        for prompt in load_prompts(context.policy.prompt_set).prompts:
            if context.classes and prompt.prompt_class not in context.classes:
                continue
            if prompt.system or pushed[prompt.id].templated != has_template:
                left_out.append(prompt)
                continue
            asked.append(LmPrompt(prompt.id, prompt.prompt_class, prompt.text))
        why = "LiteRT-LM's program takes no system prompt and puts the chat template around every text"
        if not asked:
            raise StageFailed(f"None of the prompts can be measured ({why}); give others with --prompts.")
        if left_out:
            of = ", ".join(sorted({prompt.prompt_class for prompt in left_out}))
            text = f"{len(left_out)} prompts ({of}) are left out: {why}."
            context.post(Message(t=time.monotonic(), text=text, level="warning"))
        return asked

    def _known_flags(self) -> frozenset[str]:
        try:
            return lm_flags_of(self._context.link, paths.LITERT_LM)
        except DeviceError as error:
            raise StageFailed(f"LiteRT-LM's program could not be asked for its flags: {error}") from error
