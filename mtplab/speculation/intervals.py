"""Say how sure a figure is: the estimate with its interval, Wilson's, and seeded bootstraps over prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the standard normal
# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom; beyond, the normal one is near enough.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
DEFAULT_RESAMPLES = 2000
DEFAULT_SEED = 20231  # any fixed number: the same records must give the same interval twice


class Estimate(msgspec.Struct, frozen=True):
    """A figure with its interval; what could not be had is None and `reason` says why.

    `n` counts the independent things the interval rests on (trials for Wilson, prompts for a bootstrap) and
    `kind` names how it was made, so that a bound, a confidence interval and a bare number are never confused.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    kind: str
    reason: str | None = None


def unknown(kind: str, reason: str, n: int = 0) -> Estimate:
    """An estimate that could not be made, with the reason."""
    return Estimate(None, None, None, n, kind, reason)


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a proportion; stays inside 0..1 and is honest at 0 and 1 (Wilson 1927)."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes in {trials} trials is no proportion")
    p = successes / trials
    spread = z * z / trials
    centre = (p + spread / 2) / (1 + spread)
    half = z * math.sqrt(p * (1 - p) / trials + spread / (4 * trials)) / (1 + spread)
    # At the ends rounding may leave the observed value outside by one unit in the last place.
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))


def trials_needed(p: float, half_width: float, z: float = Z_95) -> int:
    """Trials until a proportion near `p` is known to ± `half_width`: z²p(1−p)/h² (normal approximation)."""
    if not (0 <= p <= 1 and half_width > 0):
        raise ValueError("a proportion lies in 0..1 and a half width is above 0")
    return math.ceil(z * z * p * (1 - p) / half_width**2)


def t_95(freedom: int) -> float:
    """Student's two-sided 95 % quantile for that many degrees of freedom, 1 or more."""
    return _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96


def widening(units: int, strata: Sequence[Hashable] | None = None) -> float:
    """By how much a percentile bootstrap of a mean over so few units is too narrow.

    The expanded percentile interval (Hesterberg 2015, What Teachers Should Know About the Bootstrap): resampling n
    units shows (n−1)/n of their variance, and its percentiles are the normal's where Student's t is due. So
    t(n−1)/z·√(n/(n−1)), which is 1.6 for five prompts and 1.1 for twenty. Each stratum costs a degree of freedom.
    """
    freedom = units - len(_members(units, strata))
    return t_95(freedom) / Z_95 * math.sqrt(units / freedom) if freedom > 0 else 1.0


def resample_weights(
    units: int,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    strata: Sequence[Hashable] | None = None,
) -> np.ndarray:
    """How often each of `units` is drawn in each resample: int64[resamples, units], rows summing to `units`.

    With `strata` (one name a unit) each stratum keeps its own number of draws: a set of prompts that was composed of
    classes is resampled as it was composed. Strata of a single unit, which alone could not vary, are drawn together.
    """
    random = np.random.default_rng(seed)
    drawn = np.zeros((resamples, units), dtype=np.int64)
    for members in _members(units, strata):
        share = np.full(len(members), 1 / len(members))
        drawn[:, members] = random.multinomial(len(members), share, size=resamples)
    return drawn


def _members(units: int, strata: Sequence[Hashable] | None) -> list[list[int]]:
    """The indices of each stratum."""
    if strata is None:
        return [list(range(units))]
    if len(strata) != units:
        raise ValueError(f"{len(strata)} strata were named for {units} units")
    groups: dict[Hashable, list[int]] = {}
    for index, name in enumerate(strata):
        groups.setdefault(name, []).append(index)
    singles = [index for group in groups.values() if len(group) == 1 for index in group]
    return [*[group for group in groups.values() if len(group) > 1], *([singles] if singles else [])]


def percentile_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """The central `level` of bootstrap values, those that are not numbers left out."""
    tail = (1 - level) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap_statistic(
    rows: Sequence[Sequence[float]] | np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    kind: str,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    strata: Sequence[Hashable] | None = None,
    widened_within: tuple[float, float] | None = None,
) -> Estimate:
    """Bootstrap over rows (one a prompt) of a statistic of their column sums; within `strata` where they are given.

    `statistic` takes sums[..., columns] and gives values[...]. Prompts are resampled whole because rounds of one
    prompt correlate: resampling rounds would give an interval that is too narrow. With `widened_within`, the
    bounds of the statistic, the interval is widened for how few rows there are (see `widening`), but not beyond them.
    """
    table = np.asarray(rows, dtype=np.float64)
    if table.size == 0:
        return unknown(kind, "there are no prompts to estimate from")
    value = float(statistic(table.sum(axis=0)))
    if len(table) < 2:
        return Estimate(value, None, None, len(table), kind, "one prompt alone gives no interval")
    drawn = statistic(resample_weights(len(table), resamples, seed, strata) @ table)
    if widened_within is not None:
        drawn = np.clip(value + (drawn - value) * widening(len(table), strata), *widened_within)
    low, high = percentile_interval(drawn)
    return Estimate(value, low, high, len(table), kind)


def drift(by_round: Sequence[Sequence[float]], seed: int = DEFAULT_SEED + 1) -> np.ndarray | float:
    """What drawing the rounds anew adds to a mean over them, in each resample; 0 where there are fewer than two.

    `by_round` holds a row for each prompt with its value in every round. A machine that changes between rounds
    changes all prompts alike, which drawing prompts alone would never show.
    """
    rounds = min(map(len, by_round), default=0)
    if rounds < 2:
        return 0.0
    per_round = np.asarray([row[:rounds] for row in by_round]).mean(axis=0)
    drawn = resample_weights(rounds, seed=seed) @ per_round / rounds - per_round.mean()
    return np.asarray(drawn * widening(rounds))


def bootstrap_median(
    values: Sequence[float],
    kind: str,
    *,
    resamples: int = DEFAULT_RESAMPLES,
    seed: int = DEFAULT_SEED,
    strata: Sequence[Hashable] | None = None,
) -> Estimate:
    """The median of `values` with a percentile bootstrap interval over them, drawn within `strata` where given."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        return unknown(kind, "there are no values to take a median of")
    value = float(np.median(data))
    if data.size < 2:
        return Estimate(value, None, None, int(data.size), kind, "one value alone gives no interval")
    random = np.random.default_rng(seed)
    groups = [np.asarray(members) for members in _members(data.size, strata)]
    draws = np.concatenate([g[random.integers(0, len(g), size=(resamples, len(g)))] for g in groups], axis=1)
    low, high = percentile_interval(np.median(data[draws], axis=1))
    return Estimate(value, low, high, int(data.size), kind)
