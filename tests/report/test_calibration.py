"""A calibration set as text: bars for what is known, words for what is not, nothing of a foreign shape."""

from __future__ import annotations

from typing import Any

from mtplab.report.calibration import bar_lines, calibration_lines
from mtplab.session.calibrated import Lengths, calibrated, distance_line

LENGTHS: dict[str, Any] = {
    "edges": [0.0, 10.0, 20.0],
    "chosen": [0.25, 0.75],
    "shortest": 3,
    "longest": 19,
    "mean": 12,
}
FIGURES: dict[str, Any] = {
    "set": {
        "version": 1,
        "model": "tiny\x1b[2J",
        "vocab": 10,
        "tokenizer_sha256": "00",
        "template_sha256": None,
        "system": {"kind": "declared absent"},
        "sources": [{"name": "log.jsonl", "sha256": "00", "prompts": 9}],
        "counts": {
            "read": 9,
            "empty": 0,
            "not_looked_at": 0,
            "exact_duplicates": 2,
            "too_long": 0,
            "near_duplicates": 0,
            "not_chosen": 3,
            "chosen": 4,
        },
        "lengths": {**LENGTHS, "reason": "no production lengths were given"},
        "warnings": ["far"],
        "sha256": "ab" * 32,
    },
    "statistics": {"samples": {"head": {"draft": 12}}, "tensors": {"head": 7}, "prompts": 4, "resumed_after": 2},
    "ranges": "min_max",
}


def test_everything_that_is_known_is_told_and_cleaned() -> None:
    found = calibrated(FIGURES)
    assert found is not None
    text = "\n".join(calibration_lines(found))
    for part in ("4 prompts of 9 read", "2 repeat another, 3 not needed", "! far", "head: draft 12 runs; 7 ranges"):
        assert part in text
    assert "distance to production unknown: no production lengths were given" in text
    assert "went on after 2 prompts" in text and "\x1b" not in text


def test_production_stands_beside_the_set_and_the_longest_bar_is_the_largest_share() -> None:
    lengths = Lengths(
        **LENGTHS, production=[0.5, 0.5], production_mean=14.5, distance_tokens=2.5, distance_before=4.0
    )
    assert "Wasserstein distance 2.50 tokens (17.2% of the mean, 4.0 before choosing)" in distance_line(lengths)
    head, *rows = bar_lines(lengths, 60)
    assert "production" in head and len(rows) == 2
    full = max(row.count("█") for row in rows)
    assert rows[1].split("75.0%")[0].count("█") * 2 >= full
    assert all(len(row) <= 60 for row in (head, *rows))


def test_figures_of_another_shape_are_no_calibration() -> None:
    assert calibrated({}) is None
    assert calibrated({**FIGURES, "set": {**FIGURES["set"], "lengths": {**LENGTHS, "edges": [0.0]}}}) is None
