"""What the tests of several rooms share: the small exported model, and graphs written by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def small() -> Any:
    """A small random-weight model with its exported graphs, made once."""
    folder = str(HERE / "litert")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from specimen import specimen

    return specimen()


@pytest.fixture(scope="session")
def tiny_tflite() -> Callable[[dict[str, list[str]]], bytes]:
    """Makes a .tflite file of a few operations; see tiny_graph.py."""
    pytest.importorskip("flatbuffers")
    pytest.importorskip("ai_edge_litert")
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    from tiny_graph import tflite

    return tflite
