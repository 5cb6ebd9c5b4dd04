"""Every program that prints such logs, from 2018 to now, is read in its own words and units."""

from __future__ import annotations

from typing import Any

import pytest

from mtplab.benchlog.reader import LogReader


def test_each_dialect_reads_as_its_file_says(dialect: Any, read: Any, differences: Any) -> None:
    assert differences(read(dialect.lines), dialect.expected) == {}


@pytest.mark.parametrize("carry", ["crlf", "doubled", "logcat", "colour"])
def test_each_dialect_may_be_carried_here_in_any_way(dialect: Any, read: Any, differences: Any, carry: str) -> None:
    carriers = {
        "crlf": [line + "\r" for line in dialect.lines],
        "doubled": [line for line in dialect.lines for _ in range(2)],
        "logcat": ["07-19 14:10:10.844  7937  7937 I native  : " + line for line in dialect.lines],
        "colour": [f"\x1b[32m{line[:9]}\x1b[0m{line[9:]}" for line in dialect.lines],
    }
    expected = dict(dialect.expected)
    if carry == "logcat" and expected.get("tool") == "benchmark_model":
        expected.pop("tool")  # without a tool's own severity in front, the app's log reads the same
    assert differences(read(carriers[carry]), expected) == {}


def test_a_dialect_in_pieces_reads_like_its_lines(dialect: Any, read: Any) -> None:
    reader = LogReader()
    reader.feed_text("\n".join(dialect.lines))
    assert reader.finish() == read(dialect.lines)


def test_a_cut_dialect_is_not_complete_and_rests_on_lines_still_there(dialect: Any) -> None:
    reader = LogReader()
    for number, line in enumerate(dialect.lines[:-1], 1):
        reader.feed(line)
        cut = reader.verdict(final=True)
        assert all(proof.line <= number for proof in cut.evidence)
        if cut.verdict != "unknown":
            assert cut.evidence
