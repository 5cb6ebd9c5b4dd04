"""A log cut anywhere is judged on what is there, and says that it is not complete."""

from __future__ import annotations

from typing import Any

from mtplab.benchlog.reader import LogReader


def test_a_cut_log_is_incomplete_and_its_verdict_rests_on_lines_still_there(sample: Any) -> None:
    reader = LogReader()
    ended = None
    for number, line in enumerate(sample.lines[:-1], 1):
        reader.feed(line)
        live = reader.verdict()
        cut = reader.verdict(final=True)
        assert live.provisional and not cut.provisional
        assert live.verdict == cut.verdict
        assert all(proof.line <= number for proof in cut.evidence)
        if cut.verdict != "unknown":
            assert cut.evidence
        rest = [text for text in sample.lines[number:] if text.strip() and not text.startswith("##")]
        if cut.complete:
            ended = ended or number
            assert rest == [], f"complete after line {number}, but this follows: {rest[0]}"
    if not sample.expected["complete"]:
        assert ended is None


def test_a_proof_shows_in_the_live_verdict_with_the_line_that_brings_it(samples: Any) -> None:
    reader = LogReader()
    for line in samples[0].lines[:19]:
        reader.feed(line)
    assert reader.verdict().verdict == "unknown"
    events = reader.feed(samples[0].lines[19])
    assert [event.line for event in events] == [20]
    assert (reader.verdict().verdict, reader.verdict().provisional) == ("full_delegate", True)


def test_events_carry_the_figures_as_they_come(samples: Any) -> None:
    reader = LogReader()
    events = [event for line in samples[0].lines for event in reader.feed(line)]
    figures = {event.name: event.value for event in events if hasattr(event, "name")}
    assert figures["inference_avg_us"] == 208012
    assert figures["session_us"] == 972092
