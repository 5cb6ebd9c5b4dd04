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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mtplab.standin.bench_delegates import GPU_RUNS, NPU_COUNTER, SCRIPT
from mtplab.standin.files import DeviceFiles, RootFilter
from mtplab.standin.phone import SIM
from mtplab.standin.processes import Processes, kill_group
from mtplab.standin.settings import Profile, Scenario
from mtplab.standin.throttle import hold_back

BENCHMARK_MODEL = "/data/local/tmp/benchmark_model"
BENCHMARK_LITERT_MODEL = "/data/local/tmp/benchmark_litert_model"
TRAMPOLINE = '#!/system/bin/sh\n# mtplab stand-in: this program runs on the host\nexec standin-run "$0" "$@"\n'
ELF = b"\x7fELF"
OPEN_PATIENCE_S = 5.0
WATCH_S = 0.25
MERCY_S = 1.0
# Of the owner's environment: how to find programs and libraries, and the language. Tokens and keys stay at home.
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
START_FOLDER, TEMPORARY_FOLDER = f"{SIM}/start", f"{SIM}/tmp"


class LoadMeter(Protocol):
    """Where the work of a program is turned into heat."""

    def program_started(self, pid: int, die: str) -> None:
        """The process now works on this die (`CPU` is spread over the cores)."""

    def program_ended(self, pid: int) -> None:
        """It works no more."""

    def clock_share(self, die: str) -> float:
        """The share of its peak clock at which a die runs now, 0..1."""


@dataclass
class Request:
    """One run: who asked, from where, with what."""

    pid: int
    cwd: str
    argv: list[str] = field(default_factory=list)


