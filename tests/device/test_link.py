"""The link over the real adb: ends are proven, nothing truncated is called finished, nothing is left running."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mtplab.device import connection, shell, transfer
from mtplab.device.adb import AdbServer, PrivateServer
from mtplab.device.choice import Choice
from mtplab.device.devices_command import lines
from mtplab.device.errors import Cancelled, CommandFailed, DeviceError, DeviceGone
from mtplab.device.link import Link, connect, list_devices, translated
from mtplab.device.standin_host import StandinProcess

FOLDER = "/data/local/tmp/mtplab"


def processes(standin: StandinProcess) -> list[int]:
    """The stand-in's own list of device processes, once it has had a moment to collect the dead."""
    deadline = time.monotonic() + 5
    while (left := standin.control("status")["processes"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(left)


def wait_for_identity(stream: shell.Stream) -> shell.Identity:
    wait_until(lambda: stream.identity is not None)
    assert stream.identity is not None
    return stream.identity


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


# --- commands ---------------------------------------------------------------------------------------------------


def test_output_errors_and_exit_code_are_kept_apart(link: Link) -> None:
    result = link.run("echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)


def test_input_reaches_the_command_and_ends(link: Link) -> None:
    assert link.run(["cat"], stdin=b"a\nb").stdout == "a\nb"
    assert link.run(["cat"]).stdout == ""


def test_check_turns_a_bad_exit_into_a_sentence(link: Link) -> None:
    with pytest.raises(CommandFailed) as failed:
        link.run(["cat", "/data/local/tmp/none"], check=True)
    assert "`cat` failed on" in str(failed.value)
    assert "No such file" in str(failed.value)
    assert failed.value.exit_code == 1


def test_a_command_that_takes_too_long_is_ended_on_the_phone_too(link: Link, standin: StandinProcess) -> None:
    with pytest.raises(CommandFailed, match=r"did not finish within 0\.5 s"):
        link.run("sleep 60", timeout_s=0.5)
    assert processes(standin) == []


def test_much_output_is_refused_and_the_command_ended(link: Link, standin: StandinProcess) -> None:
    connection = link._shell(["cat", "/dev/zero"])
    with pytest.raises(CommandFailed, match="printed too much"):
        shell.run(link, connection, "`cat`", 20, limit_bytes=1 << 20)
    assert processes(standin) == []


def test_threads_share_a_link(link: Link) -> None:
    answers: dict[int, str] = {}

    def ask(i: int) -> None:
        answers[i] = link.run(["echo", str(i)]).stdout

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: f"{i}\n" for i in range(8)}


def test_a_command_longer_than_adb_carries_is_refused_before_it_is_sent(link: Link) -> None:
    with pytest.raises(CommandFailed, match="too long for adb"):
        link.run(["echo", "x" * 70_000])


# --- streams ----------------------------------------------------------------------------------------------------


def test_lines_come_with_their_arrival_times_and_the_end_is_proven(link: Link) -> None:
    began = time.monotonic()
    with link.stream("echo one; sleep 0.3; echo two >&2; sleep 0.1; printf three; exit 5") as stream:
        lines = list(stream)
        assert stream.wait() == 5
    by_text = {line.text: line for line in lines}
    assert {text: line.stream for text, line in by_text.items()} == {
        "one": "stdout", "two": "stderr", "three": "stdout",
    }  # fmt: skip
    assert began < by_text["one"].t < by_text["two"].t < by_text["three"].t <= time.monotonic()
    assert by_text["two"].t - by_text["one"].t > 0.01  # stamped on arrival, not when the list was made


def test_lines_can_be_had_in_the_reading_thread(link: Link) -> None:
    seen: list[tuple[str, str]] = []
    stream = link.stream(["echo", "hello"], on_line=lambda kind, text, t: seen.append((kind, text)))
    assert stream.wait(10) == 0
    assert seen == [("stdout", "hello")]


def test_a_failing_callback_reaches_the_one_who_waits(link: Link, standin: StandinProcess) -> None:
    def fail(kind: str, text: str, t: float) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"), link.stream("echo x; sleep 60", on_line=fail) as stream:
        stream.wait(10)
    assert processes(standin) == []


@pytest.mark.parametrize(
    "command", [["sleep", "60"], "sleep 60; echo never", "trap '' HUP TERM INT; while :; do sleep 0.1; done"]
)
def test_cancel_leaves_no_process_on_the_phone(link: Link, standin: StandinProcess, command: list[str] | str) -> None:
    stream = link.stream(command)
    identity = wait_for_identity(stream)
    assert identity.pid in standin.control("status")["processes"]
    assert stream.cancel() is True
    assert processes(standin) == []
    with pytest.raises(Cancelled):
        stream.wait()


def test_leaving_the_block_cancels(link: Link, standin: StandinProcess) -> None:
    with link.stream(["sleep", "60"]) as stream:
        wait_for_identity(stream)
    assert processes(standin) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the /proc that Android has")
@pytest.mark.parametrize(("ours", "lives"), [(False, True), (True, False)])
def test_only_the_process_that_was_started_is_ended_not_a_later_one_of_its_number(ours: bool, lives: bool) -> None:
    """The script that ends processes, on this machine's own shell and /proc."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as sleeper:
        start = Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[19]
        script = shell._END.format(pid=sleeper.pid, start=start if ours else str(int(start) - 1))
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True)
        if ours:
            sleeper.wait(5)
        assert (sleeper.poll() is None) is lives
        sleeper.kill()
    # Told to be ours, it ends; the zombie that this test has not collected yet may count as alive.
    assert done.stdout in (("ended\n", "alive\n") if ours else ("ended\n",))


def test_a_cable_pulled_in_the_middle_is_never_a_finished_command(link: Link, standin: StandinProcess) -> None:
    stream = link.stream("echo one; printf torn; sleep 60; echo never")
    wait_for_identity(stream)
    first = next(iter(stream))
    wait_until(lambda: stream._lines.torn() == "torn")  # the two texts may come in two packets
    standin.control("unplug")
    with pytest.raises(DeviceGone, match="cannot be called finished"):
        list(stream)
    assert (first.text, stream.torn, stream.exit_code) == ("one", "torn", None)
    with pytest.raises(DeviceError):
        link.run(":", timeout_s=3)
    standin.control("plug")
    assert link.wait_for_return(10) >= 0
    assert stream.cancel() is True  # tidies up what the loss may have left
    assert processes(standin) == []


def test_run_during_a_pulled_cable_is_gone_and_not_short(link: Link, standin: StandinProcess) -> None:
    timer = threading.Timer(0.5, lambda: standin.control("unplug 0.3"))
    timer.start()
    with pytest.raises(DeviceGone, match="was lost while"):
        link.run("echo partial; sleep 20")
    timer.join()
    link.wait_for_return(10)


# --- files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "a model.tflite"
    path.write_bytes(os.urandom(3_000_000))
    return path


def test_a_push_is_verified_and_an_equal_hash_is_skipped(link: Link, blob: Path) -> None:
    seen: list[tuple[int, int]] = []
    dst = f"{FOLDER}/it's a model.tflite"
    first = link.push(blob, dst, lambda done, total: seen.append((done, total)))
    assert first.sha256 == hashlib.sha256(blob.read_bytes()).hexdigest() == link.sha256(dst)
    assert (first.skipped, first.bytes, seen[-1]) == (False, 3_000_000, (3_000_000, 3_000_000))
    assert link.push(blob, dst).skipped is True


def test_a_changed_file_of_equal_size_and_date_is_pushed_again(link: Link, blob: Path) -> None:
    dst = f"{FOLDER}/same-size.bin"
    link.push(blob, dst)
    date = blob.stat().st_mtime
    blob.write_bytes(os.urandom(3_000_000))
    os.utime(blob, (date, date))
    again = link.push(blob, dst)
    assert (again.skipped, link.sha256(dst)) == (False, again.sha256)


def test_an_interrupted_push_starts_again_and_leaves_no_part(link: Link, standin: StandinProcess, blob: Path) -> None:
    totals: list[int] = []
    pulled: list[int] = []

    def pull_once(done: int, total: int) -> None:
        totals.append(done)
        if not pulled and done > total // 3:
            pulled.append(done)
            standin.control("unplug 0.5")

    blob.write_bytes(os.urandom(20_000_000))
    result = link.push(blob, f"{FOLDER}/interrupted.bin", pull_once)
    assert result.attempts == 2
    assert totals.count(65536) == 2  # it began anew
    assert link.sha256(result.dst) == result.sha256
    assert link.run(f"ls {FOLDER}/*.part-*").stdout == ""


def test_a_file_that_changes_while_it_is_pushed_is_found_out_by_its_hash(link: Link, blob: Path) -> None:
    def overwrite(done: int, total: int) -> None:
        with blob.open("r+b") as file:
            file.seek(total - 10)
            file.write(os.urandom(10))

    with pytest.raises(CommandFailed, match=r"arrived on .* changed"):
        link.push(blob, f"{FOLDER}/changing.bin", overwrite)
    assert "changing" not in link.run(["ls", FOLDER]).stdout


def test_cancelled_and_refused_pushes_leave_nothing(link: Link, blob: Path, tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        link.push(blob, f"{FOLDER}/cancelled.bin", cancel=lambda: True)
    assert "cancelled" not in link.run(["ls", FOLDER]).stdout
    with pytest.raises(CommandFailed, match="no absolute"):
        link.push(blob, "relative/path")
    with pytest.raises(CommandFailed, match="cannot be read"):
        link.push(tmp_path / "none", f"{FOLDER}/x")
    with pytest.raises(CommandFailed):
        link.push(blob, "/system/bin/x")


def test_a_folder_in_the_files_place_is_never_called_the_file(link: Link, blob: Path) -> None:
    link.run("mkdir -p '/data/local/tmp/in the way'", check=True)
    with pytest.raises(CommandFailed, match="in the way is a folder"):
        link.push(blob, "/data/local/tmp/in the way")
    assert link.run("ls -A '/data/local/tmp/in the way'; ls /data/local/tmp | grep part").stdout == ""
    link.run("rmdir '/data/local/tmp/in the way'", check=True)


def test_a_phone_that_hangs_is_given_up_within_the_commands_own_time(link: Link, standin: StandinProcess) -> None:
    standin.control("mode hung")
    try:
        with pytest.raises(DeviceGone, match="did not answer in time"):
            link.run(":", timeout_s=0.5)
        (entry,) = list_devices(standin.server)
        shown = "\n".join(lines((entry,), Choice(entry, "only")))
    finally:
        standin.control("mode normal")
    assert (entry.usable, entry.simulated) == (True, None)
    assert "whether it is a stand-in is not known" in shown


def test_a_phone_without_space_refuses_before_a_byte_is_sent(link: Link, blob: Path) -> None:
    link.free_bytes = lambda path: 1_000_000  # type: ignore[method-assign]
    with pytest.raises(CommandFailed, match=r"needs 3\.0 MB, but .* has 1\.0 MB free"):
        link.push(blob, f"{FOLDER}/full.bin")


def test_several_files_go_together_and_only_the_changed_ones_go_again(link: Link, tmp_path: Path) -> None:
    files = []
    for number in range(5):
        path = tmp_path / f"it's {number}"
        path.write_bytes(os.urandom(100_000 + number))
        files.append((path, f"{FOLDER}/many/it's {number}.bin"))
    seen: list[transfer.Progress] = []
    first = link.push_all(files, seen.append)
    assert [result.skipped for result in first] == [False] * 5
    assert (seen[-1].done, seen[-1].total, seen[-1].eta_s) == (500_010, 500_010, 0.0)
    assert all(b.done > a.done for a, b in itertools.pairwise(seen))
    files[2][0].write_bytes(os.urandom(100_002))
    seen.clear()
    again = link.push_all(files, seen.append)
    assert [result.skipped for result in again] == [True, True, False, True, True]
    assert (seen[-1].done, seen[-1].sent) == (500_010, 100_002)
    assert link.sha256(files[2][1]) == again[2].sha256


def test_files_that_were_proven_before_the_cable_was_pulled_are_not_sent_again(
    link: Link, standin: StandinProcess, blob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_TOGETHER_BYTES", 1)  # every file is proven by itself
    second = blob.with_name("second")
    second.write_bytes(os.urandom(20_000_000))
    pulled: list[str] = []

    def pull_in_the_second(at: transfer.Progress) -> None:
        if not pulled and at.name == "second.bin" and at.sent > 6_000_000:
            pulled.append(at.name)
            standin.control("unplug 0.5")

    first, later = link.push_all(
        [(blob, f"{FOLDER}/first.bin"), (second, f"{FOLDER}/second.bin")], pull_in_the_second
    )
    assert (first.attempts, later.attempts, first.skipped) == (1, 2, False)
    assert link.sha256(later.dst) == later.sha256


def test_a_refused_push_is_told_in_the_phones_own_words(link: Link, blob: Path) -> None:
    with pytest.raises(CommandFailed, match="Read-only file system"), translated(link.serial, "pushing"):
        link.server.client().device(link.serial).sync.push(blob, "/system/bin/x")


def test_a_refusal_is_heard_while_there_is_still_something_to_send() -> None:
    from adbutils import AdbError

    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = connection._Wire(ours)
        assert wire.send(b"DATA") == 4
        theirs.sendall(b"FAIL" + (7).to_bytes(4, "little") + b"no room")
        with pytest.raises(AdbError, match="no room"):
            wire.send(b"DATA")


def test_a_slow_reader_gets_whole_frames_although_the_socket_has_a_time_limit() -> None:
    """A socket with a time limit takes what fits; adbutils alone would drop the rest of the frame."""
    ours, theirs = socket.socketpair()
    got = bytearray()

    def read_late() -> None:
        time.sleep(0.2)
        while piece := theirs.recv(1 << 16):
            got.extend(piece)

    reader = threading.Thread(target=read_late)
    reader.start()
    with ours:
        ours.settimeout(10)
        assert connection._Wire(ours).send(bytes(5_000_000)) == 5_000_000
    reader.join()
    theirs.close()
    assert len(got) == 5_000_000


# --- servers and devices ----------------------------------------------------------------------------------------


def test_the_list_names_the_stand_in_as_simulated(standin: StandinProcess, link: Link) -> None:
    (entry,) = list_devices(standin.server)
    assert (entry.serial, entry.state, entry.simulated, entry.wireless) == (link.serial, "device", True, False)


def test_what_is_not_attached_is_said_to_be_so(standin: StandinProcess) -> None:
    with pytest.raises(DeviceGone, match="NO-SUCH-PHONE is not attached"):
        Link(standin.server, "NO-SUCH-PHONE").run(":")
    with pytest.raises(DeviceGone, match="could not connect"):
        connect(standin.server, "127.0.0.1:1")


def test_no_server_is_a_sentence_and_none_is_started_behind_ones_back() -> None:
    server = AdbServer.users()
    with pytest.raises(DeviceGone, match="No adb server answers"):
        list_devices(server)
    assert server.version() is None


def test_a_private_server_takes_its_process_and_its_folder_with_it() -> None:
    with PrivateServer() as server:
        home, pid = server.home, server.pid
        assert server.version() is not None
        assert server.public_key_path.is_file()
        assert pid is not None
    assert not home.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_new_phone_waits_for_allow_and_says_so() -> None:
    with StandinProcess(scenario="unauthorised", allow=False) as phone:
        (entry,) = list_devices(phone.server)
        assert entry.state == "unauthorized"
        assert "tap Allow" in entry.cure
        with pytest.raises(DeviceGone, match="not allowed this computer"):
            phone.link().run(":")
        phone.control("allow")
        phone.link().wait_for_return(10)
        assert phone.link().run(["echo", "in"]).stdout == "in\n"


def test_an_unknown_scenario_is_one_sentence_that_names_the_known_ones() -> None:
    said = r"unknown scenario 'nonsense': there are .*normal"
    with pytest.raises(DeviceError, match=said), StandinProcess("nonsense"):
        pass


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (EOFError("x"), DeviceGone), (OSError("x"), DeviceGone), (AssertionError(), DeviceGone),
        (ValueError("x"), DeviceGone), (TimeoutError(), DeviceGone),
    ],
)  # fmt: skip
def test_odd_failures_of_the_library_become_sentences(problem: Exception, kind: type[DeviceError]) -> None:
    with pytest.raises(kind) as failed, translated("PHONE", "testing"):
        raise problem
    assert str(failed.value).endswith(".")
    assert "PHONE" in str(failed.value)


def test_adbs_own_words_are_sorted_into_gone_and_refused() -> None:
    from adbutils import AdbError

    for said, kind in (
        ("device offline", DeviceGone), ("device unauthorized.", DeviceGone), ("", DeviceGone),
        ("device 'X' not found", DeviceGone), ("closed", CommandFailed),
    ):  # fmt: skip
        with pytest.raises(kind), translated("PHONE", "testing"):
            raise AdbError(said)


HOLD = """
import sys
from mtplab.device.standin_host import StandinProcess
with StandinProcess() as phone:
    print(phone.pid, phone.server.pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_lab_leaves_neither_stand_in_nor_server() -> None:
    lab = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    pids = [int(word) for word in lab.stdout.readline().split()]
    assert len(pids) == 2
    lab.kill()
    lab.communicate()
    deadline = time.monotonic() + 15
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in pids if running(pid)] == []


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_text_that_a_program_streams_arrives_before_its_line_ends(link: Link) -> None:
    with link.stream("printf one; read x; printf 'two\n'; echo bad >&2", whole_lines=False) as stream:
        first = ""
        while first != "one":  # in as many pieces as adb cares to bring it
            piece = stream.line(10)
            assert piece is not None and piece.stream == "stdout" and "one".startswith(first + piece.text)
            first += piece.text
        assert stream.identity is not None
        stream.send(b"\n")
        rest = list(stream)
        assert "".join(piece.text for piece in rest if piece.stream == "stdout") == "two\n"
        assert "".join(line.text for line in rest if line.stream == "stderr") == "bad"
        assert stream.wait(5) == 0
