"""Copies files through adbutils' sync: to the phone with progress, cancel and proof by hash, and back from it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from mtplab.device.errors import Cancelled, CommandFailed, DeviceError, DeviceGone

if TYPE_CHECKING:
    from mtplab.device.link import Link

_FRAME_BYTES = 64 * 1024  # the largest that adbd accepts (SYNC_DATA_MAX)
_SPARE_BYTES = 16 << 20  # a phone filled to the last byte misbehaves
# Files are proven and renamed together, which saves round trips, but not so many that a pulled cable costs much.
_TOGETHER_BYTES, _TOGETHER_FILES = 64 << 20, 64


class Progress(msgspec.Struct, frozen=True):
    """How far a push is: of `total` bytes `done` are on the phone or were there already, `sent` of them by now."""

    name: str
    done: int
    total: int
    sent: int
    seconds: float

    @property
    def bytes_per_s(self) -> float | None:
        """The mean throughput of what was sent; None before anything was."""
        return self.sent / self.seconds if self.sent and self.seconds > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds left at that throughput."""
        rate = self.bytes_per_s
        return None if rate is None else (self.total - self.done) / rate


OnProgress = Callable[[int, int], None]
OnProgressAll = Callable[[Progress], None]
Cancel = Callable[[], bool]


class PushResult(msgspec.Struct, frozen=True):
    """A file that is on the phone: its hash was computed there and equals the local one.

    `seconds` is what sending took (0 where an equal file was there: `skipped`).
    """

    dst: str
    sha256: str
    bytes: int
    seconds: float
    skipped: bool
    attempts: int = 1


