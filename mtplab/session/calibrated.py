"""What a session keeps of a calibration set: where it came from, what was left out, how its lengths compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mtplab.session.foreign import Unfit, convert_foreign
from mtplab.session.text import clean_text


class SourceFile(msgspec.Struct, frozen=True):
    """A file that was read: its name, never its place."""

    name: str
    sha256: str
    prompts: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows that were read; the parts add up to `read`."""

    read: int
    empty: int
    not_looked_at: int
    exact_duplicates: int
    too_long: int
    near_duplicates: int
    not_chosen: int
    chosen: int


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths in tokens over common `edges`: shares of the set and of production, and the distance between both.

    `distance_tokens` is Wasserstein's, `distance_before` that of all usable prompts; None with a reason where there
    is no production histogram.
    """

    edges: list[float]
    chosen: list[float]
    shortest: int
    longest: int
    mean: float
    production: list[float] | None = None
    production_name: str | None = None
    production_mean: float | None = None
    distance_tokens: float | None = None
    distance_before: float | None = None
    reason: str | None = None

    @property
    def distance_relative(self) -> float | None:
        """The distance as a share of production's mean length."""
        if self.distance_tokens is None or not self.production_mean:
            return None
        return self.distance_tokens / self.production_mean


class SystemPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Which system prompt stands before the prompts: given, in the rows, or declared not to exist."""

    kind: str
    sha256: str | None = None
    tokens: int | None = None


class SetReport(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration set without its prompts; `sha256` identifies tokenizer and tokens, in order."""

    version: int
    model: str
    vocab: int
    tokenizer_sha256: str
    template_sha256: str | None
    system: SystemPrompt
    sources: list[SourceFile]
    counts: Counts
    lengths: Lengths
    warnings: list[str]
    sha256: str


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of every signature by graph, and how many activations have a range."""

    samples: dict[str, dict[str, int]]
    tensors: dict[str, int]
    prompts: int
    resumed_after: int = 0


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the stage `calibrate`."""

    set: SetReport
    statistics: Ranges | None = None
    ranges: str = ""


def calibrated(figures: Mapping[str, Any]) -> Calibrated | None:
    """The figures of the stage `calibrate` as what they are; None where they are not (another version, or none)."""
    try:
        found: Calibrated = convert_foreign(dict(figures), Calibrated)
    except Unfit:
        return None
    edges, bars = found.set.lengths.edges, [found.set.lengths.chosen, found.set.lengths.production]
    whole = len(edges) >= 2 and all(one is None or len(one) == len(edges) - 1 for one in bars)
    return found if whole else None


def distance_line(lengths: Lengths) -> str:
    """Lengths in a sentence, with the distance to production or why there is none."""
    told = f"{lengths.shortest}–{lengths.longest} tokens, mean {lengths.mean:.1f}"
    if lengths.distance_tokens is None or lengths.production_mean is None:
        return f"{told}; distance to production unknown: {clean_text(lengths.reason or 'no reason recorded', 100)}"
    share = lengths.distance_relative
    before = "" if lengths.distance_before is None else f", {lengths.distance_before:.1f} before choosing"
    relative = "" if share is None else f" ({share:.1%} of the mean{before})"
    distance = f"Wasserstein distance {lengths.distance_tokens:.2f} tokens{relative}"
    return f"{told}; production mean {lengths.production_mean:.1f}; {distance}"
