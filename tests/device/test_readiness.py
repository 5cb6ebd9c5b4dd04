"""The doctor: every precondition with cause and cure, true answers, no exception, nothing heavy imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mtplab.device import binaries, lock, readiness_facts, readiness_host, readiness_packages, readiness_phone
from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link, list_devices, parse_devices
from mtplab.device.readiness import GROUPS, Item, Options, check, in_groups, ready
from mtplab.device.readiness_facts import Seen, Warmth
from mtplab.device.standin_host import StandinProcess
from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL
from mtplab.session.identity import Identity
from mtplab.session.journal import JournalWriter


def by_id(items: list[Item]) -> dict[str, Item]:
    assert len({item.id for item in items}) == len(items)
    return {item.id: item for item in items}


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
    assert "SIMULATED" in items["device.benchmark_model.origin"].cause
    assert items["data.calibration"].status == "unknown"
    assert items["device.token_runner"].status == "fail"  # this stand-in was started without one
    assert "/data/local/tmp/mtplab-runner" in items["device.token_runner"].cure
    assert not ready(list(items.values()))
    for item in items.values():
        assert item.cause
        assert item.status != "fail" or item.cure


class Recording:
    """An engine as others see it: its lock on a phone and its growing journal."""

    def __init__(self, folder: Path, facts: dict[str, ev.Fact]) -> None:
        self.folder = folder
        now = time.monotonic()
        header = ev.Header(schema=ev.SCHEMA, session=folder.name, created_utc="2026-11-29T10:15:00+00:00", t0=now)
        self.journal = JournalWriter(folder / JOURNAL, header)
        identity = Identity(device_model="Pixel 9 Pro", simulated=True, scenario="hot")
        self.say(ev.LinkChanged(t=now, state="connected"), ev.DeviceSeen(t=now, identity=identity, facts=facts))

    def say(self, *events: ev.Event) -> None:
        for event in events:
            self.journal.append(event)
        self.journal.sync()


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    monkeypatch.setenv("MTPLAB_SESSIONS", str(tmp_path))
    folder = tmp_path / "session-of-another"
    folder.mkdir()
    return Recording(folder, {"aicore_state": ev.Fact(value="absent"), "free_bytes": ev.Fact(value=3_000_000_000)})


def _name_of(link: Link) -> str:
    """What is locked: the phone's own serial number."""
    return next(e.phone for e in list_devices(link.server) if e.serial == link.serial)


