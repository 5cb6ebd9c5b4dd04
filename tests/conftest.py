"""What the tests of several rooms share: the small exported model, and graphs written by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# Every run tries the same examples, however busy; `pytest --hypothesis-profile explore` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def small() -> Any:
    """A small random-weight model with its exported graphs, made once."""
    folder = str(HERE / "litert")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from specimen import specimen

    return specimen()


@pytest.fixture(scope="session")
def lm_bundle(small: Any) -> Any:
    """The small model as a bundle for LiteRT-LM, made once."""
    from specimen import lm_bundle

    return lm_bundle()


@pytest.fixture(scope="session")
def tiny_tflite() -> Callable[[dict[str, list[str]]], bytes]:
    """Makes a .tflite file of a few operations; see tiny_graph.py."""
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    from tiny_graph import tflite

    return tflite


MATRIX_HEAD = ["scenario", "operation", "outcome", "exit", "the session kept", "sentence"]
MATRIX_SENTENCE = 100


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the fault matrix that tests/engine/test_fault_matrix.py found; MTPLAB_FAULT_MATRIX names a file for it.

    Here and not there: only this file is loaded in a process that hands its tests to others.
    """
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = sorted(row for report in reports for key, row in report.user_properties if key == "fault_matrix")
    if not rows:
        return
    if os.environ.get("MTPLAB_FAULT_MATRIX"):
        Path(os.environ["MTPLAB_FAULT_MATRIX"]).write_text(matrix(rows) + "\n", encoding="utf-8")
    terminalreporter.section("fault matrix")
    terminalreporter.write_line(matrix([[*row[:-1], shortened(row[-1])] for row in rows]))


def shortened(sentence: str) -> str:
    """As much of a sentence as a line of the table takes."""
    return sentence if len(sentence) <= MATRIX_SENTENCE else sentence[:MATRIX_SENTENCE] + "…"


def matrix(rows: list[list[str]]) -> str:
    """Rows as plain text in columns; a scenario is named once."""
    order = ("facts", "sample", "push", "bench", "cancel")
    rows = sorted(rows, key=lambda row: (row[0], order.index(row[1])))
    told = [["" if i and row[0] == rows[i - 1][0] else row[0], *row[1:]] for i, row in enumerate(rows)]
    lines = [MATRIX_HEAD, *told]
    widths = [max(len(line[i]) for line in lines) for i in range(len(MATRIX_HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
