"""Drafts held against a given text: hits at every position, and the rounds that decoding would go through."""

from __future__ import annotations

import numpy as np
import pytest

from mtplab.speculation.forced import Hits, hits, rounds_on


def test_hits_count_every_position_that_has_room_for_a_whole_draft() -> None:
    # Text 0 1 2 3 4 5; the backbone always chooses the next number; drafts of two, made at positions 0..4.
    choices = np.array([1, 2, 3, 4, 5, 6])
    drafts = np.array([[2, 3], [3, 9], [9, 5], [5, 6], [6, 7]])
    found = hits(choices, drafts, start=0)
    assert found == Hits((3, 3), 4)  # the draft at 4 would end behind the text's last choice
    assert hits(choices, drafts, start=2) == Hits((1, 2), 2)
    assert hits(choices, drafts, start=5) == Hits((0, 0), 0)


def test_a_later_draft_counts_although_an_earlier_one_missed() -> None:
    choices, drafts = np.array([1, 2, 3]), np.array([[9, 3], [9, 9]])
    assert hits(choices, drafts, start=0) == Hits((0, 1), 1)


def test_rounds_restart_behind_what_they_accepted() -> None:
    text = list(range(12))
    right = np.array([[p + 2, p + 3, p + 4] for p in range(11)])
    assert rounds_on(text, right, start=0) == [3, 3]  # at 8 no whole draft is left to judge
    wrong_at_once = right.copy()
    wrong_at_once[:, 0] = 99
    assert rounds_on(text, wrong_at_once, start=0) == [0] * 8
    second_wrong = right.copy()
    second_wrong[:, 1] = 99
    assert rounds_on(text, second_wrong, start=0) == [1] * 4


def test_rates_have_an_interval_or_a_reason() -> None:
    first, second = Hits((3, 1), 4).rates()
    assert first.value == 0.75 and first.low is not None and first.low < 0.75 and first.n == 4
    assert second.kind == "teacher_forced_wilson"
    assert Hits((0,), 0).rates()[0].value is None and Hits((0,), 0).rates()[0].reason
    assert Hits((1, 2), 3) + Hits((2, 2), 4) == Hits((3, 4), 7)
    with pytest.raises(ValueError, match="different draft lengths"):
        Hits((1,), 1) + Hits((1, 1), 1)
