"""A row of the recipe table out of what judging a pair gave."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from mtplab.pipeline.judging import Side, exactness, summary_of
from mtplab.session.events import Figure, RecipeRow
from mtplab.speculation.forced import Hits
from mtplab.speculation.intervals import Estimate, bootstrap_median, unknown


def figure(estimate: Estimate, unit: str = "") -> Figure:
    """An estimate as the session keeps it: `evidence` names how it was made."""
    return Figure(
        value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, unit=unit,
        evidence=estimate.kind, reason=estimate.reason,
    )  # fmt: skip


def recipe_row(recipes: tuple[str, str], side: Side, gamma: int, forced: Hits, delta: Estimate) -> RecipeRow:
    """The row of one pair: backbone recipe and head recipe, what was seen, its hits and change against float."""
    summary = summary_of(side.rounds, gamma)
    perplexity = side.perplexity
    return RecipeRow(
        backbone=recipes[0],
        head=recipes[1],
        backbone_bytes=side.sizes[0],
        head_bytes=side.sizes[1],
        top1=[figure(rate) for rate in forced.rates()],
        conditional_alpha=[_conditional(one) for one in summary["conditional_alpha"]],
        alpha=Figure(**_evidence(summary["alpha"])),
        alpha_without_loops=Figure(**_evidence(summary["without_loops"]["alpha"])),
        mean_accepted=Figure(
            value=summary["mean_accepted"], n=summary["rounds"], evidence="true_rounds",
            reason=None if summary["rounds"] else "no draft round was recorded",
        ),
        delta_alpha=figure(delta),
        perplexity=Figure(
            value=perplexity.value, n=perplexity.tokens, evidence="real_continuations", reason=perplexity.reason
        ),
        changed_outputs=exactness(side.plain, side.rounds)["different"],
    )  # fmt: skip


def _conditional(position: dict[str, Any]) -> Figure:
    reason = None if position["n"] else "no round came as far as this position"
    return Figure(
        value=position["value"], low=position["low"], high=position["high"], n=position["n"],
        evidence="true_rounds_wilson", reason=reason,
    )  # fmt: skip


def _evidence(estimate: dict[str, Any]) -> dict[str, Any]:
    """An estimate in built-ins as the fields of a figure."""
    return {("evidence" if name == "kind" else name): value for name, value in estimate.items()}


def times(turns: Sequence[Sequence[float | None]]) -> Figure:
    """The median over prompts of each one's median over turns; a row of prompts for each turn.

    The interval is over prompts: another turn of a prompt makes its own time steadier but is no further prompt.
    """
    by_prompt = [[ms for ms in column if ms is not None] for column in zip(*turns, strict=True)]
    known = [median(column) for column in by_prompt if column]
    kind = "host_interleaved_median_bootstrap"
    return figure(bootstrap_median(known, kind) if known else unknown(kind, "nothing was timed"), "ms")
