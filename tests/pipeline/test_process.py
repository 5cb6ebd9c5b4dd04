"""A worker's events arrive whole, it ends at once on cancel, and its death is one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mtplab.pipeline.job import Job
from mtplab.pipeline.process import run_worker

STAGES = {
    "good": """
        import os, sys
        def run(job, emit):
            os.write(1, b'native noise on descriptor one\\n')
            print('{"e": "result", "figures": {"forged": 1}}')
            emit.progress(1, 2, 'steps', 'half')
            os.write(1, b'noise without an end')
            emit.figure('size', 3)
            os.write(2, b'\\nnoise on two\\n')
            job.output('made.txt').write_text(job.input('given').read_text() + str(job.params['n']))
            from mtplab.pipeline.job import Output
            return Output(figures={'n': job.params['n']}, artefacts=('made.txt',), summary='ok')
        """,
    "forgetful": """
        from mtplab.pipeline.job import Output
        def run(job, emit):
            return Output(artefacts=('never.txt',))
        """,
    "raising": """
        def run(job, emit):
            raise KeyError('colour')
        """,
    "refusing": """
        from mtplab.pipeline.job import StageFailed
        def run(job, emit):
            raise StageFailed('The graph is wrong; mend it.', {'top1': 0.5})
        """,
    "crashing": """
        import os, signal
        def run(job, emit):
            os.write(2, b'about to fall\\n')
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
    "leaving": """
        import os
        def run(job, emit):
            os._exit(7)
        """,
    "littering": """
        import subprocess, sys
        from mtplab.pipeline.job import Output
        def run(job, emit):
            child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
            return Output(figures={'pid': child.pid})
        """,
    "escaping": """
        import subprocess, sys
        from mtplab.pipeline.job import Output
        def run(job, emit):
            child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
            return Output(figures={'pid': child.pid})
        """,
    "stubborn": """
        import os, signal, subprocess, sys, time
        def run(job, emit):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, '-c',
                'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'])
            emit.figure('pids', [os.getpid(), child.pid])
            time.sleep(600)
        """,
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import textwrap

    modules = tmp_path / "modules"
    modules.mkdir()
    for name, source in STAGES.items():
        (modules / f"stage_{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    )
    given = tmp_path / "given.txt"
    given.write_text("given ")
    work = tmp_path / "work"
    work.mkdir()

    def make(name: str) -> Job:
        return Job(
            stage=name,
            module=f"stage_{name}",
            params={"n": 5},
            inputs={"given": str(given)},
            workdir=str(work),
        )

    return make


def run(job: Job, cancel: threading.Event | None = None) -> tuple[Any, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return run_worker(job, events.append, cancel or threading.Event()), events


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events if event["e"] == "log"]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False
    return state == "Z"


def wait_until_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while not all(gone(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_noise_on_standard_output_never_reaches_the_protocol(job: Any) -> None:
    ended, events = run(job("good"))
    assert ended.status == "done", ended.reason
    assert ended.event["figures"] == {"n": 5}
    assert [event["e"] for event in events if event["e"] != "log"] == ["progress", "figure"]
    assert {"native noise on descriptor one", "noise without an end", "noise on two"} <= set(texts(events))
    assert (Path(job("good").workdir) / "made.txt").read_text() == "given 5"


def test_a_promised_file_that_is_not_there_fails_the_stage(job: Any) -> None:
    ended, _ = run(job("forgetful"))
    assert ended.status == "failed" and "never.txt" in str(ended.reason)


def test_a_fault_in_a_stage_is_one_sentence_with_its_trace_in_the_log(job: Any) -> None:
    ended, events = run(job("raising"))
    assert ended.status == "failed"
    assert ended.reason == "The stage raising failed with KeyError: 'colour'; its log holds the trace."
    assert any("stage_raising.py" in text for text in texts(events))


def test_a_refusal_keeps_its_sentence_and_its_figures(job: Any) -> None:
    ended, _ = run(job("refusing"))
    assert (ended.status, ended.reason) == ("failed", "The graph is wrong; mend it.")
    assert ended.event["figures"] == {"top1": 0.5}


def test_a_crash_names_the_signal_and_the_last_words(job: Any) -> None:
    ended, _ = run(job("crashing"))
    assert ended.status == "failed"
    assert "SIGSEGV" in str(ended.reason) and "about to fall" in str(ended.reason)


def test_an_end_without_a_result_is_a_failure(job: Any) -> None:
    ended, _ = run(job("leaving"))
    assert ended.status == "failed" and "exit code 7" in str(ended.reason)


def test_a_worker_that_cannot_even_start_is_a_failure(job: Any) -> None:
    ended = run_worker(
        job("good"), lambda event: None, threading.Event(), [sys.executable, "-c", "raise SystemExit(3)"]
    )
    assert ended.status == "failed" and "exit code 3" in str(ended.reason)


def test_cancel_ends_the_worker_and_its_children_even_if_they_refuse(job: Any) -> None:
    cancel, pids = threading.Event(), []

    def on_event(event: dict[str, Any]) -> None:
        if event["e"] == "figure":
            pids.extend(event["value"])
            cancel.set()

    ended = run_worker(job("stubborn"), on_event, cancel)
    assert ended.status == "cancelled"
    assert len(pids) == 2 and wait_until_gone(pids)


def test_what_a_finished_worker_left_running_is_ended_too(job: Any) -> None:
    ended, _ = run(job("littering"))
    assert ended.status == "done", ended.reason
    assert wait_until_gone([ended.event["figures"]["pid"]])


def test_a_helper_that_left_the_group_with_the_streams_does_not_hold_the_stage(job: Any) -> None:
    ended, _ = run(job("escaping"))
    os.kill(ended.event["figures"]["pid"], signal.SIGKILL)
    assert ended.status == "done", ended.reason


def test_a_cancelled_run_starts_no_worker(job: Any) -> None:
    cancel = threading.Event()
    cancel.set()
    ended, events = run(job("good"), cancel)
    assert ended.status == "cancelled" and events == []


def test_a_listener_that_fails_leaves_no_worker_behind(job: Any) -> None:
    pids: list[int] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["e"] == "figure":
            pids.extend(event["value"])
            raise RuntimeError("the journal is full")

    with pytest.raises(RuntimeError, match="journal"):
        run_worker(job("stubborn"), on_event, threading.Event())
    assert len(pids) == 2 and wait_until_gone(pids)


def test_a_worker_ends_when_its_parent_is_killed(job: Any, tmp_path: Path) -> None:
    import msgspec

    spec = tmp_path / "job.json"
    spec.write_bytes(msgspec.json.encode(job("stubborn")))
    code = (
        "import sys, threading, pathlib, msgspec; from mtplab.pipeline.job import Job; "
        "from mtplab.pipeline.process import run_worker; "
        f"job = msgspec.json.decode(pathlib.Path({str(spec)!r}).read_bytes(), type=Job); "
        "run_worker(job, lambda e: e['e'] == 'figure' and print(*e['value'], flush=True), threading.Event())"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert len(pids) == 2 and wait_until_gone(pids)


def test_a_worker_without_a_job_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mtplab.pipeline.worker"], input=b"not json\n", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"no job it can read" in done.stdout
