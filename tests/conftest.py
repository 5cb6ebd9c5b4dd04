"""What several rooms' tests share: the small exported model, and one process for those who share something slow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Rooms whose tests share one export; every other file is a group of its own.
SHARED = {"e2e": "e2e", "litert": "graphs", "tokenrunner": "graphs", "pipeline": "graphs"}


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its group."""
    for item in items:
        file = item.path.relative_to(HERE)
        item.add_marker(pytest.mark.xdist_group(SHARED.get(file.parts[0], str(file))))


@pytest.fixture(scope="session")
def small() -> Any:
    """A small random-weight model with its exported graphs, made once."""
    folder = str(HERE / "litert")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from specimen import specimen

    return specimen()
