"""What a program of the host was given: the device's files as they were when they were checked, out of its reach.

A device path is checked by the stand-in and opened later by the program; in between, the device could put a link to a
file of the host in its place. So each file is linked (the file itself, not its name) into a folder that no device
writes to, and the program gets that path. What it makes there is moved to the device when it has ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from mtplab.standin.files import DeviceFiles

NO_LINKS = (errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)  # file systems without them
MOST_FILES = 4096  # of a folder that was named as a whole


class HeldFiles:
    """The files of one run, under the device's own paths in a folder beside the device's root."""

    def __init__(self, files: DeviceFiles, number: int) -> None:
        self._files = files
        self.root = f"{files.root}.held/{number}"
        self._inodes: dict[str, int] = {}
        shutil.rmtree(self.root, ignore_errors=True)
        Path(self.root).mkdir(parents=True, mode=0o700)

    def hold(self, canonical: str) -> str:
        """The host path that stands for a device path from now on; OSError where that may not be read."""
        folder, _, name = canonical.rpartition("/")
        target = Path(self.root + canonical)
        target.parent.mkdir(parents=True, exist_ok=True)
        if canonical in self._inodes or not name:
            return str(target)
        try:
            parent = self._files.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return str(target)  # nothing is there: the program will say so, or make it
        try:
            self._take(parent, name, canonical)
        finally:
            os.close(parent)
        return str(target)

    def _take(self, parent: int, name: str, canonical: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                self._take_folder(parent, name, canonical)
            elif stat.S_ISREG(mode):
                self._link(parent, name, canonical)

    def _link(self, parent: int, name: str, canonical: str) -> None:
        target = self.root + canonical
        try:
            os.link(name, target, src_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
            with os.fdopen(handle, "rb") as source, Path(target).open("wb") as copy:
                shutil.copyfileobj(source, copy)
        facts = os.lstat(target)
        if not stat.S_ISREG(facts.st_mode):  # it was swapped between the two calls
            Path(target).unlink()
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), canonical)
        self._inodes[canonical] = facts.st_ino

    def _take_folder(self, parent: int, name: str, canonical: str) -> None:
        Path(self.root + canonical).mkdir(exist_ok=True)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            for entry in sorted(os.listdir(inner)):  # noqa: PTH208 - by handle
                if len(self._inodes) < MOST_FILES and f"{canonical}/{entry}" not in self._inodes:
                    self._take(inner, entry, f"{canonical}/{entry}")
        finally:
            os.close(inner)

    def give_back(self) -> list[str]:
        """Move what the program made to its device paths; which of it the device does not take. Ends the holding."""
        refused = []
        try:
            for folder, _dirs, names in os.walk(self.root):
                for name in names:
                    path = f"{folder}/{name}"
                    canonical = path.removeprefix(self.root)
                    facts = os.lstat(path)
                    if stat.S_ISREG(facts.st_mode) and self._inodes.get(canonical) != facts.st_ino:
                        try:
                            self._give(path, canonical)
                        except OSError:
                            refused.append(canonical)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
        return refused

    def _give(self, path: str, canonical: str) -> None:
        self._files.check_writable(canonical)
        folder, _, name = canonical.rpartition("/")
        parent = self._files.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.replace(path, name, dst_dir_fd=parent)
        finally:
            os.close(parent)
        self._files.give_to_shell(canonical)
