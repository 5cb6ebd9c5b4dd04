"""Every end of the program is a documented exit code, also where nobody reads its output or no disk takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FULL = Path("/dev/full")


def program(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "mtplab.cli", *arguments], check=False, **streams)


def unread_pipe() -> int:
    """The writing end of a pipe whose reader left."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("arguments", [["sessions"], ["sessions", "--json"], ["--help"]])
def test_a_reader_that_left_is_no_failure(home: Path, arguments: list[str]) -> None:
    pipe = unread_pipe()
    try:
        result = program(*arguments, stdout=pipe, stderr=subprocess.PIPE)
    finally:
        os.close(pipe)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    "arguments", [["sessions", "--json"], ["sessions"], ["calc", "--gamma", "3", "--alpha", ".4"]]
)
def test_a_full_disk_is_one_sentence_and_exit_code_4(home: Path, arguments: list[str]) -> None:
    with FULL.open("wb") as full:
        result = program(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 4
    assert len(result.stderr.splitlines()) == 1 and b"No space left" in result.stderr


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
def test_a_sentence_that_nobody_reads_keeps_its_exit_code(home: Path) -> None:
    pipe = unread_pipe()
    try:
        with FULL.open("wb") as full:
            assert program("sessions", stdout=full, stderr=pipe).returncode == 4
    finally:
        os.close(pipe)


def test_a_name_in_a_wrong_call_is_printed_harmless(home: Path) -> None:
    result = program("show", "a", "\x1b[31mx\u202e" + "y" * 5000, stderr=subprocess.PIPE)
    assert result.returncode == 1 and b"unexpected extra argument (xyyy" in result.stderr
    assert len(result.stderr) < 1100
