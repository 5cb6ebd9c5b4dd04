"""The header line: which phone and policy stand behind every figure, and how the lab stands to them."""

from __future__ import annotations

from textual.content import Content

from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.device import arrow, status_word
from mtplab.tui.widgets.pane import Painted

SIMULATED: Part = (" SIMULATED ", "bold $loud-text on $loud-unknown")


class HeaderLine(Painted):
    """Device · Android · AICore · recipe · γ · T, the mode, SIMULATED and the clock, in one line."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return header_line(view, width)


def header_line(view: View, width: int) -> Content:
    """The fullest form that fits: AICore's version goes first, then the temperature, then the program's name."""
    forms = _forms(view)
    right = _right(view, aged=True)
    if texts.parts_len(forms[-1]) + texts.parts_len(right) + 2 > width:
        right = _right(view, aged=False)
    for parts in forms:
        if texts.parts_len(parts) + texts.parts_len(right) + 2 <= width:
            break
    return texts.left_right(parts, right, width)


def _forms(view: View) -> list[list[Part]]:
    identity, policy = view.state.identity, view.state.policy
    model = texts.clean(identity.device_model, 30) if identity.device_model else "no phone known"
    system = texts.clean(identity.os_version, 16).removeprefix("Android ") if identity.os_version else "?"
    aicore = texts.clean(identity.aicore_version, 32) if identity.aicore_version else "?"
    quantisation = identity.quantisation or (view.state.run.recipe if view.state.run else None)
    recipe = f" · {texts.clean(quantisation, 26)}" if quantisation else ""
    gamma = identity.gamma if identity.gamma is not None else policy.gamma if policy else None
    draft = f" · γ {gamma}" if gamma is not None else ""
    temperature = identity.temperature if identity.temperature is not None else policy.temperature if policy else None
    heat = f" · T {temperature:g}" if temperature is not None else ""
    name: Part = (" mtplab  ", "bold $text-accent")
    if identity.device_model is None:
        return [[name, ("no phone seen yet", "$text-muted")]]
    long: Part = f" · Android {system} · AICore {aicore}{recipe}{draft}{heat}"
    whole = texts.clean(identity.aicore_version or "?", 200)
    mark = f"{whole[:6]}…{whole[-5:]}" if len(whole) > 13 else whole
    middle: Part = f" · Android {system} · AICore {mark}{recipe}{draft}{heat}"
    short: Part = f" · A{system}{draft}{recipe}"
    shorter: Part = f" · A{system}{draft}"
    bold: Part = (model, "bold")
    skin = _skin(view)
    return [
        [name, bold, long],
        [name, bold, middle],
        [" ", bold, short, *skin],
        [" ", bold, shorter, *skin],
        [" ", bold, *skin],
    ]


def _skin(view: View) -> list[Part]:
    heat = view.state.heat
    if heat is None or heat.skin_c is None or view.stale() is not None:
        return []
    word, style = status_word(heat.status)
    return [f"  skin {heat.skin_c:.1f} {arrow(view.state.skin_trend)} ", (word, style)]


def _last_skin(view: View) -> str:
    heat = view.state.heat
    if heat is None or heat.skin_c is None:
        return ""
    return f"· skin {heat.skin_c:.1f} °C {texts.ago(view.heat_age_s())} "


def _right(view: View, *, aged: bool) -> list[Part]:
    """Modes and clock; with `aged` what the phone said last stands beside the reason why it is old."""
    parts: list[Part] = []
    old = _last_skin(view) if aged else ""
    if view.phase == "replay":
        parts.append((" RECORD ONLY " if view.record_only else " REPLAY ", "bold $loud-text on $loud-replay"))
    if view.phase == "ended":
        parts.append((f" ENGINE ENDED {old}", "bold $loud-text on $loud-error"))
    if view.phase == "absent":
        parts.append((" NO ENGINE ", "bold $loud-text on $loud-warning"))
    if view.state.link == "lost" and view.phase in ("live", "replay"):
        parts.append((f" LINK LOST {old}", "bold $loud-text on $loud-error"))
    if view.paused:
        parts.append((" PAUSED ", "bold $loud-text on $loud-warning"))
    if view.behind:
        parts.append((" reading … ", "$text-warning"))
    if view.state.identity.simulated:
        parts.append(SIMULATED)
    return [*parts, f" {texts.clock(view.state.elapsed_s)} "]
