"""The processes of the device: started here, listed under the device's /proc, and all gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from mtplab.standin.files import DeviceFiles

SHELL_BYTES = 2 << 30  # of address space for a shell and for each process it starts
MARK = "MTPLAB_STANDIN_ID"


class TooManyProcesses(Exception):
    """The phone's limit of processes is reached."""


class Processes:
    """Starts processes in sessions of their own and marks them, so that none outlives the stand-in."""

    def __init__(self, files: DeviceFiles, limit: int, max_file_bytes: int) -> None:
        self._files, self._limit, self._max_file_bytes = files, limit, max_file_bytes
        self.mark = uuid.uuid4().hex
        self.live: dict[int, asyncio.subprocess.Process] = {}
        for entry in Path(files.root + "/proc").glob("[0-9]*"):
            shutil.rmtree(entry, ignore_errors=True)

    async def start(
        self,
        argv: Sequence[str],
        *,
        shown: Sequence[str] | None,
        env: dict[str, str],
        cwd: str | None,
        stdin: int,
        stdout: int,
        stderr: int,
        before: Callable[[], None] | None = None,
    ) -> asyncio.subprocess.Process:
        """Start one process. `shown`: its command line under /proc; `before`: what it does before
        it becomes the command. TooManyProcesses at the limit."""
        if len(self.live) >= self._limit:
            raise TooManyProcesses
        process = await asyncio.create_subprocess_exec(
            *argv,
            env={**env, MARK: self.mark},
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=before,
        )
        self.live[process.pid] = process
        self._fence(process.pid, is_shell=shown is not None)
        if shown is not None:
            self.show(process.pid, shown)
        return process

    @property
    def shell_limits(self) -> str:
        """The same fence as a line for the shell of a user whose processes only root's system may limit."""
        sizes = f"ulimit -f {max(1, self._max_file_bytes // 512)}; ulimit -v {SHELL_BYTES // 1024}"
        # Counted for the device's own user, whom nobody else on the host should be.
        return f"{{ {sizes}; ulimit -p {self._limit * 8}; }} 2>/dev/null"

    def _fence(self, pid: int, is_shell: bool) -> None:
        # Only Linux can limit another process; elsewhere the portable shell's own limits must do.
        prlimit = getattr(resource, "prlimit", None)
        if prlimit is None:
            return
        with contextlib.suppress(OSError, ValueError):
            prlimit(pid, resource.RLIMIT_FSIZE, (self._max_file_bytes, self._max_file_bytes))
            if is_shell:  # programs are no children of it: the low-memory killer watches those
                prlimit(pid, resource.RLIMIT_AS, (SHELL_BYTES, SHELL_BYTES))

    def show(self, pid: int, argv: Sequence[str]) -> None:
        """Write the device's /proc/PID/cmdline."""
        self._files.write(f"/proc/{pid}/cmdline", b"".join(os.fsencode(word) + b"\0" for word in argv), 0o444)

    def forget(self, pid: int) -> None:
        """The process has ended."""
        self.live.pop(pid, None)
        shutil.rmtree(f"{self._files.root}/proc/{pid}", ignore_errors=True)

    async def reap(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the end; negative numbers are signals."""
        code = await process.wait()
        self.forget(process.pid)
        return code

    def kill_all(self) -> None:
        """End every process of the device, also those that left their group."""
        for pid in list(self.live):
            kill_group(pid, signal.SIGKILL)
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def marked(self) -> list[int]:
        """Every process on the host that carries this stand-in's mark, or has the device as its root: a shell may
        clear its environment (Linux; elsewhere the groups must do)."""
        if not sys.platform.startswith("linux"):
            return []
        wanted, found = f"{MARK}={self.mark}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes()
                is_ours = wanted in environment.split(b"\0") or str((entry / "root").readlink()) == self._files.root
            except OSError:
                continue
            if is_ours and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found


def kill_group(pid: int, number: int) -> None:
    """Signal a session leader's whole group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
