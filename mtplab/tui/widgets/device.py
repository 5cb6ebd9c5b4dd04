"""The device pane: which phone, how hot, where it is going, and what is not known of it and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual.content import Content

from mtplab.session.events import Fact, Heat
from mtplab.session.heat import DIE_ZONES, STATUS_NAMES, hottest_die
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Pane, wrapped

TREND_S = 20.0
TREND_C_PER_MINUTE = 0.4


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
    tail = [row for row in (_battery_row(state.facts), _clock_row(view), _sampler_row(view)) if row]
    zones = zone_rows(view.trail, state.heat, width, old=view.stale() is not None)
    room = height - len(head) - len(tail)
    rows = [*head, *zones[: max(1, room)], *tail]
    if height - len(rows) > 2:
        rows += [[""], *fact_rows(state.facts, width)]
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
    reason = texts.clean(state.link_reason) or "no reason was given"
    word = (
        "✗ LINK LOST" if state.link == "lost" else "– not connected yet" if not state.event_count else "– LINK CLOSED"
    )
    style = "bold $loud-text on $loud-error" if state.link == "lost" else "bold $text-warning"
    cure = "  Plug the cable in again; the engine reconnects." if state.link == "lost" else ""
    return wrapped(f"{word}: {reason}{cure}" if state.event_count else word, width, style)


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
        said = f"last seen {texts.ago(view.heat_age_s())}: values below are old"
        rows += wrapped(said, width, "bold $text-warning")
    if heat.skin_c is None:
        rows.append([("skin unknown: no skin sensor answered", "$text-warning")])
    else:
        skins = [h.skin_c for h in view.trail]
        bars = texts.spark(resample(skins, min(12, max(4, width - 30))), 12)
        going = "" if stale else f"{trend(view.trail)} {to_next_threshold(view.state.facts, heat)}"
        rows.append(["skin ", (f"{heat.skin_c:.1f} °C", "$text-muted" if stale else "bold"), f" {bars} ", going])
    word, style = status_word(heat.status)
    if stale is not None:
        rows += wrapped(f"status {texts.UNKNOWN} ({stale}; was {word})", width, "bold $text-warning")
        return [*rows, *_die_rows(view, heat), *_throttled_rows(view, width)]
    room = "" if heat.headroom is None else f"  headroom {heat.headroom:.2f}"
    rows.append(["status ", (word, style), room])
    return [*rows, *_die_rows(view, heat), *_throttled_rows(view, width)]


def _die_rows(view: View, heat: Heat) -> list[list[Part]]:
    die = hottest_die(heat.zones)
    if die is None:
        return []
    name, value = f"{texts.clean(die[0], 12)}", f"{die[1]:.1f} °C"
    if view.stale() is not None:
        return [["hottest die ", (f"{name} {value}", "$text-muted")]]
    return [["hottest die ", (f"{name} {value}", "bold"), f" {trend(view.trail, die[0])}"]]


def _throttled_rows(view: View, width: int) -> list[list[Part]]:
    since = view.state.throttled
    if since is None:
        return []
    when, why = texts.clock(view.since(since.t)), texts.clean(since.evidence, 80)
    if view.stale() is not None:
        return wrapped(f"▲ was throttled, since {when}: {why}", width, "bold $text-warning")
    return [[(f" ▲ throttled since {when}: {why} ", "bold $loud-text on $loud-warning")]]


def status_word(status: int | None) -> tuple[str, str]:
    """Android's word for a thermal status and how loud to say it."""
    if status is None or not 0 <= status < len(STATUS_NAMES):
        return "unknown", "bold $text-warning"
    styles = ("$text-success", "bold $text-warning")
    return STATUS_NAMES[status], styles[status] if status < 2 else "bold $loud-text on $loud-error"


def trend(trail: Sequence[Heat], of: str = "") -> str:
    """↗, → or ↘ of the skin (or of a zone) over the last TREND_S seconds; nothing where too little is known."""
    recent = [(h.t, h.zones.get(of) if of else h.skin_c) for h in trail if h.t >= trail[-1].t - TREND_S]
    points = [(t, v) for t, v in recent if v is not None]
    if len(points) < 4 or points[-1][0] - points[0][0] < 3:
        return " "
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    slope = sum((t - mean_t) * (v - mean_v) for t, v in points) / spread * 60 if spread else 0.0
    return "↗" if slope > TREND_C_PER_MINUTE else "↘" if slope < -TREND_C_PER_MINUTE else "→"


