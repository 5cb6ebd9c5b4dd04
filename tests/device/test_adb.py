"""Finding adb, and the rule that a user's own server is used as it is and never replaced."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from mtplab.device import adb
from mtplab.device.adb import AdbServer, PrivateServer, client_version, find_adb, free_port
from mtplab.device.errors import DeviceError
from mtplab.device.link import Link
from mtplab.device.standin_host import StandinProcess


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An adb of another version that writes down how it is called."""
    path, calls = tmp_path / "adb", tmp_path / "calls"
    path.write_text(f'#!/bin/sh\necho "$@" >>{calls}\necho "Android Debug Bridge version 1.0.39"\n')
    path.chmod(0o755)
    calls.touch()
    monkeypatch.setenv("MTPLAB_ADB", str(path))
    return calls


def test_the_named_adb_comes_before_path_and_path_before_the_bundled_one(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_adb() == foreign.with_name("adb")
    monkeypatch.delenv("MTPLAB_ADB")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_adb() == tmp_path / "adb"
    monkeypatch.setenv("PATH", "")
    bundled = find_adb()
    assert bundled.parts[-3:] == ("adbutils", "binaries", "adb")
    assert client_version(bundled) == 41


def test_no_adb_anywhere_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("MTPLAB_ADB", raising=False)
    monkeypatch.setattr(adb.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="install Android platform-tools"):
        find_adb()
    monkeypatch.setenv("MTPLAB_ADB", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="MTPLAB_ADB names"):
        find_adb()


def test_a_running_server_of_another_version_is_named_and_left_alone(foreign: Path) -> None:
    with PrivateServer(adb=_real_adb()) as running:
        users = AdbServer(port=running.port)
        assert users.ensure().version() == 41
        mismatch = users.mismatch()
        assert mismatch is not None
        assert "version 41" in mismatch
        assert "39" in mismatch
        assert running.version() == 41  # still the same server
    assert set(foreign.read_text().split("\n")) <= {"version", ""}  # never start-server, never kill-server


def test_an_absent_server_is_started_on_the_users_port_and_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    with PrivateServer() as elsewhere:  # lends its folder and settings: no USB, no emulators
        port = free_port()
        environment = {**elsewhere.environment(), "ANDROID_ADB_SERVER_PORT": str(port)}
        for name in ("HOME", "TMPDIR", "ADB_USB", "ADB_EMU", "ADB_MDNS", "ANDROID_ADB_SERVER_PORT"):
            monkeypatch.setenv(name, environment[name])
        try:
            server = AdbServer.users().ensure()
            assert (server.port, server.version()) == (port, 41)
        finally:
            subprocess.run([str(find_adb()), "kill-server"], env=environment, capture_output=True, timeout=20)


def test_a_server_that_was_ended_in_the_middle_is_started_again_for_a_phone_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with PrivateServer() as elsewhere, StandinProcess(server=elsewhere) as phone:
        port = free_port()
        environment = {**elsewhere.environment(), "ANDROID_ADB_SERVER_PORT": str(port)}
        for name in ("HOME", "TMPDIR", "ADB_USB", "ADB_EMU", "ADB_MDNS", "ANDROID_ADB_SERVER_PORT"):
            monkeypatch.setenv(name, environment[name])
        kill = [str(find_adb()), "kill-server"]
        try:
            link = Link(AdbServer.users().ensure(), phone.serial)
            link.wait_for_return(20)
            subprocess.run(kill, env=environment, capture_output=True, timeout=20)
            with pytest.raises(DeviceError):
                link.run(":")
            link.wait_for_return(20)
            assert link.run(["echo", "back"]).stdout == "back\n"
        finally:
            subprocess.run(kill, env=environment, capture_output=True, timeout=20)


def test_where_the_users_server_is_follows_adbs_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "5999")
    assert (AdbServer.users().host, AdbServer.users().port) == ("127.0.0.1", 5999)
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:10.0.0.2:6000")
    assert (AdbServer.users().host, AdbServer.users().port) == ("10.0.0.2", 6000)
    monkeypatch.delenv("ADB_SERVER_SOCKET")
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "many")
    with pytest.raises(DeviceError, match="no port number"):
        AdbServer.users()
    monkeypatch.delenv("ANDROID_ADB_SERVER_PORT")
    assert AdbServer.users().port == 5037


def test_a_port_that_something_else_holds_is_said_so() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = AdbServer(port=other.getsockname()[1])
        with pytest.raises(DeviceError, match="does not answer as an adb server"):
            server.ensure()


def _real_adb() -> Path:
    named = os.environ.pop("MTPLAB_ADB")
    try:
        return find_adb()
    finally:
        os.environ["MTPLAB_ADB"] = named