class Programs:
    """The table of programs, their trampolines, and the running ones."""

    def __init__(
        self,
        files: DeviceFiles,
        processes: Processes,
        profile: Profile,
        scenario: Scenario,
        meter: LoadMeter,
        trampolines: bool,
    ) -> None:
        self._files, self._processes, self._meter = files, processes, meter
        self._profile, self._scenario, self._trampolines = profile, scenario, trampolines
        self._clocked = [
            [sys.executable, str(Path(__file__).with_name(f"{Path(path).name}.py"))]
            for path in (BENCHMARK_MODEL, BENCHMARK_LITERT_MODEL)
        ]  # these read the clocks themselves
        self.table = dict(zip((BENCHMARK_MODEL, BENCHMARK_LITERT_MODEL), self._clocked, strict=True))
        self._requests: int | None = None
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- which programs there are

    def install(self, extra: dict[str, list[str]]) -> None:
        """Put every program in its place; bytes that a user pushed there in an earlier run stay what they were."""
        self.table.update({self._files.resolve(path): argv for path, argv in extra.items()})
        self._restore_pushed()
        self._make_host_folders()
        for path in self.table:
            if Path(self._files.root + path).is_file() and not self._is_trampoline(path):
                self.adopt(path)
            else:
                self._files.make_folders(path.rpartition("/")[0])
                self._files.write(path, TRAMPOLINE, 0o755)
                self._files.give_to_shell(path)
        self._publish()

    def _make_host_folders(self) -> None:
        """Where programs start (always empty) and keep temporary files; no shell of the device writes there."""
        for folder, mode in ((START_FOLDER, 0o555), (TEMPORARY_FOLDER, 0o700)):
            path = Path(self._files.root + folder)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            path.chmod(mode)

    def adopt(self, path: str) -> None:
        """A file was pushed: if it stands for a program, make it run; its own bytes are kept."""
        if path not in self.table:
            name = Path(path).name
            # Both tools have been released under the first name: what the file is called decides.
            stands_for = BENCHMARK_LITERT_MODEL if "litert" in name else BENCHMARK_MODEL
            if not (name.startswith("benchmark_") and "model" in name and self._begins_with(path, ELF)):
                return
            self.table[path] = self.table[stands_for]
            self._publish()
        shadow = Path(self._files.root + self._shadow(path))
        shadow.unlink(missing_ok=True)
        if not self._trampolines or self._is_trampoline(path):
            return
        pushed = Path(self._files.root + path)
        facts = pushed.stat()
        shadow.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(pushed, shadow)
        self._files.write(path, TRAMPOLINE, facts.st_mode & 0o777)
        if facts.st_size > len(TRAMPOLINE):
            os.truncate(pushed, facts.st_size)  # `ls -l` shows the size that was pushed; the script has ended before
        os.utime(pushed, (facts.st_atime, facts.st_mtime))
        self._files.give_to_shell(path)

    def content(self, path: str) -> str:
        """The device path of the file's own bytes."""
        shadow = self._shadow(path)
        return shadow if Path(self._files.root + shadow).is_file() else path

    @staticmethod
    def _shadow(path: str) -> str:
        return f"{SIM}/shadow{path}"

    def _begins_with(self, path: str, head: bytes) -> bool:
        with Path(self._files.root + path).open("rb") as file:
            return file.read(len(head)) == head

    def _is_trampoline(self, path: str) -> bool:
        return self._begins_with(path, TRAMPOLINE.encode())

    def _restore_pushed(self) -> None:
        top = Path(f"{self._files.root}{SIM}/shadow")
        for shadow in [path for path in top.rglob("*") if path.is_file()]:
            place = Path(self._files.root + "/" + str(shadow.relative_to(top)))
            if place.is_file():
                mode = place.stat().st_mode & 0o777
                shutil.move(shadow, place)
                place.chmod(mode)
        shutil.rmtree(top, ignore_errors=True)

    def _publish(self) -> None:
        self._files.write(f"{SIM}/programs", "".join(f"{path}\n" for path in sorted(self.table)))

    def _find(self, path: str) -> list[str] | None:
        if path in self.table:
            return self.table[path]
        name = Path(path).name  # a copy of a trampoline is still that program
        return next((argv for known, argv in self.table.items() if Path(known).name == name), None)

    # --- running them

    def listen(self) -> None:
        """Begin to take requests from the device."""
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
        canonical = self._files.resolve(request.argv[0], request.cwd)
        argv = self._find(canonical)
        if argv is None:
            await _write_all(err, f"{request.argv[0]}: the stand-in has no such program\n".encode())
            return 127
        try:
            mapped = [self._files.map_argument(word, request.cwd) for word in request.argv[1:]]
        except OSError as error:
            await _write_all(err, os.fsencode(f"{request.argv[0]}: {error.filename}: {error.strerror}\n"))
            return 126
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
        self._meter.program_started(process.pid, die)
        held = None
        if argv not in self._clocked:
            held = asyncio.ensure_future(hold_back(process.pid, lambda: self._meter.clock_share(die)))
        assert process.stdout is not None and process.stderr is not None
        pumps = [
            asyncio.ensure_future(self._pump(process.stdout, out)),
            asyncio.ensure_future(self._pump(process.stderr, err)),
        ]
        try:
            # The device process going, or its reader, ends the program.
            await self._wait_for_pumps(pumps, watch)
            if held is not None:
                held.cancel()
            return await self._end(process, abandoned=not all(pump.done() and pump.result() for pump in pumps))
        finally:
            self._meter.program_ended(process.pid)
            if held is not None:
                held.cancel()
            for pump in pumps:
                pump.cancel()

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

    async def _pump(self, reader: asyncio.StreamReader, pipe: int) -> bool:
        """Copy output without host paths; False when nobody reads it any more."""
        strip = RootFilter(self._files.root)
        try:
            while data := await reader.read(32768):
                await _write_all(pipe, strip.feed(data))
            await _write_all(pipe, strip.end())
        except (BrokenPipeError, ConnectionError):
            return False
        return True

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        told = {
            "gpu": self._scenario.gpu_outcome, "refuses": self._scenario.gpu_refuses,
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
