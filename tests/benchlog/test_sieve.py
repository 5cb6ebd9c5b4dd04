"""Large blocks are sieved, small ones are not: what is read is the same, and the work and memory stay bounded."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.benchlog import reader as reader_module
from mtplab.benchlog.files import read_log, whole_lines
from mtplab.benchlog.lines import HALF_LIMIT, clean
from mtplab.benchlog.reader import BLOCK_LENGTH, LogReader
from mtplab.benchlog.rules import SIEVE_LENGTH, load_rules

NOISE = "07-19 14:10:10.844  1637  1637 I ActivityManager: Start proc 77:com.example.app/u0a123 for service"
BLANKS = st.sampled_from([" ", "\t", "\u00a0", "é", "?", "\x1c", "\x1b[0m"])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_sieved_block_shows_every_line_that_the_plain_look_shows(data: Any, samples: Any) -> None:
    rules = load_rules()
    words = sorted(rules.words)
    lines = [
        "".join(
            data.draw(BLANKS) + data.draw(st.sampled_from(words)) + data.draw(st.sampled_from(["", "x", "é"]))
            for _ in range(data.draw(st.integers(0, 3)))
        )
        for _ in range(data.draw(st.integers(1, 8)))
    ]
    block = "\n".join(lines) + "\n" + (NOISE + "\n") * (SIEVE_LENGTH // len(NOISE) + 1)
    assert len(block) >= SIEVE_LENGTH
    shown, at = set(rules.candidates(block)), 0
    for line in block.split("\n"):
        assert at in shown or not rules.may_match(line)
        at += len(line) + 1


def test_a_log_between_thousands_of_other_lines_reads_the_same(sample: Any, read: Any) -> None:
    hidden = [NOISE] * 200 + sample.lines + [NOISE] * 200
    reading = read_log(io.BytesIO("\n".join(hidden).encode()))
    assert reading == read(hidden)
    assert reading.verdict == sample.expected["verdict"]


def test_only_lines_that_a_rule_may_know_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(reader_module, "clean", lambda raw: looked.append(raw) or clean(raw))
    proof = "Falling back to OpenGL"
    text = "\n".join([NOISE] * 5000 + [proof] + [NOISE] * 5000)
    reader = LogReader("gpu")
    reader.feed_text(text)
    assert [raw.strip() for raw in looked] == [proof]
    assert reader.finish().evidence[0].line == 5001


def test_a_long_log_is_never_held_as_a_whole() -> None:
    class Endless(io.RawIOBase):
        """Twenty megabytes that exist only while they are read."""

        left = 20_000_000
        asked = 0

        def read(self, size: int = -1) -> bytes:
            Endless.asked = max(self.asked, size)
            data = (NOISE + "\n").encode() * (size // len(NOISE))
            self.left -= len(data)
            return data[:size] if self.left > 0 else b""

    longest = max(len(text) for text in whole_lines(Endless()))  # type: ignore[arg-type]
    assert longest <= Endless.asked + 4 * HALF_LIMIT <= 3 * BLOCK_LENGTH


def test_what_is_kept_of_a_log_does_not_grow_with_it(samples: Any) -> None:
    lines = [line for sample in samples for line in sample.lines]

    def kept(times: int) -> int:
        reader = LogReader()
        for _ in range(times):
            reader.feed_text("\n".join(lines))
        runs = reader._runs
        return len(runs) + sum(
            len(run.signs) + len(run.nodes) + len(run.ops) + len(run.findings) + len(run.profile) for run in runs[-1:]
        )

    assert kept(60) <= kept(30) + 1024 * 3  # each of its lists has an end
    assert kept(60) < 10_000
