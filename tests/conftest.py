"""Lets tests that share something slow to make run in one process when the suite is spread over several."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Rooms whose tests share one export; every other file is a group of its own.
SHARED = {"e2e": "e2e", "litert": "graphs", "tokenrunner": "graphs", "pipeline": "graphs"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its group."""
    for item in items:
        file = item.path.relative_to(HERE)
        item.add_marker(pytest.mark.xdist_group(SHARED.get(file.parts[0], str(file))))
