"""The recipe table as people and scripts get it."""

from __future__ import annotations

import msgspec

from mtplab.report.recipes import recipe_contract, recipe_lines
from mtplab.session.events import Figure, RecipeRow
from mtplab.session.recipes import RecipeTable

FULL = RecipeRow(
    backbone="mixed",
    head="dynamic_int8",
    backbone_bytes=2_800_000,
    head_bytes=400_000,
    top1=[Figure(value=0.412, low=0.4, high=0.43, n=900), Figure(value=None, reason="no position")],
    conditional_alpha=[Figure(value=0.5, low=0.4, high=0.6, n=90)],
    alpha=Figure(value=0.45, low=0.41, high=0.49, n=45),
    alpha_without_loops=Figure(value=0.41, n=40),
    delta_alpha=Figure(value=-0.004, low=-0.01, high=0.002, n=45),
    perplexity=Figure(value=12.345, n=2000),
    decode_ms=Figure(value=1.5, unit="ms"),
    ms_per_token=Figure(value=1.25, unit="ms"),
)
FAILED = RecipeRow(backbone="int3", head="mixed", reason="The quantizer refused it; choose another.")
TABLE = RecipeTable(
    rows=[FULL, FAILED], gamma=3, prompt_set="acceptance", prompt_set_sha256="00", prompts=45, output_tokens=48,
    threads=1,
)  # fmt: skip


def test_a_row_shows_size_hits_alpha_change_time_and_perplexity() -> None:
    text = "\n".join(recipe_lines(TABLE))
    for shown in ("γ 3", "45 prompts of acceptance", "3.2", ".41 ?", "0.450 [0.410 0.490]", "0.410", "12.35"):
        assert shown in text, shown
    assert "-0.004 [-0.010 +0.002]" in text and "1.25 (1.5)" in text
    assert "*  mixed" in text and "true rounds" in text and "teacher-forced" in text


def test_a_pair_that_could_not_be_made_is_a_row_with_its_reason() -> None:
    lines = recipe_lines(TABLE)
    assert any(line.startswith(" ✗  int3") for line in lines)
    assert any("The quantizer refused it" in line for line in lines)


def test_a_pair_whose_drafts_changed_the_output_is_marked_and_says_so() -> None:
    faulty = msgspec.structs.replace(FULL, changed_outputs=3)
    lines = recipe_lines(msgspec.structs.replace(TABLE, rows=[faulty]))
    assert any(line.startswith(" !  mixed") for line in lines)
    assert any("changed the output of 3 prompts" in line for line in lines)


def test_scripts_get_every_row_with_its_place_on_the_front() -> None:
    told = recipe_contract(TABLE)
    assert told is not None
    assert [row["pareto"] for row in told["rows"]] == [True, False] and told["front"] == [0]
    assert told["rows"][0]["bytes"] == 3_200_000 and told["rows"][1]["bytes"] is None
    assert recipe_contract(None) is None
