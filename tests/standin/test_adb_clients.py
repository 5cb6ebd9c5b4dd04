"""Real clients drive the stand-in: adb of two generations, and adbutils over each of their servers."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtplab.standin.sync import PART

from .conftest import PATIENCE_S, Adb, Device, device_starter, read_line, until

TMP = "/data/local/tmp"
FIFTY_MB = 50_000_000
ENDLESS = 2 << 30  # sparse: nobody waits for its end


@pytest.fixture(scope="module")
def served(adb: Adb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    """One stand-in for the whole module; it trusts nobody yet."""
    started: list[Device] = []
    yield device_starter(adb, tmp_path_factory.mktemp("served"), started)(trusted=False, connect=False)
    assert started[0].stop() == 0, started[0].errors.read_text()


@pytest.fixture(scope="module")
def before_allow(each_adb: Adb, served: Device) -> tuple[str, subprocess.CompletedProcess[bytes]]:
    """What this adb was told before it was allowed: the state and the answer to a command. Then it is allowed."""
    each_adb("connect", served.serial)
    phone = Device(each_adb, served.process, served.info, served.errors)
    phone.wait_for("unauthorized")
    seen = phone.state(), phone("shell", "id")
    phone.control("allow")
    phone.wait_for("device")
    return seen


@pytest.fixture
def phone(each_adb: Adb, served: Device, before_allow: object) -> Iterator[Device]:
    """The stand-in as this adb sees it, its cable in; nothing may be left running on it."""
    phone = Device(each_adb, served.process, served.info, served.errors)
    yield phone
    plug(phone)
    until(lambda: phone.control("status")["processes"] == [], "a process was left on the phone")


def plug(phone: Device) -> None:
    """Put the cable back and connect anew, as after a replug over USB."""
    phone.control("plug")
    phone.adb("disconnect", phone.serial)
    phone.adb("connect", phone.serial)
    phone.wait_for("device")


def start(phone: Device, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [phone.adb.binary, "-s", phone.serial, *words], env=phone.adb.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def random_file(folder: Path, size: int) -> Path:
    path = folder / "random.bin"
    path.write_bytes(os.urandom(size))
    return path


def sparse_file(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(ENDLESS)
    return path


# --- the adb binaries ---------------------------------------------------------------------------------------------


def test_a_new_computer_is_unauthorised_and_refused_until_it_is_allowed(
    before_allow: tuple[str, subprocess.CompletedProcess[bytes]], phone: Device
) -> None:
    state, answer = before_allow
    assert state == "unauthorized"
    assert answer.returncode != 0
    assert b"unauthorized" in answer.stderr
    assert phone.out("id -u") == "2000\n"


def test_connect_list_and_state(phone: Device) -> None:
    assert phone.adb("connect", phone.serial).stdout.startswith(b"already connected")
    line = next(row for row in phone.adb("devices", "-l").stdout.decode().splitlines() if phone.serial in row)
    assert "product:caiman model:Pixel_9_Pro device:caiman" in line
    assert phone("get-state").stdout == b"device\n"
    assert b"shell_v2" in phone("features").stdout
    refused = phone.adb("connect", "127.0.0.1:1")
    assert b"connected to" not in refused.stdout


@pytest.mark.parametrize("code", [0, 1, 127, 255])
def test_shell_v2_gives_the_exit_code_and_two_streams(phone: Device, code: int) -> None:
    assert phone.shell(f"echo out; echo err >&2; exit {code}") == (code, "out\n", "err\n")


def test_shell_v1_has_one_stream_and_no_exit_code(phone: Device) -> None:
    done = phone("shell", "-x", "echo out; echo err >&2; exit 3")
    assert (sorted(done.stdout.split()), done.stderr, done.returncode) == ([b"err", b"out"], b"", 0)


def test_fifty_megabytes_come_back_byte_for_byte(phone: Device, tmp_path: Path) -> None:
    source = random_file(tmp_path, FIFTY_MB)
    assert phone("push", str(source), f"{TMP}/fifty").returncode == 0
    assert phone("pull", f"{TMP}/fifty", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    phone.out(f"rm {TMP}/fifty")


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A service on 127.0.0.1, where the device's own ports are too: it says back what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                while data := client.recv(65536):
                    client.sendall(data)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def forwarded(phone: Device, echo_port: int) -> socket.socket:
    local = int(phone("forward", "tcp:0", f"tcp:{echo_port}").stdout)
    assert f"{phone.serial} tcp:{local} tcp:{echo_port}" in phone.adb("forward", "--list").stdout.decode()
    link = socket.create_connection(("127.0.0.1", local), PATIENCE_S)
    link.settimeout(PATIENCE_S)
    link.sendall(b"ping")
    assert link.recv(4) == b"ping"
    return link


def test_a_forwarded_port_carries_bytes_until_it_is_removed(phone: Device, echo_port: int) -> None:
    data = os.urandom(1 << 20)
    with forwarded(phone, echo_port) as link:
        sender = threading.Thread(target=link.sendall, args=(data,))
        sender.start()
        assert link.makefile("rb").read(len(data)) == data
        sender.join()
    assert phone("forward", "--remove-all").returncode == 0
    assert phone.serial not in phone.adb("forward", "--list").stdout.decode()


def test_logcat_dumps_follows_and_clears(phone: Device) -> None:
    phone.out("log -p w -t bench 'from the phone'")
    assert b" W bench   : from the phone\n" in phone("logcat", "-d").stdout
    following = start(phone, "logcat")
    phone.out("log -t bench live")
    assert following.stdout is not None
    with following.stdout:
        assert any(line.endswith(b" I bench   : live\n") for line in following.stdout)
        following.kill()
        following.wait(PATIENCE_S)
    assert phone("logcat", "-c").returncode == 0
    assert phone("logcat", "-d").stdout == b""


# --- the cable is pulled in the middle ----------------------------------------------------------------------------


def test_unplugged_in_a_shell_it_ends_and_the_replugged_phone_serves_again(phone: Device) -> None:
    shell = start(phone, "shell", "echo begun; sleep 60; echo ended")
    assert read_line(shell) == b"begun\n"
    phone.control("unplug")
    assert b"ended" not in shell.communicate(timeout=PATIENCE_S)[0]
    assert phone("shell", "id").returncode != 0
    plug(phone)
    assert phone.out("id -u") == "2000\n"


def test_unplugged_in_a_push_it_fails_and_no_file_appears(phone: Device, tmp_path: Path) -> None:
    push = start(phone, "push", str(sparse_file(tmp_path / "endless")), f"{TMP}/endless")
    part = phone.root / f"data/local/tmp/endless{PART}"
    until(lambda: part.exists() and part.stat().st_size > 1 << 20, "the push does not begin")
    phone.control("unplug")
    push.communicate(timeout=PATIENCE_S)
    assert push.returncode != 0
    plug(phone)
    until(lambda: not part.exists(), "the part of a push stays")
    assert "endless" not in phone.out(f"ls {TMP}")


def test_unplugged_in_a_pull_it_fails(phone: Device, tmp_path: Path) -> None:
    sparse_file(phone.root / "data/local/tmp/endless")
    copy = tmp_path / "copy"
    pull = start(phone, "pull", f"{TMP}/endless", str(copy))
    until(lambda: copy.exists() and copy.stat().st_size > 1 << 20, "the pull does not begin")
    phone.control("unplug")
    pull.communicate(timeout=PATIENCE_S)
    (phone.root / "data/local/tmp/endless").unlink()
    assert pull.returncode != 0
    assert not copy.exists() or copy.stat().st_size < ENDLESS


def test_unplugged_in_a_forward_its_connection_ends(phone: Device, echo_port: int) -> None:
    with forwarded(phone, echo_port) as link:
        phone.control("unplug")
        assert link.recv(1) == b""


def test_unplugged_in_a_logcat_it_ends(phone: Device) -> None:
    following = start(phone, "logcat")
    phone.out("log -t bench last")
    assert following.stdout is not None
    assert any(b": last" in line for line in following.stdout)
    phone.control("unplug")
    # adb's logcat waits for the device to come back and then goes on: only the cable's owner can say it ended.
    until(lambda: phone.control("status")["processes"] == [], "logcat outlived its cable")
    following.kill()
    following.communicate(timeout=PATIENCE_S)


# --- adbutils -----------------------------------------------------------------------------------------------------


@pytest.fixture
def library(phone: Device) -> Any:
    """adbutils' device over the server of each adb."""
    adbutils = pytest.importorskip("adbutils")
    client = adbutils.AdbClient(host="127.0.0.1", port=phone.adb.port, socket_timeout=PATIENCE_S)
    assert client.connect(phone.serial).startswith("already connected")
    assert [(found.serial, found.state) for found in client.list()] == [(phone.serial, "device")]
    return client.device(phone.serial)


