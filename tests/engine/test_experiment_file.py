"""An experiment's file is checked with sentences, and its cells follow from its axes."""

from __future__ import annotations

from pathlib import Path

import pytest

import mtplab
from mtplab.engine.errors import EngineError
from mtplab.engine.experiment import cells_of, groups_of, read_experiment, run_options

AXES = """
name = "ladder"
[axes]
recipes = ["mixed", "float"]
gammas = [1, 3]
policies = ["tiers"]
threads = [1, 2]
head_threads = [0, 1]
core_masks = ["", "F0"]
classes = ["code"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def test_cells_are_all_combinations_and_each_name_is_there_once(tmp_path: Path) -> None:
    cells = cells_of(read_experiment(written(tmp_path, AXES)))
    names = [cell.name for cell in cells]
    # One head thread where the backbone has one is no other place: 3 places × 2 masks × 3 lengths × 2 recipes.
    assert len(cells) == len(set(names)) == 36
    assert names[:3] == ["mixed/g1-t1/code", "mixed/g3-t1/code", "mixed/tiers-t1/code"]
    assert "float/tiers-t2-h1-mf0/code" in names


def test_a_group_shares_its_artefacts_and_measures_adaptive_lengths_last(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, AXES))
    groups = groups_of(experiment)
    assert [group.recipe for group in groups] == ["mixed", "float"]
    names = [c.name for c in groups[0].configurations]
    assert names[:4] == ["off-t1", "off-t1-mf0", "off-t2", "off-t2-mf0"]
    assert all(name.startswith("tiers") for name in names[-6:]) and len(names) == 4 + 18
    options = run_options(experiment, groups[1])
    assert (options.recipe, options.gamma, options.skip) == ("float", 3, ("bench",))
    assert {1, 3} <= set(options.gammas)


def test_more_rounds_or_cells_continue_an_experiment_and_another_setting_does_not(tmp_path: Path) -> None:
    def key(text: str) -> str:
        return read_experiment(written(tmp_path, text)).key()

    first = key(AXES)
    assert key(AXES.replace("[axes]", "rounds = 9\n[axes]")) == first
    assert key(AXES.replace("[1, 3]", "[1, 2, 3]")) == first
    assert key(AXES.replace("[axes]", "temperature = 0.7\n[axes]")) != first


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('name="t"\n[axes]\nthreds=[1]', "unknown field `threds` in `axes`"),
        ('name="t"\n[axes]\ngammas=["x"]', "Expected `int`, got `str` in `axes.gammas"),
        ('name="t"\n[axes]\ngammas=[3,3]', "names a value twice"),
        ('name="t"\n[axes]\ngammas=[]', "needs a draft length"),
        ('name="t"\n[axes]\nthreads=[]', "leaves nothing to measure"),
        ('name="t"\n[axes]\nthreads=[99]', "lies in 1…16"),
        ('name="t"\n[axes]\npolicies=["foo"]', "only additive, tiers"),
        ('name="t"\n[axes]\nbackends=["tpu"]', "only cpu, gpu, npu"),
        ('name="t"\n[axes]\ncore_masks=["zz"]', "hexadecimal"),
        ('name="../t"\n[axes]', "`name` takes"),
        ('name="t"\nstandin="nowhere"\n[axes]', "no scenario 'nowhere'"),
        ('name="t"', "it lacks the required field `axes`"),
        ("name=", "is no TOML"),
        ("name=" + "[" * 5000, "nested too deeply"),
        ('name="t"\n[axes]\nrecipes=["mixed", "mine/mixed.toml"]', "would both be the cell mixed/g3-t2"),
        (f'name="t"\n[axes]\nclasses={[str(n) for n in range(3000)]}\ncore_masks={[f"{n:x}" for n in range(3000)]}',
         "make 9000000 cells"),
        (
            f'name="t"\n[axes]\nthreads={list(range(1, 17))}\nhead_threads={list(range(17))}\ngammas=[1,2,3,4,5]',
            "cells, and 1000 are the most",
        ),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_sentence(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(EngineError) as refused:
        read_experiment(written(tmp_path, text))
    assert refused.value.exit_code == 1 and word in str(refused.value)
    assert str(refused.value).startswith("The experiment experiment.toml ") and str(refused.value).endswith(".")
    with pytest.raises(EngineError, match="cannot be read"):
        read_experiment(tmp_path / "nothing.toml")


def test_the_example_that_is_shipped_can_be_used_as_it_is() -> None:
    experiment = read_experiment(Path(mtplab.__file__).parent / "engine" / "experiment.example.toml")
    assert len(cells_of(experiment)) == 2 * 5 * 3 and len(groups_of(experiment)) == 2