def test_a_phone_in_somebody_elses_hands_is_judged_by_its_journal_and_never_asked(
    link: Link, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    really = Link.run
    monkeypatch.setattr(Link, "run", lambda *a, **more: asked.append(a[1]) or really(*a, **more))
    monkeypatch.setattr(Link, "stream", lambda *a, **more: asked.append(a[1]))
    recording.say(ev.Heat(t=time.monotonic(), skin_c=42.3, status=1))
    with lock.PhoneLock(_name_of(link), recording.folder.name):
        asked.clear()
        items = by_id(check(link))
    assert asked == []
    assert items["device.attached"].status == "pass"
    assert items["device.free"].status == "fail"
    assert "session-of-another" in items["device.free"].cause
    assert "mtplab lab --attach session-of-another" in items["device.free"].cure
    assert "the phone itself was not asked" in items["device.recorded"].cause
    assert items["device.aicore"].cause == "AICore is absent"
    assert items["device.space"].status == "pass"
    battery = items["device.battery"]
    assert (battery.status, battery.cause) == ("unknown", "not known: it was not asked")
    assert items["device.temperature"].cause == "skin 42.3 °C, thermal status LIGHT"


def test_a_phone_that_hangs_is_said_to_and_holds_nobody_up(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(readiness_phone, "ANSWER_S", 0.2)
    monkeypatch.setattr(readiness_phone, "read_facts", lambda target: over.wait(60))
    items = by_id(check(link))
    over.set()
    assert items["device.answers"].status == "fail"
    assert "did not answer within 0.2 s" in items["device.answers"].cause
    assert items["data.prompts"].status == "pass"


def test_what_a_holder_recorded_long_ago_is_no_temperature_of_now(link: Link, recording: Recording) -> None:
    recording.say(ev.Heat(t=time.monotonic() - 60, skin_c=30.0, status=0))
    with lock.PhoneLock(_name_of(link), recording.folder.name):
        assert by_id(check(link))["device.temperature"].status == "unknown"


def test_the_end_of_a_long_journal_is_what_counts(link: Link, recording: Recording) -> None:
    now = time.monotonic()
    line = ev.LogLine(t=now, log="x", n=1, text="y" * 2000)
    recording.say(*[line] * 500, ev.Heat(t=now, skin_c=33.3, status=0))
    with lock.PhoneLock(_name_of(link), recording.folder.name):
        items = by_id(check(link))
    assert items["device.temperature"].cause == "skin 33.3 °C, thermal status NONE"
    assert items["device.aicore"].cause == "AICore is absent"  # from its beginning


def test_an_engine_on_another_phone_is_listed_and_blocks_nothing(link: Link, recording: Recording) -> None:
    with lock.PhoneLock("elsewhere", recording.folder.name):
        items = by_id(check(link))
    assert "the stand-in Pixel 9 Pro (SIMULATED, scenario hot) is held by process" in items["device.engine"].cause
    assert items["device.engine"].status == items["device.free"].status == "pass"


@pytest.mark.parametrize(("own", "status"), [(True, "pass"), (False, "fail")])
def test_a_session_names_the_phone_of_its_engine(recording: Recording, own: bool, status: str) -> None:
    now = time.monotonic()
    recording.say(ev.Heat(t=now, skin_c=30.0, status=0))
    with lock.PhoneLock("any", recording.folder.name):
        items = by_id(check(None, Options(session=recording.folder.name, own=own)))
        assert (items["device.attached"].status, items["device.free"].status) == ("pass", status)
        recording.say(ev.LinkChanged(t=now, state="lost", reason="device offline"))
        item = by_id(check(None, Options(session=recording.folder.name, own=own)))["device.attached"]
        assert item.status == "fail" and "device offline" in item.cause and "Plug the cable in" in item.cure
    gone = by_id(check(None, Options(session=recording.folder.name, own=own)))["device.attached"]
    assert gone.status == "fail" and "holds no phone any more" in gone.cause


def test_no_phone_is_never_ready() -> None:
    assert not ready([Item("host.system", "host", "pass", "fine")])
    assert not ready([Item("device.attached", "device", "unknown", "cannot be seen")])
    assert ready([Item("device.attached", "device", "pass", "yes"), Item("x", "data", "unknown", "none named")])


def test_a_check_that_breaks_is_unknown_and_hides_no_other(monkeypatch: pytest.MonkeyPatch, link: Link) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(readiness_packages, "packages", broken)
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
    _entry, item = readiness_phone.choose(parse_devices(listed), serial)
    assert (item.status, words in item.cause) == (status, True)
    assert item.status == "pass" or item.cure


def test_wireless_is_refused_for_measuring() -> None:
    (entry,) = parse_devices("192.168.1.7:5555\tdevice\n")
    item = readiness_facts.cable(entry.wireless, entry.connection, entry.serial)
    assert item.status == "fail" and item.cure.startswith("adb disconnect")


@pytest.mark.parametrize(
    ("skin", "status", "expected"),
    [(36.9, 0, "pass"), (37.1, 0, "fail"), (30.0, 1, "fail"), (30.0, None, "unknown"), (None, 0, "unknown")],
)
def test_a_hot_phone_is_not_fit_to_start(skin: float | None, status: int | None, expected: str) -> None:
    found = by_id(list(readiness_facts.judged(Seen({}, Warmth(skin, status)))))
    assert found["device.temperature"].status == expected


def test_of_a_phone_that_tells_nothing_nothing_is_claimed_and_everything_has_a_cure() -> None:
    for item in readiness_facts.judged(Seen({}, Warmth(None, None))):
        assert item.status == "unknown", item
        assert item.cure or item.id == "device.real"


def test_a_program_of_a_known_release_is_verified_by_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"release": "LiteRT 9.9"}
    monkeypatch.setattr(binaries, "known_binaries", lambda: {"a" * 64: row})

    def origin(digest: str) -> Item:
        facts = {"sha256 benchmark_model": ev.Fact(value=digest), "simulated": ev.Fact(value=False)}
        return by_id(list(readiness_facts.judged(Seen(facts, Warmth(None, None)))))["device.benchmark_model.origin"]

    assert (origin("a" * 64).status, origin("a" * 64).cause) == ("pass", "LiteRT 9.9")
    assert (origin("b" * 64).status, "unverified" in origin("b" * 64).cause) == ("unknown", True)


@pytest.mark.parametrize(
    ("listed", "status", "words"),
    [
        (ev.Fact(value="benchmark_model, litert_lm_main"), "fail", "there is no /data/local/tmp/mtplab-runner"),
        (ev.Fact(value="benchmark_model, litert_a, 9 more"), "unknown", "too many programs"),
        (ev.Fact(reason="permission denied"), "unknown", "permission denied"),
    ],
)
def test_a_program_that_is_not_listed_is_absent_only_where_the_list_is_whole(
    listed: ev.Fact, status: str, words: str
) -> None:
    found = by_id(list(readiness_facts.judged(Seen({"litert_binaries": listed}, Warmth(None, None)))))
    item = found["device.token_runner"]
    assert item.status == status and words in item.cause and "adb push" in item.cure


def test_how_a_held_phone_is_connected_is_judged_where_it_was_recorded() -> None:
    for connection, status in (("wireless", "fail"), ("usb", "pass")):
        facts = {"connection": ev.Fact(value=connection)}
        assert by_id(list(readiness_facts.judged(Seen(facts, Warmth(None, None)))))["device.cable"].status == status


def test_the_list_of_known_programs_holds_hashes_and_releases() -> None:
    for digest, row in binaries.known_binaries().items():
        assert len(digest) == 64 and row["release"] and row["source"].startswith("https://")


def test_a_missing_and_an_outdated_package_say_what_to_install() -> None:
    missing = readiness_packages.package(Requirement("no-such-package-at-all>=1"), "pip install x")
    assert (missing.status, missing.cure) == ("fail", "pip install x")
    old = readiness_packages.package(Requirement("click>=99"), "pip install x")
    assert old.status == "fail"
    assert ">=99 is needed" in old.cause
    assert readiness_packages.package(Requirement("click>=8,<9"), "").status == "pass"


def test_a_package_that_python_cannot_find_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_packages.importlib.util, "find_spec", lambda name: None)
    item = readiness_packages.package(Requirement("click>=8"), "pip install x")
    assert item.status == "fail" and "finds no module click" in item.cause


def test_packages_that_do_not_fit_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {"a": ["click>=99", "numpy", 'colorama>99; sys_platform == "win32"'], "b": ["no-such-package-at-all"]}
    monkeypatch.setattr(readiness_packages, "_needs_of", needs.__getitem__)
    item = readiness_packages.compatible(["a", "b"])
    assert item.status == "fail"
    assert "a needs click>=99, " in item.cause and "b needs no-such-package-at-all, which is not" in item.cause
    assert "colorama" not in item.cause and "numpy" not in item.cause


def test_items_are_read_by_group() -> None:
    items = [Item("x", "data", "pass", "x"), Item("b", "host", "pass", "b"), Item("a", "host", "pass", "a")]
    assert [item.id for item in in_groups(items)] == ["b", "a", "x"]
    assert tuple(dict.fromkeys(GROUPS)) == ("host", "toolchain", "device", "data")


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
    calibration.write_text(json.dumps({"version": 1, "prompts": [{"id": str(i), "tokens": [i]} for i in range(200)]}))
    assert readiness_host._calibration(calibration).status == "pass"
    calibration.write_text("not json")
    assert readiness_host._calibration(calibration).status == "fail"


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
