"""The calibration set as plain text: what became of the rows, lengths beside production's, runs by signature."""

from __future__ import annotations

from mtplab.session.calibrated import Calibrated, Lengths, SetReport, distance_line
from mtplab.session.text import clean_text

_FULL, _EIGHTHS = "█", " ▏▎▍▌▋▊▉"
_LOST = (
    ("empty", "empty"),
    ("not_looked_at", "beyond the limit"),
    ("exact_duplicates", "repeat another"),
    ("near_duplicates", "nearly repeat another"),
    ("too_long", "too long"),
    ("not_chosen", "not needed"),
)


def calibration_lines(found: Calibrated, width: int = 100) -> list[str]:
    """Everything there is to say of a set and its ranges, in lines of at most `width` cells of clean text."""
    return [*set_lines(found.set, width), *range_lines(found)]


def set_lines(report: SetReport, width: int = 100) -> list[str]:
    """The set: counts, system prompt, histogram with distance, warnings."""
    counts = report.counts
    lost = [f"{getattr(counts, name)} {words}" for name, words in _LOST if getattr(counts, name)]
    names = ", ".join(f"{clean_text(one.name, 60)} ({one.prompts})" for one in report.sources)
    return [
        f"set {report.sha256[:12]} for {clean_text(report.model, 60)}: {counts.chosen} prompts of {counts.read} read",
        f"from {names or 'no file'}" + (f"; left out: {', '.join(lost)}" if lost else ""),
        _system(report),
        distance_line(report.lengths),
        *bar_lines(report.lengths, width),
        *[f"! {clean_text(one, 400)}" for one in report.warnings],
    ]


def _system(report: SetReport) -> str:
    system, template = report.system, report.template_sha256
    tokens = "" if system.tokens is None else f", {system.tokens} tokens"
    chat = "the model has no chat template" if template is None else f"chat template {template[:12]}"
    return f"system prompt {system.kind}{tokens}; {chat}"


def bar_lines(lengths: Lengths, width: int) -> list[str]:
    """One line a bucket: tokens, the set's share, production's share beside it."""
    pairs = list(zip(lengths.edges, lengths.edges[1:], strict=False))
    labels = [f"{low:.0f}–{high - 1:.0f}" for low, high in pairs]
    wide = max(map(len, labels))
    production = lengths.production
    columns = 1 if production is None else 2
    room = max(4, min(40, (width - wide - 2) // columns - 8))
    most = max([*lengths.chosen, *(production or [])]) or 1.0
    head = f"{'tokens':>{wide}}  {'set':<{room + 7}}" + (" production" if production is not None else "")
    rows = [head.rstrip()]
    for index, label in enumerate(labels):
        row = f"{label:>{wide}}  {_bar(lengths.chosen[index], most, room)}"
        if production is not None:
            row += f" {_bar(production[index], most, room)}"
        rows.append(row.rstrip())
    return rows


def _bar(share: float, most: float, room: int) -> str:
    """A share as a bar of eighths and a percentage, always `room` + 7 cells."""
    eighths = round(8 * room * max(0.0, share) / most)
    bar = _FULL * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    percent = f"{share:.1%}" if share > 0 else "–"
    return f"{bar:<{room}} {percent:>6}"


def range_lines(found: Calibrated) -> list[str]:
    """Runs of every signature; empty where no ranges were collected."""
    if found.statistics is None:
        return []
    lines = [f"ranges by {clean_text(found.ranges, 30).replace('_', ' ')}"]
    for graph, samples in found.statistics.samples.items():
        runs = ", ".join(f"{clean_text(name, 40)} {count}" for name, count in samples.items())
        tensors = found.statistics.tensors.get(graph)
        lines.append(f"{clean_text(graph, 20)}: {runs} runs; {tensors if tensors is not None else 'unknown'} ranges")
    if found.statistics.resumed_after:
        lines.append(f"went on after {found.statistics.resumed_after} prompts that an interrupted run had done")
    return lines
