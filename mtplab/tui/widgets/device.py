"""The device pane: which phone, how hot, where it is going, and what is not known of it and why."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from mtplab.session.events import Fact, Heat
from mtplab.session.heat import DIE_ZONES, FLAT_C_PER_MIN, STATUS_NAMES, Trend, slope_c_per_min
from mtplab.session.state import LabState
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Pane, flowed, wrapped

TREND_S = 20.0
# What the kinds of throttling are called where there is no room for the evidence.
THROTTLING = {"status": "throttled", "cap": "capped", "clock": "slowed"}


class DevicePane(Pane):
    """Identity, heat, clocks, battery and facts of the phone."""

    TITLE = "1 Device"

    def render_view(self, view: View, width: int, height: int) -> Content:
        return texts.lines(device_rows(view, width, height), width, height)


def device_rows(view: View, width: int, height: int) -> list[list[Part]]:
    """The pane's rows, most important first; with room to spare every fact is listed with its source."""
    nothing = view.nothing()
    if nothing is not None:
        return wrapped(texts.clean(nothing), width, "$text-warning")
    state = view.state
    head = [*_link_rows(view, width), *_identity_rows(view, width), *heat_rows(view, width)]
    tail = [*_battery_rows(state.facts), *clock_rows(view, width), *sampler_rows(view, width)]
    zones = zone_rows(view, width)
    room = height - len(head) - len(tail)
    rows = [*head, *zones[: max(1, room)], *tail]
    if height - len(rows) > 1:
        rows += [[""], [("i lists every fact with its source", "$text-muted")]]
    return rows


def _link_rows(view: View, width: int) -> list[list[Part]]:
    state = view.state
    if view.phase == "ended":
        kept = (
            f"the session is kept at {texts.clean(view.place)}"
            if view.place
            else "its session is gone: nothing but watching happened in it, so it was dropped"
        )
        text = f"The engine ended; {kept}.  e starts a new one{' · s opens it' if view.place else ''}"
        return wrapped(text, width, "bold $text-warning")
    if state.link in ("connected", "returned"):
        return []
    if state.link == "lost":  # how long, why and what to do stands in the cable bar, over all panes
        return [[("✗ LINK LOST", "bold $loud-text on $loud-error")]]
    if not state.event_count:
        return [[("– not connected yet", "bold $text-warning")]]
    reason = texts.clean(state.link_reason) or "no reason was given"
    return wrapped(f"– LINK CLOSED: {reason}", width, "bold $text-warning")


def _identity_rows(view: View, width: int) -> list[list[Part]]:
    identity, facts = view.state.identity, view.state.facts
    model = known(identity.device_model, facts.get("model"))
    system = known(identity.os_version, facts.get("android_release"))
    aicore = known(identity.aicore_version, facts.get("aicore_version"))
    soc = f" · {texts.clean(identity.soc, 24)}" if identity.soc and width >= 50 else ""
    return [[(model, "bold"), f" · Android {system.removeprefix('Android ')}{soc}"], [f"AICore {aicore}"]]


def known(value: object, fact: Fact | None) -> str:
    """A value, or `unknown` with the reason where one is recorded."""
    if value is not None:
        return texts.clean(value, 60)
    reason = texts.clean(fact.reason) if fact is not None and fact.reason else ""
    return f"{texts.UNKNOWN} ({reason})" if reason else texts.UNKNOWN


def heat_rows(view: View, width: int) -> list[list[Part]]:
    """Skin with trend and distance to the next threshold, status word, headroom, hottest die."""
    heat = view.state.heat
    if heat is None:
        return [[("No temperature yet: the sampler has not spoken.", "$text-muted")]]
    stale = view.stale()
    rows: list[list[Part]] = []
    if stale is not None:
        said = f"seen {texts.ago(view.heat_age_s())}: all below is old"
        rows += wrapped(said, width, "bold $text-warning")
    if heat.skin_c is None:
        rows.append([("skin unknown: no skin sensor answered", "$text-warning")])
    else:
        rows += _skin_rows(view, heat.skin_c, width)
    word, style = status_word(heat.status)
    if stale is not None:
        rows += wrapped(f"status {texts.UNKNOWN} (was {word})", width, "bold $text-warning")
    else:
        room = "" if heat.headroom is None else f"  headroom {heat.headroom:.2f}"
        rows.append(["status ", (word, style), room])
    return [*rows, *_die_rows(view), *_throttled_rows(view, width)]


