"""The recipes page: every row with its figures or its reason, pictures by letters, the calibration beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import synthetic
from bench_driver import BIG, SMALL, FakeEngine, drive, running, until
from rich.cells import cell_len

from mtplab.session import events as ev
from mtplab.session.events import Figure, RecipeRow
from mtplab.tui.app import LabApp
from mtplab.tui.screens.recipes import RecipesScreen
from mtplab.tui.view import View
from mtplab.tui.widgets.recipes import NO_SET, NO_TABLE, recipes_content


def figure(value: float | None, spread: float = 0.03) -> Figure:
    if value is None:
        return Figure(value=None, reason="not judged")
    return Figure(value=value, low=value - spread, high=value + spread, n=40)


def row(backbone: str, megabytes: float, alpha: float | None, ms: float | None, **more: Any) -> RecipeRow:
    return RecipeRow(
        backbone=backbone,
        head="mixed",
        backbone_bytes=int(megabytes * 1e6) - 1000,
        head_bytes=1000,
        top1=[Figure(value=0.98), Figure(value=0.9), Figure(value=0.88)],
        conditional_alpha=[figure(0.61), figure(0.58), figure(None)],
        alpha=figure(alpha),
        delta_alpha=figure(-0.004, 0.01),
        ms_per_token=Figure(value=ms) if ms is not None else Figure(value=None, reason="not timed"),
        **more,
    )


ROWS = [
    row("float", 7.2, 0.605, 2.1),
    row("dynamic_int8", 2.1, 0.601, 0.9),
    row("worse\x1b[2J", 7.9, 0.55, 3.0),
    RecipeRow(backbone="blockwise", head="mixed", reason="The quantizer refused it; choose another recipe."),
]
CALIBRATED: dict[str, Any] = {
    "set": {
        "version": 1,
        "model": "tiny",
        "vocab": 1024,
        "tokenizer_sha256": "00",
        "template_sha256": None,
        "system": {"kind": "given", "sha256": "00", "tokens": 21},
        "sources": [{"name": "log.jsonl", "sha256": "00", "prompts": 300}],
        "counts": {
            "read": 300,
            "empty": 0,
            "not_looked_at": 0,
            "exact_duplicates": 40,
            "too_long": 0,
            "near_duplicates": 10,
            "not_chosen": 0,
            "chosen": 250,
        },
        "lengths": {
            "edges": [0.0, 50.0, 100.0],
            "chosen": [0.25, 0.75],
            "shortest": 9,
            "longest": 99,
            "mean": 70.0,
            "production": [0.5, 0.5],
            "production_name": "prod.json",
            "production_mean": 50.0,
            "distance_tokens": 20.0,
            "distance_before": 31.0,
        },
        "warnings": ["The lengths lie 20.0 tokens from production's on average."],
        "sha256": "ab" * 32,
    },
    "statistics": {"samples": {"backbone": {"decode": 500}}, "tensors": {"backbone": 1652}, "prompts": 250},
    "ranges": "moving_average",
}


def judged(rows: list[RecipeRow]) -> list[ev.Event]:
    return [
        ev.StageReport(t=1009.0, name="calibrate", figures=CALIBRATED, summary=""),
        ev.RecipesJudged(
            t=1010.0,
            rows=rows,
            gamma=3,
            prompt_set="acceptance",
            prompt_set_sha256="00",
            prompts=72,
            output_tokens=48,
            threads=1,
        ),
    ]


@pytest.fixture(scope="module")
def view() -> View:
    events = synthetic.whole_run()
    return synthetic.view_of(sorted([*events, *judged(ROWS)], key=lambda e: e.t))


def test_a_pair_whose_drafts_changed_the_output_says_so_on_the_page() -> None:
    faulty = row("broken", 2.0, 0.9, 0.5, changed_outputs=2)
    events = sorted([*synthetic.whole_run(), *judged([ROWS[0], faulty])], key=lambda e: e.t)
    text = recipes_content(synthetic.view_of(events), 76).plain
    assert "b ! broken" in text and "changed the output of 2 prompts" in text


@pytest.mark.parametrize("width", [76, 116])
def test_every_pair_stands_with_figures_or_its_reason_within_the_width(view: View, width: int) -> None:
    text = recipes_content(view, width).plain
    assert all(cell_len(line) <= width for line in text.split("\n"))
    for part in (
        "a * float",
        "c   worse",
        "b * dynamic_int8",
        "d ✗ blockwise",
        "The quantizer refused it",
        "0.601 [0.571 0.631]",
    ):
        assert part in text, part
    assert "-0.004 [-0.014 +0.006]" in text and "top-1 .98 .90 .88 · α .61 .58 ?" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [76, 116])
def test_the_pictures_show_every_judged_row_by_its_letter(view: View, width: int) -> None:
    text = recipes_content(view, width).plain
    assert "α against MB" in text and "α against ms/token" in text
    drawn = text[text.index("α against MB") : text.index("Calibration")]
    for letter in "abc":
        assert drawn.replace("against", "").replace("ms/token", "").count(letter) == 2, letter
    assert "│" in drawn  # intervals


def test_the_calibration_stands_below_with_its_distance_and_warning(view: View) -> None:
    text = " ".join(recipes_content(view, 76).plain.split())
    for part in ("250 prompts of 300 read", "Wasserstein distance 20.00 tokens", "production", "75.0%", "decode 500"):
        assert part in text, part
    assert "! The lengths lie 20.0 tokens" in text


def test_what_was_not_done_is_said(view: View) -> None:
    bare = synthetic.view_of(synthetic.whole_run())
    text = " ".join(recipes_content(bare, 76).plain.split())
    assert " ".join(NO_TABLE.split()) in text and " ".join(NO_SET.split()) in text
    few = synthetic.view_of([*synthetic.whole_run(), *judged([ROWS[0], row("odd", 3.0, None, None)])])
    assert "No picture" in recipes_content(few, 76).plain


def test_figures_that_a_foreign_session_made_up_draw_no_picture_and_break_nothing(view: View) -> None:
    strange = [row("huge", 1e11, 1e17, 1e17), row("tiny", 0.0, -1e17, 0.0), ROWS[0]]
    events = [*synthetic.whole_run(), *judged(strange)]
    broken = msgspec.structs.replace(events[-2], figures={"set": {"lengths": []}})  # type: ignore[type-var]
    text = recipes_content(synthetic.view_of([*events, broken]), 76).plain
    assert "huge" in text and " ".join(NO_SET.split()[:3]) in text


@pytest.mark.parametrize("size", [BIG, SMALL])
def test_k_shows_the_page_and_goes_on_living(engine: FakeEngine, live_app: LabApp, size: tuple[int, int]) -> None:
    def text() -> str:
        page: Any = live_app.screen
        return str(page.recipes.render()) if isinstance(page, RecipesScreen) else ""

    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.warm)
        await pilot.press("k")
        await until(pilot, lambda: "keeps no recipe table" in text())
        engine.write(*judged(ROWS))
        await until(pilot, lambda: "dynamic_int8" in text() and "α against MB" in text())
        await pilot.press("k")
        await until(pilot, lambda: live_app.screen is live_app.bench)

    drive(live_app, steps, size)
