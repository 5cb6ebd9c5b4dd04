"""Logs in files and streams: reading them without loading them, and the shapes that scripts and people get."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .compose import EXIT_CODES, EXIT_ORDER
from .lines import HALF_LIMIT, strip_controls
from .reader import LogReader
from .reading import Figure, Reading

CHUNK_BYTES = 1 << 16
CONTRACT = (
    "tool",
    "requested",
    "verdict",
    "delegated_nodes",
    "total_nodes",
    "partitions",
    "init_us",
    "first_us",
    "inference_avg_us",
    "reason",
    "findings",
    "evidence",
    "complete",
)
GLYPHS = {
    "full_delegate": "✓",
    "cpu_baseline": "=",
    "partial": "◐",
    "backend_downgrade": "↓",
    "fallback_cpu": "✗",
    "failed": "✗",
    "crash": "‼",
    "unknown": "?",
}


def read_log(
    source: str | Path | BinaryIO,
    requested: str | None = None,
    on_verdict: Callable[[Reading], None] | None = None,
) -> Reading:
    """The reading of a file or of a binary stream, which is never held in memory as a whole.

    With `on_verdict` the provisional reading is handed over each time that its verdict or reason changes.
    """
    if isinstance(source, (str, Path)):
        with Path(source).open("rb") as stream:
            return read_log(stream, requested, on_verdict)
    reader = LogReader(requested)
    shown: tuple[str, str | None] = ("unknown", None)
    figures: set[str] = set()
    for text in whole_lines(source):
        for added in reader.scan(text):
            events = [e for e in added if not isinstance(e, Figure) or e.name not in figures]
            figures.update(e.name for e in events if isinstance(e, Figure))
            if on_verdict and events:  # a figure that was there before changes no verdict
                now = reader.verdict()
                if now.verdict != "unknown" and (now.verdict, now.reason) != shown:
                    shown = (now.verdict, now.reason)
                    on_verdict(now)
    return reader.finish()


def whole_lines(stream: BinaryIO) -> Iterator[str]:
    """The stream's text in pieces that end with a line's end; of a line without end only the two ends are kept."""
    read = getattr(stream, "read1", stream.read)  # read1 gives what a pipe has, without waiting for more
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    while data := read(CHUNK_BYTES):
        decoder = decoder or _decoder_for(data)
        rest += decoder.decode(data)
        cut = rest.rfind("\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        if len(rest) > 4 * HALF_LIMIT:
            rest = rest[:HALF_LIMIT] + "…" + rest[-2 * HALF_LIMIT :]
    rest += decoder.decode(b"", final=True) if decoder else ""
    if rest:
        yield rest


def _decoder_for(head: bytes) -> codecs.IncrementalDecoder:
    """UTF-8, or UTF-16 behind its mark (what PowerShell's `>` writes); bad bytes are replaced."""
    wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return codecs.getincrementaldecoder("utf-16" if wide else "utf-8")(errors="replace")


def contract(reading: Reading, file: str) -> dict[str, Any]:
    """The JSON object of `mtplab log` for one file."""
    values = msgspec.to_builtins(reading)
    return {"file": strip_controls(file), **{key: values[key] for key in CONTRACT}}


def exit_code_of(verdicts: Iterable[str]) -> int:
    """The exit code for these verdicts: of several the first in the order 4, 3, 5, 0."""
    codes = {EXIT_CODES[verdict] for verdict in verdicts}
    return next((code for code in EXIT_ORDER if code in codes), 0)


def table(readings: Sequence[tuple[str, Reading]]) -> str:
    """Readings by file name as plain text: glyph and word for the verdict, figures, and the reason below."""
    rows: list[tuple[str, ...]] = [("", "verdict", "requested", "nodes", "avg", "runs", "file")]
    rows += [_row(strip_controls(name), reading) for name, reading in readings]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for place, row in enumerate(rows):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if place:
            lines += [f"     {note}" for note in _notes(readings[place - 1][1])]
    return "\n".join(lines)


def _row(name: str, reading: Reading) -> tuple[str, ...]:
    taken, total = reading.delegated_nodes, reading.total_nodes
    nodes = "–" if taken is None else f"{taken}/{'?' if total is None else total}"
    average = "–" if reading.inference_avg_us is None else f"{reading.inference_avg_us / 1000:.2f} ms"
    if average == "–" and reading.llm and reading.llm.decode_tok_s is not None:
        average = f"{reading.llm.decode_tok_s:.2f} tok/s"  # a conversation is not timed by inferences
    runs = "–" if reading.inference_runs is None else str(reading.inference_runs)
    return (GLYPHS[reading.verdict], reading.verdict, reading.requested or "–", nodes, average, runs, name)


def _notes(reading: Reading) -> Iterator[str]:
    if reading.reason:
        yield f"because: {reading.reason}"
    if reading.cure:
        yield f"to do: {reading.cure}"
    for proof in reading.evidence[:1]:
        yield f"line {proof.line}: {proof.text}"
    for finding in reading.findings:
        yield f"note: {finding.text}"
    if not reading.complete:
        yield "the log is not complete: it is judged on what it proves"
