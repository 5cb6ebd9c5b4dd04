"""What the tests of several rooms share: the small exported model."""

from __future__ import annotations

import sys
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
