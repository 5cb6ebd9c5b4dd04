"""Words, glyphs and small drawings shared by the panes; every text of foreign origin passes `clean` here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from mtplab.session.events import Figure
from mtplab.session.state import GOOD_VERDICTS, Judged, standing
from mtplab.session.text import clean_text

Part = str | tuple[str, str]
UNKNOWN = "unknown"
SPARK_LIMIT = 1e12
BARS = "▁▂▃▄▅▆▇█"

# Verdict → (glyph, word, style). "unknown" is as loud as a failure: silence must never look like success.
VERDICTS: dict[str, tuple[str, str, str]] = {
    "full_delegate": ("✓", "FULL", "bold $text-success"),
    "cpu_baseline": ("✓", "CPU BASELINE", "bold $text-primary"),
    "partial": ("◐", "PARTIAL", "bold $loud-text on $loud-warning"),
    "backend_downgrade": ("▼", "DOWNGRADED", "bold $loud-text on $loud-warning"),
    "fallback_cpu": ("✗", "FALLBACK TO CPU", "bold $loud-text on $loud-error"),
    "failed": ("✗", "FAILED", "bold $loud-text on $loud-error"),
    "crash": ("✗", "CRASHED", "bold $loud-text on $loud-error"),
    "unknown": ("?", "UNKNOWN", "bold $loud-text on $loud-unknown"),
}
# Worst first, as the exit codes rank them: failed, then not as requested, then unknown.
SEVERITY = ("crash", "failed", "fallback_cpu", "partial", "backend_downgrade", "unknown", "full_delegate",
            "cpu_baseline")  # fmt: skip
STAGES: dict[str, tuple[str, str]] = {
    "pending": ("·", "$text-muted"),
    "running": ("▶", "bold $text-accent"),
    "done": ("✓", "$text-success"),
    "cached": ("≡", "$text-success"),
    "failed": ("✗", "bold $loud-text on $loud-error"),
    "cancelled": ("■", "bold $text-warning"),
    "skipped": ("–", "$text-muted"),
}


def clean(text: object, limit: int = 400) -> str:
    """Text from a phone, a log or a file as one harmless line."""
    return clean_text(str(text), limit).replace("\t", " ")


def verdict_look(verdict: str) -> tuple[str, str, str]:
    """(glyph, word, style) of a verdict; a word this program does not know is as loud as `unknown`."""
    if verdict in VERDICTS:
        return VERDICTS[verdict]
    glyph, _, style = VERDICTS["unknown"]
    return glyph, clean(verdict, 24).upper() or "UNKNOWN", style


def worst(verdicts: Iterable[str]) -> str | None:
    """The worst of some verdicts, None of none."""
    known = sorted(verdicts, key=lambda v: SEVERITY.index(v) if v in SEVERITY else SEVERITY.index("unknown"))
    return known[0] if known else None


def summed(verdicts: Iterable[Judged], stages: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Look of the worst verdict; a good one is unknown so far where a stage `bench` (name, status) is unfinished."""
    bad = worst(standing(v) for v in verdicts)
    if bad is None:
        return None
    unfinished = any(name == "bench" and status not in ("done", "cached") for name, status in stages)
    if bad not in GOOD_VERDICTS or not unfinished:
        return verdict_look(bad)
    glyph, word, style = VERDICTS["unknown"]
    return glyph, f"{word} so far", style


def clock(seconds: float, *, milli: bool = False) -> str:
    """Seconds as hh:mm:ss, with milliseconds where asked; dashes for what is no time."""
    if not math.isfinite(seconds):
        return "--:--:--"
    seconds = max(0.0, seconds)
    text = f"{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
    return f"{text}.{int(seconds * 1000) % 1000:03}" if milli else text


def duration(seconds: float | None) -> str:
    """A stage's seconds, short; nothing where unknown."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    return f"{seconds:.1f} s" if seconds < 100 else f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def ago(seconds: float | None) -> str:
    """How old something is: `6 s ago`."""
    if seconds is None or not math.isfinite(seconds):
        return "at an unknown time"
    return f"{int(seconds)} s ago" if seconds < 100 else f"{duration(seconds)} ago"


def number(value: float, digits: int = 3) -> str:
    """A number with about `digits` significant ones, never in exponent form."""
    magnitude = abs(value)
    places = digits - 1 if magnitude < 10 else digits - 2 if magnitude < 100 else 0
    return f"{value:,.{max(0, places)}f}"


def share(value: float) -> str:
    """A number in 0..1 to two places: 0.45."""
    return f"{value:.2f}"


def figure(fig: Figure | None, *, interval: bool = True, is_share: bool = False) -> str:
    """A figure with its interval, or a dash where it could not be had (the reason stands elsewhere)."""
    if fig is None or fig.value is None:
        return "–"
    show = share if is_share else number
    unit = f" {clean(fig.unit, 12)}" if fig.unit and not is_share else ""
    if not interval or fig.low is None or fig.high is None:
        return show(fig.value) + unit
    return f"{show(fig.value)}{unit} [{show(fig.low)}–{show(fig.high)}]"


def spark(values: Sequence[float | None], width: int, floor_span: float = 4.0) -> str:
    """The last `width` values as bars over their own range, which is never taken narrower than `floor_span`.

    A value that nothing can have been (beyond SPARK_LIMIT) is drawn as unknown.
    """
    tail = [v if v is not None and abs(v) <= SPARK_LIMIT else None for v in list(values)[-width:]]
    known = [v for v in tail if v is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = max(high - low, floor_span)
    return "".join(" " if v is None else BARS[min(7, int((v - low) / span * 7.99))] for v in tail)


def bar(done: float, total: float | None, width: int) -> str:
    """A progress bar; of unknown total only dots."""
    if not total or total <= 0:
        return "·" * width
    full = round(min(max(done / total, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def fit(text: str, width: int) -> str:
    """Text cut to `width` cells, with … where something was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Text cut or filled to exactly `width` cells."""
    return set_cell_size(fit(text, width), width)


def parts_len(parts: Iterable[Part]) -> int:
    """Cells that some parts take."""
    return sum(cell_len(p if isinstance(p, str) else p[0]) for p in parts)


def fit_parts(parts: Sequence[Part], width: int) -> list[Part]:
    """Styled parts cut to `width` cells in all."""
    kept: list[Part] = []
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        room = width - parts_len(kept)
        if room <= 0:
            break
        kept.append((fit(text, room), style))
        if cell_len(text) > room:
            break
    return kept


def left_right(left: Sequence[Part], right: Sequence[Part], width: int) -> Content:
    """One line: `left` flush left (cut where needed), `right` flush right (always whole where it fits)."""
    room = max(0, width - parts_len(right) - 1)
    kept = fit_parts(left, room)
    gap = " " * max(1, width - parts_len(kept) - parts_len(right))
    return Content.assemble(*fit_parts([*kept, gap, *right], width))


def lines(rows: Sequence[Sequence[Part]], width: int, height: int | None = None) -> Content:
    """Rows of parts as one content, each cut to `width`, at most `height` of them."""
    kept = rows if height is None else rows[: max(0, height)]
    return Content("\n").join([Content.assemble(*fit_parts(row, width)) for row in kept])
