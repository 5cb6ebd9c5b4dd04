"""One lab per phone: the lock, who holds it, and what a killed holder leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mtplab.device import lock
from mtplab.device.errors import DeviceBusy, DeviceError
from mtplab.device.lock import PhoneLock, all_holders, holder, serial_hash

HOLD = """
import sys
from mtplab.device.lock import PhoneLock
with PhoneLock("PHONE1", "the-other-session"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path))


@pytest.fixture
def other() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], how: int) -> None:
    process.send_signal(how)
    process.communicate()


def test_a_second_lab_is_told_who_has_the_phone(other: subprocess.Popen[str]) -> None:
    with pytest.raises(DeviceBusy) as busy:
        PhoneLock("PHONE1", "mine").acquire()
    assert str(other.pid) in str(busy.value)
    assert "the-other-session" in str(busy.value)
    owner = holder("PHONE1")
    assert owner is not None
    assert (owner.pid, owner.session) == (other.pid, "the-other-session")
    assert all_holders() == [owner]
    end(other, signal.SIGTERM)


def test_a_killed_lab_frees_the_phone_although_its_file_remains(other: subprocess.Popen[str], tmp_path: Path) -> None:
    end(other, signal.SIGKILL)
    (left,) = (tmp_path / "locks").glob("*.lock")
    assert "the-other-session" in left.read_text()
    assert holder("PHONE1") is None
    assert all_holders() == []
    with PhoneLock("PHONE1", "mine"):
        owner = holder("PHONE1")
        assert owner is not None
        assert (owner.pid, owner.session) == (os.getpid(), "mine")


def test_two_phones_have_two_locks_and_release_frees() -> None:
    first, second = PhoneLock("A", "one").acquire(), PhoneLock("B", "two").acquire()
    assert [h.session for h in all_holders()] == ["one", "two"]
    first.release()
    first.release()
    assert holder("A") is None
    assert holder("B") is not None
    second.release()


def test_the_serial_stands_nowhere_and_hashes_the_same_each_time(tmp_path: Path) -> None:
    with PhoneLock("SECRET-SERIAL", "s"):
        assert "SECRET" not in "".join(str(path) + path.read_bytes().decode("latin-1") for path in files(tmp_path))
    assert serial_hash("SECRET-SERIAL") == serial_hash("SECRET-SERIAL") != serial_hash("other")
    assert (tmp_path / "serial.key").stat().st_mode & 0o777 == 0o600


def test_another_user_has_other_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = serial_hash("PHONE1")
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path / "other"))
    assert serial_hash("PHONE1") != mine


def test_a_folder_that_cannot_be_used_is_named_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MTPLAB_RUNTIME", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match="MTPLAB_RUNTIME"):
        lock.runtime_dir()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
