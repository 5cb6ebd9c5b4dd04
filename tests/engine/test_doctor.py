"""`mtplab doctor` as a command: a table or one JSON value, exit codes, and the deep look in its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from mtplab.device.adb import PrivateServer
from mtplab.device.lock import PhoneLock, standin_key
from mtplab.engine.deep import deep_check


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtplab.cli", "doctor", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip


def test_one_json_value_says_not_ready_without_a_phone(places: Path) -> None:
    with PrivateServer() as server:
        done = doctor("--json", "--serial", "NO-SUCH-PHONE", ANDROID_ADB_SERVER_PORT=str(server.port))
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, said["ready"]) == (2, False)
    attached = next(item for item in said["items"] if item["id"] == "device.attached")
    assert set(attached) == {"id", "group", "status", "cause", "cure"}
    assert attached["status"] == "fail"


def test_on_the_stand_in_only_this_machine_can_fail(places: Path) -> None:
    done = doctor("--standin", "--json")
    said = json.loads(done.stdout)
    status = {item["id"]: item["status"] for item in said["items"]}
    assert status["device.token_runner"] == status["device.benchmark_model"] == "pass"
    assert done.returncode == (0 if said["ready"] else 2)
    failed = {name for name, word in status.items() if word == "fail"}
    assert not {name for name in failed if not name.startswith(("host.space", "package"))}


def test_without_aicore_the_table_says_absent_and_how_to_get_it(places: Path) -> None:
    done = doctor("--standin", "no-aicore")
    assert done.returncode == 2
    assert "✗ device.aicore: AICore is absent" in done.stdout
    assert "→ Install or enable" in done.stdout
    assert "not ready: 1 failed" in done.stdout


def test_an_unknown_scenario_is_wrong_use(places: Path) -> None:
    done = doctor("--standin", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no scenario 'nonsense'" in done.stderr


def test_a_stand_in_that_an_engine_holds_is_listed_and_no_second_one_is_started(places: Path) -> None:
    with (
        PrivateServer() as server,
        PhoneLock("The stand-in", "its-session", key=standin_key(places / "cache" / "standin")),
    ):
        plain = doctor(ANDROID_ADB_SERVER_PORT=str(server.port))
        asked = doctor("--standin")
    assert f"is held by process {os.getpid()} for session its-session" in plain.stdout
    assert asked.returncode == 2
    assert "✗ device.free" in asked.stdout and "mtplab lab --attach its-session" in asked.stdout
    assert "is attached and allows this computer" not in asked.stdout


def test_a_named_calibration_set_is_counted(places: Path) -> None:
    calibration = places / "calibration.jsonl"
    calibration.write_text("".join(json.dumps({"text": str(i)}) + "\n" for i in range(200)))
    with PrivateServer() as server:
        done = doctor("--calibration", str(calibration), ANDROID_ADB_SERVER_PORT=str(server.port))
    assert "✓ data.calibration: 200 prompts in calibration.jsonl" in done.stdout


# -- the deep look ---------------------------------------------------------------------------
def _shadow(folder: Path, monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    """Put a torch of our own in front of the real one."""
    (folder / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))


def test_a_toolchain_that_cannot_be_imported_fails_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shadow(tmp_path, monkeypatch, "raise ImportError('libgomp.so.1 is missing')")
    steps: list[str] = []
    item = deep_check(steps.append, threading.Event())
    assert (item.id, item.status) == ("toolchain.toy", "fail")
    assert "libgomp.so.1 is missing" in item.cause and item.cure.startswith("pip install")
    assert steps == ["1/7 importing torch"]


def test_a_cancelled_deep_look_shows_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _shadow(tmp_path, monkeypatch, "import time; time.sleep(600)")
    cancel = threading.Event()
    item = deep_check(lambda step: cancel.set(), cancel)
    assert item.status == "unknown"
    assert "cancelled" in item.cause


def test_ctrl_c_ends_the_deep_look_with_130_and_leaves_no_worker(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shadow(tmp_path, monkeypatch, "import time; time.sleep(600)")
    with PrivateServer() as server:
        env = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(server.port)}
        command = [sys.executable, "-m", "mtplab.cli", "doctor", "--deep"]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None and "1/7 importing torch" in process.stderr.readline()
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "? toolchain.toy: cancelled" in said
    assert workers and psutil.wait_procs(workers, timeout=10)[1] == []


@pytest.mark.pipeline
def test_the_deep_look_converts_quantises_and_runs_a_toy() -> None:
    steps: list[str] = []
    item = deep_check(steps.append, threading.Event())
    assert item.status == "pass", item.cause
    assert "converted, quantised to int8 and run" in item.cause
    assert [step.split()[0] for step in steps] == [f"{n}/7" for n in range(1, 8)]
