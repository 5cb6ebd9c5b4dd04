"""Supervise one worker process: pass its events on, end it at once on cancel, say in one sentence how it died."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, Any, Literal

import msgspec

from mtplab.pipeline.job import Job

OnEvent = Callable[[dict[str, Any]], None]

_POLL_S = 0.05
_GRACE_S = 0.3  # between SIGTERM and SIGKILL
_SILENT_POLLS = 10  # of a dead worker, before its streams are given up
_LAST_LINES = 3

# Offline, and as quiet as these libraries can be made; COLUMNS keeps the converter's lines whole.
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "ERROR",
    "JAX_PLATFORMS": "cpu",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "COLUMNS": "400",
}


class Ended(msgspec.Struct, frozen=True):
    """How a worker ended: its last word, or a sentence about why there is none."""

    status: Literal["done", "failed", "cancelled"]
    event: dict[str, Any]
    reason: str | None = None


def run_worker(job: Job, on_event: OnEvent, cancel: threading.Event, command: list[str] | None = None) -> Ended:
    """Run `job` to its end; blocks. `on_event` is called in this thread only.

    Events passed on are `progress`, `figure` and `log`; standard error comes line by line as `log` too.
    """
    if cancel.is_set():
        return Ended("cancelled", {}, "cancelled before it started")
    process = subprocess.Popen(
        command or [sys.executable, "-m", "mtplab.pipeline.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=job.workdir,
        env={**os.environ, **_QUIET, **_module_path()},
        start_new_session=True,
    )
    try:
        return _supervise(process, job, on_event, cancel)
    finally:
        # Also when on_event raised: a worker must not outlive the call.
        _end_group(process)
        # The reading threads close what they read: a helper that left the group may hold it open for long.
        if process.stdin is not None:
            _close(process.stdin)


def _module_path() -> dict[str, str]:
    """PYTHONPATH without relative entries, which would mean something else in the worker's folder."""
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, given.split(os.pathsep)))} if given else {}


def _supervise(process: subprocess.Popen[bytes], job: Job, on_event: OnEvent, cancel: threading.Event) -> Ended:
    assert process.stdin and process.stdout and process.stderr
    lines: queue.Queue[tuple[str, bytes | None]] = queue.Queue()
    for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
        threading.Thread(target=_read, args=(name, stream, lines), daemon=True).start()
    _hand_over(process.stdin, job)
    last: deque[str] = deque(maxlen=_LAST_LINES)
    final: dict[str, Any] | None = None
    open_streams, silent_polls = 2, 0
    while open_streams:
        if cancel.is_set():
            return Ended("cancelled", {}, "cancelled")
        try:
            name, line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            # A helper that inherited the streams may hold them open after the worker is gone.
            silent_polls += process.poll() is not None
            if silent_polls > _SILENT_POLLS:
                break
            continue
        if line is None:
            open_streams -= 1
            continue
        event = _event(line) if name == "stdout" else None
        if event is None:
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                last.append(text)
                on_event({"e": "log", "text": text, "stream": name})
        elif event["e"] in ("result", "error"):
            final = event
        else:
            on_event(event)
    code = _wait(process, cancel)
    if code is None:
        return Ended("cancelled", {}, "cancelled")
    if final is not None and final["e"] == "result" and code == 0:
        return Ended("done", final)
    if final is not None and final["e"] == "error":
        return Ended("failed", final, str(final.get("message")))
    return Ended("failed", {}, _epitaph(job.stage, code, list(last)))


def _hand_over(stdin: IO[bytes], job: Job) -> None:
    try:
        stdin.write(msgspec.json.encode(msgspec.structs.replace(job, lifeline=True)) + b"\n")
        stdin.flush()
    except BrokenPipeError:
        return  # it died before it could read; its exit code will say how


def _wait(process: subprocess.Popen[bytes], cancel: threading.Event) -> int | None:
    """The exit code; None if cancelled first."""
    while True:
        try:
            return process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if cancel.is_set():
                return None


def _read(name: str, stream: IO[bytes], lines: queue.Queue[tuple[str, bytes | None]]) -> None:
    try:
        for line in stream:
            lines.put((name, line))
    except (OSError, ValueError):
        lines.put((name, b"(the stream was closed)"))
    finally:
        lines.put((name, None))
        stream.close()


def _event(line: bytes) -> dict[str, Any] | None:
    """The event in a line of the worker's standard output; None if it is something else."""
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    known = ("progress", "figure", "log", "result", "error")
    return event if isinstance(event, dict) and event.get("e") in known else None


def _epitaph(stage: str, code: int, last: list[str]) -> str:
    if code < 0:
        try:
            how = f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            how = f"was killed by signal {-code}"
        if -code == signal.SIGKILL:
            how += " (often the system's answer to too little memory)"
    else:
        how = f"ended with exit code {code} and no result"
    said = f"; its last words: {' / '.join(last)}" if last else "; it said nothing"
    return f"The worker of stage {stage} {how}{said}; run the stage again."


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the worker and all it started: SIGTERM, then SIGKILL to whatever is left of the group."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            _signal(process.pid, signal.SIGKILL)
            process.wait()
    _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # nothing is left of the group


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return  # the worker died with its job half read
