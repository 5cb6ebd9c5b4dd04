"""Programs of the device that really run on the host: benchmark_model, and whatever `--program` names.

A device process (the trampoline) writes its arguments to /dev/.sim/run/PID/args and its pid to /dev/.sim/req; output
and exit code go back through three FIFOs in the same folder. When the device process goes, so does the program.

Programs are as slow as a throttled phone: `benchmark_model` reads the clocks (MTPLAB_STANDIN_CLOCK names the file,
lines `DIE SHARE`) and lets work of t seconds last t / share; any other program is held back from outside.

What a device holds must not become code on the host: programs start in a folder the device cannot write, and know
of the owner's environment only what KEPT names.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import site
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mtplab.standin.bench_delegates import GPU_RUNS, NPU_COUNTER, SCRIPT
from mtplab.standin.files import DeviceFiles, RootFilter
from mtplab.standin.held import HeldFiles
from mtplab.standin.logcat import LogBook
from mtplab.standin.phone import SIM
from mtplab.standin.processes import Processes, kill_group
from mtplab.standin.program_table import ProgramTable
from mtplab.standin.settings import Profile, Scenario
from mtplab.standin.throttle import hold_back

CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
OPEN_PATIENCE_S = 5.0
WATCH_S = 0.25
MERCY_S = 1.0
# Of the owner's environment: how to find programs and libraries, and the language. Tokens and keys stay at home.
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
START_FOLDER, TEMPORARY_FOLDER = f"{SIM}/start", f"{SIM}/tmp"


class LoadMeter(Protocol):
    """Where the work of a program is turned into heat."""

    log: LogBook

    def program_started(self, pid: int, die: str, shown_pid: int, name: str) -> None:
        """The process now works on this die (`CPU` is spread over the cores); the device shows the other pid."""

    def program_ended(self, pid: int) -> None:
        """It works no more."""

    def clock_share(self, die: str) -> float:
        """The share of its peak clock at which a die runs now, 0..1."""


Say = Callable[[str], Awaitable[None]]


class Services(Protocol):
    """Who answers the commands that are no program."""

    async def run(self, name: str, words: list[str], out: Say, err: Say) -> int:
        """One command with its arguments; its exit code."""


@dataclass
class Request:
    """One run: who asked, from where, with what."""

    pid: int
    cwd: str
    argv: list[str] = field(default_factory=list)


class Programs:
    """Takes the device's requests, runs what they name, and answers what is no program itself."""

    def __init__(
        self,
        files: DeviceFiles,
        processes: Processes,
        profile: Profile,
        scenario: Scenario,
        meter: LoadMeter,
        trampolines: bool,
    ) -> None:
        """`trampolines`: programs must be scripts in the device's root; else its shell knows them by path."""
        self._files, self._processes, self._meter = files, processes, meter
        self._profile, self._scenario = profile, scenario
        self.table = ProgramTable(files, trampolines)
        self.services: Services
        self._requests: int | None = None
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- running them

    def _make_host_folders(self) -> None:
        """Where programs start (always empty) and keep temporary files; no shell of the device writes there."""
        shutil.rmtree(f"{self._files.root}.held", ignore_errors=True)  # of a run that was killed
        for folder, mode in ((START_FOLDER, 0o555), (TEMPORARY_FOLDER, 0o700)):
            path = Path(self._files.root + folder)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            path.chmod(mode)

    def listen(self) -> None:
        """Begin to take requests from the device."""
        self._make_host_folders()
        fifo = Path(f"{self._files.root}{SIM}/req")
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
        fifo.chmod(0o622)
        # Open for both, so that the FIFO never reports an end between two requests.
        self._requests = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        asyncio.get_running_loop().add_reader(self._requests, self._read_requests)

    def close(self) -> None:
        """Take no more requests."""
        if self._requests is not None:
            asyncio.get_running_loop().remove_reader(self._requests)
            os.close(self._requests)
            self._requests = None
        for task in self._tasks:
            task.cancel()

    def _read_requests(self) -> None:
        assert self._requests is not None
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self._requests, 4096)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if line.isdigit():
                task = asyncio.ensure_future(self._serve(int(line)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve(self, pid: int) -> None:
        folder = f"{SIM}/run/{pid}"
        try:
            request = self._read_request(pid, folder)
            await self._run(request, folder)
        except OSError as error:
            print(f"stand-in: a program could not be run: {error}", file=sys.stderr)
        finally:
            shutil.rmtree(self._files.root + folder, ignore_errors=True)
            if pid not in self._processes.live:  # a shell that became the program stays listed until it ends
                self._processes.forget(pid)

    def _read_request(self, pid: int, folder: str) -> Request:
        with os.fdopen(self._files.open(f"{folder}/args", os.O_RDONLY), "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        if len(words) < 2:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), "args")
        return Request(pid, words[0], words[1:])

    async def _run(self, request: Request, folder: str) -> None:
        watch = asyncio.ensure_future(_until_gone(request.pid))
        try:
            out, err, code_pipe = [
                await self._open_fifo(f"{folder}/{name}", watch) for name in ("out", "err", "rc")
            ]
        except OSError:
            watch.cancel()
            return
        code = 127
        try:
            code = await self._program(request, out, err, watch)
        finally:
            for pipe in (out, err):
                os.close(pipe)
            with contextlib.suppress(OSError):
                os.write(code_pipe, b"%d\n" % (code if code >= 0 else 128 - code))
            os.close(code_pipe)
            watch.cancel()

    async def _open_fifo(self, path: str, watch: asyncio.Future[None]) -> int:
        # A FIFO opens for writing only once somebody reads; O_NONBLOCK says so instead of waiting for ever.
        waited = 0.0
        while True:
            try:
                return self._files.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                if watch.done() or waited > OPEN_PATIENCE_S:
                    raise
            await asyncio.sleep(0.005)
            waited += 0.005

    async def _program(self, request: Request, out: int, err: int, watch: asyncio.Future[None]) -> int:
        if request.argv[0].startswith("@"):
            return await self._service(request.argv[0][1:], request.argv[1:], out, err, watch)
        canonical = self._files.resolve(request.argv[0], request.cwd)
        argv = self.table.find(canonical)
        if argv is None:
            await _write_all(err, f"{request.argv[0]}: the stand-in has no such program\n".encode())
            return 127
        held = HeldFiles(self._files, request.pid)
        try:
            mapped = [self._files.map_argument(word, request.cwd, held.hold) for word in request.argv[1:]]
        except OSError as error:
            held.give_back()
            await _write_all(err, os.fsencode(f"{request.argv[0]}: {error.filename}: {error.strerror}\n"))
            return 126
        try:
            code = await self._host_program(request, argv, mapped, held.root, out, err, watch)
        finally:
            refused = held.give_back()
        for path in refused:
            await _write_all(err, os.fsencode(f"{request.argv[0]}: {path}: {os.strerror(errno.EACCES)}\n"))
        return code

    async def _host_program(
        self, request: Request, argv: list[str], mapped: list[str], held_root: str, out: int, err: int,
        watch: asyncio.Future[None],
    ) -> int:  # fmt: skip
        name = Path(request.argv[0]).name
        try:
            process = await self._processes.start(
                [*argv, *mapped], shown=None, env=self._environment(), cwd=self._files.root + START_FOLDER,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            await _write_all(err, f"{request.argv[0]}: cannot run on the host: {error.strerror}\n".encode())
            return 126
        self._processes.show(request.pid, request.argv)
        die = self._die(request.argv)
        self._meter.program_started(process.pid, die, request.pid, name)
        slowed = None
        if argv not in self.table.clocked:
            slowed = asyncio.ensure_future(hold_back(process.pid, lambda: self._meter.clock_share(die)))
        assert process.stdout is not None and process.stderr is not None
        pumps = [
            asyncio.ensure_future(
                self._pump(stream, pipe, held_root, request.pid if argv in self.table.clocked else None)
            )
            for stream, pipe in ((process.stdout, out), (process.stderr, err))
        ]
        try:
            # The device process going, or its reader, ends the program.
            await self._wait_for_pumps(pumps, watch)
            if slowed is not None:
                slowed.cancel()
            abandoned = not all(pump.done() and pump.result() for pump in pumps)
            code = await self._end(process, abandoned)
            if code < 0 and signal.Signals(-code) in CRASHES and not abandoned:
                where = f"tid {request.pid} ({name}), pid {request.pid}"
                said = f"Fatal signal {-code} ({signal.Signals(-code).name}) in {where}"
                self._meter.log.write("F", "libc", said, request.pid)
            return code
        finally:
            self._meter.program_ended(process.pid)
            if slowed is not None:
                slowed.cancel()
            for pump in pumps:
                pump.cancel()

    async def _service(self, name: str, words: list[str], out: int, err: int, watch: asyncio.Future[None]) -> int:
        """A command that the stand-in answers itself, until it is done or its process or its reader is gone."""

        def to(pipe: int) -> Say:
            return lambda text: _write_all(pipe, text.encode("utf-8", "surrogateescape"))

        answering: asyncio.Future[Any] = asyncio.ensure_future(self.services.run(name, words, to(out), to(err)))
        await asyncio.wait({answering, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            return 129
        return 141 if isinstance(answering.exception(), BrokenPipeError) else int(answering.result())

    @staticmethod
    async def _wait_for_pumps(pumps: list[asyncio.Task[bool]], watch: asyncio.Future[None]) -> None:
        """Until all output was copied, or nobody reads it, or the device process is gone."""
        pending: set[asyncio.Future[Any]] = {*pumps}
        while pending and not watch.done() and all(pump.result() for pump in pumps if pump.done()):
            await asyncio.wait({*pending, watch}, return_when=asyncio.FIRST_COMPLETED)
            pending = {pump for pump in pumps if not pump.done()}

    async def _end(self, process: asyncio.subprocess.Process, abandoned: bool) -> int:
        """Wait for the program's end; one that has lost its device process or its reader is made to end."""
        ending = asyncio.ensure_future(self._processes.reap(process))
        if abandoned:
            kill_group(process.pid, signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.wait({ending}, timeout=MERCY_S)
            if ending.done():
                break
            kill_group(process.pid, number)
        return await ending

    async def _pump(self, reader: asyncio.StreamReader, pipe: int, held_root: str, logs_as: int | None) -> bool:
        """Copy output without host paths; False when nobody reads it any more. Benchmarks log their lines too."""
        held, strip, half = RootFilter(held_root), RootFilter(self._files.root), b""
        try:
            while data := await reader.read(32768):
                shown = strip.feed(held.feed(data))
                await _write_all(pipe, shown)
                if logs_as is not None:
                    *lines, half = (half + shown).split(b"\n")
                    for line in lines:
                        self._meter.log.said_by_program(line.decode("utf-8", "replace"), logs_as)
            await _write_all(pipe, strip.feed(held.end()) + strip.end())
        except (BrokenPipeError, ConnectionError):
            return False
        return True

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        told = {
            "gpu": self._scenario.gpu_outcome, "refuses": self._scenario.gpu_refuses,
            "overflows": self._scenario.gpu_overflows,
            "npu": self._scenario.npu_outcome, "accelerators": self._profile.nnapi_accelerators,
        }  # fmt: skip
        counter = self._profile.npu_counter
        if counter:
            kept[NPU_COUNTER] = self._files.root + counter
        if site.ENABLE_USER_SITE:  # HOME is another now, but packages installed for this user alone are still wanted
            kept["PYTHONUSERBASE"] = site.getuserbase()
        return {
            **kept,
            "HOME": self._files.root + START_FOLDER,
            "TMPDIR": self._files.root + TEMPORARY_FOLDER,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            SCRIPT: json.dumps(told),
            "MTPLAB_STANDIN_CLOCK": f"{self._files.root}{SIM}/clock",
        }

    def _die(self, argv: list[str]) -> str:
        def asks(flag: str) -> bool:
            return any(word in (f"--{flag}=true", f"--{flag}=1", f"--{flag}") for word in argv)

        if asks("use_gpu") and self._scenario.gpu_outcome in GPU_RUNS:
            return "G3D"
        on_npu = asks("use_npu") or asks("use_nnapi")
        return "TPU" if on_npu and self._scenario.npu_outcome == "full" else "CPU"


async def _write_all(pipe: int, data: bytes) -> None:
    """Write to a FIFO that does not block, waiting while it is full; BrokenPipeError when its reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(pipe, view) :]
        except BlockingIOError:
            await asyncio.sleep(0.005)


async def _until_gone(pid: int) -> None:
    """Return when a process that is not ours ends."""
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError:
            handle = -1
        if handle >= 0:
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(handle, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(handle)
                os.close(handle)
            return
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        except PermissionError:
            return
        await asyncio.sleep(WATCH_S)
