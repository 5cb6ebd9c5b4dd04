"""The whole job, headless, on real parts: pipeline, real adb, stand-in, real LiteRT, session."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_bench import Bench

from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.journal import read_journal

pytestmark = [pytest.mark.e2e, pytest.mark.pipeline, pytest.mark.timeout(900)]

HOST = ("freeze", "export", "align", "quantise", "acceptance")
QUICK = ("--output-limit", "24", "--bench-rounds", "1")


def wait_for(condition: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def events_of(bench: Bench) -> list[ev.Event]:
    folders = [p for p in bench.sessions.iterdir() if (p / archive.JOURNAL).is_file()]
    return read_journal(folders[0] / archive.JOURNAL).events if folders else []


def stage_is(bench: Bench, name: str, status: str) -> bool:
    return any(isinstance(e, ev.StageChanged) and (e.name, e.status) == (name, status) for e in events_of(bench))


def test_the_whole_job_on_the_stand_in_and_again_from_the_cache(bench: Bench, few_prompts: Path) -> None:
    run, code, told = bench.run_json("--standin", "--prompts", str(few_prompts), *QUICK)
    assert code == 0, told
    assert run["simulated"] is True and run["verdict"] == "full_delegate"
    assert {s["name"]: s["status"] for s in run["stages"]} | dict.fromkeys(HOST) == {
        **dict.fromkeys(HOST),
        "push": "done",
        "bench": "done",
        "measure": "done",
        "conclude": "done",
    }
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s", "alpha"):
        figure = run["figures"][name]
        assert figure["low"] <= figure["value"] <= figure["high"] and figure["n"] == 9
    assert run["figures"]["gamma"] == 3 and 0 < run["figures"]["alpha"]["value"] < 1
    assert run["identity"]["missing"] == []
    assert {v["requested"] for v in run["verdicts"]} == {"cpu", "gpu"}
    assert {v["graph"] for v in run["verdicts"]} == {
        "head/draft_3", "backbone/prefill_64", "backbone/decode", "backbone/verify_3",
    }  # fmt: skip
    for verdict in run["verdicts"]:
        assert verdict["evidence"] and not verdict["provisional"]
        assert verdict["figures"]["inference_runs"] >= 50 and verdict["figures"]["warmup_runs"] >= 10
    assert run["conclusion"].startswith("SIMULATED: ")
    # The same tokens with MTP on and off, for every prompt; near ties are counted, never hidden.
    exact = run["exactness"]
    assert exact["compared"] == 9 and not exact["failures"]
    assert exact["equal"] + len(exact["near_ties"]) == 9
    align = next(s for s in run["stages"] if s["name"] == "align")["figures"]
    assert align["worst_top1"] >= 0.99

    again, code, told = bench.run_json("--standin", "gpu-silent-fallback", "--prompts", str(few_prompts), *QUICK)
    assert code == 3, told
    assert {s["status"] for s in again["stages"] if s["name"] in (*HOST, "push")} == {"cached"}
    assert again["verdict"] == "fallback_cpu"
    proof = next(v for v in again["verdicts"] if v["requested"] == "gpu")["evidence"][0]
    assert "will not be executed by the delegate" in proof["text"] and proof["line"] > 1
    assert any(p["pitfall"] == "silent-fallback" for p in again["pitfalls"])

    shown = bench.mtplab("show", run["session"])
    assert shown.returncode == 0 and "SIMULATED" in shown.stdout and "TTFT" in shown.stdout
    refused = bench.mtplab("compare", run["session"], again["session"], "--json")
    assert refused.returncode == 5 and "scenario" in json.loads(refused.stdout)["reasons"][0]
    allowed = bench.mtplab("compare", run["session"], again["session"], "--vary", "scenario")
    assert allowed.returncode == 0, allowed.stdout
    assert bench.strays() == []


def test_kill_minus_nine_in_the_middle_of_a_run_loses_at_most_two_seconds(bench: Bench, few_prompts: Path) -> None:
    run = bench.start("run", "--standin", "--prompts", str(few_prompts), *QUICK)
    wait_for(lambda: stage_is(bench, "bench", "running"))
    wait_for(lambda: any(isinstance(e, ev.LogLine) for e in events_of(bench)))
    killed = time.monotonic()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_for(lambda: bench.strays() == [], 20)
    opened = archive.open_session(bench.only_session())
    assert opened.record.recovered and opened.record.outcome is None
    assert 0 <= killed - opened.events[-1].t < 2.0
    assert next(s for s in opened.record.stages if s.name == "bench").status == "running"
    shown = bench.mtplab("show", str(opened.path), "--json")
    assert json.loads(shown.stdout)["recovered"] is True


def test_a_cancelled_run_is_sealed_and_leaves_nothing_running(bench: Bench, few_prompts: Path) -> None:
    run = bench.start("run", "--standin", "--prompts", str(few_prompts), *QUICK)
    wait_for(lambda: stage_is(bench, "measure", "running"))
    run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130
    record = archive.open_session(bench.only_session()).record
    assert record.sealed and record.outcome == "cancelled"
    statuses = {s.name: s.status for s in record.stages}
    assert statuses["measure"] == "cancelled" and statuses["conclude"] == "skipped"
    wait_for(lambda: bench.strays() == [], 20)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("run", "--standin", "no-such-scenario"), 1, "no scenario"),
        (("run", "--standin", "--model", "nobody/nothing"), 1, "nobody/nothing"),
        (("run", "--standin", "--recipe", "int3"), 1, "int3"),
        (("run", "--standin", "--prompts", "/nowhere.jsonl"), 1, "prompt"),
        (("run", "--standin", "--from", "bench", "--to", "freeze"), 1, "begin"),
        (("run", "--rounds", "2"), 1, "rounds"),
        (("run",), 2, "No phone is attached"),
        (("show", "nothing-like-it"), 1, "no session"),
        (("lab", "--attach"), 1, "terminal"),
        (("standin", "--scenario", "no-such"), 1, "no-such"),
    ],
)
def test_bad_input_gets_one_sentence_and_the_documented_code(
    bench: Bench, arguments: tuple[str, ...], code: int, word: str
) -> None:
    done = bench.mtplab(*arguments)
    assert done.returncode == code, done.stderr
    assert word in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not list(bench.sessions.iterdir())
    port = bench.env["ANDROID_ADB_SERVER_PORT"]
    if arguments == ("run",):
        # A user's server is started where there is none, and never ended by us: here it is ours to end.
        import subprocess

        from mtplab.device.adb import find_adb

        subprocess.run([str(find_adb()), "-P", port, "kill-server"], check=True, capture_output=True)
