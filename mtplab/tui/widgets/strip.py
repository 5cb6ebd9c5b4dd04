"""The results strip: the figures of the deployed configuration, their rounds, and where the head pays."""

from __future__ import annotations

from textual.content import Content

from mtplab.session.events import Figure
from mtplab.session.identity import TOKEN_RUNNER
from mtplab.session.record import DEPLOYED
from mtplab.session.state import ConfigurationView, LabState
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Painted

# (intervals, how many words, scenarios), the fullest first; the first that fits is shown.
FORMS = (
    (True, 2, True),
    (True, 1, True),
    (True, 2, False),
    (True, 1, False),
    (True, 0, False),
    (False, 2, True),
    (False, 1, True),
    (False, 1, False),
    (False, 0, False),
)
PAYS = {"pays": "$text-success", "breaks even": "$text-warning", "costs": "$text-error"}


class ResultsStrip(Painted):
    """TTFT, TPOT, throughput, α and γ, rounds, scenarios: one line, shortest form last."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return results_line(view, width)


def results_line(view: View, width: int) -> Content:
    """Intervals (95 %) give way last of all; before them go words, and scenarios, which the conclusion tells too."""
    state = view.state
    measured = state.configurations.get(DEPLOYED)
    if measured is None and any(c.figures for c in state.configurations.values()):
        return Content.assemble(*texts.fit_parts(_others(state), width))
    if measured is None or not measured.figures:
        return Content.assemble(*texts.fit_parts([" ", (_nothing(view, measured), "$text-muted")], width))
    for interval, words, scenarios in FORMS:
        parts = [
            *_setting(state, words),
            *_figures(measured.figures, state, interval, words),
            *_rounds(measured, words),
            *_beside(state, words),
            *(_scenarios(state) if scenarios else []),
        ]
        if texts.parts_len(parts) <= width:
            break
    return Content.assemble(*texts.fit_parts(parts, width))


def _setting(state: LabState, words: int) -> list[Part]:
    """`MTP on CPU`: what was measured, and on what where the policy says so."""
    backend = getattr(state.policy, "backend", None)
    where = f" on {texts.clean(backend, 12).upper()}" if backend else ""
    if state.policy is not None and state.policy.runtime != TOKEN_RUNNER:
        where += f" by {texts.clean(state.policy.runtime, 16)}"
    return [(f" MTP on{' ·' if where else ''}{where}" if words == 2 else f" MTP{where or ' on'}", "bold")]


def _beside(state: LabState, words: int) -> list[Part]:
    """That these are the figures of one configuration among several, where there is room to say so."""
    count = len(state.configurations)
    return [(f" · 1 of {count} configurations", "$text-muted")] if words == 2 and count > 2 else []


def _others(state: LabState) -> list[Part]:
    """A session of an experiment has no deployed configuration: none of its many is shown as if it were the one."""
    names = ", ".join(texts.clean(name, 24) for name, c in state.configurations.items() if c.figures)
    told = f" {len(state.configurations)} configurations measured (`mtplab show` tells all)"
    return [told, (f": {names}", "$text-muted")]


def _nothing(view: View, measured: ConfigurationView | None) -> str:
    rounds = len(measured.rounds) if measured is not None else 0
    if rounds:
        return f"{rounds} round{'' if rounds == 1 else 's'} measured so far; figures come when all are in"
    if view.state.running:
        return "no figures yet: they come from the stage `measure`"
    words = {
        "live": "no figures yet: r runs the pipeline",
        "connecting": "no figures yet",
        "absent": "no figures yet",
    }
    return words.get(view.phase, "no figures in this session")


def _figures(figures: dict[str, Figure], state: LabState, interval: bool, words: int) -> list[Part]:
    gamma = state.identity.gamma if state.identity.gamma is not None else state.policy.gamma if state.policy else None
    sep = " · " if words == 2 else "  "
    parts: list[Part] = [
        f"{sep}TTFT {texts.figure(figures.get('ttft_ms'), interval=interval)}",
        f"{sep}TPOT {texts.figure(figures.get('tpot_ms'), interval=interval)}",
        f"{sep}{_throughput(figures.get('tokens_per_s'))}",
        f"{sep}α {texts.figure(figures.get('alpha'), interval=interval, is_share=True)}",
        f" γ {gamma}" if gamma is not None else "",
    ]
    ttft = figures.get("ttft_ms")
    if ttft is not None and ttft.n:
        parts.insert(1, f" n {ttft.n}")
    missing = [n for n in ("ttft_ms", "tpot_ms", "tokens_per_s", "alpha") if _value(figures.get(n)) is None]
    if missing:
        first = figures.get(missing[0])
        why = texts.clean(first.reason, 60) if first is not None and first.reason else "not measured"
        parts.append((f" · INCOMPLETE: {missing[0]} {why}", "bold $text-warning"))
    return parts


def _value(fig: Figure | None) -> float | None:
    return fig.value if fig is not None else None


def _throughput(fig: Figure | None) -> str:
    return f"{texts.number(fig.value)} tok/s" if fig is not None and fig.value is not None else "– tok/s"


def _rounds(measured: ConfigurationView, words: int) -> list[Part]:
    marked = [r for r in measured.rounds if r.marks]
    total = len(measured.rounds)
    parts: list[Part] = [
        f"{' · ' if words == 2 else '  '}{total - len(marked)}/{total}{' rounds' if words == 2 else ''}"
    ]
    if not marked:
        return parts
    if not words:
        return [*parts, (f", {len(marked)} apart", "$text-warning")]
    why = ", ".join(sorted({texts.clean(m, 20) for r in marked for m in r.marks}))
    return [*parts, (f", {len(marked)} {why}{' (kept apart)' if words == 2 else ''}", "$text-warning")]


def _scenarios(state: LabState) -> list[Part]:
    if state.conclusion is None:
        return []
    groups: dict[str, list[str]] = {}
    for scenario in state.conclusion.scenarios:
        says = texts.clean(scenario.get("says") or texts.UNKNOWN, 16)
        groups.setdefault(says, []).append(texts.clean(scenario.get("class") or "?", 24))
    return [(f" · {says}: {', '.join(names)}", PAYS.get(says, "")) for says, names in groups.items()]
