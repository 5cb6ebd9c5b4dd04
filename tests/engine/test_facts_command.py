"""`mtplab facts`: what is known of a phone, for scripts, without asking one that somebody measures on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mtplab.device import facts as device_facts
from mtplab.device.adb import PrivateServer
from mtplab.device.link import list_devices
from mtplab.device.lock import PhoneLock
from mtplab.device.standin_host import StandinProcess
from mtplab.engine.facts_command import facts_command
from mtplab.session import events as ev
from mtplab.session.archive import JOURNAL
from mtplab.session.identity import Identity
from mtplab.session.journal import JournalWriter


@pytest.fixture
def session(places: Path) -> str:
    """A session that is being recorded."""
    folder = places / "sessions" / "20261129T101500Z-pixel-9-pro-bench"
    folder.mkdir(parents=True)
    head = ev.Header(schema=ev.SCHEMA, session=folder.name, created_utc="2026-11-29T10:15:00+00:00", t0=1.0)
    journal = JournalWriter(folder / JOURNAL, head)
    known = {
        "model": ev.Fact(value="Pixel \x1b[31m9 Pro", source="getprop ro.product.model"),
        "gpu_driver": ev.Fact(value=None, source="dumpsys gpu", reason="the build hides it"),
    }
    journal.append(ev.DeviceSeen(t=1.0, identity=Identity(device_model="Pixel 9 Pro"), facts=known))
    journal.close()
    return folder.name


def facts(*arguments: str) -> Result:
    return CliRunner().invoke(facts_command, list(arguments), standalone_mode=False)


def test_a_sessions_facts_stand_with_source_or_reason(session: str) -> None:
    text = facts("--session", session[:12]).output
    assert "model                      Pixel 9 Pro  (getprop ro.product.model)" in text
    assert "unknown: the build hides it  (dumpsys gpu)" in text
    said = json.loads(facts("--session", "last", "--json").output)
    assert said["by"] == f"session {session}"
    assert said["facts"]["gpu_driver"] == {"value": None, "source": "dumpsys gpu", "reason": "the build hides it"}
    assert facts("--session", "nonsense").return_value == 1


def test_a_phone_is_asked_unless_somebody_measures_on_it(session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PrivateServer() as server, StandinProcess(server=server) as phone:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
        said = json.loads(facts("--json").output)
        assert said["by"] == f"the phone {phone.serial}" and said["facts"]["model"]["value"] == "Pixel 9 Pro"
        (entry,) = list_devices(server)
        monkeypatch.setattr(device_facts, "read_facts", sys.exit)  # whoever asks the phone now ends the test
        with PhoneLock(entry.serial, session, key=entry.phone):
            assert json.loads(facts("--json").output)["by"] == f"session {session}"


def test_no_phone_is_said_with_exit_code_2(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PrivateServer() as server:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
        done = facts()
    assert (done.return_value, "No phone is attached" in done.output) == (2, True)
