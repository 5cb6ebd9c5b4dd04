"""Lengths in tokens: what production looks like, how far a set is from it, and which prompts come closest."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from mtplab.calibration.errors import CalibrationError

MOST_BARS = 16
_MOST_TOKENS = 1_000_000
_FORMS = "a JSON list of token counts, buckets of low, high and count, or a CSV with such columns"
_STEPS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80)


class Distribution(msgspec.Struct, frozen=True):
    """Weighted lengths in ascending order; weights sum to 1."""

    lengths: tuple[float, ...]
    weights: tuple[float, ...]
    name: str = ""
    samples: float = 0

    @classmethod
    def of(cls, lengths: Sequence[float], name: str = "") -> Distribution:
        """Every length with the same weight."""
        return cls.weighted(lengths, [1.0] * len(lengths), name)

    @classmethod
    def weighted(cls, lengths: Sequence[float], weights: Sequence[float], name: str = "") -> Distribution:
        """Lengths and how often each occurs, in any unit and order."""
        total = math.fsum(weights)
        rows = sorted(zip(lengths, weights, strict=True))
        return cls(tuple(x for x, _ in rows), tuple(w / total for _, w in rows), name, total)

    @property
    def mean(self) -> float:
        return math.fsum(x * w for x, w in zip(self.lengths, self.weights, strict=True))

    def below(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """F(x): the share of lengths ≤ each point."""
        found = np.searchsorted(np.asarray(self.lengths), points, side="right")
        return np.concatenate([[0.0], np.cumsum(self.weights)])[found]

    def quantiles(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest length whose F reaches each share."""
        reached = np.searchsorted(np.cumsum(self.weights), shares - 1e-12, side="left")
        return np.asarray(self.lengths)[np.minimum(reached, len(self.lengths) - 1)]

    def bars(self, edges: Sequence[float]) -> list[float]:
        """Shares in [edge, next edge); the last bar takes its upper edge, too."""
        at = np.asarray(edges, np.float64)
        shares, _ = np.histogram(np.asarray(self.lengths), bins=at, weights=np.asarray(self.weights))
        return [float(share) for share in shares]


def wasserstein(one: Distribution, other: Distribution) -> float:
    """W1 in tokens: how far, on average, lengths must move to turn one distribution into the other.

    On a line W1 = ∫ |F(x) − G(x)| dx (Vallender 1974, "Calculation of the Wasserstein distance between probability
    distributions on the line"); exact, since both F and G are steps.
    """
    points = np.union1d(one.lengths, other.lengths)
    gap = np.abs(one.below(points[:-1]) - other.below(points[:-1]))
    return float(np.sum(gap * np.diff(points)))


def closest(lengths: Sequence[int], target: Distribution, size: int) -> list[int]:
    """Indices of `size` lengths whose distribution lies as near to `target` as any choice of that many.

    The target's mid-quantiles are what is wanted; each takes one length of its own, in order, at the least total
    distance. Pairing in order is optimal on a line, so a dynamic programme over both sorted lists finds the best
    choice: best[i, j], the cost of serving the first i wishes out of the first j lengths.
    """
    if not 0 < size <= len(lengths):
        raise CalibrationError(f"{size} prompts cannot be chosen among {len(lengths)}; give more prompts.")
    order = np.argsort(np.asarray(lengths), kind="stable")
    have = np.asarray(lengths, np.float64)[order]
    wanted = target.quantiles((np.arange(size) + 0.5) / size)
    best = np.zeros(len(have) + 1)
    taken = np.zeros((size, len(have)), bool)
    for i, wish in enumerate(wanted):
        serve = best[:-1] + np.abs(have - wish)  # the last wish takes length j exactly
        serve[:i] = np.inf  # fewer lengths than wishes so far
        lowest = np.minimum.accumulate(serve)
        taken[i] = serve <= lowest
        best = np.concatenate([[np.inf], lowest])
    chosen = []
    j = len(have) - 1
    for i in range(size - 1, -1, -1):
        while not taken[i, j]:
            j -= 1
        chosen.append(int(order[j]))
        j -= 1
    return sorted(chosen)


def edges_for(*all_of: Distribution) -> list[float]:
    """Edges of at most `MOST_BARS` bars of one round width that hold every length."""
    low = min(one.lengths[0] for one in all_of)
    high = max(one.lengths[-1] for one in all_of)
    step = next(
        step * 10**power
        for power in range(8)
        for step in _STEPS
        if high // (step * 10**power) - low // (step * 10**power) < MOST_BARS
    )
    first = int(low // step)
    return [float(step * n) for n in range(first, int(high // step) + 2)]


def read_target(path: Path) -> Distribution:
    """Production lengths in tokens, chat template and system prompt included, as the model reads them.

    Taken are: a JSON list of lengths; a JSON object with `lengths` or `buckets` ([{low, high, count}], low ≤ n <
    high); a CSV with a column tokens (or length), or with low, high and count. A `unit` other than tokens is refused.
    Raises `CalibrationError`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"The lengths {path} cannot be read ({error}); give {_FORMS}.") from error
    try:
        return _from_json(text, path.name) if path.suffix == ".json" else _from_csv(text, path.name)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CalibrationError(
            f"The lengths {path.name} make no sense ({type(error).__name__}: {error}); give {_FORMS}."
        ) from error


def _from_json(text: str, name: str) -> Distribution:
    value = json.loads(text)
    if isinstance(value, dict):
        unit = value.get("unit", "tokens")
        if unit != "tokens":
            raise CalibrationError(
                f"The lengths {name} are counted in {str(unit)[:40]} and not in tokens, so no set can be matched to "
                "them; count them with the model's tokenizer."
            )
        if "buckets" in value:
            return _from_buckets([(one["low"], one["high"], one["count"]) for one in value["buckets"]], name)
        value = value["lengths"]
    return Distribution.of([_length(one) for one in value], name) if value else _nothing(name)


def _from_csv(text: str, name: str) -> Distribution:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if {"low", "high", "count"} <= set(header):
        places = [header.index(column) for column in ("low", "high", "count")]
        return _from_buckets([tuple(float(row[place]) for place in places) for row in rows[1:]], name)
    column = next((header.index(one) for one in ("tokens", "length") if one in header), None)
    if column is not None:
        rows = rows[1:]
    lengths = [_length(float(row[column or 0])) for row in rows]
    return Distribution.of(lengths, name) if lengths else _nothing(name)


def _from_buckets(buckets: Sequence[Any], name: str) -> Distribution:
    """Inside a bucket every length is as likely as any other: that is all a bucket says."""
    lengths: list[float] = []
    weights: list[float] = []
    for low, high, count in buckets:
        first, after = _length(low), _length(high)
        if not first < after or not 0 <= count < math.inf:
            raise ValueError(f"a bucket from {low} to {high} with {count} prompts")
        lengths += range(int(first), int(after))
        weights += [count / (after - first)] * int(after - first)
    return Distribution.weighted(lengths, weights, name) if sum(weights) else _nothing(name)


def _length(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST_TOKENS:
        raise ValueError(f"{value!r} is no length in tokens")
    if value != int(value):
        raise ValueError(f"{value!r} is no whole number of tokens")
    return float(value)


def _nothing(name: str) -> Distribution:
    raise CalibrationError(f"The lengths {name} hold nothing; give {_FORMS}.")
