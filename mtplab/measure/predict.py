"""Predict the decode speedup from α_k, c and r of the very same run, to set it beside what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from mtplab.measure.figures import PromptFigures, by_prompt, prompt_median
from mtplab.speculation.acceptance import conditional, merge
from mtplab.speculation.intervals import Estimate, drift, percentile_interval, resample_weights, unknown, widening
from mtplab.speculation.speedup import expected_tokens_conditional

_DRAFT_TIMES = ("decode_us", "draft_us", "verify_us")


class Prediction(msgspec.Struct, frozen=True):
    """Terms in plain decode steps, the predicted speedup τ/K with K = draft + verify, and the measured one.

    `draft_round_cost` is the whole draft of a round (γ·c of a recursive head, c of a parallel one), `draft_cost` that
    ÷ γ. `overhead` is what a measured round took besides draft and verify; the prediction leaves it out, so that
    it cannot come true by construction. `handover` is the part of draft and verify that passed data between backbone
    and head, None where the runtime does not tell it. `reason` says what was lacking if there is no prediction.
    """

    tau: float | None
    conditional: tuple[float | None, ...] | None
    plain_step_ms: float | None
    draft_cost: float | None
    draft_round_cost: float | None
    verify_cost: float | None
    overhead: float | None
    round_cost: float | None
    speedup: float | None
    measured: Estimate
    error: float | None
    reason: str | None
    handover: float | None = None


def decode_speedup(plain: Sequence[PromptFigures], mtp: Sequence[PromptFigures]) -> Estimate:
    """Measured speedup of decoding alone: (time ÷ steps) off ÷ (time ÷ steps) on, sums over prompts measured on both.

    A ratio of sums, not a mean of ratios, because that is what τ/K of pooled rounds predicts. Bootstrapped over
    prompts (within their classes, both sides of a prompt drawn together) and over rounds, neighbours paired, and
    widened for their small numbers.
    """
    off, on = by_prompt(plain), by_prompt(mtp)
    rows, classes = [], []
    both = sorted(off.keys() & on.keys())
    for prompt in both:
        row = [v for side in (off, on) for v in (spent(side[prompt], "decode_us", steps), steps(side[prompt]))]
        if all(row):
            rows.append(row)
            classes.append(off[prompt][0].klass)
    if not rows:
        return unknown("paired_bootstrap", "no prompt was timed on both sides")
    return _with_drift(np.asarray(rows), classes, [_log_ratios(off[p], on[p]) for p in both])


def _with_drift(rows: np.ndarray, classes: Sequence[str], by_round: Sequence[Sequence[float]]) -> Estimate:
    value = float(_speedup_of(rows.sum(axis=0)))
    if len(rows) < 2:
        return Estimate(value, None, None, 1, "paired_bootstrap", "one prompt alone gives no interval")
    drawn = np.log(_speedup_of(resample_weights(len(rows), strata=classes) @ rows) / value)
    low, high = percentile_interval(value * np.exp(drawn * widening(len(rows), classes) + drift(by_round)))
    return Estimate(value, min(low, value), max(high, value), len(rows), "paired_bootstrap")


def _log_ratios(off: Sequence[PromptFigures], on: Sequence[PromptFigures]) -> list[float]:
    """log of off ÷ on, time a step, of one prompt in each pair of neighbouring rounds."""
    pairs = ((a.tpot_ms, b.tpot_ms) for a, b in zip(off, on, strict=False))
    return [math.log(a / b) for a, b in pairs if a and b]


Units = Callable[[Sequence[PromptFigures]], float]


def steps(repeats: Sequence[PromptFigures]) -> float:
    """Tokens after the first time stamp, the mean over repeats: sampled outputs differ from round to round."""
    return sum(max(0, p.output_tokens - p.first_tokens) for p in repeats) / len(repeats)


def _rounds(repeats: Sequence[PromptFigures]) -> float:
    return sum(len(p.accepts) for p in repeats) / len(repeats)


def spent(repeats: Sequence[PromptFigures], name: str, units: Units) -> float:
    """A time of one prompt: the median over repeats of its time a unit, for the mean number of units.

    Where all repeats are of one length, as greedy ones are, that is their median: one stalled round must not move it.
    """
    rates = [v / n for p in repeats if (v := getattr(p, name)) is not None and (n := units([p]))]
    return statistics.median(rates) * units(repeats) if rates else 0.0


def _speedup_of(sums: np.ndarray) -> np.ndarray:
    return (sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3])


def predict(plain: Sequence[PromptFigures], mtp: Sequence[PromptFigures]) -> Prediction:
    """Predict from the plain step time of `plain` and the draft and verify times and accepts of `mtp`.

    `measured` is the decode speedup of the same prompts; `error` is predicted ÷ measured − 1.
    """
    measured = decode_speedup(plain, mtp)
    off, on = by_prompt(plain), by_prompt(mtp)
    prompts = sorted(off.keys() & on.keys())
    timed = [p for p in prompts if prompt_median(off[p], "decode_us")]
    drafted = [p for p in prompts if all(prompt_median(on[p], f) is not None for f in _DRAFT_TIMES)]
    if not timed:
        return _none(measured, "no plain decode step of the same prompts was timed")
    rounds = [p for prompt in drafted for p in on[prompt] if p.accepts]
    if not rounds:
        return _none(measured, "no draft round of the same prompts was timed")
    if None in {p.gamma for p in rounds} or len({p.gamma for p in rounds}) > 1:
        return _none(measured, "rounds drafted different lengths")
    pooled = merge([c for p in rounds if (c := p.counts)])
    alphas = conditional(pooled)
    assert alphas is not None  # prompts without a round were left out above
    step_us = sum(spent(off[p], "decode_us", steps) for p in timed) / sum(steps(off[p]) for p in timed)
    in_steps = 1 / (sum(_rounds(on[p]) for p in drafted) * step_us)
    draft = sum(spent(on[p], "draft_us", _rounds) for p in drafted) * in_steps
    verify = sum(spent(on[p], "verify_us", _rounds) for p in drafted) * in_steps
    handover = [spent(on[p], "handover_us", _rounds) for p in drafted]
    timed_handover = all(one.handover_us is not None for one in rounds)
    tau = expected_tokens_conditional([a if a is not None else 0.0 for a in alphas])
    speedup = tau / (draft + verify) if draft + verify > 0 else None
    single_steps = sum(sum(p.plain_steps for p in on[name]) / len(on[name]) for name in drafted)
    spent_us = sum(spent(on[p], "decode_us", steps) for p in drafted) - single_steps * step_us
    return Prediction(
        tau=tau,
        conditional=alphas,
        plain_step_ms=step_us / 1000,
        draft_cost=draft / pooled.gamma,
        draft_round_cost=draft,
        verify_cost=verify,
        overhead=max(0.0, spent_us * in_steps - draft - verify),
        round_cost=draft + verify,
        speedup=speedup,
        measured=measured,
        error=speedup / measured.value - 1 if speedup and measured.value else None,
        reason=None,
        handover=sum(handover) * in_steps if timed_handover else None,
    )


def _none(measured: Estimate, reason: str) -> Prediction:
    return Prediction(None, None, None, None, None, None, None, None, None, measured, None, reason)