def _skin_rows(view: View, skin_c: float, width: int) -> list[list[Part]]:
    """Temperature, curve and trend; then how far, and how long at this trend, it is to the next throttling limit."""
    stale = view.stale() is not None
    skins = [h.skin_c for h in view.trail]
    bars = texts.spark(resample(skins, min(12, max(4, width - 26))), 12)
    row: list[Part] = ["skin ", (f"{skin_c:.1f} °C", "$text-muted" if stale else "bold"), f" {bars} "]
    if stale:
        return [row]
    trend = view.state.skin_trend
    going = f"{arrow(trend)} {trend.c_per_min:+.1f}/min" if trend.c_per_min is not None else ""
    nearest = next_threshold(view.state)
    if texts.parts_len([*row, going, nearest]) + 3 <= width:
        return [[*row, going, f"  {nearest}"]]
    return [[*row, going], [f"  {nearest}"]] if nearest else [[*row, going]]


def next_threshold(state: LabState) -> str:
    """How far the skin is from the next status, and how long at its present trend: `0.6 to LIGHT in 2 min 10 s`."""
    following = state.next_threshold
    if following.name is None or following.distance_c is None:
        return ""
    away = f"{following.distance_c:.1f} to {following.name}"
    return f"{away} in {texts.duration(following.seconds)}" if following.seconds is not None else away


def arrow(trend: Trend) -> str:
    """↗, → or ↘; nothing where too little is known."""
    if trend.c_per_min is None:
        return " "
    return "↗" if trend.rising else "↘" if trend.c_per_min <= -FLAT_C_PER_MIN else "→"


def _die_rows(view: View) -> list[list[Part]]:
    die = view.state.hottest_die
    if die is None:
        return []
    name, value = f"{texts.clean(die[0], 12)}", f"{die[1]:.1f} °C"
    if view.stale() is not None:
        return [["hottest die ", (f"{name} {value}", "$text-muted")]]
    return [["hottest die ", (f"{name} {value}", "bold"), f" {arrow(view.state.die_trend)}"]]


def _throttled_rows(view: View, width: int) -> list[list[Part]]:
    """A row for each kind of throttling; all of its evidence stands on the page of facts."""
    rows: list[list[Part]] = []
    for since in view.state.throttling.values():
        word, why = THROTTLING.get(since.kind, "throttled"), texts.clean(since.evidence)
        said = f"{word}, seen from {texts.clock(view.since(since.t))}: {why}"  # it may have begun before
        if view.stale() is not None:
            rows.append([(texts.fit(f"▲ was {said}", width), "bold $text-warning")])
        else:
            rows.append([(texts.fit(f"▲ {said}", width), "bold $loud-text on $loud-warning")])
    return rows


def status_word(status: int | None) -> tuple[str, str]:
    """Android's word for a thermal status and how loud to say it."""
    if status is None or not 0 <= status < len(STATUS_NAMES):
        return "unknown", "bold $text-warning"
    styles = ("$text-success", "bold $text-warning")
    return STATUS_NAMES[status], styles[status] if status < 2 else "bold $loud-text on $loud-error"


def trend(trail: Sequence[Heat], of: str) -> str:
    """↗, → or ↘ of a zone over the last TREND_S seconds; nothing where too little is known."""
    points = [(h.t, v) for h in trail if h.t >= trail[-1].t - TREND_S and (v := h.zones.get(of)) is not None]
    if len(points) < 4 or points[-1][0] - points[0][0] < 3:
        return " "
    return arrow(Trend(slope_c_per_min(points)))


