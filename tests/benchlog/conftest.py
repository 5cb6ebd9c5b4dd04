"""The captured logs, and the small ways in which the same log reaches a reader differently."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import Reading
from mtplab.benchlog.rules import Rules

FOLDER = Path(__file__).parents[1] / "data" / "benchlogs"
DIALECTS_FOLDER = FOLDER.with_name("benchlogs-dialects")
STDERR = re.compile(r"(?:VERBOSE|WARNING|ERROR): |INFO: (?:Created|Initialized (?:TensorFlow|OpenCL)|Replacing)")


class Sample(NamedTuple):
    """One captured log and what it says, by the people who captured it."""

    name: str
    lines: list[str]
    expected: dict[str, Any]

    @property
    def path(self) -> Path:
        """Where the log lies."""
        return FOLDER / f"{self.name}.txt"


def load_samples(folder: Path) -> list[Sample]:
    """All logs of a folder."""
    samples = []
    for path in sorted(folder.glob("*.json")):
        text = path.with_suffix(".txt").read_text(encoding="utf-8")
        samples.append(Sample(path.stem, text.removesuffix("\n").split("\n"), json.loads(path.read_text("utf-8"))))
    return samples


SAMPLES = load_samples(FOLDER)
# Short logs in the dialects that the captured ones do not show: written after the programs' sources and outputs.
DIALECTS = load_samples(DIALECTS_FOLDER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `sample` runs once for each captured log, one that takes `dialect` for each written one."""
    for name, logs in (("sample", SAMPLES), ("dialect", DIALECTS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, logs, ids=[log.name[:24] for log in logs])


def _read(lines: list[str], requested: str | None = None, rules: Rules | None = None) -> Reading:
    reader = LogReader(requested, rules)
    for line in lines:
        reader.feed(line)
    return reader.finish()


def _differences(reading: Reading, expected: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> (wanted, got), for every field that the expectation says. The reason is prose and is not compared."""
    wanted = {k: v for k, v in expected.items() if k not in ("form", "device", "verdict_confidence", "reason", "llm")}
    found = {k: getattr(reading, k) for k in wanted}
    if "op_profile" in wanted:
        found["op_profile"] = [list(msgspec.structs.astuple(row)) for row in reading.op_profile]
    for key, value in expected.get("llm", {}).items():
        wanted[f"llm.{key}"], found[f"llm.{key}"] = value, getattr(reading.llm, key)
    return {k: (wanted[k], found[k]) for k in wanted if wanted[k] != found[k]}


@pytest.fixture
def read() -> Any:
    """Reads lines to the end."""
    return _read


@pytest.fixture
def differences() -> Any:
    """Compares a reading with what a sample's file says."""
    return _differences


@pytest.fixture(scope="session")
def samples() -> list[Sample]:
    """All captured logs."""
    return SAMPLES


@pytest.fixture
def swapped() -> Any:
    """The lines with what the runtime prints to stderr moved before the tool's stdout, or behind it."""

    def swap(lines: list[str], stderr_first: bool) -> list[str]:
        err = [line for line in lines if STDERR.match(line)]
        out = [line for line in lines if not STDERR.match(line)]
        return err + out if stderr_first else out + err

    return swap


@pytest.fixture(scope="session")
def dialects() -> list[Sample]:
    """All written logs."""
    return DIALECTS
