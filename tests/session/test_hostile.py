"""A session that came by mail is clean, bounded and honest from the moment it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.identity import Identity
from mtplab.session.journal import JournalWriter, SessionError, read_journal
from mtplab.session.record import SessionRecord, read_record, write_record
from mtplab.session.state import LabState, standing
from mtplab.session.text import clean_text

EVIL = "\x1b[2J\x1b]0;title\x07\u202e\u061c\u200b\ufeff\u2066a\u2028b\nc"
CLEAN = "a b c"
HEADER = {"schema": 1, "session": "j", "created_utc": "y", "t0": 0.0, "format": "mtplab-journal"}


def record_file(folder: Path, **more: Any) -> Path:
    path = folder / "session.json"
    head = {"format": "mtplab-session", "schema": 1, "session": "x", "created_utc": "2026"}
    path.write_text(json.dumps({**head, **more}))
    return path


def journal_file(folder: Path, *lines: str, header: str | None = None) -> Path:
    path = folder / "events.jsonl"
    path.write_text("\n".join([header or json.dumps(HEADER), *lines, ""]))
    return path


@pytest.mark.parametrize("code", [0x61C, 0x200B, 0x200F, 0x202E, 0x2066, 0x2069, 0xFEFF, 0x7F, 0x9B, 0x1B, 0xAD])
def test_what_hides_or_reorders_text_goes(code: int) -> None:
    assert clean_text(f"a{chr(code)}") == "a"


@pytest.mark.parametrize("code", [0x0A, 0x85, 0x2028, 0x2029, 0xA0])
def test_what_breaks_a_line_becomes_a_space(code: int) -> None:
    assert clean_text(f"a{chr(code)}b") == "a b"


def test_a_byte_of_a_file_name_that_is_no_utf8_is_shown_as_such() -> None:
    assert clean_text("caf\udce9") == "caf\ufffd"


def test_every_string_and_key_of_a_record_is_clean(tmp_path: Path) -> None:
    path = record_file(tmp_path, conclusion=EVIL, artefacts={EVIL: {EVIL: EVIL}}, predicted={"a": [{EVIL: [EVIL]}]})
    record = read_record(path)
    assert record.conclusion == CLEAN
    assert record.artefacts == {CLEAN: {CLEAN: CLEAN}}
    assert record.predicted == {"a": [{CLEAN: [CLEAN]}]}


def test_every_string_of_a_journal_is_clean(tmp_path: Path) -> None:
    message = json.dumps({"k": "message", "t": 1, "text": EVIL})
    raw = json.dumps({"k": "message", "t": 1, "text": "a\x7f"}, ensure_ascii=False)
    scan = read_journal(journal_file(tmp_path, message, raw, header=json.dumps({**HEADER, "session": EVIL})))
    assert scan.header.session == CLEAN
    assert [getattr(e, "text", None) for e in scan.events] == [CLEAN, "a"]


def test_names_that_differ_in_invisible_characters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="invisible"):
        read_record(record_file(tmp_path, predicted={"a": 1, "a\u200b": 2}))


@pytest.mark.parametrize("depth", [40, 900, 100_000])
def test_deep_nesting_is_refused_in_records_and_journals(tmp_path: Path, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    path = record_file(tmp_path)
    path.write_text(path.read_text()[:-1] + f', "predicted": {{"a": {deep}}}}}')
    with pytest.raises(SessionError, match="nested deeper"):
        read_record(path)
    line = f'{{"t": 1, "k": "stage_report", "name": "x", "figures": {{"a": {deep}}}}}'
    assert read_journal(journal_file(tmp_path, line)).damaged_lines == 1
    with pytest.raises(SessionError, match="not an mtplab"):
        read_journal(journal_file(tmp_path, header=json.dumps(HEADER)[:-1] + f', "x": {deep}}}'))


@pytest.mark.parametrize("number", ["1e308", "-1e308", "9" * 400, "1" + "0" * 26])
def test_numbers_that_nothing_can_reach_are_refused_and_never_echoed(tmp_path: Path, number: str) -> None:
    path = record_file(tmp_path)
    whole = path.read_text()[:-1]
    for place in (f'"predicted": {{"a": {number}}}', f'"schema": {number}', f'"duration_s": {number}'):
        path.write_text(f"{whole}, {place}}}")
        with pytest.raises(SessionError) as refused:
            read_record(path)
        assert len(str(refused.value)) < 300
    line = f'{{"t": 1, "k": "heat", "skin_c": {number}}}'
    assert read_journal(journal_file(tmp_path, line)).damaged_lines == 1


def test_ordinary_figures_are_read_as_they_stand(tmp_path: Path) -> None:
    values = [0, -1, 1e-300, 0.30000000000000004, 10**15, True, None, "°C – γ", "tab\tkept"]
    assert read_record(record_file(tmp_path, predicted={"a": values})).predicted == {"a": values}


def test_a_sentence_with_a_hostile_path_is_clean(tmp_path: Path) -> None:
    path = record_file(tmp_path, schema=2).rename(tmp_path / "\x1b[31mred\nline\u202e.json")
    with pytest.raises(SessionError) as refused:
        archive.open_session(path)
    assert "red line.json was written with session schema 2" in str(refused.value)
    assert str(refused.value).isprintable()
    with pytest.raises(SessionError) as refused:
        archive.open_session("\x1b[31m" + "n" * 300)
    assert "\x1b" not in str(refused.value) and len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["n" * 300, "n\0n", "a/" * 3000])
def test_a_name_that_no_file_can_have_is_a_session_that_is_not_there(name: str) -> None:
    with pytest.raises(SessionError, match="There is no session"):
        archive.open_session(name)


def test_simulated_said_once_is_simulated_everywhere(tmp_path: Path) -> None:
    for one in ({"simulated": True}, {"identity": {"simulated": True}}):
        record = read_record(record_file(tmp_path, **one))
        assert record.simulated and record.identity.simulated
    assert not read_record(record_file(tmp_path)).simulated


def test_a_stand_in_seen_once_marks_the_whole_session() -> None:
    state = LabState()
    state.apply(ev.DeviceSeen(t=0, identity=Identity(simulated=True)))
    state.apply(ev.DeviceSeen(t=1, identity=Identity(device_model="P")))
    assert state.identity == Identity(device_model="P", simulated=True)


def test_a_record_cannot_claim_to_miss_nothing(tmp_path: Path) -> None:
    record = read_record(record_file(tmp_path, identity={"device_model": "P"}, identity_missing=[]))
    assert "aicore_version" in record.identity_missing and "device_model" not in record.identity_missing


def test_a_pitfall_without_its_sentence_is_a_damaged_record(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="damaged session"):
        read_record(record_file(tmp_path, pitfalls=[{"a": "b"}]))


def verdict(word: str, **more: Any) -> ev.VerdictReached:
    given: dict[str, Any] = {"provisional": False, "complete": True, **more}
    return ev.VerdictReached(t=0, log="l", graph="g", requested="gpu", verdict=word, **given)


def test_a_good_verdict_stands_only_on_a_log_that_ended_or_gave_figures() -> None:
    assert standing(verdict("full_delegate")) == "full_delegate"
    assert standing(verdict("full_delegate", provisional=True)) == "unknown"
    assert standing(verdict("cpu_baseline", complete=False)) == "unknown"
    assert standing(verdict("full_delegate", complete=False, figures={"inference_avg_us": 5})) == "full_delegate"
    assert standing(verdict("full_delegate", complete=False, figures={"inference_avg_us": None})) == "unknown"
    assert standing(verdict("fallback_cpu", provisional=True, complete=False)) == "fallback_cpu"


def sealed(base: Path) -> Path:
    folder, header = archive.new_session("p", "seal", {}, base)
    writer = JournalWriter(folder / archive.JOURNAL, header)
    event = ev.DeviceSeen(t=header.t0, identity=Identity(device_model="P"))
    writer.append(event)
    archive.seal(folder, archive.reduce_events([event]), header, writer.close())
    return folder


def test_a_journal_that_is_not_the_sealed_one_is_told_and_not_refused(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    assert archive.open_session(folder).journal_note is None
    journal = folder / archive.JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"k":"marker","t":1,"label":"added"}\n')
    opened = archive.open_session(folder)
    assert "not the one that was sealed" in (opened.journal_note or "")
    assert opened.record.identity.device_model == "P"


def test_an_unreadable_journal_does_not_hide_its_sealed_record(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    (folder / archive.JOURNAL).write_bytes(b"no header\n")
    opened = archive.open_session(folder)
    assert opened.record.sealed and "no header" in (opened.journal_note or "") and not opened.events


def test_a_record_survives_being_written_and_read(tmp_path: Path) -> None:
    record = SessionRecord(
        schema=1, session="s", created_utc="y", identity=Identity(device_model="P"),
        identity_missing=Identity(device_model="P").missing(),
        pitfalls=[{"pitfall": "p", "text": "t", "evidence": "e"}],
    )  # fmt: skip
    write_record(tmp_path / "session.json", record)
    assert msgspec.to_builtins(read_record(tmp_path / "session.json")) == msgspec.to_builtins(record)
