"""What the device pane, the header, the cable bar and the page of all facts say of a phone."""

from __future__ import annotations

import pytest
import synthetic
from synthetic import plain, view_of

from mtplab.session import events as ev
from mtplab.session.identity import Identity, Policy
from mtplab.tui import texts
from mtplab.tui.view import View
from mtplab.tui.widgets.bars import tab_line
from mtplab.tui.widgets.cable import BACK_S, LOST_ROWS, cable_rows
from mtplab.tui.widgets.device import clock_rows, device_rows, trend
from mtplab.tui.widgets.facts import all_rows
from mtplab.tui.widgets.header import header_line
from mtplab.tui.widgets.stages import stage_rows


@pytest.fixture(scope="module")
def whole() -> View:
    return view_of(synthetic.whole_run(), place="/sessions/x")


def test_device_pane_names_phone_heat_distance_and_what_is_unknown_and_why(whole: View) -> None:
    text = plain(device_rows(whole, 76, 30))
    skin = whole.state.heat.skin_c
    assert "Pixel 9 Pro · Android 16" in text
    assert "AICore 0.release.20260601.RC11" in text
    assert f"skin {skin:.1f} °C" in text and f"{39 - skin:.1f} to LIGHT in " in text
    assert "status NONE" in text and "hottest die BIG" in text
    assert "1 silent: usb_pwr_therm (not readable)" in text
    assert "BIG 71%" in text and "LITTLE 1950MHz" in text  # no share of an unknown maximum


def test_unknown_identity_is_said_with_its_reason() -> None:
    facts = {"aicore_version": ev.Fact(value=None, reason="dumpsys timed out")}
    view = view_of([ev.DeviceSeen(t=1.0, identity=Identity(device_model="Pixel 8"), facts=facts)])
    assert "AICore unknown (dumpsys timed out)" in plain(device_rows(view, 76, 20))


def test_a_lost_cable_is_loud_and_says_what_to_do() -> None:
    lost = ev.LinkChanged(t=1006.0, state="lost", reason="device \x1b[2Joffline")
    view = view_of([*synthetic.whole_run()[:3], lost], now=1018.2)
    rows = cable_rows(view, 120)
    text = plain(rows)
    assert len(rows) == LOST_ROWS
    assert "CABLE LOST 12 s: plug it in; nothing that was recorded is lost" in text and "device offline" in text
    assert "on $loud-error" in rows[0][0][1]
    assert "LINK LOST" in plain(device_rows(view, 90, 20)) and "LINK LOST" in header_line(view, 120).plain


def test_a_returned_cable_says_how_long_it_was_out_and_then_falls_silent() -> None:
    events = [
        *synthetic.whole_run()[:3],
        ev.LinkChanged(t=1006.0, state="lost", reason="device offline"),
        ev.LinkChanged(t=1007.0, state="lost", reason="still offline"),
        ev.LinkChanged(t=1013.4, state="returned"),
    ]
    assert "cable back after 7 s: the gap is marked" in plain(cable_rows(view_of(events, now=1014.0), 120))
    assert cable_rows(view_of(events, now=1013.4 + BACK_S), 120) == []
    assert cable_rows(view_of(events, phase="ended", now=1014.0), 120) == []
    assert cable_rows(view_of(synthetic.whole_run()), 120) == []


def test_a_run_that_failed_for_want_of_the_cable_says_which_key_goes_on() -> None:
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=["bench"], policy=Policy(), model="m", head="h", recipe="x"),
        ev.LinkChanged(t=2.0, state="lost", reason="gone"),
        ev.RunEnded(t=3.0, run="r", outcome="failed", exit_code=4),
        ev.LinkChanged(t=4.0, state="returned"),
    ]
    assert "The run failed meanwhile: r runs it again" in plain(cable_rows(view_of(events, now=5.0), 140))
    before = [*events[:1], ev.RunEnded(t=1.5, run="r", outcome="failed", exit_code=4), events[1], events[3]]
    assert "meanwhile" not in plain(cable_rows(view_of(before, now=5.0), 140))


@pytest.mark.parametrize(("stage", "words"), [("bench", "needs the phone"), ("export", "goes on")])
def test_a_lost_cable_says_what_becomes_of_the_stage(stage: str, words: str) -> None:
    events: list[ev.Event] = [
        ev.RunStarted(t=1.0, run="r", stages=[stage], policy=Policy(), model="m", head="h", recipe="x"),
        ev.StageChanged(t=1.0, name=stage, status="running"),
        ev.LinkChanged(t=2.0, state="lost", reason="gone"),
    ]
    for width in (80, 120):
        text = plain(cable_rows(view_of(events, now=3.0), width), width)
        assert f"Stage {stage}" in text and words in text and "…" not in text


def _lost_after(seconds: float) -> View:
    """Link lost right after the synthetic heat, seen `seconds` later."""
    events = [*synthetic.whole_run()[:3], *synthetic.heat_events(1006.0, 30.0)]
    last = events[-1].t
    return view_of([*events, ev.LinkChanged(t=last, state="lost", reason="device offline")], now=last + seconds)


def test_a_lost_phones_values_are_shown_as_old_with_their_age_and_claim_nothing() -> None:
    view = _lost_after(6.0)
    skin = view.state.heat.skin_c  # type: ignore[union-attr]
    text = plain(device_rows(view, 76, 30))
    assert "seen 6 s ago: all below is old" in text
    assert text.index("all below") < text.index("skin ")
    assert "status unknown (was NONE)" in text
    assert "status NONE" not in text and "to LIGHT" not in text
    assert not set("↗→↘") & set(text)
    for width in (120, 80):
        assert f"LINK LOST · skin {skin:.1f} °C 6 s ago" in header_line(view, width).plain


