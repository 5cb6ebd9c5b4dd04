"""Fixtures of the litert tests: the shared small model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def _load() -> Any:
    # Three rooms share one export; pytest's importlib mode gives their folders no common package.
    name = "mtplab_tests_specimen"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "litert" / "specimen.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def small() -> Any:
    return _load().specimen()
