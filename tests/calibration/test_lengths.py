"""Lengths: the distance is exact, the choice is the best one, and files say tokens or are refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.calibration.errors import CalibrationError
from mtplab.calibration.lengths import MOST_BARS, Distribution, closest, edges_for, read_target, wasserstein

LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@given(LENGTHS, LENGTHS)
def test_the_distance_is_that_of_scipy(one: list[int], other: list[int]) -> None:
    stats = pytest.importorskip("scipy.stats")
    found = wasserstein(Distribution.of(one), Distribution.of(other))
    assert found == pytest.approx(stats.wasserstein_distance(one, other), abs=1e-9)


def test_a_shift_is_as_far_as_it_is_wide() -> None:
    assert wasserstein(Distribution.of([1, 2, 9]), Distribution.of([6, 7, 14])) == pytest.approx(5)


@given(st.lists(st.integers(0, 40), min_size=4, max_size=8), LENGTHS, st.integers(1, 4))
def test_no_other_choice_of_that_many_lies_nearer_to_what_is_wanted(
    lengths: list[int], production: list[int], size: int
) -> None:
    target = Distribution.of(production)
    wanted = [float(x) for x in target.quantiles((0.5 + _range(size)) / size)]

    def cost(chosen: list[int]) -> float:
        return sum(abs(a - b) for a, b in zip(sorted(chosen), wanted, strict=True))

    picked = closest(lengths, target, size)
    assert len(set(picked)) == size
    best = min(cost(list(some)) for some in itertools.combinations(lengths, size))
    assert cost([lengths[index] for index in picked]) == pytest.approx(best)


def _range(size: int):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.arange(size)


def test_a_choice_follows_production_where_the_log_does_not() -> None:
    lengths = [10] * 80 + [200] * 20
    production = Distribution.of([10, 200])
    chosen = [lengths[index] for index in closest(lengths, production, 40)]
    assert sorted(chosen) == [10] * 20 + [200] * 20


@given(LENGTHS, LENGTHS)
def test_every_length_has_a_bar(one: list[int], other: list[int]) -> None:
    a, b = Distribution.of(one), Distribution.of(other)
    edges = edges_for(a, b)
    assert len(edges) <= MOST_BARS + 1
    for each in (a, b):
        assert sum(each.bars(edges)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "[10, 10, 30]"),
        ("a.json", '{"unit": "tokens", "lengths": [10, 30, 10]}'),
        ("a.csv", "tokens\n10\n10\n30\n"),
        ("a.csv", "10\n30\n10\n"),
        ("a.csv", "day,length\nx,10\ny,10\nz,30\n"),
        ("a.json", '{"buckets": [{"low": 10, "high": 11, "count": 2}, {"low": 30, "high": 31, "count": 1}]}'),
        ("a.csv", "low,high,count\n10,11,2\n30,31,1\n"),
    ],
)
def test_lengths_are_read_as_lists_and_as_buckets(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = read_target(path)
    assert wasserstein(found, Distribution.of([10, 10, 30])) == pytest.approx(0)
    assert found.samples == 3


def test_inside_a_bucket_every_length_is_as_likely(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"buckets": [{"low": 0, "high": 100, "count": 7}]}))
    assert read_target(path).mean == pytest.approx(49.5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"unit": "characters", "lengths": [3]}', "counted in characters and not in tokens"),
        ("[]", "hold nothing"),
        ("[1.5]", "no whole number"),
        ("[-1]", "no length in tokens"),
        ("[true]", "no length in tokens"),
        ('{"buckets": [{"low": 9, "high": 3, "count": 1}]}', "make no sense"),
        ('{"buckets": [{"low": 0, "high": 3, "count": 0}]}', "hold nothing"),
        ("{", "make no sense"),
        ('{"other": 1}', "make no sense"),
    ],
)
def test_lengths_that_say_nothing_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=sentence):
        read_target(path)
