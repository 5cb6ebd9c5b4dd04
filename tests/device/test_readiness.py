"""The doctor: every precondition with cause and cure, true answers, no exception, nothing heavy imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtplab.device import lock, readiness_host, readiness_phone
from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link, parse_devices
from mtplab.device.readiness import Item, Options, check, ready
from mtplab.device.standin_host import StandinProcess
from mtplab.device.thermal import parse_thermalservice


def by_id(items: list[Item]) -> dict[str, Item]:
    assert len({item.id for item in items}) == len(items)
    return {item.id: item for item in items}


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtplab.cli", "doctor", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "backbone.safetensors", "head_recurrent.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_on_the_stand_in_everything_but_the_named_gaps_passes(link: Link, model: Path) -> None:
    items = by_id(check(link, Options(model_dir=model)))
    assert {item.group for item in items.values()} == {"host", "toolchain", "device", "data"}
    assert items["device.attached"].status == "pass"
    assert "SIMULATED" in items["device.real"].cause
    assert items["device.aicore"].status == "pass"
    assert items["device.benchmark_model"].status == "pass"
    assert items["device.benchmark_model.origin"].status == "unknown"
    assert items["data.calibration"].status == "unknown"
    assert items["device.token_runner"].status == "fail"  # this stand-in was started without one
    assert "/data/local/tmp/mtplab-runner" in items["device.token_runner"].cure
    assert not ready(list(items.values()))
    for item in items.values():
        assert item.cause
        assert item.status != "fail" or item.cure


def test_a_phone_in_somebody_elses_hands_is_not_ready(link: Link) -> None:
    with lock.PhoneLock(link.serial, "session-of-another"):
        item = by_id(check(link))["device.free"]
    assert item.status == "fail"
    assert "session-of-another" in item.cause


def test_no_phone_is_never_ready() -> None:
    assert not ready([Item("host.system", "host", "pass", "fine")])
    assert not ready([Item("device.attached", "device", "unknown", "cannot be seen")])
    assert ready([Item("device.attached", "device", "pass", "yes"), Item("x", "data", "unknown", "none named")])


def test_a_check_that_breaks_is_unknown_and_hides_no_other(monkeypatch: pytest.MonkeyPatch, link: Link) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(readiness_host, "packages", broken)
    monkeypatch.setattr(readiness_phone, "read_facts", broken)
    items = by_id(check(link))
    assert (items["packages"].status, items["device"].status) == ("unknown", "unknown")
    assert items["host.system"].status == "pass"
    assert items["data.prompts"].status == "pass"


@pytest.mark.parametrize(
    ("listed", "serial", "status", "words"),
    [
        ("", None, "fail", "no phone is attached"),
        ("A\tdevice\nB\tdevice\n", None, "fail", "2 devices are attached"),
        ("A\tdevice\nB\tunauthorized\n", None, "pass", "A is attached"),
        ("A\tdevice\nB\tdevice\n", "B", "pass", "B is attached"),
        ("A\tdevice\n", "C", "fail", "C is not attached"),
        ("A\tunauthorized\n", None, "fail", "has not allowed this computer"),
        ("A\toffline\n", None, "fail", "does not answer"),
    ],
)
def test_which_phone_is_meant(listed: str, serial: str | None, status: str, words: str) -> None:
    _entry, item = readiness_phone._choose(parse_devices(listed), serial)
    assert (item.status, words in item.cause) == (status, True)
    assert item.status == "pass" or item.cure


def test_wireless_is_refused_for_measuring() -> None:
    (entry,) = parse_devices("192.168.1.7:5555\tdevice\n")
    assert readiness_phone._cable(entry).status == "fail"


@pytest.mark.parametrize(
    ("skin", "status", "expected"),
    [("36.9", "0", "pass"), ("37.1", "0", "fail"), ("30.0", "1", "fail"), (None, "0", "unknown")],
)
def test_a_hot_phone_is_not_fit_to_start(link: Link, skin: str | None, status: str, expected: str) -> None:
    sensor = f"Temperature{{mValue={skin}, mType=3, mName=VIRTUAL-SKIN, mStatus=0}}\n" if skin else ""
    head = f"Thermal Status: {status}\nHAL Ready: true\nCurrent temperatures from HAL:\n"
    heat = parse_thermalservice(head + sensor)
    facts = readiness_phone.read_facts(link)
    assert by_id(list(readiness_phone._state(facts, heat)))["device.temperature"].status == expected


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("2.13.0+cpu", ">=2.13,<3", True), ("2.12.9", ">=2.13,<3", False), ("3.0.0", "<3,>=2.13", False),
        ("0.10", "==0.10.0", True), ("0.10.1", "==0.10.0", False), ("1.0", "~=1.0", None), ("weird", ">=1", None),
        ("7", "", True),
    ],
)  # fmt: skip
def test_versions(version: str, wanted: str, expected: bool | None) -> None:
    assert readiness_host.satisfies(version, wanted) is expected


def test_a_missing_and_an_outdated_package_say_what_to_install() -> None:
    missing = readiness_host._package("no-such-package-at-all", ">=1", pipeline=True)
    assert (missing.status, missing.cure) == ("fail", "pip install 'mtplab[pipeline]'")
    old = readiness_host._package("click", ">=99", pipeline=False)
    assert old.status == "fail"
    assert ">=99 is needed" in old.cause


def test_the_data_that_a_run_needs(tmp_path: Path, model: Path) -> None:
    assert readiness_host._model(model).status == "pass"
    (model / "head_recurrent.safetensors").unlink()
    assert "no MTP head" in readiness_host._model(model).cause
    assert readiness_host._model(tmp_path / "none").status == "fail"
    calibration = tmp_path / "calibration.jsonl"
    calibration.write_text("".join(json.dumps({"text": str(i)}) + "\n" for i in range(199)))
    assert readiness_host._calibration(calibration).status == "fail"
    with calibration.open("a") as file:
        file.write('{"text": "200th"}\n')
    assert readiness_host._calibration(calibration).status == "pass"
    calibration.write_text("not json")
    assert readiness_host._calibration(calibration).status == "fail"


def test_the_command_prints_one_json_value_and_says_not_ready_without_a_phone(standin: StandinProcess) -> None:
    nothing = {"ANDROID_ADB_SERVER_PORT": str(standin.server.port)}
    done = doctor("--json", "--serial", "NO-SUCH-PHONE", **nothing)
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, said["ready"]) == (2, False)
    attached = next(item for item in said["items"] if item["id"] == "device.attached")
    assert set(attached) == {"id", "group", "status", "cause", "cure"}
    assert attached["status"] == "fail"


def test_the_command_on_the_stand_in(model: Path) -> None:
    done = doctor("--standin", "--json")
    said = json.loads(done.stdout)
    status = {item["id"]: item["status"] for item in said["items"]}
    assert status["device.token_runner"] == "pass"
    assert done.returncode == (0 if said["ready"] else 2)
    failed = {name for name, word in status.items() if word == "fail"}
    assert failed <= {"data.model", "host.space"} | {name for name in failed if name.startswith("package.")}


def test_without_aicore_the_doctor_says_absent() -> None:
    done = doctor("--standin", "no-aicore")
    assert done.returncode == 2
    assert "✗ device.aicore: AICore is absent" in done.stdout
    assert "→ Install or enable" in done.stdout


def test_an_unknown_scenario_is_wrong_use() -> None:
    done = doctor("--standin", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unknown scenario 'nonsense'" in done.stderr


def test_the_checklist_imports_nothing_heavy(standin: StandinProcess) -> None:
    code = (
        "import sys\n"
        "from mtplab.device.readiness import check\n"
        "check(None)\n"
        "heavy = ('torch', 'litert_torch', 'ai_edge_quantizer', 'ai_edge_litert', 'textual')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    env = {**os.environ, "ANDROID_ADB_SERVER_PORT": str(standin.server.port)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout == "[]\n"


def test_no_adb_at_all_is_a_sentence_with_a_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MTPLAB_ADB", str(tmp_path / "none"))
    items = by_id(check(None))
    assert items["adb.binary"].status == "fail"
    assert "MTPLAB_ADB" in items["adb.binary"].cause
    assert items["device.attached"].status == "unknown"
    assert not ready(list(items.values()))


def test_hostile_words_of_a_phone_do_not_reach_the_screen() -> None:
    assert "\x1b" not in str(CommandFailed("bad \x1b[2J\x1b]0;title\x07 words\r\n"))
