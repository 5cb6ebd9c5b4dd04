"""When a run calibrates, and that the set stands in the identity: other ranges are another graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplab.engine.errors import EngineError
from mtplab.engine.options import RunOptions
from mtplab.engine.runner import _told, check_run, stages_of
from mtplab.pipeline.stage import RunParameters


def test_a_run_calibrates_where_a_recipe_needs_it_or_where_it_is_asked_to() -> None:
    assert "calibrate" not in stages_of(RunOptions())
    assert "calibrate" in stages_of(RunOptions(recipe="static_int8"))
    assert "calibrate" in stages_of(RunOptions(head_recipe="static_int16"))
    assert stages_of(RunOptions(to_stage="calibrate"))[-1] == "calibrate"
    assert "calibrate" in stages_of(RunOptions(calibration="set.json"))
    assert "calibrate" not in stages_of(RunOptions(recipe="static_int8", to_stage="export"))


def test_a_set_that_is_not_there_is_refused_before_anything_begins() -> None:
    with pytest.raises(EngineError, match=r"There is no calibration set .absent\.json"):
        check_run(RunOptions(calibration="absent.json"))


def test_other_ranges_are_another_quantisation(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('"one"\n')
    told = {
        _told(RunParameters(recipe="static_int8", calibration=calibration, calibration_ranges=ranges))
        for calibration in ("calibration", str(log))
        for ranges in ("moving_average", "min_max")
    }
    assert len(told) == 4 and all("static_int8 (backbone), mixed (head), ranges " in one for one in told)
    assert _told(RunParameters(calibration=str(log))) == "mixed (backbone and head)"
