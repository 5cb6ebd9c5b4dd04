"""The engine owns a phone: it locks it, samples it, answers viewers, survives them, and ends tidily."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mtplab.device import prepare
from mtplab.device.adb import PrivateServer
from mtplab.device.lock import serial_hash, standin_key
from mtplab.engine.client import EngineHandle, attach, launch, running_engines
from mtplab.engine.errors import EngineError
from mtplab.engine.options import EngineOptions
from mtplab.session import archive, paths
from mtplab.session import events as ev
from mtplab.session.journal import JournalReader

pytestmark = pytest.mark.e2e

STANDIN = EngineOptions(standin="normal", sample_hz=5.0)


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def events_of(handle: EngineHandle) -> list[ev.Event]:
    reader = JournalReader(handle.session_dir / archive.JOURNAL)
    try:
        return reader.poll()
    finally:
        reader.close()


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    def alive(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # it ended between the two questions
            return False

    return not any(alive(process) for process in processes)


@pytest.fixture
def engine(places: Path) -> EngineHandle:
    return launch(STANDIN)


def stop(handle: EngineHandle) -> None:
    processes = family(handle.pid)
    handle.send({"cmd": "stop"})
    wait_for(lambda: gone(processes))


def test_an_engine_watches_the_phone_and_leaves_no_process_behind(engine: EngineHandle) -> None:
    wait_for(lambda: sum(isinstance(e, ev.Heat) for e in events_of(engine)) > 5)
    seen = events_of(engine)
    device = next(e for e in seen if isinstance(e, ev.DeviceSeen))
    assert device.identity.simulated and device.identity.device_model
    heat = [e for e in seen if isinstance(e, ev.Heat)]
    assert len({e.t for e in heat}) == len(heat)
    assert any(value is not None for value in heat[-1].zones.values())
    stop(engine)
    # Nothing but watching happened: nothing is kept.
    assert not engine.session_dir.exists()
    assert running_engines() == []


def test_a_marked_session_is_kept_and_sealed(engine: EngineHandle) -> None:
    assert engine.send({"cmd": "mark", "label": "fan \x1b[31mon"})["ok"]
    stop(engine)
    record = archive.open_session(engine.session_dir).record
    assert record.sealed and not record.recovered and record.simulated
    assert [m["label"] for m in record.markers if m["kind"] == "user"] == ["fan on"]
    assert record.events_sha256 is not None


def test_a_second_lab_on_a_locked_phone_is_told_who_holds_it(engine: EngineHandle) -> None:
    with pytest.raises(EngineError, match=str(engine.pid)) as refused:
        launch(STANDIN)
    assert refused.value.exit_code == 2
    assert attach(engine.session_dir.name).pid == engine.pid
    stop(engine)


def test_nonsense_commands_get_a_sentence(engine: EngineHandle) -> None:
    for command in ({"cmd": "fly"}, {}, {"cmd": 7}, {"cmd": "run", "options": {"model": "no-such-model"}}):
        reply = engine.send(command, timeout_s=5.0)
        assert not reply["ok"] and len(reply["error"]) > 10
    for options in ({"gamma": 10_000_000}, {"threads": -5}, {"rounds": 1}, {"cooldown_timeout_s": 1e300}):
        reply = engine.send({"cmd": "run", "options": options}, timeout_s=5.0)
        assert not reply["ok"] and "must lie in" in reply["error"]
    reply = engine.send({"cmd": "run", "options": {"from_stage": "bench", "to_stage": "export"}}, timeout_s=5.0)
    assert "begin at bench" in reply["error"]
    stop(engine)


def test_kill_minus_nine_of_the_engine_leaves_a_session_that_opens_and_no_process(engine: EngineHandle) -> None:
    wait_for(lambda: sum(isinstance(e, ev.Heat) for e in events_of(engine)) > 3)
    engine.send({"cmd": "keep"})
    processes = family(engine.pid)
    died = time.monotonic()
    os.kill(engine.pid, signal.SIGKILL)
    wait_for(lambda: gone(processes))
    opened = archive.open_session(engine.session_dir)
    assert opened.record.recovered
    assert died - opened.events[-1].t < 2.0
    # As a measurement would have left it: airplane mode on, and the note of what it was before.
    root = paths.cache_dir() / "standin"
    airplane = root / "device" / "dev" / ".sim" / "settings" / "global.airplane_mode_on"
    airplane.write_text("1\n")
    phone, changes = serial_hash(standin_key(root)), [prepare.Change("airplane_mode", "0", "1")]
    prepare.keep(prepare.Note(phone, engine.session_dir.name, time.time(), changes))
    # The lock died with its owner: the phone can be taken again at once, and gets back what it lent.
    following = launch(STANDIN)
    said = "airplane mode: 1 → 0"
    wait_for(lambda: any(isinstance(e, ev.Message) and said in e.text for e in events_of(following)))
    assert (airplane.read_text(), prepare.note_of(phone)) == ("0\n", None)
    stop(following)


def test_kill_minus_nine_of_the_viewer_leaves_the_engine_running(places: Path) -> None:
    script = (
        "import sys, time\n"
        "from mtplab.engine.client import launch\n"
        "from mtplab.engine.options import EngineOptions\n"
        "print(launch(EngineOptions(standin='normal')).session_dir, flush=True)\n"
        "time.sleep(60)\n"
    )
    viewer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert viewer.stdout is not None
    session = Path(viewer.stdout.readline().strip())
    os.kill(viewer.pid, signal.SIGKILL)
    viewer.wait()
    handle = attach(session.name)
    before = len(events_of(handle))
    wait_for(lambda: len(events_of(handle)) > before)
    stop(handle)


def test_without_phone_and_standin_there_is_one_sentence_and_exit_code_2(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PrivateServer() as server:
        # To the engine this is the user's server; nothing is attached to it.
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(server.port))
        with pytest.raises(EngineError, match="No phone is attached") as refused:
            launch(EngineOptions())
        assert server.version() is not None
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_without_any_adb_there_is_one_sentence_and_exit_code_2(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_ADB", "/nowhere/adb")
    with pytest.raises(EngineError, match="MTPLAB_ADB names /nowhere/adb") as refused:
        launch(STANDIN)
    assert refused.value.exit_code == 2


def test_a_planted_module_where_the_lab_is_started_is_not_run(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = places / "planted" / "mtplab"
    planted.mkdir(parents=True)
    (planted / "__init__.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n")
    monkeypatch.setenv("TMPDIR", str(planted.parent))
    monkeypatch.chdir(planted.parent)
    stop(launch(STANDIN))
    assert not (planted / "ran").exists()


def test_a_socket_path_that_is_too_long_is_refused_with_a_cure(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_RUNTIME", str(places / ("deep" * 20)))
    with pytest.raises(EngineError, match="MTPLAB_RUNTIME to a shorter path"):
        launch(STANDIN)


def test_a_runtime_folder_that_others_can_write_is_refused(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = places / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    monkeypatch.setenv("MTPLAB_RUNTIME", str(shared))
    with pytest.raises(EngineError, match="can be written by others"):
        running_engines()


def test_a_deeply_nested_command_is_answered(engine: EngineHandle) -> None:
    import socket

    from mtplab.engine.control import socket_path

    with socket.socket(socket.AF_UNIX) as viewer:
        viewer.settimeout(5)
        viewer.connect(str(socket_path(engine.session_dir)))
        viewer.sendall(b'{"cmd":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n")
        assert b"could not be read" in viewer.recv(4096)
    stop(engine)
