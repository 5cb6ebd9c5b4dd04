"""Saved sessions are listed, shown and compared honestly, whatever stands in their files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mtplab.report.contract import exit_code, run_contract, worst_verdict
from mtplab.report.text import session_text
from mtplab.session import archive
from mtplab.session.identity import Policy
from mtplab.session.record import ConfigurationRecord, SessionRecord, StageRecord, VerdictRecord

EVIL = "\x1b[2J\x1b]0;title\x07\u202eEVIL\u200b\nSECOND"


def record(*verdicts: VerdictRecord, **more: Any) -> SessionRecord:
    return SessionRecord(schema=1, session="s", created_utc="y", verdicts=list(verdicts), **more)


def verdict(word: str, **more: Any) -> VerdictRecord:
    given: dict[str, Any] = {"requested": "gpu", "provisional": False, "complete": True, **more}
    return VerdictRecord(graph="g", verdict=word, **given)


def test_a_word_that_nobody_knows_counts_as_unknown(write: Callable[..., str], call: Any) -> None:
    strange = {"graph": "g", "requested": "gpu", "verdict": "bogus", "provisional": False, "complete": True}
    path = write("a", verdicts=[strange])
    assert "Delegates: UNKNOWN" in call("show", path).output
    listed = {row["session"]: row for row in json.loads(call("sessions", "--json").output)}
    assert listed["a"]["verdict"] == "unknown"
    assert worst_verdict(record(verdict("bogus"), verdict("full_delegate"))) == "unknown"
    assert worst_verdict(record(verdict("bogus"), verdict("partial"))) == "partial"


def test_one_bad_session_never_breaks_the_list(
    write: Callable[..., str], call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("good")
    write("torn", schema="1")
    write("worse")
    opened = archive.open_session

    def open_or_fail(path: Path) -> archive.OpenSession:
        if path.name == "worse":
            raise KeyError("text")
        return opened(path)

    monkeypatch.setattr(archive, "open_session", open_or_fail)
    rows = {row["session"]: row.get("error") for row in json.loads(call("sessions", "--json").output)}
    assert rows["good"] is None and "schema" in rows["torn"] and "KeyError" in rows["worse"]
    assert call("sessions").output.count("cannot be opened") == 2


def test_a_provisional_delegate_is_no_headline(write: Callable[..., str], call: Any) -> None:
    cut = {"graph": "g", "requested": "gpu", "verdict": "full_delegate", "provisional": True, "complete": False}
    path = write("a", verdicts=[cut], exit_code=0)
    shown = call("show", path).output
    assert "Delegates: UNKNOWN" in shown and "✓" not in shown
    assert any(line.startswith(" ? g") and "FULL_DELEGATE (provisional)" in line for line in shown.splitlines())
    value = json.loads(call("show", path, "--json").output)
    assert (value["verdict"], value["exit_code"]) == ("unknown", 5)
    assert value["verdicts"][0]["verdict"] == "full_delegate"


def test_exit_codes_follow_the_verdicts_that_stand() -> None:
    assert exit_code(record(verdict("full_delegate"), exit_code=0)) == 0
    assert exit_code(record(verdict("full_delegate", complete=False), exit_code=0)) == 5
    assert exit_code(record(verdict("full_delegate", provisional=True), exit_code=4)) == 4
    assert exit_code(record(verdict("full_delegate", provisional=True))) is None
    assert worst_verdict(record()) is None


def test_nothing_hostile_reaches_the_terminal(write: Callable[..., str], call: Any) -> None:
    figures = {"ttft_ms": {"value": None, "reason": EVIL}}
    path = write(
        "a\x1b[31m\u202ename", session=EVIL, outcome=EVIL, conclusion=EVIL, outcome_reason=EVIL, recovery=EVIL,
        identity={"device_model": EVIL}, configurations=[{"name": EVIL, "figures": figures}],
        pitfalls=[{"pitfall": EVIL, "text": EVIL, "evidence": EVIL}], scenarios=[{"text": EVIL}, {EVIL: EVIL}],
        stages=[{"name": EVIL, "status": EVIL, "summary": EVIL}],
        verdicts=[{**dict.fromkeys(("graph", "requested", "verdict", "reason"), EVIL),
                   "provisional": False, "complete": True}],
    )  # fmt: skip
    (Path(path).parent / "b\x1b[31m").mkdir()
    (Path(path).parent / "b\x1b[31m" / "session.json").write_text("{")
    for arguments in (("show", path), ("show", path, "--json"), ("sessions",), ("sessions", "--json"),
                      ("compare", path, path), ("compare", path, path, "--json")):  # fmt: skip
        output = call(*arguments).output
        assert output and not set(output) & set("\x1b\x07\u202e\u200b")
        assert not any(line.startswith("SECOND") for line in output.splitlines())


def test_a_session_without_any_figure_is_nothing_to_compare(write: Callable[..., str], call: Any) -> None:
    a, b = write("a"), write("b")
    assert call("compare", a, b).exit_code == 0
    for empty in (write("c", configurations=[]), write("d", configurations=[{"name": "mtp-on", "figures": {}}])):
        result = call("compare", a, empty)
        assert result.exit_code == 5
        assert f"{Path(empty).name} holds no measured configuration" in result.output
        assert call("compare", empty, a).exit_code == 5


def test_a_stand_in_hidden_in_one_flag_is_not_set_beside_a_phone(
    write: Callable[..., str], call: Any, identity: dict[str, Any]
) -> None:
    real, hidden = write("real"), write("hidden", simulated=True)
    result = call("compare", real, hidden)
    assert result.exit_code == 5 and "hidden is SIMULATED" in result.output
    other = write("other", simulated=False, identity={**identity, "simulated": True})
    assert "[SIMULATED]" in call("show", other).output
    assert call("compare", real, other).exit_code == 5


def test_what_may_vary_is_refused_in_a_clean_sentence(write: Callable[..., str], call: Any) -> None:
    result = call("compare", write("a"), write("b"), "--vary", "\x1b[31mx")
    assert result.exit_code == 1
    assert "Nothing named x can vary" in str(result.exception)


def test_a_folder_name_that_is_no_utf8_gives_valid_json(write: Callable[..., str], call: Any, home: Path) -> None:
    Path(write("a")).rename(home / os.fsdecode(b"caf\xe9"))
    data = call("sessions", "--json").stdout_bytes
    assert any(row["path"].endswith("caf\ufffd") for row in msgspec.json.decode(data))


def test_a_journal_that_is_not_the_sealed_one_is_told(write: Callable[..., str], call: Any) -> None:
    path = write("a", events_sha256="0" * 64)
    header = {"schema": 1, "session": "a", "created_utc": "y", "t0": 0.0, "format": "mtplab-journal"}
    (Path(path) / "events.jsonl").write_text(json.dumps(header) + "\n")
    assert "! The journal beside it is not the one that was sealed" in call("show", path).output
    assert json.loads(call("show", path, "--json").output)["notes"]


def test_an_unfinished_bench_is_not_summed_up_as_well() -> None:
    full = VerdictRecord(
        graph="head", requested="gpu", verdict="full_delegate", provisional=False, complete=True,
        figures={"inference_avg_us": 1.0},
    )  # fmt: skip
    assert worst_verdict(record(full, stages=[StageRecord(name="bench", status="done")])) == "full_delegate"
    for status in ("running", "failed", "cancelled"):
        assert worst_verdict(record(full, stages=[StageRecord(name="bench", status=status)])) == "unknown"


def test_figures_say_where_they_ran_and_hot_rounds_are_named() -> None:
    hot = ConfigurationRecord(name="mtp-on", figures={}, rounds=[{"marks": ["began-hot"]}, {"marks": ["throttled"]}])
    some = ConfigurationRecord(name="mtp-off", figures={}, rounds=[{"marks": []}, {"marks": ["began-hot"]}])
    one = record(configurations=[hot, some], policy=Policy(threads=4), run={"run": "r"})
    text = session_text(one)
    assert "on CPU with 4 threads" in text
    assert "mtp-on  (0 cold of 2 rounds)  HOT" in text and "mtp-off  (1 cold of 2 rounds)\n" in text
    told = run_contract(one, Path("s"))["configurations"]
    assert [(c["rounds"], c["cold_rounds"], c["marks"]) for c in told] == [
        (2, 0, ["began-hot", "throttled"]),
        (2, 1, ["began-hot"]),
    ]