def resample(values: Sequence[float | None], count: int) -> list[float | None]:
    """About `count` values spread evenly over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def zone_rows(view: View, width: int) -> list[list[Part]]:
    """Thermal zones in columns, dies first, with bars and (unless old) trend; silent ones are named at the end."""
    heat, trail, silent = view.state.heat, view.trail, view.state.silent_zones
    if heat is None or not heat.zones:
        return []
    old = view.stale() is not None
    readable = {n: v for n, v in heat.zones.items() if v is not None and n not in silent}
    names = sorted(readable, key=_die_rank)  # a fixed order: zones that change places cannot be followed
    hottest = view.state.hottest_die
    narrow = width < 60
    name_width = min(6 if narrow else 12, max((len(texts.clean(n)) for n in names), default=4))
    bars = 3 if narrow else 10
    columns = max(1, (width + 1) // (name_width + 6 + bars + 3))
    rows: list[list[Part]] = []
    for start in range(0, len(names), columns):
        row: list[Part] = []
        for name in names[start : start + columns]:
            values = resample([h.zones.get(name) for h in trail], bars)
            is_hottest = not old and hottest is not None and hottest[0] == name
            row.append((texts.pad(texts.clean(name), name_width), "bold" if is_hottest else "$text-muted"))
            row.append((f"{readable[name]:5.1f} ", "bold" if is_hottest else ""))
            row.append((texts.pad(texts.spark(values, bars), bars), "$text-primary"))
            row.append("   " if old else f" {trend(trail, name)} ")
        rows.append(row)
    if silent:
        told = ", ".join(f"{texts.clean(n, 20)} ({texts.clean(why, 60)})" for n, why in sorted(silent.items())[:4])
        rows.append([(f"{len(silent)} silent: {told}", "$text-muted")])
    return rows


def _die_rank(name: str) -> int:
    ranks = [i for i, die in enumerate(DIE_ZONES) if name.lower().startswith(die.lower())]
    return ranks[0] if ranks else len(DIE_ZONES)


def _battery_rows(facts: dict[str, Fact]) -> list[list[Part]]:
    def value(name: str, unit: str) -> str | None:
        fact = facts.get(name)
        return None if fact is None or fact.value is None else f"{texts.clean(fact.value, 16)}{unit}"

    seen = [value("battery_temperature_c", " °C"), value("battery_level_percent", " %"), value("charging", "")]
    words = [v for v in seen if v is not None]
    return [["battery " + "  ".join(words)]] if words else []


def clock_rows(view: View, width: int) -> list[list[Part]]:
    """Clocks as shares of their maximum with the limits in force, each whole, in as many rows as that takes."""
    heat = view.state.heat
    if heat is None or not heat.clocks_khz:
        return []
    pieces = []
    for name, (now, most) in heat.clocks_khz.items():
        text = f"{100 * now / most:.0f}%" if now is not None and most else f"{now // 1000}MHz" if now else "?"
        cap = heat.caps_khz.get(name)
        capped = f" (capped {100 * cap / most:.0f}%)" if cap is not None and most and cap < most else ""
        pieces.append(f"{texts.clean(name, 12).replace('policy', 'cpu')} {text}{capped}")
    pieces[0] = f"{'clocks were' if view.stale() else 'clocks'} {pieces[0]}"
    return flowed(pieces, width, between="  ")


def sampler_rows(view: View, width: int) -> list[list[Part]]:
    """What watching costs: zones, rate, time on the phone and here, and how busy this computer is."""
    heat, trail, cost = view.state.heat, view.trail, view.state.sampler_cost
    if heat is None:
        return []
    if view.stale() is not None:
        return [[(f"{len(heat.zones)} zones · no samples now", "$text-muted")]]
    span = trail[-1].t - trail[0].t if len(trail) > 1 else 0.0
    rate = f"{(len(trail) - 1) / span:.1f} Hz" if span > 0 else "rate unknown"
    pieces = cost.text.split(" · ") if cost is not None else [f"{len(heat.zones)} zones", rate]
    if cost is not None and cost.rejected:
        pieces.append(f"{cost.rejected} rejected")
    host = view.state.host
    if host is not None:
        pieces.append(f"host {host.cpu_percent:.0f}%")
    return flowed(pieces, width, "$text-muted")
