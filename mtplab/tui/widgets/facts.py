"""Everything that is known of the phone: each fact with the command it came from, or why it is not known."""

from __future__ import annotations

import contextlib

from textual.content import Content

from mtplab.session.events import Fact
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.device import clock_rows, next_threshold, sampler_rows, status_word
from mtplab.tui.widgets.pane import Grown, wrapped

NAME_CELLS, VALUE_CELLS = 26, 34
WIDE = 110


class FactsBody(Grown):
    """All that is known of the phone."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return texts.lines(all_rows(view, width), width)


def all_rows(view: View, width: int) -> list[list[Part]]:
    """Facts, then heat: skin, zones with the reason of the silent ones, clocks, throttling, what sampling costs."""
    nothing = view.nothing()
    if nothing is not None and not view.state.event_count:
        return wrapped(texts.clean(nothing), width, "$text-warning")
    rows: list[list[Part]] = []
    if view.stale() is not None:
        rows += wrapped(f"{view.stale()}: all of this is old.", width, "bold $loud-text on $loud-error")
    rows += [_title("Facts, as they were read when the session began"), *fact_rows(view.state.facts, width)]
    rows += [[""], _title("Heat"), *_heat_rows(view)]
    rows += [[""], _title("Zones"), *_zone_rows(view, width)]
    rows += [[""], _title("Clocks"), *(clock_rows(view, width) or [[("no clock was readable", "$text-warning")]])]
    rows += [[""], _title("Throttling"), *_throttle_rows(view, width)]
    return [*rows, [""], _title("What watching costs"), *_cost_rows(view, width)]


def _title(text: str) -> list[Part]:
    return [(text, "bold $text-accent")]


def fact_rows(facts: dict[str, Fact], width: int) -> list[list[Part]]:
    """Every fact; its source stands beside it, or below it where there is no room."""
    rows: list[list[Part]] = []
    for name, fact in sorted(facts.items()):
        label: Part = texts.pad(texts.clean(name, NAME_CELLS), NAME_CELLS)
        if fact.value is None:
            why = texts.clean(fact.reason) if fact.reason else "no reason recorded"
            rows += _hung(label, f"{texts.UNKNOWN}: {why}", width, "bold $text-warning")
            rows += _source(fact, width)
            continue
        value = _value(name, fact.value)
        source = f"  {texts.clean(fact.source)}" if fact.source else ""
        if width >= WIDE and len(value) <= VALUE_CELLS:
            rows.append([label, texts.pad(value, VALUE_CELLS), (source, "$text-muted")])
        else:
            rows += [*_hung(label, value, width, ""), *_source(fact, width)]
    return rows or [[("no fact was recorded", "$text-warning")]]


def _value(name: str, value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        with contextlib.suppress(TypeError, ValueError):
            return f"{int(value):,} ({int(value) / 1e9:.2f} GB)"
    return f"{value:.6g}" if isinstance(value, float) else texts.clean(value, 200)


def _hung(label: Part, text: str, width: int, style: str) -> list[list[Part]]:
    """A label with a text that may need more rows than one."""
    rows = wrapped(text, width - NAME_CELLS, style)
    indent = " " * NAME_CELLS
    return [[label if i == 0 else indent, *row] for i, row in enumerate(rows)]


def _source(fact: Fact, width: int) -> list[list[Part]]:
    if not fact.source:
        return []
    return [[" " * NAME_CELLS, *row] for row in wrapped(texts.clean(fact.source), width - NAME_CELLS, "$text-muted")]


def _heat_rows(view: View) -> list[list[Part]]:
    state, heat = view.state, view.state.heat
    if heat is None:
        return [[("no temperature yet: the sampler has not spoken", "$text-warning")]]
    trend, following, die = state.skin_trend, state.next_threshold, state.hottest_die
    source = f"  (by {texts.clean(heat.skin_source, 40)})" if heat.skin_source else ""
    rows = [
        _row("last sample", texts.ago(view.heat_age_s())),
        _row("skin", None if heat.skin_c is None else f"{heat.skin_c:.1f} °C{source}", "no skin sensor answered"),
        _row("trend", None if trend.c_per_min is None else f"{trend.c_per_min:+.2f} °C a minute", trend.reason),
        _row("next threshold", next_threshold(state) or None, following.reason),
    ]
    if following.name and following.seconds is None:
        rows.append(_row("time to it", None, following.reason))
    word, style = status_word(heat.status)
    rows.append([texts.pad("thermal status", NAME_CELLS), (word, style)])
    headroom = None if heat.headroom is None else f"{heat.headroom:.2f}  (1.0 is SEVERE)"
    rows.append(_row("headroom", headroom, "the phone gives none"))
    rows.append(_row("hottest die", f"{texts.clean(die[0])} {die[1]:.1f} °C" if die else None, "no die is readable"))
    return rows


def _row(name: str, value: str | None, why: str | None = None) -> list[Part]:
    """A name and a value, or `unknown` with the reason."""
    if value is not None:
        return [texts.pad(name, NAME_CELLS), value]
    told = f"{texts.UNKNOWN}: {texts.clean(why or 'no reason was given')}"
    return [texts.pad(name, NAME_CELLS), (told, "bold $text-warning")]


def _zone_rows(view: View, width: int) -> list[list[Part]]:
    heat, silent = view.state.heat, view.state.silent_zones
    if heat is None or not heat.zones:
        return [[("no zone was readable", "$text-warning")]]
    rows: list[list[Part]] = []
    for name, value in heat.zones.items():
        label: Part = texts.pad(texts.clean(name, NAME_CELLS - 1), NAME_CELLS)
        if name in silent:
            rows += _hung(label, f"silent: {texts.clean(silent[name])}", width, "$text-warning")
        else:
            rows.append([label, f"{value:.1f} °C" if value is not None else texts.UNKNOWN])
    return rows


def _throttle_rows(view: View, width: int) -> list[list[Part]]:
    events = view.state.throttle_events
    rows: list[list[Part]] = []
    for event in events[-20:]:
        word = "▲ begins" if event.began else "△ ends"
        kind = f" ({texts.clean(event.kind, 12)})" if event.kind else ""
        told = f"{texts.clock(view.since(event.t))} {word}{kind}: {texts.clean(event.evidence)}"
        rows += wrapped(told, width, "bold $text-warning" if event.began else "")
    if len(events) > 20:
        rows.insert(0, [(f"{len(events) - 20} earlier ones are in the journal", "$text-muted")])
    return rows or [[("none seen in this session", "$text-muted")]]


def _cost_rows(view: View, width: int) -> list[list[Part]]:
    cost = view.state.sampler_cost
    rows = sampler_rows(view, width) or [[("not measured yet", "$text-muted")]]
    if cost is None:
        return rows
    per_sample = [f"{cost.samples} samples", f"{cost.rejected} frames rejected"]
    if cost.packets is not None:
        per_sample.append(f"{cost.packets:.1f} packets a sample")
    if cost.bytes is not None:
        per_sample.append(f"{cost.bytes:.0f} bytes a sample")
    if cost.pacing:
        per_sample.append(f"paced by {texts.clean(cost.pacing, 60)}")
    rows.append([" · ".join(per_sample)])
    if cost.reason:
        rows += wrapped(f"not all of it could be measured: {texts.clean(cost.reason)}", width, "$text-warning")
    return rows
