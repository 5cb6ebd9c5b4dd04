"""Say in which scenarios the head pays, breaks even or costs, and only what the measurement carries (R20)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from mtplab.measure.exactness import Exactness
from mtplab.measure.figures import (
    FOUR,
    ConfigurationFigures,
    PromptFigures,
    by_prompt,
    configuration_figures,
    from_builtins,
    prompt_median,
)
from mtplab.measure.pitfalls import TTFT_RATIO_LIMIT
from mtplab.measure.predict import Prediction, predict
from mtplab.measure.rounds import MIN_ROUNDS, cold_rounds
from mtplab.session.events import Figure, RoundMeasured
from mtplab.speculation.intervals import Estimate, drift, percentile_interval, resample_weights, unknown, widening

Says = Literal["pays", "breaks even", "costs", "unknown"]
EQUAL_WITHIN = 0.02  # a difference nobody would feel: an interval inside ± this is break-even
MIN_PROMPTS = 3
LEAST_VERIFY_COST = 0.9
ALL = "all classes"
NAMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "tokens_per_s": "throughput", "alpha": "acceptance α"}


class MeasuredRound(msgspec.Struct, frozen=True):
    """One round of one configuration as it came in: its marks and what every prompt gave."""

    marks: tuple[str, ...]
    prompts: tuple[PromptFigures, ...]


def rounds_of(events: Iterable[RoundMeasured], configuration: str) -> list[MeasuredRound]:
    """The rounds of one configuration, back from the events of a journal."""
    return [
        MeasuredRound(tuple(e.marks), tuple(from_builtins(e.prompts)))
        for e in events
        if e.configuration == configuration
    ]


class Scenario(msgspec.Struct, frozen=True, rename={"klass": "class"}):
    """What one prompt class says: speedup a user feels (end to end), speedup of decoding alone, and the verdict."""

    klass: str
    says: Says
    speedup: Estimate
    decode_speedup: Estimate
    prompts: int
    rounds: int
    predicted: Prediction
    why: str


class Conclusion(msgspec.Struct, frozen=True):
    """The whole conclusion. `text` is one sentence or two; `missing` names figures without which none is drawn."""

    text: str
    scenarios: tuple[Scenario, ...]
    predicted: Prediction
    plain: ConfigurationFigures
    mtp: ConfigurationFigures
    missing: tuple[str, ...]
    remarks: tuple[str, ...]
    simulated: bool

    def event_fields(self, exactness: Exactness | None) -> dict[str, Any]:
        """The fields of a `Concluded` event as JSON values."""
        overall = msgspec.to_builtins(self.predicted)
        return {
            "text": self.text,
            "scenarios": [msgspec.to_builtins(s) for s in self.scenarios],
            "exactness": msgspec.to_builtins(exactness) if exactness else {},
            "predicted": overall,
        }


def paired_speedup(plain: Sequence[PromptFigures], mtp: Sequence[PromptFigures], figure: str, kind: str) -> Estimate:
    """How many times faster MTP is by `figure`, paired by prompt, bootstrapped over prompts and over rounds.

    Each prompt gives the ratio of its medians over rounds (times inverted); the value is their geometric mean,
    which is the same whichever side one divides by. The 95 % interval draws prompts (within their classes) and,
    independently, rounds (interleaved neighbours paired), so that a machine that drifts between rounds widens it;
    both are widened for their small numbers.
    `n` is the number of prompts measured on both sides.
    """
    left, right = by_prompt(plain), by_prompt(mtp)
    logs, by_round, classes = [], [], []
    for prompt in sorted(left.keys() & right.keys()):
        off, on = prompt_median(left[prompt], figure), prompt_median(right[prompt], figure)
        if off and on:
            sign = 1 if figure == "tokens_per_s" else -1
            logs.append(sign * math.log(on / off))
            by_round.append([sign * r for r in _round_ratios(left[prompt], right[prompt], figure)])
            classes.append(left[prompt][0].klass)
    if not logs:
        return unknown(kind, f"no prompt has {figure} both with MTP on and off")
    ratios = np.asarray(logs)
    value = float(np.exp(ratios.mean()))
    if len(logs) < 2:
        return Estimate(value, None, None, 1, kind, "one prompt alone gives no interval")
    off_mean = resample_weights(len(logs), strata=classes) @ ratios / len(logs) - ratios.mean()
    spread = off_mean * widening(len(logs), classes) + drift(by_round)
    low, high = percentile_interval(value * np.exp(spread))
    return Estimate(value, min(low, value), max(high, value), len(logs), kind)


def _round_ratios(off: Sequence[PromptFigures], on: Sequence[PromptFigures], figure: str) -> list[float]:
    """log(on ÷ off) of a prompt in each pair of neighbouring rounds."""
    pairs = ((getattr(a, figure), getattr(b, figure)) for a, b in zip(off, on, strict=False))
    return [math.log(b / a) for a, b in pairs if a and b]


def judge_speedup(speedup: Estimate, rounds: int) -> tuple[Says, str]:
    """The verdict on one class and why; too little evidence is `unknown`, never break-even."""
    if rounds < MIN_ROUNDS:
        return "unknown", f"{rounds} rounds are too few, {MIN_ROUNDS} are needed"
    if speedup.value is None or speedup.low is None or speedup.high is None or speedup.n < MIN_PROMPTS:
        return "unknown", speedup.reason or f"{speedup.n} prompts are too few, {MIN_PROMPTS} are needed"
    span = f"{speedup.value:.2f}× [{speedup.low:.2f}–{speedup.high:.2f}]"
    if speedup.low >= 1 - EQUAL_WITHIN and speedup.high <= 1 + EQUAL_WITHIN:
        return "breaks even", span
    if speedup.low > 1:
        return "pays", span
    if speedup.high < 1:
        return "costs", span
    return "unknown", f"{span} holds both gain and loss; measure more prompts"


def judge_steady(
    says: Says,
    why: str,
    off: Sequence[PromptFigures],
    on: Sequence[PromptFigures],
    verify_cost: float | None = None,
) -> tuple[Says, str]:
    """The verdict, taken back where the same rounds show that the machine was another one on either side.

    Drafting changes neither the time to the first token nor what a machine can do: verifying several positions
    never costs clearly less than decoding one. Streamed text may bring the first token together with a whole round of
    drafting; then its time says nothing of the machine.
    """
    if says == "unknown":
        return says, why
    if verify_cost is not None and verify_cost < LEAST_VERIFY_COST:
        doubt = f"verifying was timed at {verify_cost:.2f} of a plain step, which no machine does"
        return "unknown", f"{why}, but the machine was not steady: {doubt}"
    first = [_first_ms(side) for side in (off, on)]
    heard = any(p.arrival for p in on)
    if not heard and all(first) and max(first) / min(first) > TTFT_RATIO_LIMIT:
        doubt = f"the first token, which drafting does not touch, came after {first[0]:.3g} and {first[1]:.3g} ms"
        return "unknown", f"{why}, but the machine was not steady: {doubt}"
    return says, why


def judge_heat(says: Says, why: str, off_marks: bool, on_marks: bool) -> tuple[Says, str]:
    """The verdict, taken back where one side has cold rounds and the other only marked ones.

    Hot against cold compares two states of a phone. Where both sides are marked it stands, and says so.
    """
    if off_marks != on_marks:
        side = "with" if on_marks else "without"
        return "unknown", f"{why}, but rounds {side} drafting are all marked (hot or cut off) beside cold ones"
    return says, f"{why}, marked rounds only" if on_marks else why


def _first_ms(prompts: Sequence[PromptFigures]) -> float:
    """Median over prompts of the time to the first token; 0 where it is unknown."""
    times = [t for repeats in by_prompt(prompts).values() if (t := prompt_median(repeats, "ttft_ms"))]
    return statistics.median(times) if times else 0.0


def conclude(
    plain: Sequence[MeasuredRound],
    mtp: Sequence[MeasuredRound],
    *,
    simulated: bool,
    exactness: Exactness | None = None,
    metadata_missing: Sequence[str] = (),
    ran_on: str | None = None,
    sampled: bool = False,
) -> Conclusion:
    """Figures, scenarios and the conclusion from the rounds with MTP off (`plain`) and on (`mtp`).

    `metadata_missing` are the metadata the record lacks (`Identity.missing()`): it is concluded, but says so.
    `ran_on` names what the rounds ran on ("CPU, 2 threads"): a bench of the GPU says nothing about them. Outputs that
    were `sampled` cannot be compared token by token.
    """
    off_rounds, off_remark = cold_rounds([(r.marks, r) for r in plain])
    on_rounds, on_remark = cold_rounds([(r.marks, r) for r in mtp])
    remarks = [f"MTP {s}: {r}" for s, r in (("off", off_remark), ("on", on_remark)) if r]
    off = [p for one in off_rounds for p in one.prompts]
    on = [p for one in on_rounds for p in one.prompts]
    rounds = min(len(off_rounds), len(on_rounds))
    off_figures = configuration_figures([r.prompts for r in off_rounds], mtp=False)
    on_figures = configuration_figures([r.prompts for r in on_rounds], mtp=True)
    missing = _missing(off_figures.figures, on_figures.figures)
    marked = any(r.marks for r in off_rounds), any(r.marks for r in on_rounds)
    scenarios = tuple(scenario(k, off, on, rounds, marked) for k in sorted({p.klass for p in off + on}))
    return Conclusion(
        text=_text(
            scenarios,
            missing,
            exactness,
            simulated=simulated,
            hot_only=all(marked),
            metadata_missing=metadata_missing,
            ran_on=ran_on,
            sampled=sampled,
        ),
        scenarios=scenarios,
        predicted=predict(off, on),
        plain=off_figures,
        mtp=on_figures,
        missing=tuple(missing),
        remarks=tuple(remarks),
        simulated=simulated,
    )


def scenario(
    klass: str,
    off: Sequence[PromptFigures],
    on: Sequence[PromptFigures],
    rounds: int,
    marked: tuple[bool, bool] = (False, False),
) -> Scenario:
    """What one class of prompts says of `on` against `off`; ALL pools them.

    `marked` is whether the rounds of either side, `off` first, are marked ones for want of cold ones.
    """
    ours, theirs = ([p for p in side if klass in (p.klass, ALL)] for side in (off, on))
    speedup = paired_speedup(ours, theirs, "tokens_per_s", "paired_bootstrap")
    predicted = predict(ours, theirs)
    steady = judge_steady(*judge_speedup(speedup, rounds), ours, theirs, predicted.verify_cost)
    says, why = judge_heat(*steady, *marked)
    return Scenario(klass, says, speedup, predicted.measured, speedup.n, rounds, predicted, why)


def _missing(off: dict[str, Figure], on: dict[str, Figure]) -> list[str]:
    """Which of the four figures were not measured; α is asked of the side that drafts."""
    missing = []
    for name in FOUR:
        for side, figures in (("off", off), ("on", on)):
            if name == "alpha" and side == "off":
                continue
            if figures[name].value is None:
                missing.append(f"{NAMES[name]} with MTP {side} ({figures[name].reason or 'no reason recorded'})")
    return missing


def _text(
    scenarios: Sequence[Scenario],
    missing: Sequence[str],
    exactness: Exactness | None,
    *,
    simulated: bool,
    hot_only: bool,
    metadata_missing: Sequence[str],
    ran_on: str | None,
    sampled: bool,
) -> str:
    prefix = "SIMULATED: " if simulated else ""
    if missing:
        return f"{prefix}No conclusion, because not all four figures were measured: {'; '.join(missing)}."
    if exactness is not None and not exactness.ok:
        return f"{prefix}No conclusion, because drafting must not change the output: {exactness.text}"
    parts = []
    for says in ("pays", "breaks even", "costs", "unknown"):
        of = [s for s in scenarios if s.says == says]
        if of:
            named = ", ".join(f"{s.klass} ({s.why})" for s in of)
            parts.append(f"is undecided for {named}" if says == "unknown" else f"{says} for {named}")
    where = f"MTP on {ran_on}" if ran_on else "MTP"
    text = "No prompt class was measured, so there is nothing to conclude."
    if parts:
        text = f"{where} {'; '.join(parts)}."
    if hot_only:
        text += " Only hot or otherwise marked rounds exist, so this says nothing of a cold phone."
    if exactness is None and sampled:
        text += " Outputs were sampled: drafting keeps their distribution, not their tokens."
    elif exactness is None:
        text += " Whether drafting left the output unchanged was not checked."
    if metadata_missing:
        text += f" The record is incomplete ({', '.join(metadata_missing)} unknown) and cannot be compared."
    return prefix + text
