"""The journal keeps what was flushed, loses at most a torn line, and refuses what it cannot read rightly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.identity import Identity, Policy
from mtplab.session.journal import JournalReader, JournalWriter, SessionError, read_journal


def write_session(base: Path, count: int = 20) -> tuple[Path, str]:
    folder, header = archive.new_session("Pixel 9 Pro", "test", {"mtplab": "test"}, base)
    writer = JournalWriter(folder / archive.JOURNAL, header)
    writer.append(ev.DeviceSeen(t=header.t0, identity=Identity(device_model="Pixel 9 Pro", simulated=True)))
    for i in range(count):
        writer.append(ev.Heat(t=header.t0 + i, zones={"BIG": 40.0 + i, "dead": None}, skin_c=30.0 + i, status=i % 3))
    return folder, writer.close()


def test_a_session_without_session_json_is_recovered_and_says_so(tmp_path: Path) -> None:
    folder, sha256 = write_session(tmp_path)
    opened = archive.open_session(folder)
    assert opened.record.recovered and "session.json was missing" in (opened.record.recovery or "")
    assert opened.record.events_sha256 == sha256
    assert opened.record.event_count == 21 and opened.record.simulated


def test_a_torn_tail_loses_one_line_and_is_named(tmp_path: Path) -> None:
    folder, _ = write_session(tmp_path)
    journal = folder / archive.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-15])
    record = archive.open_session(folder).record
    assert record.event_count == 20 and "torn" in (record.recovery or "")


def test_a_damaged_line_in_the_middle_is_left_out_and_counted(tmp_path: Path) -> None:
    folder, _ = write_session(tmp_path)
    journal = folder / archive.JOURNAL
    lines = journal.read_bytes().split(b"\n")
    lines[5] = b'{"k":"heat","t":"not a number"}'
    lines[6] = b"\xff\x00garbage"
    journal.write_bytes(b"\n".join(lines))
    record = archive.open_session(folder).record
    assert record.event_count == 19 and "2 damaged lines" in (record.recovery or "")


def test_a_follower_sees_only_whole_lines(tmp_path: Path) -> None:
    folder, _ = write_session(tmp_path, 3)
    whole = (folder / archive.JOURNAL).read_bytes()
    live = tmp_path / "live.jsonl"
    reader_events: list[ev.Event] = []
    live.write_bytes(b"")
    reader = JournalReader(live)
    for i in range(0, len(whole), 7):
        with live.open("ab") as out:
            out.write(whole[i : i + 7])
        reader_events += reader.poll()
    assert reader_events == read_journal(folder / archive.JOURNAL).events
    assert reader.damaged_lines == 0 and not reader.torn


@pytest.mark.parametrize("schema", [2, 99])
def test_a_newer_schema_is_refused_with_a_sentence(tmp_path: Path, schema: int) -> None:
    folder, _ = write_session(tmp_path)
    journal = folder / archive.JOURNAL
    head, rest = journal.read_bytes().split(b"\n", 1)
    fields = {**msgspec.json.decode(head), "schema": schema}
    journal.write_bytes(msgspec.json.encode(fields) + b"\n" + rest)
    with pytest.raises(SessionError, match="update mtplab"):
        archive.open_session(folder)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "cannot|empty|torn|JSON"),
        (b"{", "torn"),
        (b"[]", "not an mtplab session"),
        (b'{"format":"x"}', "not an"),
    ],
)
def test_torn_and_foreign_session_files_are_refused(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(content)
    with pytest.raises(SessionError, match=word):
        archive.open_session(path)


def test_session_json_alone_opens_without_its_folder(tmp_path: Path) -> None:
    folder, sha256 = write_session(tmp_path)
    scan = read_journal(folder / archive.JOURNAL)
    archive.seal(folder, archive.reduce_events(scan.events), scan.header, sha256)
    mailed = tmp_path / "mailed.json"
    mailed.write_bytes((folder / archive.RECORD).read_bytes())
    opened = archive.open_session(mailed)
    assert opened.record.sealed and opened.record.identity.device_model == "Pixel 9 Pro"
    assert not opened.replayable()
    # An incomplete identity is named, not papered over (R21).
    assert set(opened.record.identity_missing) == {
        "os_version",
        "aicore_version",
        "quantisation",
        "gamma",
        "temperature",
    }


def test_a_torn_session_json_beside_a_whole_journal_is_recovered(tmp_path: Path) -> None:
    folder, _ = write_session(tmp_path)
    (folder / archive.RECORD).write_bytes(b'{"format":"mtplab-ses')
    assert archive.open_session(folder).record.recovered


def test_sessions_are_found_by_the_beginning_of_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_SESSIONS", str(tmp_path))
    folder, _ = write_session(tmp_path)
    assert archive.find(folder.name[:16]) == folder
    assert archive.find("last") == folder
    with pytest.raises(SessionError, match="mtplab sessions"):
        archive.find("no-such-session")


def test_kill_minus_nine_loses_nothing_that_was_ticked(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from mtplab.session import archive, events as ev
from mtplab.session.journal import JournalWriter
folder, header = archive.new_session("p", "kill", {}, Path(sys.argv[1]))
writer = JournalWriter(folder / archive.JOURNAL, header)
for i in range(1000):
    writer.append(ev.Heat(t=time.monotonic(), skin_c=float(i)))
writer.tick()
print(folder, flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    folder = Path(child.stdout.readline().strip())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert archive.open_session(folder).record.event_count == 1000


def test_every_event_survives_the_journal(tmp_path: Path) -> None:
    t = time.monotonic()
    samples: list[ev.Event] = [
        ev.RunStarted(t=t, run="1", stages=["freeze"], policy=Policy(), model="tiny", head="h", recipe="r"),
        ev.VerdictReached(
            t=t, log="1", graph="g", requested="gpu", verdict="partial", provisional=True, delegated_nodes=41,
            evidence=[ev.Evidence(line=3, text="x", rule="y")],
        ),
        ev.ConfigurationMeasured(t=t, name="mtp-on", figures={"ttft_ms": ev.Figure(value=None, reason="no stamps")}),
        ev.RoundMeasured(t=t, configuration="mtp-on", index=0, order=1, prompts=[{"id": "a", "accepted": [1, 2]}]),
    ]  # fmt: skip
    folder, header = archive.new_session("p", "kinds", {}, tmp_path)
    writer = JournalWriter(folder / archive.JOURNAL, header)
    for event in samples:
        writer.append(event)
    writer.close()
    assert read_journal(folder / archive.JOURNAL).events == samples
