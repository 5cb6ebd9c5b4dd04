"""Runs a program of the host for a device command: the portable shell's half of `standin-run`."""

from __future__ import annotations

import os
import select
import shutil
import signal
from pathlib import Path

from mtplab.standin.files import DeviceFiles

RUN = "/dev/.sim/run"
PIPES = ("out", "err", "rc")


def program_paths(files: DeviceFiles) -> frozenset[str]:
    """The device paths behind which programs of the host stand."""
    try:
        return frozenset(Path(files.root + "/dev/.sim/programs").read_text(encoding="utf-8").splitlines())
    except OSError:
        return frozenset()


def run(files: DeviceFiles, path: str, arguments: list[str], cwd: str) -> int:
    """Ask the stand-in to run the program, copy its output, and give its exit code (128 + n for a signal)."""
    folder = Path(f"{files.root}{RUN}/{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in PIPES:
        os.mkfifo(folder / name)
    words = [cwd, path, *arguments]
    (folder / "args").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
    with open(f"{files.root}/dev/.sim/req", "wb", buffering=0) as request:  # noqa: PTH123
        request.write(b"%d\n" % os.getpid())
    # The other side opens them in this order, each time waiting for a reader.
    out, err, code = [os.open(folder / name, os.O_RDONLY) for name in PIPES]
    answer = _copy({out: 1, err: 2}, code)
    shutil.rmtree(folder, ignore_errors=True)
    return int(answer) if answer.strip().isdigit() else 126


def _copy(targets: dict[int, int], code: int) -> bytes:
    answer = b""
    waiting = {*targets, code}
    while waiting:
        for handle in select.select(list(waiting), [], [])[0]:
            data = os.read(handle, 65536)
            if not data:
                waiting.discard(handle)
            elif handle == code:
                answer += data
            else:
                view = memoryview(data)
                while view:
                    view = view[os.write(targets[handle], view) :]
    return answer


def end_like(status: int) -> int:
    """A program that a signal ended ends this process the same way; other statuses are given back."""
    if status > 128:
        number = status - 128
        try:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        except (OSError, ValueError):
            return status
    return status
