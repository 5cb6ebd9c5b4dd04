"""Rounds are interleaved, marked by what heat did to them, and advised on honestly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.measure.rounds import (
    BEGAN_HOT,
    CABLE_LOST,
    HEAT_UNKNOWN,
    THROTTLED,
    HeatLimits,
    HeatSample,
    advise,
    cold_rounds,
    gate,
    hot,
    judge,
    schedule,
)

COOL = HeatSample(31.0, 0)


def test_two_configurations_run_abba():
    assert [s.configuration for s in schedule(["off", "on"])] == [
        "off", "on", "on", "off", "off", "on", "on", "off", "off", "on",
    ]  # fmt: skip


@given(st.integers(1, 5), st.integers(1, 12))
def test_every_configuration_has_every_round_and_the_same_mean_place(configurations, rounds):
    names = [f"c{i}" for i in range(configurations)]
    slots = schedule(names, rounds)
    assert [s.order for s in slots] == list(range(len(slots)))
    assert Counter((s.configuration, s.index) for s in slots) == {(n, r): 1 for n in names for r in range(rounds)}
    if rounds % 2 == 0:  # ABBA cancels linear drift over pairs of rounds
        places = {n: np.mean([s.order for s in slots if s.configuration == n]) for n in names}
        assert len(set(places.values())) == 1


@pytest.mark.parametrize("bad", [([], 5), (["a", "a"], 5), (["a"], 0)])
def test_schedules_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError):
        schedule(*bad)


def test_a_cool_round_carries_no_mark_and_its_temperatures():
    heat = judge(COOL, [HeatSample(33.5, 0), HeatSample(34.0, 0)], HeatSample(32.0, 0))
    assert heat.cold and heat.marks == ()
    assert (heat.skin_before_c, heat.skin_max_c, heat.skin_after_c, heat.status_max) == (31.0, 34.0, 32.0, 0)


@pytest.mark.parametrize(
    ("before", "during", "more", "marks"),
    [
        (HeatSample(37.0, 0), [], {}, (BEGAN_HOT,)),
        (HeatSample(30.0, 1), [], {}, (BEGAN_HOT, THROTTLED)),
        (HeatSample(None, None), [], {}, (HEAT_UNKNOWN,)),
        (COOL, [HeatSample(39.0, 1)], {}, (THROTTLED,)),
        (COOL, [HeatSample(41.0, None)], {}, ()),
        (COOL, [], {"throttled": True}, (THROTTLED,)),
        (COOL, [], {"cable_lost": True}, (CABLE_LOST,)),
    ],
)
def test_what_spoils_a_round_is_marked(before, during, more, marks):
    assert judge(before, during, COOL, **more).marks == marks


def test_one_known_sign_is_enough_to_be_hot_and_none_is_unknown():
    assert hot(HeatSample(None, 2)) is True and hot(HeatSample(38.0, None)) is True
    assert hot(HeatSample(None, 0)) is False
    assert hot(HeatSample(None, None)) is None
    assert hot(HeatSample(38.0, 0), HeatLimits(skin_c=40.0)) is False


def test_the_gate_says_why_it_is_shut():
    assert gate(COOL) is None
    assert "38.2 °C" in gate(HeatSample(38.2, 0)) and "below 37.0" in gate(HeatSample(38.2, 0))
    assert "status is 1" in gate(HeatSample(30.0, 1))
    assert "nobody can say" in gate(HeatSample(None, None))


def test_marked_rounds_stay_out_of_cold_figures_unless_there_are_no_others():
    assert cold_rounds([((), 1), ((THROTTLED,), 2), ((), 3)]) == ([1, 3], "1 of 3 rounds were marked and kept apart.")
    assert cold_rounds([((), 1)]) == ([1], None)
    rounds, remark = cold_rounds([((BEGAN_HOT,), 1), ((THROTTLED,), 2)])
    assert rounds == [1, 2] and "Only marked rounds" in remark and "no cold figures" in remark
    assert cold_rounds([]) == ([], None)


def test_advice_on_further_rounds():
    assert advise([100.0]).further is None
    steady = advise([100, 101, 99, 100, 100])
    assert steady.further == 0 and steady.relative_half_width < 0.05
    unsteady = advise([100, 130, 80, 110, 90])
    assert unsteady.further > 5 and f"about {unsteady.further} more" in unsteady.text
    assert advise([100.0, 100.0]).further == 3, "five rounds are the least, however alike"
    assert advise([0.0, 0.0]).further is None


def test_the_advised_number_of_rounds_reaches_the_precision():
    rng = np.random.default_rng(3)
    first = list(rng.normal(100, 12, size=8))
    advice = advise(first)
    many = np.array([advise(list(rng.normal(100, 12, 8 + advice.further))).relative_half_width for _ in range(200)])
    assert 0.03 < np.median(many) < 0.08


def test_a_round_cut_off_is_no_figure_where_hot_ones_saw_their_end():
    rounds = [(("throttled", "cable-lost"), "cut"), (("throttled",), "again"), (("began-hot",), "next")]
    assert cold_rounds(rounds)[0] == ["again", "next"]
    assert cold_rounds(rounds[:1])[0] == ["cut"]
