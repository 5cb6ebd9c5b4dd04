"""The recipe table: rows merge by their recipes, the front holds what nothing beats, and it survives the archive."""

from __future__ import annotations

import msgspec

from mtplab.session import events as ev
from mtplab.session.recipes import pareto_front, recipe_table
from mtplab.session.record import SessionRecord, record_of
from mtplab.session.state import LabState


def row(backbone: str, size: int | None, alpha: float | None, ms: float | None, head: str = "h") -> ev.RecipeRow:
    return ev.RecipeRow(
        backbone=backbone,
        head=head,
        backbone_bytes=size,
        head_bytes=0 if size is not None else None,
        alpha=ev.Figure(value=alpha, reason=None if alpha is not None else "unseen"),
        ms_per_token=ev.Figure(value=ms, unit="ms"),
    )


def judged(rows: list[ev.RecipeRow], sha256: str = "00", t: float = 1.0) -> ev.RecipesJudged:
    return ev.RecipesJudged(
        t=t, rows=rows, gamma=3, prompt_set="set", prompt_set_sha256=sha256, prompts=8, output_tokens=48, threads=1
    )


def test_the_front_holds_what_no_other_row_beats_in_everything() -> None:
    rows = [
        row("float", 100, 0.50, 9.0),
        row("int8", 30, 0.49, 5.0),  # smaller and faster than float, accepted a little less: both stay
        row("int8-slow", 30, 0.49, 6.0),  # beaten by int8
        row("int4", 15, 0.20, 4.0),
        row("int4-worse", 20, 0.20, 4.0),  # beaten by int4
    ]
    assert pareto_front(rows) == [0, 1, 3]


def test_equal_rows_do_not_beat_each_other_and_unknown_ones_are_in_nobodys_way() -> None:
    same = [row("a", 10, 0.5, 1.0), row("b", 10, 0.5, 1.0)]
    assert pareto_front(same) == [0, 1]
    assert pareto_front([row("a", 10, None, 1.0), row("b", 20, 0.1, 2.0), row("c", None, 0.9, 1.0)]) == [1]
    assert pareto_front([]) == []


def test_a_pair_whose_drafts_changed_the_output_is_in_nobodys_way() -> None:
    faulty = msgspec.structs.replace(row("a", 10, 0.9, 1.0), changed_outputs=1)
    assert pareto_front([faulty, row("b", 20, 0.5, 2.0)]) == [1]


def test_a_row_takes_the_place_of_an_earlier_one_of_the_same_recipes() -> None:
    state = LabState()
    state.apply(judged([row("float", 100, 0.5, 9.0), row("int8", 30, 0.1, 5.0)]))
    state.apply(judged([row("int8", 30, 0.4, 5.0), row("int8", 30, 0.3, 5.0, head="other")], t=2.0))
    assert state.recipes is not None
    assert [(r.backbone, r.head, r.alpha.value) for r in state.recipes.rows] == [
        ("float", "h", 0.5), ("int8", "h", 0.4), ("int8", "other", 0.3),
    ]  # fmt: skip


def test_rows_judged_on_other_prompts_are_not_set_beside_each_other() -> None:
    state = LabState()
    state.apply(judged([row("float", 100, 0.5, 9.0)]))
    state.apply(judged([row("int8", 30, 0.4, 5.0)], sha256="11", t=2.0))
    assert state.recipes is not None and [r.backbone for r in state.recipes.rows] == ["int8"]


def test_the_table_stands_in_the_sessions_record() -> None:
    state = LabState()
    event = judged([row("float", 100, 0.5, 9.0), row("broken", None, None, None)])
    state.apply(ev.decoder.decode(ev.encoder.encode(event)))
    header = ev.Header(schema=ev.SCHEMA, session="s", created_utc="2026-01-01T00:00:00Z", t0=0.0)
    record = record_of(state, header, events_sha256=None)
    again = msgspec.json.decode(msgspec.json.encode(record), type=SessionRecord)
    assert again.recipes == recipe_table(event)
    assert again.recipes is not None and again.recipes.rows[1].alpha.reason == "unseen"