def test_a_connected_phones_values_are_not_called_old(whole: View) -> None:
    text = plain(device_rows(whole, 76, 30)) + header_line(whole, 80).plain
    assert "are old" not in text and " ago" not in text and "status NONE" in text


def test_a_narrow_header_drops_the_age_before_the_phone() -> None:
    text = header_line(_lost_after(600.0), 60).plain
    assert "Pixel 9 Pro" in text and "LINK LOST" in text and "SIMULATED" in text


def test_after_the_engines_end_its_values_are_old_and_its_running_stage_is_stopped() -> None:
    began = [e for e in synthetic.whole_run() if e.t < 1040]
    view = view_of(began, phase="ended", now=began[-1].t + 130)
    heat = view.state.heat
    assert heat is not None and view.state.current_stage() is not None
    assert f"ENGINE ENDED · skin {heat.skin_c:.1f} °C 2 min 1" in header_line(view, 120).plain
    assert "status unknown (was NONE)" in plain(device_rows(view, 76, 30))
    text = plain(stage_rows(view, 60, 20))
    assert "■ bench" in text and "stopped: the engine ended" in text
    assert "ETA" not in text and "▶" not in text
    assert "▶" not in tab_line(view, "device", 80).plain


def test_header_shortens_but_never_drops_simulated_and_replay(whole: View) -> None:
    long = header_line(view_of(synthetic.whole_run(), "replay"), 140).plain
    assert "AICore 0.release.20260601.RC11 · mixed · γ 3 · T 0" in long
    for width in (140, 120, 80, 60):
        text = header_line(view_of(synthetic.whole_run(), "replay"), width).plain
        assert len(text) <= width
        assert "SIMULATED" in text and "REPLAY" in text and "Pixel 9 Pro" in text


def test_a_zones_trend_needs_samples_and_tells_directions() -> None:
    def trail(step: float) -> list[ev.Heat]:
        return [ev.Heat(t=float(i), zones={"BIG": 30 + step * i}) for i in range(10)]

    assert trend(trail(0.05), "BIG") == "↗"
    assert trend(trail(-0.05), "BIG") == "↘"
    assert trend(trail(0.0), "BIG") == "→"
    assert trend(trail(0.05)[:2], "BIG") == " "
    assert trend(trail(0.05), "MID") == " "


def test_no_clock_is_cut_and_a_limit_on_one_is_told() -> None:
    clocks: dict[str, tuple[int | None, int | None]] = {f"policy{i}": (500_000, 1_000_000) for i in range(8)}
    view = view_of([ev.Heat(t=1.0, clocks_khz=clocks, caps_khz={"policy3": 800_000, "policy4": 1_000_000})])
    rows = clock_rows(view, 36)
    assert all(texts.parts_len(row) <= 36 for row in rows)
    text = plain(rows)
    assert all(f"cpu{i} 50%" in text for i in range(8))
    assert "cpu3 50% (capped 80%)" in text and text.count("capped") == 1


def test_every_kind_of_throttling_is_told_until_it_ends() -> None:
    events: list[ev.Event] = [
        ev.Heat(t=1.0, skin_c=40.0),
        ev.Throttled(t=1.0, began=True, kind="status", evidence="status LIGHT"),
        ev.Throttled(t=2.0, began=True, kind="cap", evidence="BIG capped at 1.4 GHz"),
        ev.Throttled(t=3.0, began=False, kind="status", evidence="status NONE"),
    ]
    text = plain(device_rows(view_of(events), 76, 20))
    assert "▲ capped, seen from 00:00:01: BIG capped at 1.4 GHz" in text and "status LIGHT" not in text


# -- the page of all facts ---------------------------------------------------------------------
@pytest.mark.parametrize("width", [76, 116])
def test_every_fact_stands_with_its_source_or_the_reason_why_it_is_unknown(whole: View, width: int) -> None:
    rows = all_rows(whole, width)
    text = plain(rows, width)
    for name, fact in synthetic.FACTS.items():
        assert name in text and (fact.source in text if fact.value is not None else True)
    assert "gpu_driver" in text and "unknown: the build hides it" in text
    assert "usb_pwr_therm" in text and "silent: not readable" in text
    assert "▲ begins: status LIGHT" in text
    assert all(texts.parts_len(row) <= width for row in rows)


def test_facts_of_a_silent_phone_claim_nothing() -> None:
    text = plain(all_rows(view_of([ev.LinkChanged(t=1.0, state="connected")]), 76))
    for words in ("no fact was recorded", "no temperature yet", "no zone was readable", "no clock was readable",
                  "none seen", "not measured yet"):  # fmt: skip
        assert words in text
    heat = plain(all_rows(view_of([ev.Heat(t=1.0)], now=1.0), 76))
    assert "skin                      unknown: no skin sensor answered" in heat
    assert "headroom                  unknown: the phone gives none" in heat


def test_what_sampling_costs_is_told_where_it_was_measured() -> None:
    cost = ev.SamplerCost(zones=32, samples=900, rate_hz=10.0, device_ms=1.2, host_ms=0.3, packets=1.0, rejected=2)
    view = view_of([ev.Heat(t=1.0, zones={"BIG": 40.0}, cost=cost)], now=1.0)
    text = plain(all_rows(view, 90))
    assert "32 zones · 10.0 Hz · 1.2 ms on the phone · 0.3 ms here · 2 rejected" in text
    assert "900 samples" in text and "1.0 packets a sample" in text
    assert "1.2 ms on the phone" in plain(device_rows(view, 60, 14))