def thresholds(facts: dict[str, Fact]) -> list[float | None]:
    """Skin thresholds by status (index 1 LIGHT …), None where a level has none; empty where unknown."""
    fact = facts.get("skin_thresholds_c")
    found: list[float | None] = []
    if fact is None or fact.value is None:
        return found
    for word in str(fact.value).strip("[]() ").split(","):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        found.append(None if math.isnan(value) else value)
    return found


def to_next_threshold(facts: dict[str, Fact], heat: Heat) -> str:
    """How far the skin is from the next status: `0.6 to LIGHT`."""
    if heat.skin_c is None:
        return ""
    for level, limit in enumerate(thresholds(facts)):
        if limit is not None and limit > heat.skin_c and level < len(STATUS_NAMES):
            return f"{limit - heat.skin_c:.1f} to {STATUS_NAMES[level]}"
    return ""


def resample(values: Sequence[float | None], count: int) -> list[float | None]:
    """About `count` values spread evenly over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def zone_rows(trail: Sequence[Heat], heat: Heat | None, width: int, *, old: bool = False) -> list[list[Part]]:
    """Thermal zones in columns, dies first, with bars and (unless `old`) trend; unreadable ones named at the end."""
    if heat is None or not heat.zones:
        return []
    readable = {n: v for n, v in heat.zones.items() if v is not None}
    silent = sorted(n for n, v in heat.zones.items() if v is None)
    names = sorted(readable, key=_die_rank)  # a fixed order: zones that change places cannot be followed
    hottest = hottest_die(heat.zones)
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
        names_text = ", ".join(texts.clean(n, 20) for n in silent[:4])
        rows.append([(f"{len(silent)} unreadable: {names_text}", "$text-muted")])
    return rows


def _die_rank(name: str) -> int:
    ranks = [i for i, die in enumerate(DIE_ZONES) if name.lower().startswith(die.lower())]
    return ranks[0] if ranks else len(DIE_ZONES)


def _battery_row(facts: dict[str, Fact]) -> list[Part]:
    def value(name: str, unit: str) -> str | None:
        fact = facts.get(name)
        return None if fact is None or fact.value is None else f"{texts.clean(fact.value, 16)}{unit}"

    seen = [value("battery_temperature_c", " °C"), value("battery_level_percent", " %"), value("charging", "")]
    words = [v for v in seen if v is not None]
    return ["battery " + "  ".join(words)] if words else []


def _clock_row(view: View) -> list[Part]:
    heat = view.state.heat
    if heat is None or not heat.clocks_khz:
        return []
    row: list[Part] = ["clocks were" if view.stale() else "clocks"]
    for name, (now, most) in heat.clocks_khz.items():
        text = f"{100 * now / most:.0f}%" if now is not None and most else f"{now // 1000}MHz" if now else "?"
        row.append(f" {texts.clean(name, 12).replace('policy', 'cpu')} {text}")
    return row


def _sampler_row(view: View) -> list[Part]:
    heat, trail = view.state.heat, view.trail
    if heat is None:
        return []
    span = trail[-1].t - trail[0].t if len(trail) > 1 else 0.0
    if view.stale() is not None:
        return [(f"{len(heat.zones)} zones · no samples now", "$text-muted")]
    rate = f"{(len(trail) - 1) / span:.1f} Hz" if span > 0 else "rate unknown"
    host = view.state.host
    load = f" · host {host.cpu_percent:.0f}%" if host is not None else ""
    return [(f"{len(heat.zones)} zones · {rate}{load}", "$text-muted")]


def fact_rows(facts: dict[str, Fact], width: int) -> list[list[Part]]:
    """Every fact with its source, or why it is not known."""
    rows: list[list[Part]] = []
    for name, fact in sorted(facts.items()):
        if fact.value is None:
            why = texts.clean(fact.reason) if fact.reason else "no reason recorded"
            rows.append([f"{texts.clean(name, 22):22} ", (f"{texts.UNKNOWN}: {why}", "$text-warning")])
        else:
            source = f"  ({texts.clean(fact.source)})" if fact.source else ""
            rows.append([f"{texts.clean(name, 22):22} ", texts.clean(fact.value, 60), (source, "$text-muted")])
    return rows
