"""The phone's clock on the host's axis: bounded by every ping, never surer than it is, and a restart is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device.clock import ClockOffset, Ping, drift_between, measure_clock, offset_of
from mtplab.device.errors import CommandFailed, DeviceGone
from mtplab.device.link import Link


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 0.05), st.floats(0, 1)), min_size=1, max_size=12),
)
def test_the_true_offset_lies_within_the_uncertainty(
    offset_s: float, pings: list[tuple[float, float, float]]
) -> None:
    made = []
    for sent, round_trip, share in pings:
        uptime = sent + round_trip * share - offset_s
        made.append(Ping(sent, sent + round_trip, uptime // 0.01 * 0.01))
    found = offset_of(made)
    assert abs(found.offset_s - offset_s) <= found.uncertainty_s + 1e-4
    assert found.uncertainty_s <= min(p[1] for p in pings) / 2 + 0.005 + 1e-4


def test_pings_that_contradict_each_other_make_it_less_sure_not_more() -> None:
    agreed, torn = offset_of([Ping(10.0, 10.002, 5.0)]), offset_of([Ping(10.0, 10.002, 5.0), Ping(10.1, 10.102, 5.0)])
    assert torn.uncertainty_s > agreed.uncertainty_s


def test_the_stand_ins_uptime_is_the_hosts_own_clock(link: Link) -> None:
    found = measure_clock(link)
    assert abs(found.offset_s) < 1.0
    assert abs(found.to_host(found.uptime_s) - found.t) < 1.0


def test_a_phone_that_tells_no_uptime_is_a_sentence(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtplab.device.clock._SCRIPT", "while read -r x; do echo \"T $x NA\"; done")
    with pytest.raises(CommandFailed, match="tells no uptime"):
        measure_clock(link)


def test_drift_is_seen_only_beyond_both_uncertainties_and_a_restart_is_none() -> None:
    first = ClockOffset(100.0, 0.002, 50.0, 0.001, 150.0)
    assert not drift_between(first, ClockOffset(100.003, 0.002, 90.0, 0.001, 190.0)).seen
    moved = drift_between(first, ClockOffset(100.006, 0.002, 90.0, 0.001, 190.0))
    assert (moved.seen, moved.restarted, moved.seconds) == (True, False, 40.0)
    assert drift_between(first, ClockOffset(185.0, 0.002, 5.0, 0.001, 190.0)).restarted


def test_a_phone_that_does_not_answer_holds_nobody_up(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtplab.device.clock._SCRIPT", "sleep 60")
    monkeypatch.setattr("mtplab.device.clock._PATIENCE_S", 0.3)
    with pytest.raises(DeviceGone, match="did not answer in time"):
        measure_clock(link)
    assert "sleep 60" not in link.run("ps -A -o ARGS").stdout
