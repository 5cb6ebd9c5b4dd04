"""Measure: interleaved rounds of every configuration on the phone, heat around each, every token stamped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from mtplab.measure.conclude import MeasuredRound
from mtplab.measure.exactness import Exactness, compare_outputs
from mtplab.measure.figures import (
    PromptFigures,
    configuration_figures,
    from_builtins,
    prompt_figures,
    round_rates,
    to_builtins,
)
from mtplab.measure.plan import DEPLOYED, PLAIN, fixed_of, plain_of
from mtplab.measure.predict import predict
from mtplab.measure.rounds import HeatLimits, Slot, advise, cold_rounds, judge, schedule
from mtplab.pipeline.cooldown import CoolDown
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageFailed
from mtplab.pipeline.stages.measure_lm import LmRounds
from mtplab.pipeline.stages.measure_round import Ran, RunnerFailed, run_once, tidy
from mtplab.session import events as ev
from mtplab.session.configuration import Configuration
from mtplab.session.identity import LITERT_LM

ATTEMPTS = 3  # a round that loses the cable is kept and measured again, so often at most


class Measured(msgspec.Struct):
    """One measured round, with what its process said where that is still known."""

    event: ev.RoundMeasured
    prompts: list[PromptFigures]
    ran: Ran | None

    @property
    def whole(self) -> bool:
        """Whether it saw its end."""
        return self.event.reason is None


def run(context: DeviceContext) -> Outcome:
    """All rounds of all configurations; figures from the cold ones, the others kept and marked."""
    return _Measure(context).run()


class _Measure:
    """One pass of the stage: what was planned, what was done, and what had to be left out and why."""

    def __init__(self, context: DeviceContext) -> None:
        self._context, self._options = context, context.options
        self._planned = list(context.configurations)
        self._limits = HeatLimits(skin_c=self._options.skin_limit_c)
        self._cool = CoolDown(context, "measure", self._limits, self._options.cooldown_timeout_s)
        self._done: list[Measured] = []
        self._dropped: dict[str, str] = {}
        self._costs: dict[str, dict[int, float]] = {}
        self._lm = LmRounds(context) if context.policy.runtime == LITERT_LM else None
        self._run_once = self._lm.run_once if self._lm is not None else partial(run_once, context)

    def run(self) -> Outcome:
        context = self._context
        slots = schedule([c.name for c in self._planned], self._options.rounds)
        self._take_up()
        seen = {(m.event.configuration, m.event.index) for m in self._done if m.whole}
        todo = [slot for slot in slots if (slot.configuration, slot.index) not in seen]
        began = time.monotonic()
        for number, slot in enumerate(todo):
            if slot.configuration not in self._dropped:
                self._slot(slot, number, len(todo), began)
        context.progress("measure", len(todo), len(todo), "rounds")
        return self._conclude()

    def _take_up(self) -> None:
        """Tell the rounds that an interrupted run of the same plan has measured already."""
        names = {c.name for c in self._planned}
        for earlier in self._context.earlier:
            if earlier.event.configuration in names:
                self._done.append(earlier)
                self._context.post(msgspec.structs.replace(earlier.event, t=time.monotonic()))

    # -- one round --------------------------------------------------------------
    def _slot(self, slot: Slot, number: int, total: int, began: float) -> None:
        """Measure one round, again where the cable was lost; a configuration that cannot run is left out."""
        context = self._context
        configuration = next(c for c in self._planned if c.name == slot.configuration)
        note = f"round {slot.index + 1}, {slot.configuration}"
        for attempt in range(ATTEMPTS):
            context.check_cancelled()
            context.progress("measure", number, total, "rounds", note, began)
            waited_s = self._cool.wait(note, number, total)
            context.progress("measure", number, total, "rounds", note, began)
            try:
                measured = self._round(configuration, slot, waited_s)
            except RunnerFailed as failure:
                self._drop(configuration, str(failure))
                return
            self._post(measured)
            if measured.ran is None or measured.ran.lost is None:
                return
            again = attempt + 1 < ATTEMPTS
            tidy(context, measured.ran, note, self._options.reconnect_s, again=again)
        raise StageFailed(f"The cable was lost {ATTEMPTS} times in {note}; check it and run the measure stage again.")

    def _round(self, configuration: Configuration, slot: Slot, waited_s: float) -> Measured:
        costs = self._round_costs(configuration)
        gammas = tuple(sorted(costs or self._fixed_lengths(configuration))) if configuration.adaptive else ()
        before, began = self._cool.sample(), time.monotonic()
        ran = self._run_once(configuration, slot, self._cool, gammas, costs or {}, len(self._done))
        heat = judge(
            before, ran.during, self._cool.sample(), throttled=self._context.throttled_since(began),
            cable_lost=ran.lost is not None, limits=self._limits,
        )  # fmt: skip
        prompts = [prompt_figures(p) for p in ran.result.measured()]
        event = ev.RoundMeasured(
            t=time.monotonic(),
            configuration=slot.configuration,
            index=slot.index,
            order=len(self._done),
            marks=list(heat.marks),
            skin_before_c=heat.skin_before_c,
            skin_max_c=heat.skin_max_c,
            skin_after_c=heat.skin_after_c,
            waited_s=round(waited_s, 1),
            prompts=to_builtins(prompts),
            init_ms=ran.init_ms,
            first_runs_ms=ran.first_runs_ms,
            reason=ran.lost,
        )
        return Measured(event, prompts, ran)

    def _post(self, measured: Measured) -> None:
        self._done.append(measured)
        event = measured.event
        self._context.post(event)
        if event.marks:
            label = f"round {event.index + 1} of {event.configuration}: {', '.join(event.marks)}"
            self._context.post(ev.Marker(t=event.t, label=label, kind="round"))

    def _drop(self, configuration: Configuration, why: str) -> None:
        """Go on without a configuration that cannot run; without one that the run is about, end."""
        if configuration.name in self._context.essential:
            raise StageFailed(why)
        self._dropped[configuration.name] = why
        now = time.monotonic()
        self._context.post(ev.Message(t=now, text=f"{configuration.name}: {why}", level="warning"))
        self._context.post(
            ev.ConfigurationMeasured(t=now, name=configuration.name, figures={}, setting=configuration, reason=why)
        )
        if not configuration.mtp:
            for other in self._planned:
                if other.mtp and other.ground == configuration.ground and other.name not in self._dropped:
                    self._drop(other, f"Plain decoding on the same ground could not be measured: {why}")

    # -- what an adaptive draft length needs --------------------------------------
    def _fixed_lengths(self, configuration: Configuration) -> list[int]:
        names = [c for c in fixed_of(configuration, self._planned) if c.name not in self._dropped]
        return [c.gamma for c in names if c.gamma is not None]

    def _round_costs(self, configuration: Configuration) -> dict[int, float] | None:
        """K(γ) of each fixed length in plain decode steps, out of the first round, and kept: a policy stays fixed.

        None for a configuration that needs none.
        """
        if configuration.draft_length != "adaptive:tiers":
            return None
        if configuration.name not in self._costs:
            self._costs[configuration.name] = self._measured_costs(configuration)
        return self._costs[configuration.name]

    def _measured_costs(self, configuration: Configuration) -> dict[int, float]:
        plain = plain_of(configuration, self._planned)
        off = self._first_round(plain.name) if plain is not None else []
        costs = {}
        for fixed in fixed_of(configuration, self._planned):
            prediction = predict(off, self._first_round(fixed.name))
            if fixed.gamma is not None and prediction.round_cost is not None:
                costs[fixed.gamma] = prediction.round_cost + (prediction.overhead or 0.0)
        if not costs:
            raise RunnerFailed(
                "adaptive:tiers weighs the cost of every draft length, and none could be measured beside it; "
                "measure at least one fixed length (--measure-gammas)."
            )
        return costs

    def _first_round(self, name: str) -> list[PromptFigures]:
        return [p for m in self._done if m.event.configuration == name and m.event.index == 0 for p in m.prompts]

    # -- the end ------------------------------------------------------------------
    def _conclude(self) -> Outcome:
        context = self._context
        figures: dict[str, Any] = {}
        rounds = {c.name: self._rounds_of(c.name) for c in self._planned}
        for configuration in self._planned:
            figures[configuration.name] = self._conclude_one(configuration, rounds[configuration.name])
        if not any(rounds.values()):
            why = next(iter(self._dropped.values()), "no round was planned")
            raise StageFailed(f"No configuration could be measured: {why}", figures)
        exact = {c.name: self._exactness([c]) for c in self._planned if c.mtp}
        whole = self._exactness([c for c in self._planned if c.mtp])
        context.measured |= {
            "rounds": {
                name: [MeasuredRound(tuple(m.event.marks), tuple(m.prompts)) for m in own]
                for name, own in rounds.items()
            },
            "exact": exact,
            "exactness": whole,
            "outputs": {c.name: self._outputs([c]) for c in self._planned},
        }
        figures["runtime"] = context.policy.runtime
        if self._lm is not None:
            figures["asked"] = self._lm.figures()
        figures["exactness"] = None if whole is None else msgspec.to_builtins(whole)
        cold = sum(not m.event.marks for m in self._done)
        tail = "outputs sampled" if whole is None else whole.text
        left_out = f" · left out: {', '.join(self._dropped)}" if self._dropped else ""
        return Outcome(figures, f"{len(self._done)} rounds, {cold} cold · {tail}{left_out}")

    def _rounds_of(self, name: str) -> list[Measured]:
        return [m for m in self._done if m.event.configuration == name]

    def _conclude_one(self, configuration: Configuration, own: Sequence[Measured]) -> dict[str, Any]:
        chosen, note = cold_rounds([(m.event.marks, m) for m in own])
        result = configuration_figures([m.prompts for m in chosen], mtp=configuration.mtp)
        advice = advise(round_rates(m.prompts for m in chosen))
        reason = self._dropped.get(configuration.name)
        self._context.post(
            ev.ConfigurationMeasured(
                t=time.monotonic(),
                name=configuration.name,
                figures=result.figures,
                per_class=result.per_class,
                counts=result.counts,
                counts_per_class=result.counts_per_class,
                setting=configuration,
                advice=advice.text if reason is None else None,
                reason=reason,
            )
        )
        return {
            "rounds": len(own),
            "cold_rounds": sum(not m.event.marks for m in own),
            "note": note,
            "reason": reason,
            "spread": msgspec.to_builtins(result.spread),
            "first_round_init_ms": own[0].event.init_ms if own else None,
            "first_round_first_runs_ms": own[0].event.first_runs_ms if own else None,
            "advice": msgspec.to_builtins(advice),
            "round_costs": self._costs.get(configuration.name),
        }

    def _exactness(self, configurations: Sequence[Configuration]) -> Exactness | None:
        """Their outputs against plain decoding's on the same ground; None where outputs were sampled."""
        if self._context.policy.temperature:
            return None
        plain: list[Configuration] = []
        drafted: list[Configuration] = []
        for configuration in configurations:
            partner = plain_of(configuration, self._planned)
            if partner is not None and partner.name not in self._dropped and self._rounds_of(configuration.name):
                plain += [] if partner in plain else [partner]
                drafted.append(configuration)
        grounds = {c.ground for c in plain}
        parts = [
            compare_outputs(
                self._outputs([c for c in plain if c.ground == ground]),
                self._outputs([c for c in drafted if c.ground == ground]),
                self._context.policy.output_limit,
            )
            for ground in sorted(grounds, key=str)
        ]
        return parts[0] if len(parts) == 1 else _together(parts)

    def _outputs(self, configurations: Sequence[Configuration]) -> list[Any]:
        names = {c.name for c in configurations}
        return [
            p
            for m in self._done
            if m.event.configuration in names and m.whole and m.ran is not None
            for p in m.ran.result.measured()
        ]


def _together(parts: Sequence[Exactness]) -> Exactness:
    """The outcome over several grounds as one."""
    failures = tuple(f for part in parts for f in part.failures)
    text = " ".join(part.text for part in parts) or "No configuration drafted, so there is nothing to compare."
    return Exactness(
        sum(part.compared for part in parts),
        sum(part.equal for part in parts),
        tuple(tie for part in parts for tie in part.near_ties),
        failures,
        text,
    )


__all__ = ["DEPLOYED", "PLAIN", "Measured", "from_builtins", "run"]