def test_adbutils_runs_commands(library: Any) -> None:
    done = library.shell2("echo out; echo err >&2; exit 7", v2=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert sorted(library.shell("echo out; echo err >&2").split()) == ["err", "out"]
    assert library.prop.model == "Pixel 9 Pro"


def test_adbutils_moves_fifty_megabytes_byte_for_byte(library: Any, phone: Device, tmp_path: Path) -> None:
    source = random_file(tmp_path, FIFTY_MB)
    assert library.sync.push(source, f"{TMP}/fifty") == FIFTY_MB
    assert library.sync.stat(f"{TMP}/fifty").size == FIFTY_MB
    assert library.sync.pull(f"{TMP}/fifty", tmp_path / "back") == FIFTY_MB
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    phone.out(f"rm {TMP}/fifty")


def test_adbutils_forwards_and_reads_the_log(library: Any, phone: Device, echo_port: int) -> None:
    local = library.forward_port(echo_port)
    with socket.create_connection(("127.0.0.1", local), PATIENCE_S) as link:
        link.sendall(b"ping")
        assert link.recv(4) == b"ping"
    phone("forward", "--remove-all")
    phone.out("logcat -c; log -t bench seen")
    assert library.shell("logcat -d").endswith(" I bench   : seen")


def test_adbutils_fails_when_the_cable_is_pulled(library: Any, phone: Device, tmp_path: Path) -> None:
    from adbutils import AdbError

    def pulled(path: Path) -> None:
        until(lambda: path.exists() and path.stat().st_size > 1 << 20, f"{path} does not grow")
        phone.control("unplug")

    part = phone.root / f"data/local/tmp/endless{PART}"
    puller = threading.Thread(target=pulled, args=(part,))
    puller.start()
    with pytest.raises((AdbError, OSError)):
        library.sync.push(sparse_file(tmp_path / "endless"), f"{TMP}/endless")
    puller.join()
    plug(phone)
    puller = threading.Timer(0.3, phone.control, ("unplug",))
    puller.start()
    with pytest.raises((AdbError, EOFError, OSError)):
        library.shell2("sleep 60", v2=True)
    puller.join()
