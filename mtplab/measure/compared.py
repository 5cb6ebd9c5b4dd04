"""Set every configuration beside plain decoding, and adaptive draft lengths beside the best fixed one (R23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mtplab.measure.conclude import (
    ALL,
    MeasuredRound,
    Says,
    Scenario,
    judge_heat,
    judge_speedup,
    judge_steady,
    scenario,
)
from mtplab.measure.exactness import Exactness
from mtplab.measure.figures import PromptFigures
from mtplab.measure.plan import fixed_of, plain_of
from mtplab.measure.predict import decode_speedup
from mtplab.measure.rounds import cold_rounds
from mtplab.session.configuration import Configuration
from mtplab.speculation.intervals import Estimate

MIXED = "mixed load"
_VERBS: dict[Says, str] = {
    "pays": "gains on", "costs": "loses to", "breaks even": "equals", "unknown": "cannot be told from",
}  # fmt: skip


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration against plain decoding on the same ground: a row for each class, and one for all.

    `exact` is whether its greedy output was plain decoding's, None where that was not (or cannot be) checked.
    """

    configuration: str
    setting: str
    against: str
    exact: bool | None
    rows: tuple[Scenario, ...]


class AdaptiveGain(msgspec.Struct, frozen=True, kw_only=True, rename={"klass": "class"}):
    """An adaptive draft length against the best fixed one, both as they ran: decode time alone.

    The best fixed one, plain decoding (γ 0) among them, is chosen on the very prompts it is judged on, which favours
    it. `gain` is how many times faster the adaptive one decodes; `says` what its interval carries.
    """

    configuration: str
    policy: str
    klass: str
    prompts: int
    rounds: int
    fixed: str
    fixed_gamma: int
    fixed_speedup: Estimate
    adaptive_speedup: Estimate
    gain: Estimate
    says: Says
    why: str


class _Side(msgspec.Struct, frozen=True):
    """The rounds of one configuration that figures are made of."""

    configuration: Configuration
    prompts: tuple[PromptFigures, ...]
    rounds: int
    marked: bool


def compare_configurations(
    configurations: Sequence[Configuration],
    rounds: Mapping[str, Sequence[MeasuredRound]],
    exact: Mapping[str, Exactness | None],
) -> tuple[list[Comparison], list[AdaptiveGain]]:
    """All comparisons that the rounds allow; a configuration without rounds, or without a plain one, has no row."""
    sides = {c.name: _side(c, rounds[c.name]) for c in configurations if rounds.get(c.name)}
    comparisons, gains = [], []
    for configuration in configurations:
        plain = plain_of(configuration, configurations)
        if not configuration.mtp or plain is None or not {plain.name, configuration.name} <= sides.keys():
            continue
        comparisons.append(_compare(sides[configuration.name], sides[plain.name], exact.get(configuration.name)))
        if configuration.adaptive:
            fixed = [sides[c.name] for c in fixed_of(configuration, configurations) if c.name in sides]
            gains += _gains(sides[configuration.name], sides[plain.name], fixed)
    return comparisons, gains


def _side(configuration: Configuration, rounds: Sequence[MeasuredRound]) -> _Side:
    chosen, _ = cold_rounds([(r.marks, r) for r in rounds])
    prompts = tuple(p for one in chosen for p in one.prompts)
    return _Side(configuration, prompts, len(chosen), any(r.marks for r in chosen))


def _classes(side: _Side) -> list[str]:
    return sorted({p.klass for p in side.prompts})


def _compare(on: _Side, off: _Side, exact: Exactness | None) -> Comparison:
    rounds, marked = min(on.rounds, off.rounds), (off.marked, on.marked)
    classes = _classes(on)
    names = [*classes, ALL] if len(classes) > 1 else classes
    rows = [scenario(klass, off.prompts, on.prompts, rounds, marked) for klass in names]
    return Comparison(
        configuration=on.configuration.name,
        setting=on.configuration.text(),
        against=off.configuration.name,
        exact=None if exact is None else exact.ok,
        rows=tuple(rows),
    )


