"""What a run is to set beside each other decides its stages, and rows are told as they come."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mtplab.engine.errors import EngineError
from mtplab.engine.options import RunOptions, names_in, numbers_of
from mtplab.engine.runner import check_run, stages_of
from mtplab.engine.worker_events import WorkerEvents
from mtplab.session import events as ev
from mtplab.session.recipes import RecipeTable


def test_recipes_are_a_stage_of_a_run_only_where_some_are_asked_for() -> None:
    assert "recipes" not in stages_of(RunOptions())
    with_table = stages_of(RunOptions(recipes=("mixed", "float")))
    assert with_table.index("quantise") < with_table.index("recipes") < with_table.index("acceptance")
    assert "recipes" in stages_of(RunOptions(head_recipes=("float",)))
    assert "recipes" not in stages_of(RunOptions(recipes=("mixed",), to_stage="quantise"))


def test_a_compared_recipe_that_needs_ranges_brings_calibration_along() -> None:
    assert "calibrate" not in stages_of(RunOptions(recipes=("mixed",)))
    assert "calibrate" in stages_of(RunOptions(recipes=("mixed", "static_int8")))


def test_a_compared_recipe_that_does_not_exist_is_refused_before_anything_begins() -> None:
    with pytest.raises(EngineError, match="no recipe 'int3'") as refused:
        check_run(RunOptions(recipes=("mixed", "int3")))
    assert refused.value.exit_code == 1
    with pytest.raises(EngineError, match=r"--recipes names mixed twice"):
        check_run(RunOptions(recipes=("mixed", "float", "mixed")))
    _, parameters = check_run(RunOptions(recipes=("mixed",), alpha_drop_limit=0.05))
    assert parameters.compared_recipes == ("mixed",) and parameters.alpha_drop_limit == 0.05
    with pytest.raises(EngineError, match="alpha_drop_limit"):
        check_run(RunOptions(alpha_drop_limit=1.5))


class Recorder:
    """Keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.lock = threading.Lock()

    def post(self, event: ev.Event) -> None:
        self.posted.append(event)


def test_a_row_that_a_worker_tells_is_an_event_at_once(tmp_path: Path) -> None:
    row = ev.RecipeRow(backbone="mixed", head="float", alpha=ev.Figure(value=0.5, low=0.4, high=0.6, n=8))
    table = RecipeTable(
        rows=[row], gamma=3, prompt_set="set", prompt_set_sha256="00", prompts=8, output_tokens=48, threads=1
    )
    recorder = Recorder()
    worker = WorkerEvents("recipes", recorder, tmp_path)  # type: ignore[arg-type]
    worker.take({"e": "figure", "name": "recipes", "value": msgspec.to_builtins(table)})
    worker.take({"e": "figure", "name": "draft top-1", "value": 0.99})
    (event,) = recorder.posted
    assert isinstance(event, ev.RecipesJudged) and event.rows == [row] and event.prompts == 8


def test_a_list_without_a_name_in_it_is_refused_and_an_option_that_was_not_given_names_nothing() -> None:
    assert (names_in(None, "--recipes"), names_in("a, b,", "--recipes")) == ((), ("a", "b"))
    assert numbers_of("1,2", "--gammas") == (1, 2)
    for text in (",", "", " "):
        with pytest.raises(EngineError, match="--recipes names nothing"):
            names_in(text, "--recipes")
    with pytest.raises(EngineError, match=r"--gammas takes whole numbers such as 1,2,4, not '1,x'"):
        numbers_of("1,x", "--gammas")
