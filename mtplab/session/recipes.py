"""The recipe table: what each pair of quantisation recipes is worth, and which pairs no other one beats."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mtplab.session.events import RecipeRow, RecipesJudged


class RecipeTable(msgspec.Struct, frozen=True, kw_only=True):
    """All rows that were judged on the same prompts; see `pareto_front`."""

    rows: list[RecipeRow]
    gamma: int
    prompt_set: str
    prompt_set_sha256: str
    prompts: int
    output_tokens: int
    threads: int


def recipe_table(event: RecipesJudged) -> RecipeTable:
    """The table of an event that holds all rows."""
    return RecipeTable(
        rows=event.rows,
        gamma=event.gamma,
        prompt_set=event.prompt_set,
        prompt_set_sha256=event.prompt_set_sha256,
        prompts=event.prompts,
        output_tokens=event.output_tokens,
        threads=event.threads,
    )


def merged_recipes(before: RecipesJudged | None, now: RecipesJudged) -> RecipesJudged:
    """`now` with the earlier rows before its own; rows that were judged otherwise are not beside each other."""
    if before is None or _terms(before) != _terms(now):
        return now
    rows = {(row.backbone, row.head): row for row in before.rows}
    rows |= {(row.backbone, row.head): row for row in now.rows}
    return msgspec.structs.replace(now, rows=list(rows.values()))


def _terms(event: RecipesJudged) -> tuple[object, ...]:
    return event.gamma, event.prompt_set_sha256, event.prompts, event.output_tokens, event.threads


def pareto_front(rows: Sequence[RecipeRow]) -> list[int]:
    """Places of the rows that no other one beats in size, α and time a token at once (values, not intervals).

    A row that lacks one of the three, or whose drafts changed outputs, is in nobody's way and not on the front.
    """
    points = {i: point for i, row in enumerate(rows) if (point := _point(row)) is not None}
    return [i for i, point in points.items() if not any(_beats(other, point) for other in points.values())]


def _point(row: RecipeRow) -> tuple[float, float, float] | None:
    """Size, −α, time: less is better in each."""
    size, alpha, time = row.bytes, row.alpha.value, row.ms_per_token.value
    if row.changed_outputs or size is None or alpha is None or time is None:
        return None
    return float(size), -alpha, time


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
