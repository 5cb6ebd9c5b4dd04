"""What `mtplab log` ends with where a log, a pipe or a name is not whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from mtplab.benchlog.command import log_command
from mtplab.benchlog.compose import counted

TOOK_ALL = "Replacing 559 out of 559 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 1 partitions."
AVERAGE = "Inference timings in us: Init: 1000, First inference: 20, Warmup (avg): 21, Inference (avg): 22.5"


def program(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "mtplab.cli", "log", *arguments]
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, **streams)


def test_a_delegate_that_was_never_seen_to_run_is_no_success(read: Any) -> None:
    reading = read([TOOK_ALL])
    assert (reading.verdict, reading.complete, counted(reading)) == ("full_delegate", False, "unknown")
    assert [f.rule for f in reading.findings] == ["cut-before-inference"]
    result = CliRunner().invoke(log_command, ["-"], input=TOOK_ALL + "\n")
    assert result.exit_code == 5
    assert "full_delegate" in result.stdout and "nothing shows that it ever ran" in result.stdout


def test_one_figure_is_enough_to_have_seen_it_run(read: Any) -> None:
    reading = read([TOOK_ALL, AVERAGE])
    assert not reading.complete and counted(reading) == "full_delegate" and not reading.findings


def test_bad_news_needs_no_inference(read: Any) -> None:
    partial = read([TOOK_ALL.replace("559 out", "5 out")])
    assert (partial.verdict, counted(partial)) == ("partial", "partial")


def test_every_captured_log_counts_as_its_verdict_unless_it_is_cut(sample: Any, read: Any) -> None:
    reading = read(sample.lines)
    cut = any(f.rule == "cut-before-inference" for f in reading.findings)
    assert counted(reading) == ("unknown" if cut else sample.expected["verdict"])
    assert not (cut and (reading.complete or reading.inference_avg_us))


@pytest.mark.parametrize("five", ["\u0665", "\uff15", "\u096b"])
def test_only_ascii_digits_are_numbers(read: Any, five: str) -> None:
    assert read([TOOK_ALL.replace("5", five)]).verdict == "unknown"


def test_a_closed_input_is_one_sentence() -> None:
    command = f'exec "{sys.executable}" -m mtplab.cli log - <&-'
    result = subprocess.run(["sh", "-c", command], check=False, capture_output=True)
    assert (result.returncode, result.stdout) == (1, b"")
    assert len(result.stderr.splitlines()) == 1 and b"standard input is closed" in result.stderr


def test_the_verdict_is_told_though_nobody_reads_stderr(samples: Any) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = program("--json", "-", input=samples[0].path.read_bytes(), stderr=writing)
    finally:
        os.close(writing)
    assert json.loads(result.stdout)["verdict"] == "full_delegate"
    assert result.returncode == 0


def test_a_file_name_that_is_no_utf8_gives_valid_json(samples: Any, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_bytes(samples[0].path.read_bytes())
    for arguments in (["--json"], []):
        result = program(str(path), *arguments, stderr=subprocess.PIPE)
        assert result.returncode == 0 and "caf\ufffd.txt" in result.stdout.decode()
        if arguments:
            assert msgspec.json.decode(result.stdout)["file"].endswith("caf\ufffd.txt")