def sha256_file(path: Path) -> str:
    """The hash of a local file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def parse_sha256(text: str) -> str | None:
    """The hash in the output of `sha256sum FILE`."""
    match = re.match(r"\\?([0-9a-f]{64})(?:\s|$)", text)
    return match.group(1) if match else None


def parse_df(text: str) -> int | None:
    """Available bytes in the output of `df -k PATH`; None if it has another form."""
    words = [word for line in text.splitlines()[1:] for word in line.split()]
    for i, word in enumerate(words):
        sizes = words[max(0, i - 3) : i]  # in all, used, available
        if re.fullmatch(r"\d{1,3}%", word) and re.fullmatch(r"(\d{1,15} ){2}\d{1,15}", " ".join(sizes), re.ASCII):
            return int(words[i - 1]) * 1024
    return None


def sha256_on_device(link: Link, path: str, timeout_s: float = 300.0) -> str:
    """The hash of a file on the phone, computed there; CommandFailed if it cannot be had."""
    result = link.run(["sha256sum", path], timeout_s=timeout_s, check=True)
    found = parse_sha256(result.stdout)
    if found is None:
        raise CommandFailed(f"sha256sum on {link.serial} said nothing usable about {path}.", result.exit_code)
    return found


class _File:
    """One file on its way: where from, where to, its size and its hash."""

    def __init__(self, src: Path, dst: str) -> None:
        if not dst.startswith("/") or dst.endswith("/"):
            raise CommandFailed(f"{dst!r} is no absolute file path on the phone.")
        try:
            self.sha256, self.size = sha256_file(src), src.stat().st_size
        except OSError as problem:
            raise _unreadable(src, problem) from problem
        self.src, self.dst = src, dst
        # The name it gets: files of a content cache are called by their hash here, which says nothing to anybody.
        self.name = PurePosixPath(dst).name
        self.part = f"{dst}.part-{uuid.uuid4().hex[:8]}"
        self.seconds = 0.0


def _unreadable(src: Path, problem: OSError) -> CommandFailed:
    return CommandFailed(f"{src} cannot be read ({problem.strerror}): check the path.")


class _Source:
    """The file as adbutils reads it: in the largest frames, each told as progress, until somebody cancels."""

    def __init__(self, src: Path, on_bytes: Callable[[int], None], cancel: Cancel | None) -> None:
        self._src, self._on_bytes, self._cancel = src, on_bytes, cancel
        try:
            self._file = src.open("rb")
        except OSError as problem:
            raise _unreadable(src, problem) from problem

    def read(self, _count: int) -> bytes:
        """The next frame. adbutils asks for 4 KiB but sends what it is given: 64 KiB take half the time."""
        if self._cancel is not None and self._cancel():
            raise Cancelled(f"The push of {self._src.name} was cancelled.")
        try:
            piece = self._file.read(_FRAME_BYTES)
        except OSError as problem:
            raise _unreadable(self._src, problem) from problem
        if piece:
            self._on_bytes(len(piece))
        return piece

    def close(self) -> None:
        """Called by adbutils at the end, and by us where it does not get that far."""
        self._file.close()


class _Push:
    """One push of some files. What survives a pulled cable is which of them are proven to be on the phone."""

    def __init__(
        self, link: Link, files: Sequence[_File], on_progress: OnProgressAll | None, cancel: Cancel | None, mode: int
    ) -> None:
        self.results: dict[str, PushResult] = {}
        self._link, self._files, self._mode = link, files, mode
        self._on_progress, self._cancel = on_progress, cancel
        self._attempt = 0

    def attempt(self) -> None:
        """Send what is not there yet; DeviceGone where the cable was pulled."""
        self._attempt += 1
        rest = [file for file in self._files if file.dst not in self.results]
        there = _already_there(self._link, rest, self._mode)
        for file in rest:
            if file.dst in there:
                self._is_there(file, skipped=True)
        rest = [file for file in rest if file.dst not in there]
        if not rest:
            return
        _make_room(self._link, rest)
        self._done, self._sent, self._began = sum(r.bytes for r in self.results.values()), 0, time.monotonic()
        for group in _groups(rest):
            self._send_group(group)

    def _is_there(self, file: _File, skipped: bool) -> None:
        self.results[file.dst] = PushResult(
            file.dst, file.sha256, file.size, file.seconds, skipped, self._attempt
        )

    def _send_group(self, group: Sequence[_File]) -> None:
        try:
            for file in group:
                self._send(file)
            _prove(self._link, group)
        except DeviceError as problem:
            if not isinstance(problem, DeviceGone):
                self._link.run(["rm", "-f", *(file.part for file in group)], timeout_s=10)
            raise
        for file in group:
            self._is_there(file, skipped=False)

    def _send(self, file: _File) -> None:
        from mtplab.device.link import translated

        began = time.monotonic()
        with (
            contextlib.closing(_Source(file.src, lambda count: self._told(file, count), self._cancel)) as source,
            translated(self._link.serial, f"pushing {file.name}"),
        ):
            self._link.server.client().device(self._link.serial).sync.push(source, file.part, mode=self._mode)
        file.seconds = time.monotonic() - began

    def _told(self, file: _File, count: int) -> None:
        self._done += count
        self._sent += count
        if self._on_progress is not None:
            total, seconds = sum(f.size for f in self._files), time.monotonic() - self._began
            self._on_progress(Progress(file.name, self._done, total, self._sent, seconds))


def _already_there(link: Link, files: Sequence[_File], mode: int) -> set[str]:
    """The targets that hold an equal file, by hash and never by size or date; size only spares hashing."""
    script = "".join(
        f"f={shlex.quote(file.dst)}; if [ -f \"$f\" ] && [ $(wc -c <\"$f\") -eq {file.size} ]; then "
        f'chmod {mode:o} "$f" 2>/dev/null; echo "H {number} $(sha256sum "$f")"; fi\n'
        for number, file in enumerate(files)
    )
    found = _hashes(link, script)
    return {file.dst for number, file in enumerate(files) if found.get(number) == file.sha256}


def _hashes(link: Link, script: str) -> dict[int, str | None]:
    lines = link.run(script, timeout_s=600).stdout.splitlines()
    told = [match for line in lines if (match := re.match(r"H (\d{1,6}) (.*)$", line, re.ASCII))]
    return {int(match.group(1)): parse_sha256(match.group(2)) for match in told}


def _make_room(link: Link, files: Sequence[_File]) -> None:
    """Make the folders, remove what pulled cables left of earlier pushes, and see that all will fit."""
    folders = sorted({str(PurePosixPath(file.dst).parent) for file in files})
    link.run(["mkdir", "-p", *folders], timeout_s=10, check=True)
    link.run("; ".join(f"rm -f {shlex.quote(file.dst)}.part-*" for file in files), timeout_s=20)
    size = sum(file.size for file in files)
    what = f"{files[0].name} needs" if len(files) == 1 else f"{len(files)} files need"
    for folder in folders:
        free = link.free_bytes(folder)
        if free is not None and free < size + _SPARE_BYTES:
            raise CommandFailed(
                f"{what} {size / 1e6:.1f} MB, but {folder} on {link.serial} has {free / 1e6:.1f} MB free: "
                "delete something on the phone."
            )


def _groups(files: Sequence[_File]) -> Iterator[list[_File]]:
    group: list[_File] = []
    for file in files:
        group.append(file)
        if len(group) >= _TOGETHER_FILES or sum(f.size for f in group) >= _TOGETHER_BYTES:
            yield group
            group = []
    if group:
        yield group


def _prove(link: Link, group: Sequence[_File]) -> None:
    """Hash every part on the phone; only what is equal gets its name."""
    lines = (f'echo "H {number} $(sha256sum {shlex.quote(file.part)})"\n' for number, file in enumerate(group))
    found = _hashes(link, "".join(lines))
    for number, file in enumerate(group):
        arrived = found.get(number)
        if arrived is None:
            raise CommandFailed(f"sha256sum on {link.serial} said nothing usable about {file.name}.")
        if arrived != file.sha256:
            raise CommandFailed(
                f"{file.name} arrived on {link.serial} changed (sha256 {arrived[:12]}… instead of "
                f"{file.sha256[:12]}…): was the file written to meanwhile? Push it again."
            )
    # `mv` would put the file into a folder of that name, and say nothing.
    moves = (
        f"if [ -d {(dst := shlex.quote(file.dst))} ]; then echo {dst} is a folder >&2; exit 1; fi; "
        f"mv -f {shlex.quote(file.part)} {dst} || exit $?"
        for file in group
    )
    link.run("\n".join(moves), timeout_s=60, check=True)


def push_all(
    link: Link, files: Sequence[tuple[Path, str]], on_progress: OnProgressAll | None = None,
    cancel: Cancel | None = None, mode: int = 0o644, attempts: int = 3,
) -> list[PushResult]:  # fmt: skip
    """Copy each (local file, absolute path on the phone); equal files (by hash) are not sent again.

    A file appears under its name only complete and verified there. After a lost cable the transfer waits for the
    phone, proves what is there, and starts each unfinished file from its beginning, `attempts` times in all.
    """
    if attempts < 1:
        raise CommandFailed("A push needs at least one attempt.")
    todo = _Push(link, [_File(src, dst) for src, dst in files], on_progress, cancel, mode)
    for left in reversed(range(attempts)):
        try:
            todo.attempt()
            break
        except DeviceGone:
            if left == 0:
                raise
            link.wait_for_return(15)
    return [todo.results[dst] for _, dst in files]


def push(
    link: Link, src: Path, dst: str, on_progress: OnProgress | None = None, cancel: Cancel | None = None,
    mode: int = 0o644, attempts: int = 3,
) -> PushResult:  # fmt: skip
    """Copy one file; see `push_all`. `on_progress(done, total)` in bytes."""
    told = (lambda at: on_progress(at.done, at.total)) if on_progress is not None else None
    return push_all(link, [(src, dst)], told, cancel, mode, attempts)[0]


def pull(link: Link, path: str, limit_bytes: int) -> bytes:
    """The bytes of a file on the phone; CommandFailed where it refuses, or the file is longer than the limit."""
    from mtplab.device.link import translated

    data = bytearray()
    with translated(link.serial, f"reading {path}"):
        for piece in link.server.client().device(link.serial).sync.iter_content(path):
            data += piece
            if len(data) > limit_bytes:
                raise CommandFailed(f"{path} on {link.serial} has more than {limit_bytes / 1e6:g} MB, so not read.")
    return bytes(data)
