"""The recipe table as text: a line a pair of recipes, the rows of the Pareto front marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mtplab.session.events import Figure, RecipeRow
from mtplab.session.recipes import RecipeTable, pareto_front

_HEADINGS = (
    "", "backbone", "head", "MB", "top-1 by position", "α by position", "α [95 %]", "no loops", "Δα [95 %]",
    "ms/token (plain)", "perplexity",
)  # fmt: skip


def recipe_lines(table: RecipeTable) -> list[str]:
    """The whole table, or the reasons why a row is empty."""
    front = set(pareto_front(table.rows))
    cells = [_HEADINGS, *(_cells(row, place in front) for place, row in enumerate(table.rows))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    lines = [
        f"Recipes (γ {table.gamma}, {table.prompts} prompts of {table.prompt_set}, {table.output_tokens} tokens each)"
    ]
    lines += [" " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
    odd = [(row, why) for row in table.rows if (why := row.reason or row.warning)]
    lines += [f"   {row.backbone}, head {row.head}: {why}" for row, why in odd]
    lines.append(
        f"   * no other row is smaller, faster and better accepted at once · times on this host's CPU, "
        f"{table.threads} thread{'s' if table.threads > 1 else ''}"
    )
    lines.append(
        "   top-1: teacher-forced, every position · α: true rounds on the text of each row's own backbone · "
        "Δα: against float, on equal text"
    )
    return lines


def _cells(row: RecipeRow, on_front: bool) -> tuple[str, ...]:
    mark = "*" if on_front else "✗" if row.reason else "!" if row.warning else " "
    if row.reason:
        return (mark, row.backbone, row.head, *["–"] * (len(_HEADINGS) - 3))
    size = "?" if row.bytes is None else f"{row.bytes / 1e6:.1f}"
    return (
        mark,
        row.backbone,
        row.head,
        size,
        positions_text(row.top1),
        positions_text(row.conditional_alpha),
        interval_text(row.alpha, ".3f"),
        value_text(row.alpha_without_loops, ".3f"),
        interval_text(row.delta_alpha, "+.3f"),
        f"{value_text(row.ms_per_token, '.3g')} ({value_text(row.decode_ms, '.3g')})",
        value_text(row.perplexity, ".2f"),
    )


def value_text(figure: Figure, form: str) -> str:
    """A figure's value, or ? where it could not be had."""
    return "?" if figure.value is None else format(figure.value, form)


def interval_text(figure: Figure, form: str) -> str:
    """Value and interval."""
    if figure.value is None or figure.low is None or figure.high is None:
        return value_text(figure, form)
    return f"{figure.value:{form}} [{figure.low:{form}} {figure.high:{form}}]"


def positions_text(figures: Sequence[Figure]) -> str:
    """One share a draft position, without the leading zeros."""
    return " ".join(value_text(one, ".2f").removeprefix("0") for one in figures) or "?"


def recipe_contract(table: RecipeTable | None) -> dict[str, Any] | None:
    """The table for scripts; every row says whether it stands on the Pareto front."""
    if table is None:
        return None
    front = set(pareto_front(table.rows))
    rows = [
        {**msgspec.to_builtins(row), "bytes": row.bytes, "pareto": place in front}
        for place, row in enumerate(table.rows)
    ]
    return {**msgspec.to_builtins(table), "rows": rows, "front": sorted(front)}
