"""An experiment on a stand-in over the real adb: killed, its cable pulled, resumed, and every cell a session."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_bench import Bench

from mtplab.device import paths
from mtplab.device.standin_host import StandinProcess, token_runner
from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.journal import read_journal

pytestmark = [pytest.mark.e2e, pytest.mark.pipeline, pytest.mark.timeout(900)]

EXPERIMENT = """
name = "e2e"
prompts = "{prompts}"
output_limit = 16
serial = "{serial}"
prepare = "none"
[axes]
gammas = [1, 3]
policies = ["tiers"]
backends = ["cpu", "npu"]
classes = ["code", "prose"]
[limits]
cool_down_s = 0
reconnect_s = 60
"""


def wait_for(condition: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def rounds_of(bench: Bench) -> list[ev.RoundMeasured]:
    """Every round that any session holds, told once."""
    journals = [p / archive.JOURNAL for p in bench.sessions.iterdir() if (p / archive.JOURNAL).is_file()]
    events = (e for journal in journals for e in read_journal(journal).events)
    return [e for e in events if isinstance(e, ev.RoundMeasured) and e.resumed_from is None]


def test_an_experiment_survives_a_kill_and_a_pulled_cable(bench: Bench, few_prompts: Path, tmp_path: Path) -> None:
    with StandinProcess(programs={paths.TOKEN_RUNNER: token_runner()}) as phone:
        bench.env["ANDROID_ADB_SERVER_PORT"] = str(phone.server.port)
        file = tmp_path / "experiment.toml"
        file.write_text(EXPERIMENT.format(prompts=few_prompts, serial=phone.serial))
        first = bench.start("run", "--experiment", str(file))
        wait_for(lambda: len(rounds_of(bench)) >= 3)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        kept = len(rounds_of(bench))
        second = bench.start("run", "--experiment", str(file), "--json")
        wait_for(lambda: len(rounds_of(bench)) >= kept + 2)
        phone.control("unplug")
        time.sleep(2.0)
        phone.control("plug")
        said, told = second.communicate(timeout=600)
    assert second.returncode == 4, told[-3000:]  # the cells that asked for an NPU
    found = json.loads(said)
    cells = {row["cell"]: row for row in found["cells"]}
    done = [row for row in cells.values() if row["status"] == "done"]
    assert len(cells) == 12 and len(done) == 6 and found["left"] == 0
    assert all("NPU" in row["reason"] for row in cells.values() if row["status"] == "failed")
    whole = [r for r in rounds_of(bench) if r.reason is None]
    assert len(whole) == 20 and len({(r.configuration, r.index) for r in whole}) == 20, "no round twice"
    lost = [r for r in rounds_of(bench) if r.reason is not None]
    assert all(r.marks and "cable-lost" in r.marks for r in lost)
    for row in done:
        record = archive.open_session(bench.sessions / row["session"]).record
        assert record.simulated and record.exactness["compared"] == 3 and not record.exactness["failures"]
        assert row["figures"]["tokens_per_s"]["value"] > 0 and row["rounds"] == 5
    fixed, adaptive = (cells[f"mixed/{how}-t2/code"]["session"] for how in ("g3", "tiers"))
    assert bench.mtplab("compare", fixed, adaptive).returncode == 5
    assert bench.mtplab("compare", fixed, adaptive, "--vary", "mtp").returncode == 0
    assert bench.strays() == []
