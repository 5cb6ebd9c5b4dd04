"""Which programs of the host stand on the device, where, and what was really pushed to their places."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from mtplab.standin.files import DeviceFiles
from mtplab.standin.phone import SIM

BENCHMARK_MODEL = "/data/local/tmp/benchmark_model"
BENCHMARK_LITERT_MODEL = "/data/local/tmp/benchmark_litert_model"
TRAMPOLINE = '#!/system/bin/sh\n# mtplab stand-in: this program runs on the host\nexec standin-run "$0" "$@"\n'
ELF = b"\x7fELF"
PASSING = ".part-"  # in the name of a file that is moved once it has arrived whole


class ProgramTable:
    """Device path -> the host's argument list; a trampoline stands at each path and pushed bytes are kept aside."""

    def __init__(self, files: DeviceFiles, trampolines: bool) -> None:
        """`trampolines`: programs must be scripts in the device's root; else its shell knows them by path."""
        self._files, self._trampolines = files, trampolines
        paths = (BENCHMARK_MODEL, BENCHMARK_LITERT_MODEL)
        # These read the phone's clocks themselves and log like the phone's.
        self.clocked = [[sys.executable, str(Path(__file__).with_name(f"{Path(path).name}.py"))] for path in paths]
        self.argv_by_path = dict(zip(paths, self.clocked, strict=True))
        self._arriving: dict[str, str] = {}

    def install(self, extra: dict[str, list[str]]) -> None:
        """Put every program in its place; bytes that a user pushed there in an earlier run stay what they were."""
        self.argv_by_path.update({self._files.resolve(path): argv for path, argv in extra.items()})
        self._restore_pushed()
        for path in self.argv_by_path:
            if Path(self._files.root + path).is_file() and not self._is_trampoline(path):
                self.adopt(path)
            else:
                self._files.make_folders(path.rpartition("/")[0])
                self._files.write(path, TRAMPOLINE, 0o755)
                self._files.give_to_shell(path)
        self._publish()

    def adopt(self, path: str) -> None:
        """A file was pushed: if it stands for a program, make it run; its own bytes are kept."""
        place, passing, _ = path.rpartition(PASSING)
        if passing:
            self._arriving[path] = place
            return
        if path not in self.argv_by_path:
            name = Path(path).name
            # Both tools have been released under the first name: what the file is called decides.
            stands_for = BENCHMARK_LITERT_MODEL if "litert" in name else BENCHMARK_MODEL
            if not (name.startswith("benchmark_") and "model" in name and self._begins_with(path, ELF)):
                return
            self.argv_by_path[path] = self.argv_by_path[stands_for]
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

    def settle(self) -> None:
        """Adopt what was pushed under a passing name and has been moved to its place since: nothing tells of that."""
        for path, place in list(self._arriving.items()):
            if not Path(self._files.root + path).exists():
                del self._arriving[path]
                if Path(self._files.root + place).is_file():
                    self.adopt(place)

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
        self._files.write(f"{SIM}/programs", "".join(f"{path}\n" for path in sorted(self.argv_by_path)))

    def find(self, path: str) -> list[str] | None:
        if path in self.argv_by_path:
            return self.argv_by_path[path]
        name = Path(path).name  # a copy of a trampoline is still that program
        return next((argv for known, argv in self.argv_by_path.items() if Path(known).name == name), None)
