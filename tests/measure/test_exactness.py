"""Drafting may not change the output, except where the backbone itself could not decide."""

from __future__ import annotations

import msgspec

from mtplab.measure.exactness import compare_outputs
from mtplab.measure.protocol import RuntimeTotals


def test_equal_outputs_pass(run):
    result = compare_outputs([run("a", [1, 2]), run("b", [3])], [run("a", [1, 2]), run("b", [3])])
    assert result.ok and (result.compared, result.equal, result.near_ties) == (2, 2, ())
    assert result.text == "Same tokens with MTP on and off for 2 of 2 prompts."


def test_a_first_difference_at_a_near_tie_is_counted_not_failed(run):
    plain = run("a", [1, 2, 3], margins=[1.0, 5e-4, 2.0])
    result = compare_outputs([plain], [run("a", [1, 9, 9])])
    assert result.ok and result.equal == 0
    [tie] = result.near_ties
    assert (tie.prompt, tie.position, tie.margin) == ("a", 1, 5e-4)
    assert "1 differ first where" in result.text


def test_a_difference_where_the_backbone_was_sure_fails(run):
    plain = run("a", [1, 2, 3], margins=[1.0, 2e-3, 1e-6])  # the near tie comes only after the first difference
    result = compare_outputs([plain], [run("a", [1, 9, 9])])
    assert not result.ok and "output position 1" in result.failures[0] and "margin of 0.002" in result.failures[0]
    assert "1 of 1 prompts fail" in result.text


def test_an_unknown_margin_excuses_nothing(run):
    assert not compare_outputs([run("a", [1, 2])], [run("a", [1, 9])]).ok


def test_an_output_that_ended_early_or_ran_on_fails(run):
    margins = [1.0, 1e-9]
    assert not compare_outputs([run("a", [1, 2], margins=margins)], [run("a", [1])]).ok
    assert not compare_outputs([run("a", [1, 2], margins=margins)], [run("a", [1, 2, 3])]).ok


def test_what_was_not_seen_was_not_seen_to_be_equal(run):
    result = compare_outputs([run("a", [1])], [run("b", [1])])
    assert not result.ok and len(result.failures) == 2
    nothing = compare_outputs([], [])
    assert not nothing.ok and "nothing is known" in nothing.text
    spoilt = compare_outputs([run("a", [1])], [run("a", [1], problem="its end was never seen")])
    assert not spoilt.ok and "cannot be trusted" in spoilt.failures[0]


def test_every_repeat_counts(run):
    plain = run("a", [1, 2], margins=[1.0, 1.0])
    assert not compare_outputs([plain, plain], [run("a", [1, 2]), run("a", [1, 3])]).ok
    assert not compare_outputs([plain, run("a", [1, 3])], [run("a", [1, 2])]).ok


def test_a_text_that_was_heard_is_compared_up_to_the_limit_and_but_for_its_last_token(run):
    def heard(ids, reason="limit"):
        return msgspec.structs.replace(run("a", ids), stamps="arrival", reason=reason)

    passed = compare_outputs([heard([1, 2, 3])], [heard([1, 2, 9, 4])], limit=3)
    assert passed.ok and passed.text == "Same text as it was heard with MTP on and off for 1 of 1 prompts."
    other = compare_outputs([heard([1, 2, 3])], [heard([1, 9, 3, 4])], limit=3)
    assert not other.ok and "tells no margins" in other.failures[0], "more than that was not seen"
    assert not compare_outputs([heard([1, 2, 3])], [heard([1, 2], "stop")], limit=3).ok, "it ended by a stop token"
    assert not compare_outputs([run("a", [1, 2, 3])], [run("a", [1, 2])]).ok, "our own runner tells every token"


def test_a_text_that_was_hardly_heard_was_not_seen_to_be_equal(run):
    def heard(ids):
        return msgspec.structs.replace(run("a", ids), stamps="arrival", reason="limit")

    whole = list(range(1, 9))
    def decoded(ids, tokens):
        return msgspec.structs.replace(heard(ids), runtime=RuntimeTotals(decode_tokens=tokens))

    beyond = compare_outputs([decoded(whole[:5], 8)], [decoded(whole, 11)], limit=8)
    assert beyond.ok, "its last round passed the limit, so more of it was heard"
    for rest in ([1, 9], [7], [], whole[:5]):
        found = compare_outputs([heard(whole)], [heard(rest)], limit=8)
        assert not found.ok and f"heard with 8 tokens plainly and {len(rest)} with MTP" in found.failures[0]
