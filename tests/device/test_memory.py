"""A program that the phone killed for memory is told as such, with the line that proves it; so is what cannot fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device.errors import DeviceGone
from mtplab.device.link import Link
from mtplab.device.memory import Memory, Need, explain_kill, fits, killer_line, parse_meminfo, read_memory

LMKD = "05-01 10:00:00.123   612   612 I lowmemorykiller: Kill 'benchmark_model' (4242), uid 2000, oom_score_adj 0"
KERNEL = "05-01 10:00:00.123     0     0 I [4.2] Out of memory: Killed process 4242 (benchmark_model) total-vm:9kB"


@pytest.mark.parametrize("line", [LMKD, KERNEL])
def test_the_killers_line_is_found_by_the_process_number(line: str) -> None:
    log = f"noise\n{line}\n05-01 10:00:01.000 612 612 I lowmemorykiller: Kill 'com.maps' (999), uid 10\nmore noise"
    assert killer_line(log, 4242) == line
    assert killer_line(log, 424) is None
    assert killer_line(log, 612) is None  # the killer's own number, in the log's columns


def test_a_line_about_the_process_that_is_no_killers_proves_nothing() -> None:
    assert killer_line("05-01 10:00:00.1 1 1 I ActivityManager: Process 4242 exited cleanly", 4242) is None


@given(st.text(), st.integers(1, 99999))
def test_any_log_gives_a_line_or_none(log: str, pid: int) -> None:
    line = killer_line(log, pid)
    assert line is None or "\x1b" not in line


def test_a_killed_program_is_explained_by_the_phones_own_log(link: Link) -> None:
    line = "05-01 10:00:00.1 612 612 I lowmemorykiller: Kill 'x' ($$), uid 2000"
    script = f'echo "{line}" >>/dev/.sim/logcat; kill -9 $$'
    with link.stream(script) as stream:
        code = stream.wait(10)
    kill = explain_kill(link, "The benchmark", code, stream.pid)
    assert kill is not None
    assert f"({stream.pid})" in (kill.proof or "")
    assert "low-memory killer" in kill.sentence
    link.run(["logcat", "-c"])
    unproven = explain_kill(link, "The benchmark", code, stream.pid)
    assert unproven is not None
    assert unproven.proof is None
    assert "names no memory killer" in unproven.sentence


def test_other_ends_are_not_called_kills_and_a_lost_phone_proves_nothing(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explain_kill(link, "It", 1, 1) is None
    assert explain_kill(link, "It", None, 1) is None

    def gone(*arguments: object, **more: object) -> None:
        raise DeviceGone("The cable is out.")

    monkeypatch.setattr(link, "run", gone)
    kill = explain_kill(link, "It", 137, 1)
    assert kill is not None
    assert (kill.proof, "The cable is out." in kill.sentence) == (None, True)


def test_memory_is_read_or_unknown(link: Link) -> None:
    here = read_memory(link)
    assert here.total_bytes is not None
    assert here.available_bytes is not None
    assert parse_meminfo("MemTotal: lots kB\nMemAvailable:   1000 kB\r\n") == Memory(None, 1024000)


def test_only_what_cannot_fit_is_refused_and_what_might_not_is_warned_about() -> None:
    gb = 10**9
    need = Need(weights_bytes=3 * gb, caches_bytes=gb)
    assert fits(need, Memory(16 * gb, 12 * gb)).sentence == ""
    tight = fits(need, Memory(16 * gb, 6 * gb))
    assert (tight.refused, "low-memory killer may end it" in tight.sentence) == (False, True)
    assert fits(need, Memory(3 * gb, None)).refused
    unknown = fits(need, Memory(None, None))
    assert (unknown.refused, "does not tell its free memory" in unknown.sentence) == (False, True)
