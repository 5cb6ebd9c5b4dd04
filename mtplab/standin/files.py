"""The device's file tree: paths resolved inside the root, never outside it, with a phone's permissions."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

# Where the shell user of a phone may write; everything else is read-only to it.
WRITABLE = ("/data/local/tmp", "/data/media/0", "/dev/.sim/run", "/dev/.sim/settings")
WRITABLE_FILES = ("/dev/.sim/logcat",)
MAX_LINKS = 40
# Where a program may cut an argument to find a path in it (--input_layer_value_files=a:/x,b:/y).
_CUTS = re.compile("[=:,]")
_UPWARDS = re.compile(r"\.\.([/=:,]|$)")
MOST_CUTS = 2048
LONGEST_PATH = 4096  # PATH_MAX of Linux: what is longer cannot be opened


def _refuse(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class DeviceFiles:
    """Device paths on a host folder. Symbolic links are followed as the device would, so none leads outside."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.shell_owner: int | None = None  # the host user the device's shell runs as, if it is not the server's
        self._root_bytes = os.fsencode(self.root)

    def resolve(self, path: str, cwd: str = "/", follow: bool = True) -> str:
        """The canonical device path of `path`: links and `..` resolved inside the root.

        Components that do not exist are kept. `follow=False` leaves a link in the last place unresolved.
        Raises OSError(ELOOP) for a circle of links.
        """
        pending = [part for part in os.path.join(cwd, path).split("/") if part][::-1]  # noqa: PTH118
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == ".":
                continue
            if part == "..":
                del done[-1:]
                continue
            done.append(part)
            if not pending and not follow:
                break
            try:
                target = os.readlink("/".join((self.root, *done)))  # noqa: PTH115
            except OSError:
                continue
            links += 1
            if links > MAX_LINKS:
                raise _refuse(errno.ELOOP, path)
            done.pop()
            if target.startswith("/"):
                done.clear()
            pending.extend(part for part in reversed(target.split("/")) if part)
        return "/" + "/".join(done)

    def host(self, path: str, cwd: str = "/", follow: bool = True) -> str:
        """The host path behind a device path."""
        return self.root + self.resolve(path, cwd, follow).rstrip("/")

    def check_writable(self, path: str, cwd: str = "/") -> str:
        """The canonical device path, last link unresolved, of what the shell user may change; else an OSError."""
        canonical = self.resolve(path, cwd, follow=False)
        inside = any(canonical.startswith(f"{place}/") for place in WRITABLE)
        if not inside and canonical not in WRITABLE_FILES:
            system = canonical.startswith(("/system", "/vendor", "/proc")) or canonical.count("/") == 1
            raise _refuse(errno.EROFS if system else errno.EACCES, path)
        return canonical

    def open(self, path: str, flags: int, mode: int = 0o644, cwd: str = "/") -> int:
        """A file descriptor for a device path, under the rules of the shell user.

        Every folder on the way is opened without following links, so that a link swapped in meanwhile is refused.
        """
        writing = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT
        canonical = self.resolve(path, cwd)
        if writing and not self._is_special(canonical):
            self.check_writable(canonical)
        return self._open_beneath(canonical, flags, mode, path)

    def _open_beneath(self, canonical: str, flags: int, mode: int, shown: str) -> int:
        parts = [part for part in canonical.split("/") if part]
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts[:-1]:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                os.close(handle)
                handle = inner
            if not parts:
                return os.dup(handle)
            if flags & os.O_ACCMODE != os.O_WRONLY:
                self._check_readable(parts[-1], handle, shown)
            return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=handle)
        except OSError as error:
            raise OSError(error.errno, error.strerror, shown) from None
        finally:
            os.close(handle)

    @staticmethod
    def _check_readable(name: str, folder: int, shown: str) -> None:
        # The server may be root, to whom mode 000 means nothing; to the phone's shell it does.
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if not mode & 0o444:
            raise _refuse(errno.EACCES, shown)

    def _is_special(self, canonical: str) -> bool:
        try:
            mode = os.lstat(self.root + canonical).st_mode
        except OSError:
            return False
        return canonical.startswith("/dev/") and (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode))

    def map_argument(self, argument: str, cwd: str = "/", hold: Callable[[str], str] | None = None) -> str:
        """A program's argument with every device path in it replaced by the host path, or by what `hold` makes of it.

        A path is what has a slash in it, is `.` or `..`, or names a file in `cwd`; all else stays as it is and, as
        programs start in an empty folder, opens nothing. Raises OSError where the result could still be read as a
        path out of the root.
        """
        if len(_CUTS.findall(argument)) > MOST_CUTS:
            raise _refuse(errno.E2BIG, argument)
        flag, equals, value = argument.partition("=")
        if not equals or "/" in flag:
            flag, equals, value = "", "", argument
        pieces = re.split("([:,])", value)
        hosts = [self._map_piece(piece, cwd) for piece in pieces]
        mapped = flag + equals + "".join(hosts)
        self._check_inside(mapped, argument)
        if hold is None:
            return mapped
        held = [
            hold(host[len(self.root) :] or "/") if self._is_inside(host) and host != piece else host
            for piece, host in zip(pieces, hosts, strict=True)
        ]
        return flag + equals + "".join(held)

    def _map_piece(self, piece: str, cwd: str) -> str:
        if "/" in piece or piece in (".", ".."):
            return self.host(piece, cwd)
        if not piece or piece.startswith("-"):
            return piece
        host = self.host(piece, cwd)
        return host if Path(host).is_file() else piece

    def _check_inside(self, mapped: str, argument: str) -> None:
        """Refuse what leads outside when a program cuts it at other places than `map_argument` did."""
        cuts = [found.start() for found in _CUTS.finditer(mapped)]
        starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(mapped)]
        for number, start in enumerate(starts):
            if _UPWARDS.match(mapped, start):
                raise _refuse(errno.EACCES, argument)
            if mapped.startswith("/", start) and not self._all_inside(mapped, start, ends[number:]):
                raise _refuse(errno.EACCES, argument)

    def _all_inside(self, mapped: str, start: int, ends: list[int]) -> bool:
        """True when the path from `start` to each of `ends` is inside the root, links of the host followed."""
        before = start + len(self.root)  # the root's own name may hold such characters
        for end in ends:
            if end < before and end != ends[-1]:
                continue
            slash = mapped.find("/", before, end)
            if before > start + len(self.root) and slash >= 0 and not os.path.lexists(mapped[start:slash]):
                return True  # nothing that goes on from here exists
            if end - start > LONGEST_PATH:
                return True
            if not self._is_inside(os.path.realpath(mapped[start:end])):
                return False
            before = end
        return True

    def _is_inside(self, host: str) -> bool:
        return host == self.root or host.startswith(f"{self.root}/")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Replace a file of the device's own (not the user's) in one step: readers never see half of it."""
        target = self.root + path
        draft, flags = f"{target}~", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            handle = os.open(draft, flags, mode)
        except FileNotFoundError:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(draft, flags, mode)
        try:
            os.write(handle, text.encode() if isinstance(text, str) else text)
            if mode & 0o133:  # what the process's umask may have taken away
                os.fchmod(handle, mode)
        finally:
            os.close(handle)
        os.replace(draft, target)  # noqa: PTH105 - some hundred times a second

    def make_folders(self, canonical: str) -> None:
        """Make a folder of the user's and those above it, belonging to the shell user as on a phone."""
        path = Path(self.root + canonical)
        if not path.is_dir():
            self.make_folders(canonical.rpartition("/")[0])
            path.mkdir(exist_ok=True)
            self.give_to_shell(canonical)

    def give_to_shell(self, canonical: str) -> None:
        """Where the shell is another user than the server (in a chroot), what it may change must be its own."""
        if os.geteuid() == 0:
            owner = self.shell_owner or 0
            os.chown(self.root + canonical, owner, owner, follow_symlinks=False)

    def stored_bytes(self) -> int:
        """How much the user's folders hold."""
        total = 0
        for place in WRITABLE:
            for folder, _dirs, files in os.walk(self.root + place):
                for name in files:
                    try:
                        total += os.lstat(f"{folder}/{name}").st_blocks * 512
                    except OSError:
                        continue
        return total


class RootFilter:
    """Removes the root's host path from a stream of output, however the stream is cut into pieces."""

    def __init__(self, root: str) -> None:
        self._needle = os.fsencode(root)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown now; a piece that could be the beginning of the root path is held back."""
        *shown, text = (self._held + data).split(self._needle)
        keep = 0
        for size in range(min(len(self._needle) - 1, len(text)), 0, -1):
            if self._needle.startswith(text[-size:]):
                keep = size
                break
        self._held = text[len(text) - keep :]
        return b"".join(shown) + text[: len(text) - keep]

    def end(self) -> bytes:
        """What was held back, when nothing more will come."""
        held, self._held = self._held, b""
        return held
