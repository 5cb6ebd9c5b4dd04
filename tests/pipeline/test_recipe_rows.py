"""What a row of the recipe table says of times rests on prompts, however often each of them was timed."""

from __future__ import annotations

from mtplab.pipeline.recipe_rows import times


def test_another_turn_of_a_prompt_is_no_further_prompt() -> None:
    seen = times([[1.0, 5.0, None], [1.2, 5.2, None], [9.0, 5.1, None]])
    assert (seen.value, seen.n) == ((1.2 + 5.1) / 2, 2), "a median over prompts of their medians over turns"
    assert seen.low == 1.2 and seen.high == 5.1


def test_one_prompt_alone_has_a_time_without_an_interval_and_none_has_no_time() -> None:
    assert times([[2.0], [2.0], [2.0]]).low is None
    nothing = times([[None], [None]])
    assert nothing.value is None and nothing.reason == "nothing was timed"
