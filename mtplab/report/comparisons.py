"""Several configurations as tables: each beside plain decoding, adaptive lengths beside the best fixed one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplab.session.record import SessionRecord
from mtplab.session.text import clean_text

_HEAD = ("configuration", "class", "end to end", "decoding", "predicted", "c", "r", "hand-over", "says")
_GAIN_HEAD = ("policy", "class", "prompts", "best fixed", "adaptive", "gain on it", "says")


def comparison_lines(record: SessionRecord) -> list[str]:
    """The tables of a record; nothing where only one configuration drafts, which the scenarios tell already."""
    lines: list[str] = []
    if len(record.comparisons) > 1:
        rows = [row for comparison in record.comparisons for row in _rows(comparison)]
        title = "Configurations beside plain decoding (× faster, 95 % intervals; c a draft step, r a verification,"
        lines += [f"{title} hand-over a round: in plain steps)", *table([_HEAD, *rows]), ""]
    if record.adaptive:
        rows = [_gain(gain) for gain in record.adaptive if isinstance(gain, dict)]
        title = "Adaptive draft lengths beside the best fixed one, decoding as it ran"
        lines += [f"{title} (the best is chosen on the same prompts)", *table([_GAIN_HEAD, *rows]), ""]
    return lines


def _rows(comparison: dict[str, Any]) -> list[tuple[str, ...]]:
    exact = "" if comparison.get("exact") is not False else " OTHER TOKENS"
    found: list[tuple[str, ...]] = []
    for row in rows_of(comparison):
        told = row.get("predicted")
        predicted = told if isinstance(told, dict) else {}
        found.append(
            (
                clean_text(str(comparison.get("configuration")), 40),
                clean_text(str(row.get("class")), 24),
                times(row.get("speedup")),
                times(row.get("decode_speedup")),
                _number(predicted.get("speedup"), "×"),
                _number(predicted.get("draft_cost")),
                _number(predicted.get("verify_cost")),
                _number(predicted.get("handover"), digits=3),
                clean_text(str(row.get("says")), 16) + exact,
            )
        )
    return found


def rows_of(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a comparison; what a foreign session holds in their place is passed over."""
    rows = comparison.get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _gain(gain: dict[str, Any]) -> tuple[str, ...]:
    gamma = gain.get("fixed_gamma")
    fixed = "no drafting" if gamma == 0 else f"γ {gamma}"
    return (
        clean_text(str(gain.get("policy")), 30),
        clean_text(str(gain.get("class")), 24),
        str(gain.get("prompts")),
        f"{fixed} {times(gain.get('fixed_speedup'), interval=False)}",
        times(gain.get("adaptive_speedup"), interval=False),
        times(gain.get("gain")),
        clean_text(str(gain.get("says")), 16),
    )


def times(estimate: Any, *, interval: bool = True) -> str:
    """An estimate as `1.12× [1.05–1.20]`, or a dash."""
    if not isinstance(estimate, dict) or not isinstance(estimate.get("value"), int | float):
        return "–"
    low, high = estimate.get("low"), estimate.get("high")
    known = interval and isinstance(low, int | float) and isinstance(high, int | float)
    return f"{estimate['value']:.2f}×" + (f" [{low:.2f}–{high:.2f}]" if known else "")


def _number(value: Any, unit: str = "", digits: int = 2) -> str:
    return f"{value:.{digits}f}{unit}" if isinstance(value, int | float) else "–"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns, the first being the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [" " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
