"""What the α/γ pane draws: the rows of an answer, what would be with other lengths and threads, and the curve."""

from __future__ import annotations

from textual.content import Content

from mtplab.session.events import Figure
from mtplab.tui import plot, texts
from mtplab.tui.reckoning import Numbers, Origin, Reckoned
from mtplab.tui.texts import Part
from mtplab.tui.widgets.pane import flowed, wrapped

VERDICT_STYLES = {"pays": "bold $text-success", "costs": "bold $text-error"}
# Of numbers that nobody measured one may say what would be, never what is.
WOULD = {"pays": "would pay", "costs": "would cost", "breaks even": "would break even"}
WIDE = 60


def answer_rows(
    numbers: Numbers,
    reckoned: Reckoned,
    hint: str,
    width: int,
    timed: Figure | None = None,
    origin: Origin = "session",
) -> list[list[Part]]:
    """α with its ratio, τ, costs, speedup, best γ and break-even; of a typed α also its other reading.

    `timed` is the session's measured decode speedup, set beside the computed S.
    """
    answer = reckoned.answer
    measured = origin == "session" and numbers.counts is not None
    # Only what was measured may look like a finding.
    style = VERDICT_STYLES.get(answer.verdict, "bold $text-warning") if measured else "bold"
    alpha, gain = answer.alpha, answer.speedup_interval
    counted = f" n {alpha.n}" if alpha.n else ""
    value = f"{alpha.value:.2f}{_between(alpha.low, alpha.high)}{counted}" if alpha.value is not None else "unknown"
    rows: list[list[Part]] = [
        *_hint_rows(hint, width),
        [("α ", "bold"), value, f"  γ {answer.gamma}"],
        *flowed(_round_pieces(numbers, reckoned), width),
        *flowed([*_cost_pieces(numbers, reckoned), f"K {answer.round_cost:.2f}"], width, between=" "),
        [("S ", "bold"), (f"{answer.speedup:.2f}×{_between(gain.low, gain.high)} {_says(reckoned, origin)}", style)],
        *_timed_rows(timed, width),
        *flowed(_best_pieces(numbers, reckoned, width), width),
    ]
    return rows + _reading_rows(reckoned, width)


def _says(reckoned: Reckoned, origin: Origin) -> str:
    """The verdict in the words that its origin allows."""
    verdict = reckoned.answer.verdict
    return {"session": verdict, "hand": WOULD.get(verdict, verdict)}.get(origin, "for these example numbers")


def _between(low: float | None, high: float | None) -> str:
    return f" [{low:.2f}–{high:.2f}]" if low is not None and high is not None else ""


def _round_pieces(numbers: Numbers, reckoned: Reckoned) -> list[str]:
    answer = reckoned.answer
    rounds = [f"{sum(numbers.counts)} rounds"] if numbers.counts else []
    ratio = f"accepted÷drafted {answer.accepted_per_round / answer.gamma:.2f}"
    # Of a typed α the ratio has a row of its own, with the question which of both was meant.
    return [f"τ {answer.expected_tokens:.2f} tokens/round", *rounds, *([ratio] if answer.readings is None else [])]


def _cost_pieces(numbers: Numbers, reckoned: Reckoned) -> list[str]:
    cost, gamma = reckoned.answer.cost, reckoned.answer.gamma
    over = [f"o {cost.overhead:.2g}"] if cost.overhead else []
    on = [f"on {numbers.threads} threads"] if numbers.costs_measured and len(reckoned.what_if) > 1 else []
    drafted, verified = cost.draft_cost(gamma) / gamma, cost.verify_cost(gamma + 1)
    return [f"c {drafted:.3g}", f"r({gamma + 1}) {verified:.3g}", *over, *on]


def _best_pieces(numbers: Numbers, reckoned: Reckoned, width: int) -> list[str]:
    """The best of the lengths that can be had, and where drafting breaks even."""
    answer = reckoned.answer
    edge = f"{answer.break_even_alpha:.2f}" if answer.break_even_alpha is not None else "never"
    best = f"{answer.best_gamma} {answer.best_speedup:.2f}×" if answer.best_gamma else "0: do not draft"
    among = numbers.exported or (tuple(range(1, len(numbers.counts))) if numbers.counts is not None else ())
    within = beyond = ""
    if among:
        whole = among == tuple(range(1, among[-1] + 1))
        within = f"≤{among[-1]}:" if whole else f" of {','.join(map(str, among))}:"
        why = "exported" if numbers.exported else "recorded"
        beyond = f" (longer: not {why})" if width >= WIDE else ""
    return [f"best γ{within} {best}{beyond}", f"break-even α {edge}"]


