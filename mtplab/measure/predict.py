"""Predict the decode speedup from α_k, c and r of the very same run, to set it beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from mtplab.measure.figures import PromptFigures, by_prompt, prompt_median
from mtplab.speculation.acceptance import conditional, merge
from mtplab.speculation.intervals import Estimate, bootstrap_statistic, unknown
from mtplab.speculation.speedup import expected_tokens_conditional

_DRAFT_TIMES = ("decode_us", "draft_us", "verify_us")


class Prediction(msgspec.Struct, frozen=True):
    """Terms in plain decode steps, the predicted speedup τ/K with K = draft + verify, and the measured one.

    `draft_round_cost` is the whole draft of a round (γ·c of a recursive head, c of a parallel one), `draft_cost` that
    ÷ γ. `overhead` is what a measured round took besides draft and verify; the prediction leaves it out, so that
    it cannot come true by construction. `reason` says what was lacking if there is no prediction.
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


def decode_speedup(plain: Sequence[PromptFigures], mtp: Sequence[PromptFigures]) -> Estimate:
    """Measured speedup of decoding alone: (time ÷ steps) off ÷ (time ÷ steps) on, sums over prompts measured on both.

    A ratio of sums, not a mean of ratios, because that is what τ/K of pooled rounds predicts; bootstrapped over
    prompts, both sides of a prompt drawn together.
    """
    off, on = by_prompt(plain), by_prompt(mtp)
    rows = []
    for prompt in sorted(off.keys() & on.keys()):
        row = [
            v
            for side in (off, on)
            for v in (prompt_median(side[prompt], "decode_us"), side[prompt][0].output_tokens - 1)
        ]
        if all(row):
            rows.append([float(v) for v in row if v is not None])
    if not rows:
        return unknown("paired_bootstrap", "no prompt was timed both with MTP on and off")
    return bootstrap_statistic(rows, _speedup_of, "paired_bootstrap")


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
    counts = [c for p in drafted if (c := on[p][0].counts)]
    if not counts:
        return _none(measured, "no draft round of the same prompts was timed")
    if len({c.gamma for c in counts}) > 1:
        return _none(measured, "rounds drafted different lengths")
    pooled = merge(counts)
    alphas = conditional(pooled)
    assert alphas is not None  # prompts without a round were left out above
    step_us = _sum(off, timed, "decode_us") / sum(off[p][0].output_tokens - 1 for p in timed)
    in_steps = 1 / (pooled.rounds * step_us)
    draft = _sum(on, drafted, "draft_us") * in_steps
    verify = _sum(on, drafted, "verify_us") * in_steps
    tau = expected_tokens_conditional([a if a is not None else 0.0 for a in alphas])
    speedup = tau / (draft + verify) if draft + verify > 0 else None
    single_steps_us = sum(on[p][0].plain_steps for p in drafted) * step_us
    spent_us = _sum(on, drafted, "decode_us") - single_steps_us
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
    )


def _sum(groups: dict[str, list[PromptFigures]], prompts: Sequence[str], name: str) -> float:
    """Sum over prompts of each one's median over rounds: one stalled round must not move a cost."""
    return sum(prompt_median(groups[p], name) or 0.0 for p in prompts)


def _none(measured: Estimate, reason: str) -> Prediction:
    return Prediction(None, None, None, None, None, None, None, None, None, measured, None, reason)
