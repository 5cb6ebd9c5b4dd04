"""Measure: interleaved rounds with MTP on and off on the phone, heat around each, every token stamped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from mtplab.device.errors import DeviceError
from mtplab.device.tools import TokenRunnerOptions, token_runner_command
from mtplab.measure.exactness import compare_outputs
from mtplab.measure.figures import (
    ConfigurationFigures,
    PromptFigures,
    configuration_figures,
    prompt_figures,
    to_builtins,
)
from mtplab.measure.protocol import PromptRun, ProtocolReader, ProtocolRun
from mtplab.measure.rounds import HeatLimits, HeatSample, RoundHeat, Slot, cold_rounds, judge, schedule
from mtplab.model.files import END_OF_TEXT_ID
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageCancelled, StageFailed
from mtplab.session import events as ev

CONFIGURATIONS = {"mtp-off": False, "mtp-on": True}


class _Round(msgspec.Struct):
    """One measured round."""

    slot: Slot
    heat: RoundHeat
    prompts: list[PromptFigures]
    runs: tuple[PromptRun, ...]
    env: dict[str, Any]


def run(context: DeviceContext) -> Outcome:
    """All rounds of both configurations; figures from the cold ones, the others kept and marked."""
    slots = schedule(list(CONFIGURATIONS), context.options.rounds)
    limits = HeatLimits(skin_c=context.options.skin_limit_c)
    cool = CoolDown(context, "measure", limits, context.options.cooldown_timeout_s)
    began = time.monotonic()
    done: list[_Round] = []
    for slot in slots:
        context.check_cancelled()
        note = f"round {slot.index + 1}, {slot.configuration}"
        context.progress("measure", slot.order, len(slots), "rounds", note, began)
        waited_s = cool.wait(note, slot.order, len(slots))
        context.progress("measure", slot.order, len(slots), "rounds", note, began)
        done.append(_round(context, slot, limits, cool))
        _post_round(context, done[-1], waited_s)
    context.progress("measure", len(slots), len(slots), "rounds")
    return _conclude_rounds(context, done)


def _round(context: DeviceContext, slot: Slot, limits: HeatLimits, cool: CoolDown) -> _Round:
    before = cool.sample()
    during: list[HeatSample] = []
    began = time.monotonic()
    result = _token_runner(context, slot, during, cool)
    if not result.complete:
        raise StageFailed(
            f"Round {slot.index + 1} of {slot.configuration} is not whole: {result.reason or 'it ended early'}. "
            "Run the measure stage again."
        )
    heat = judge(before, during, cool.sample(), throttled=context.throttled_since(began), limits=limits)
    measured = result.measured()
    return _Round(slot, heat, [prompt_figures(p) for p in measured], measured, result.env)


def _token_runner(
    context: DeviceContext, slot: Slot, during: list[HeatSample], cool: CoolDown
) -> ProtocolRun:
    """One process of the token runner; its lines go onto the disk first, then through the protocol reader."""
    options = context.options
    command = token_runner_command(
        TokenRunnerOptions(
            backbone=context.pushed["backbone"],
            head=context.pushed["head"],
            tokenizer=context.pushed["tokenizer"],
            prompts=context.pushed["prompts"],
            mtp=CONFIGURATIONS[slot.configuration],
            max_tokens=options.output_limit,
            threads=options.threads,
            core_mask=options.core_mask,
            stop_ids=(END_OF_TEXT_ID,),
            run=f"{slot.configuration}-{slot.index}",
            binary=context.token_runner,
        )
    )
    reader = ProtocolReader()
    complaints: list[str] = []
    context.logs.mkdir(parents=True, exist_ok=True)
    spool_path = context.logs / f"measure-{slot.order:02d}-{slot.configuration}.jsonl"
    try:
        with (
            spool_path.open("w", encoding="utf-8") as spool,
            context.link.stream(command) as stream,
            context.ended_by_cancel(stream),
        ):
            for line in stream:
                if line.stream == "stderr":
                    complaints.append(line.text)
                    continue
                spool.write(line.text + "\n")
                reader.feed(line.text.encode())
                if (sample := cool.sample()) != (during[-1] if during else None):
                    during.append(sample)  # a line comes with every token, so no sample is missed
            code = stream.wait(5.0)
    except DeviceError as error:
        if context.cancel.is_set():
            raise StageCancelled from None
        raise StageFailed(
            f"Round {slot.index + 1} of {slot.configuration} was cut off: {error} Run the measure stage again."
        ) from error
    result = reader.result()
    if code != 0:
        killed = context.explain_kill(stream, "The token runner", code)
        why = killed or result.error or " ".join(complaints[-2:]) or "it gave no reason"
        raise StageFailed(f"The token runner ended with exit code {code}: {why}")
    return result


def _post_round(context: DeviceContext, one: _Round, waited_s: float) -> None:
    now = time.monotonic()
    context.post(
        ev.RoundMeasured(
            t=now,
            configuration=one.slot.configuration,
            index=one.slot.index,
            order=one.slot.order,
            marks=list(one.heat.marks),
            skin_before_c=one.heat.skin_before_c,
            skin_max_c=one.heat.skin_max_c,
            skin_after_c=one.heat.skin_after_c,
            waited_s=round(waited_s, 1),
            prompts=to_builtins(one.prompts),
        )
    )
    if one.heat.marks:
        label = f"round {one.slot.index + 1} of {one.slot.configuration}: {', '.join(one.heat.marks)}"
        context.post(ev.Marker(t=now, label=label, kind="round"))


def _conclude_rounds(context: DeviceContext, done: Sequence[_Round]) -> Outcome:
    figures: dict[str, Any] = {}
    measured: dict[str, Any] = context.measured
    for name, mtp in CONFIGURATIONS.items():
        own = [r for r in done if r.slot.configuration == name]
        chosen, note = cold_rounds([(r.heat.marks, r) for r in own])
        result = configuration_figures([r.prompts for r in chosen], mtp=mtp)
        _post_configuration(context, name, result)
        measured[name] = {"rounds": chosen, "all": own, "note": note, "figures": result}
        figures[name] = {
            "rounds": len(own),
            "cold_rounds": sum(not r.heat.marks for r in own),
            "note": note,
            "spread": msgspec.to_builtins(result.spread),
            "first_round_init_ms": _init_ms(own[0].env) if own else None,
        }
    plain, mtp_runs = ([p for r in done if r.slot.configuration == name for p in r.runs] for name in CONFIGURATIONS)
    exactness = compare_outputs(plain, mtp_runs)
    measured["exactness"] = exactness
    figures["exactness"] = msgspec.to_builtins(exactness)
    cold = sum(not r.heat.marks for r in done)
    return Outcome(figures, f"{len(done)} rounds, {cold} cold · {exactness.text}")


def _init_ms(env: dict[str, Any]) -> float | None:
    backbone = env.get("backbone")
    value = backbone.get("init_ms") if isinstance(backbone, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _post_configuration(context: DeviceContext, name: str, result: ConfigurationFigures) -> None:
    context.post(
        ev.ConfigurationMeasured(
            t=time.monotonic(),
            name=name,
            figures=result.figures,
            per_class=result.per_class,
            counts=result.counts,
            counts_per_class=result.counts_per_class,
        )
    )
