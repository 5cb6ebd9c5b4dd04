"""Run one host stage in a process of its own: job as a JSON line on stdin, events as JSON lines on stdout."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from typing import Any

import msgspec

from mtplab.pipeline.job import Emitter, Job, Output, StageFailed

EXIT_OK, EXIT_USAGE, EXIT_FAILED = 0, 1, 4


class _Channel:
    """The real standard output, kept for events alone."""

    def __init__(self) -> None:
        # Native code prints to descriptor 1 as it likes: from here on that is standard error.
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def send(self, event: dict[str, Any]) -> None:
        data = self._encoder.encode(event) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


def main() -> int:
    """Read the job, run its stage, report the end; 0 done, 1 no job, 4 failed."""
    channel = _Channel()
    try:
        job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    except msgspec.DecodeError as error:
        channel.send({"e": "error", "message": f"The worker was given no job it can read ({error})."})
        return EXIT_USAGE
    if job.lifeline:
        threading.Thread(target=_end_with_parent, args=(sys.stdin.fileno(),), daemon=True).start()
    try:
        output: Output = importlib.import_module(job.module).run(job, Emitter(channel.send))
        missing = [name for name in output.artefacts if not job.output(name).is_file()]
        if missing:
            raise StageFailed(f"The stage {job.stage} promised {missing[0]} and did not write it; report this.")
    except Exception as error:  # noqa: BLE001 - the rim of the process: every fault becomes its last event
        channel.send(_failure(job, error))
        return EXIT_FAILED
    channel.send({"e": "result", **msgspec.to_builtins(output)})
    return EXIT_OK


def _failure(job: Job, error: Exception) -> dict[str, Any]:
    if isinstance(error, StageFailed):
        return {"e": "error", "message": str(error), "figures": error.figures, "records": error.records}
    # The rooms' own errors are sentences already; anything else is a fault, and its trace goes to the log.
    if type(error).__module__.startswith("mtplab."):
        return {"e": "error", "message": str(error)}
    traceback.print_exc()
    reason = str(error).strip().partition("\n")[0]
    message = (
        f"The stage {job.stage} failed with {type(error).__name__}: {reason or 'no reason given'}; "
        "its log holds the trace."
    )
    return {"e": "error", "message": message}


def _end_with_parent(stdin: int) -> None:
    # Read below Python's buffer: its lock, held by a waiting thread, aborts the interpreter at exit.
    while os.read(stdin, 4096):
        continue
    try:
        # The parent gave this process a group of its own, so this takes helpers along.
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
    finally:
        os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