def _gains(adaptive: _Side, plain: _Side, fixed: Sequence[_Side]) -> list[AdaptiveGain]:
    """A row for each class, and one for all of them; none where no fixed length was measured beside."""
    if not fixed:
        return []
    classes = _classes(adaptive)
    return [_gain(klass, adaptive, plain, fixed) for klass in [*classes, *([MIXED] if len(classes) > 1 else [])]]


def _gain(klass: str, adaptive: _Side, plain: _Side, fixed: Sequence[_Side]) -> AdaptiveGain:
    def of(side: _Side) -> list[PromptFigures]:
        return [p for p in side.prompts if klass in (p.klass, MIXED)]

    speedups = {side.configuration.name: decode_speedup(of(plain), of(side)) for side in fixed}
    best = max(fixed, key=lambda side: speedups[side.configuration.name].value or 0.0)
    fixed_speedup = speedups[best.configuration.name]
    if fixed_speedup.value is not None and fixed_speedup.value < 1.0:  # one that is unknown is not known to lose
        best, fixed_speedup = plain, decode_speedup(of(plain), of(plain))
    gain = decode_speedup(of(best), of(adaptive))
    rounds = min(adaptive.rounds, best.rounds, plain.rounds)
    steady = judge_steady(*judge_speedup(gain, rounds), of(best), of(adaptive))
    says, why = judge_heat(*steady, best.marked, adaptive.marked)
    return AdaptiveGain(
        configuration=adaptive.configuration.name,
        policy=str(adaptive.configuration.draft_length),
        klass=klass,
        prompts=gain.n,
        rounds=rounds,
        fixed=best.configuration.name,
        fixed_gamma=best.configuration.gamma or 0,
        fixed_speedup=fixed_speedup,
        adaptive_speedup=decode_speedup(of(plain), of(adaptive)),
        gain=gain,
        says=says,
        why=why,
    )


def sentence(comparisons: Sequence[Comparison], gains: Sequence[AdaptiveGain]) -> str | None:
    """What several configurations say together, in a sentence or two; None where there is only one.

    The fastest is said to be fastest as measured, and where it was chosen among several, that this favours it. On
    several grounds no one is: each is held against plain decoding on its own.
    """
    sound = [c for c in comparisons if c.exact is not False]
    overall = [(c, c.rows[-1]) for c in sound if c.rows and c.rows[-1].decode_speedup.value]
    if len(comparisons) < 2 or not overall:
        return None
    best, row = max(overall, key=lambda pair: pair[1].decode_speedup.value or 0.0)
    what = "decodes fastest" if len({c.against for c, _ in overall}) == 1 else "gains most on its own ground"
    text = f"Of {len(overall)} configurations that draft {best.configuration} {what}, {_span(row.decode_speedup)}"
    text += f" of {best.against} (chosen on the prompts it is judged on, which favours it)."
    for gain in gains:
        if gain.klass == MIXED or len({g.klass for g in gains}) == 1:
            verdict = _VERBS[gain.says]
            against = "no drafting" if gain.fixed_gamma == 0 else f"γ {gain.fixed_gamma}"
            text += f" {gain.policy} {verdict} {against}, the best fixed: {_span(gain.gain)}."
    return text


def _span(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"unknown ({estimate.reason})"
    interval = "" if estimate.low is None or estimate.high is None else f" [{estimate.low:.2f}–{estimate.high:.2f}]"
    return f"{estimate.value:.2f}×{interval}"


def cost_points(comparisons: Sequence[Comparison], configurations: Sequence[Configuration]) -> list[dict[str, Any]]:
    """What a round of each fixed draft length was measured to cost, by threads, as the calculator takes it.

    Only configurations whose head runs where the backbone does: another place is another question.
    """
    by_name = {c.name: c for c in configurations}
    points = []
    for comparison in comparisons:
        configuration, told = by_name[comparison.configuration], comparison.rows[-1].predicted
        if configuration.gamma is None or told.draft_round_cost is None:
            continue
        if configuration.head_place != (configuration.threads, configuration.backend):
            continue
        points.append(
            {
                "gamma": configuration.gamma,
                "threads": configuration.threads,
                "draft_round_cost": told.draft_round_cost,
                "verify_cost": told.verify_cost,
                "overhead": told.overhead,
                "plain_step_ms": told.plain_step_ms,
            }
        )
    return points
