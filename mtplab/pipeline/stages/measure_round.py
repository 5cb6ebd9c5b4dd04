"""One round of one configuration: a process of the token runner, followed to its end or to a pulled cable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from mtplab.device.errors import DeviceError, DeviceGone
from mtplab.device.link import Stream
from mtplab.device.tools import Requested, TokenRunnerOptions, token_runner_command
from mtplab.measure.protocol import ProtocolReader, ProtocolRun
from mtplab.measure.rounds import HeatSample, Slot
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed
from mtplab.session import events as ev
from mtplab.session.configuration import Configuration


class RunnerFailed(StageFailed):
    """The token runner could not measure a configuration; the phone is there and others may still be measured."""


@dataclass
class Ran:
    """What one process said. `lost` says how the cable was lost, where it was."""

    result: ProtocolRun
    during: list[HeatSample] = field(default_factory=list)
    lost: str | None = None
    stream: Stream | None = None

    @property
    def init_ms(self) -> float | None:
        """What compiling the graphs took."""
        return _sum(_numbers(self.result.env, "init_ms"))

    @property
    def first_runs_ms(self) -> float | None:
        """What the first run of every signature took, the warm-up included."""
        return _sum(_numbers(self.result.env, "first_run_ms"))


def _numbers(env: dict[str, Any], name: str) -> list[float]:
    """The numbers that backbone and head tell under one name, alone or by signature."""
    found: list[float] = []
    for graph in ("backbone", "head"):
        told = env.get(graph)
        value = told.get(name) if isinstance(told, dict) else None
        values = list(value.values()) if isinstance(value, dict) else [value]
        found += [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return found


def _sum(numbers: list[float]) -> float | None:
    return round(sum(numbers), 3) if numbers else None


def run_once(
    context: DeviceContext, configuration: Configuration, slot: Slot, cool: CoolDown, gammas: tuple[int, ...],
    costs: Mapping[int, float], number: int,
) -> Ran:  # fmt: skip
    """Run and follow one process; its lines go onto the disk first, then through the protocol reader.

    RunnerFailed where it cannot do what was asked; a pulled cable is no failure but is told in the result.
    """
    words = _command(context, configuration, slot, gammas, costs)
    context.logs.mkdir(parents=True, exist_ok=True)
    reader, ran = ProtocolReader(), Ran(ProtocolReader().result())
    spool_path = context.logs / f"measure-{number:03d}-{slot.configuration}.jsonl"
    complaints: list[str] = []
    code = None
    try:
        with context.link.stream(words) as stream, context.ended_by_cancel(stream):
            ran.stream = stream
            _follow(stream, spool_path, reader, complaints, ran, cool)
            code = stream.wait(5.0)
    except DeviceGone as error:
        if context.cancel.is_set():
            raise StageCancelled from None
        ran.lost = str(error)
    except DeviceError as error:
        if context.cancel.is_set():
            raise StageCancelled from None
        raise RunnerFailed(f"Round {slot.index + 1} of {slot.configuration} was cut off: {error}") from error
    ran.result = reader.result()
    if ran.lost is None:
        _check(context, slot, ran, code, complaints)
    return ran


def _command(
    context: DeviceContext, configuration: Configuration, slot: Slot, gammas: tuple[int, ...],
    costs: Mapping[int, float],
) -> list[str]:  # fmt: skip
    policy, pushed = context.policy, context.pushed
    return token_runner_command(
        TokenRunnerOptions(
            backbone=pushed["backbone"],
            head=pushed["head"],
            tokenizer=pushed["tokenizer"],
            prompts=pushed["prompts"],
            mtp=configuration.mtp,
            max_tokens=policy.output_limit,
            threads=configuration.threads,
            core_mask=configuration.core_mask,
            stop_ids=tuple(context.figures["freeze"]["end_tokens"]),
            run=f"{slot.configuration}-{slot.index}",
            classes=tuple(context.classes),
            draft_length=configuration.draft_length,
            draft_lengths=gammas,
            round_costs=tuple(sorted(costs.items())),
            head_threads=configuration.head_threads,
            backend=cast(Requested, configuration.backend),
            head_backend=cast("Requested | None", configuration.head_backend),
            temperature=policy.temperature,
            top_k=policy.top_k if policy.temperature else None,
            # Sampling draws anew in every round: five times the same draw would be one observation.
            seed=policy.seed + slot.index,
            binary=context.token_runner,
        )
    )


def _follow(
    stream: Stream, spool_path: Path, reader: ProtocolReader, complaints: list[str], ran: Ran, cool: CoolDown
) -> None:
    with spool_path.open("w", encoding="utf-8") as spool:
        for line in stream:
            if line.stream == "stderr":
                complaints.append(line.text)
                continue
            spool.write(line.text + "\n")
            reader.feed(line.text.encode())
            if (sample := cool.sample()) != (ran.during[-1] if ran.during else None):
                ran.during.append(sample)  # a line comes with every token, so no sample is missed


def _check(context: DeviceContext, slot: Slot, ran: Ran, code: int | None, complaints: list[str]) -> None:
    result = ran.result
    if code != 0:
        killed = context.explain_kill(ran.stream, "The token runner", code) if ran.stream and code else None
        why = killed or result.error or " ".join(complaints[-2:]) or "it gave no reason"
        raise RunnerFailed(f"The token runner ended with exit code {code}: {why}")
    if not result.complete:
        raise RunnerFailed(
            f"Round {slot.index + 1} of {slot.configuration} is not whole: {result.reason or 'it ended early'}. "
            "Run the measure stage again."
        )


def tidy(context: DeviceContext, ran: Ran, note: str, patience_s: float, *, again: bool) -> None:
    """After a pulled cable: wait for the phone, and end there what was cut off.

    StageFailed where the phone does not return within `patience_s`; what was measured before is kept.
    """
    then = " and measuring that round again" if again else ""
    text = f"The cable was lost in {note}: waiting {patience_s:.0f} s at most for the phone{then}. {ran.lost}"
    context.post(ev.Message(t=time.monotonic(), text=text, level="warning"))
    deadline = time.monotonic() + patience_s
    while True:
        context.check_cancelled()
        left_s = deadline - time.monotonic()
        try:
            context.link.wait_for_return(max(0.1, min(2.0, left_s)))
            break
        except DeviceGone as error:
            if left_s <= 0:
                raise StageFailed(
                    f"The phone did not return within {patience_s:.0f} s after the cable was lost in {note}: {error} "
                    "The rounds measured so far are kept; plug it in and run again."
                ) from error
    if ran.stream is not None:
        with contextlib.suppress(DeviceError):
            ran.stream.cancel()