def _reading_rows(reckoned: Reckoned, width: int) -> list[list[Part]]:
    """What a typed α means read as accepted ÷ drafted: always told, loudly where the verdict hangs on it."""
    answer = reckoned.answer
    if answer.readings is None:
        return []
    other, entered = answer.readings["as_ratio"], answer.alpha.value
    differs = f"{other.speedup:.2f}" != f"{answer.speedup:.2f}"
    changed = f", not {answer.speedup:.2f}×: which is it?" if differs else ""
    said = WOULD.get(other.verdict, other.verdict)
    return wrapped(
        f"? {entered:.3g} read as accepted÷drafted: α {other.alpha:.2f}, τ {other.expected_tokens:.2f}, "
        f"S {other.speedup:.2f}× {said}{changed}",
        width,
        "bold $text-warning" if other.verdict != answer.verdict else "$text-warning",
    )


def _hint_rows(hint: str, width: int) -> list[list[Part]]:
    """What it was made of; the key gives way where there is no room."""
    return wrapped(hint if len(hint) <= width else hint.partition(" · ")[0], width, "$text-muted")


def _timed_rows(timed: Figure | None, width: int) -> list[list[Part]]:
    if timed is None or timed.value is None:
        return []
    return flowed(
        ["measured decode", f"{timed.value:.2f}×{_between(timed.low, timed.high)}"], width, "bold", between=" "
    )


def what_if_rows(reckoned: Reckoned, width: int) -> list[list[Part]]:
    """The measured draft lengths on every thread count that costs were measured on."""
    rows: list[list[Part]] = []
    for one in reckoned.what_if:
        plain = [f"plain {1000 / one.plain_step_ms:.0f} tok/s"] if one.plain_step_ms else []
        named = f"{one.threads} thread{'' if one.threads == 1 else 's'}"
        rows += flowed([named, *(f"γ{g} {s:.2f}×" for g, s in one.speedups), *plain], width)
    return rows


def class_rows(reckoned: Reckoned, width: int) -> list[list[Part]]:
    """Each prompt class by its own P_k: a mixed load has no one α."""
    return flowed(
        [
            f"{texts.clean(one.name, 24)} {one.speedup:.2f}× "
            + (f"(best γ {one.best_gamma})" if one.best_gamma else "(do not draft)")
            for one in reckoned.answer.classes
        ],
        width,
    )


def note_rows(reckoned: Reckoned, width: int) -> list[list[Part]]:
    """What the answer rests on and where it stops holding; the question of the ratio has rows of its own."""
    answer = reckoned.answer
    told = [w for w in answer.warnings if "was taken as α" not in w]
    rows = [row for text in told for row in wrapped(f"! {texts.clean(text)}", width, "$text-warning")]
    notes = [*reckoned.cost_notes, *answer.notes]
    return rows + [row for text in notes for row in wrapped(texts.clean(text), width, "$text-muted")]


def curve_content(
    numbers: Numbers,
    reckoned: Reckoned,
    width: int,
    height: int,
    colour: plot.Rgb | None,
    muted: plot.Rgb | None = None,
) -> Content:
    """Speedup over γ with its interval, the break-even line (─), the current γ (●) and the best one (◆).

    Behind what was recorded there are only dots; lengths that were not exported stand in brackets on the axis.
    """
    points = reckoned.curve
    if not points:
        return Content("")
    best = reckoned.answer.best_gamma
    ends = [s for p in points for s in (p.speedup, p.low, p.high) if s is not None]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    margin = (high - low) * 0.08
    seen, guessed = [p for p in points if p.seen], [p for p in points if not p.seen]
    banded = [p for p in seen if p.low is not None and p.high is not None]
    now = [p for p in points if p.gamma == numbers.gamma]
    other = [p for p in points if p.gamma == best != numbers.gamma]
    gammas = [p.gamma for p in points]
    edge = [min(gammas[0], 1), max(gammas[-1], 2)]
    series = [
        plot.Series(x=edge, y=[1.0, 1.0], marker="─"),
        plot.Series(x=[p.gamma for p in banded], y=[p.low or 0.0 for p in banded], colour=muted),
        plot.Series(x=[p.gamma for p in banded], y=[p.high or 0.0 for p in banded], colour=muted),
        plot.Series(x=[p.gamma for p in seen], y=[p.speedup for p in seen], colour=colour),
        plot.Series(x=[p.gamma for p in guessed], y=[p.speedup for p in guessed], marker="·", connect=False),
        plot.Series(x=[p.gamma for p in other], y=[p.speedup for p in other], marker="◆", connect=False),
        plot.Series(x=[p.gamma for p in now], y=[p.speedup for p in now], marker="●", connect=False),
    ]
    ticks = sorted({round(low, 2), 1.0, round(high, 2)})
    return plot.draw(
        series,
        plot.Axis(low=edge[0], high=edge[1], ticks=gammas, labels=[_tick(g, numbers.exported) for g in gammas]),
        plot.Axis(low=low - margin, high=high + margin, ticks=ticks, labels=[f"{t:.2f}×" for t in ticks]),
        width,
        height,
    )


def _tick(gamma: int, exported: tuple[int, ...]) -> str:
    name = f"γ{gamma}" if gamma == 1 else str(gamma)
    return f"({name})" if exported and gamma not in exported else name
