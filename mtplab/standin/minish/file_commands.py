"""Commands on files, in toybox's forms as far as the lab and a person at the prompt use them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from mtplab.standin.minish.options import Options, read_options
from mtplab.standin.minish.redirector import write
from mtplab.standin.minish.shell import Command, Shell

CHUNK = 65536


def host(shell: Shell, path: str, follow: bool = True) -> Path:
    """The host path of a device path, for reading."""
    return Path(shell.files.host(path, shell.cwd, follow))


def writable(shell: Shell, path: str) -> Path:
    """The host path of a device path that is about to be changed; OSError where the phone would refuse."""
    return Path(shell.files.root + shell.files.check_writable(path, shell.cwd))


def report(tool: str, path: str, error: OSError) -> int:
    """The error line of a file command."""
    write(2, f"{tool}: {path}: {error.strerror}\n")
    return 1


def chunks(shell: Shell, path: str) -> Iterator[bytes]:
    """A file's content (`-`: standard input)."""
    handle = os.dup(0) if path == "-" else shell.open(path, os.O_RDONLY)
    try:
        while data := os.read(handle, CHUNK):
            yield data
    finally:
        os.close(handle)


def content(shell: Shell, path: str) -> bytes:
    """All of a file."""
    return b"".join(chunks(shell, path))


def _cat(shell: Shell, words: list[str]) -> int:
    status = 0
    for path in [word for word in words if word == "-" or not word.startswith("-")] or ["-"]:
        try:
            for data in chunks(shell, path):
                write(1, data)
        except OSError as error:
            status = report("cat", path, error)
    return status


def _mkdir(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "pvm:"), 0
    for path in options.rest:
        try:
            place = writable(shell, path.rstrip("/") or "/") if not _is_folder(shell, path) else host(shell, path)
            place.mkdir(parents="p" in options.given, exist_ok="p" in options.given)
        except OSError as error:
            status = report("mkdir", path, error)
    return status


def _is_folder(shell: Shell, path: str) -> bool:
    return host(shell, path).is_dir()


def _rm(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "rRfiv"), 0
    for path in options.rest:
        try:
            place = writable(shell, path.rstrip("/"))
            if place.is_dir() and not place.is_symlink():
                if not {"r", "R"} & set(options.given):
                    raise OSError(errno.EISDIR, "is a directory")
                shutil.rmtree(place)
            else:
                place.unlink()
        except FileNotFoundError as error:
            if "f" not in options.given:
                status = report("rm", path, error)
        except OSError as error:
            missing = "f" in options.given and not os.path.lexists(shell.files.host(path, shell.cwd, follow=False))
            status = status if missing else report("rm", path, error)
    return status


def _rmdir(shell: Shell, words: list[str]) -> int:
    status = 0
    for path in read_options(words, "p").rest:
        try:
            writable(shell, path.rstrip("/")).rmdir()
        except OSError as error:
            status = report("rmdir", path, error)
    return status


def _targets(shell: Shell, tool: str, options: Options) -> list[tuple[str, str]]:
    """(from, to) pairs of `mv` and `cp`."""
    if len(options.rest) < 2:
        raise OSError(errno.EINVAL, f"{tool}: needs a source and a target")
    *sources, target = options.rest
    if _is_folder(shell, target):
        return [(source, f"{target.rstrip('/')}/{Path(source).name}") for source in sources]
    return [(source, target) for source in sources]


def _mv(shell: Shell, words: list[str]) -> int:
    status = 0
    for source, target in _targets(shell, "mv", read_options(words, "fnv")):
        try:
            place = writable(shell, source)
            if not os.path.lexists(place):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            place.replace(writable(shell, target))
        except OSError as error:
            status = report("mv", source, error)
    return status


def _cp(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "rRpfa"), 0
    for source, target in _targets(shell, "cp", options):
        try:
            place, goal = host(shell, source), writable(shell, target)
            if place.is_dir():
                if not {"r", "R", "a"} & set(options.given):
                    raise OSError(errno.EISDIR, "is a directory")
                shutil.copytree(place, goal, symlinks=True, dirs_exist_ok=True)
            else:
                with os.fdopen(shell.open(source, os.O_RDONLY), "rb") as file:
                    data = file.read()
                goal.write_bytes(data)
                goal.chmod(place.stat().st_mode & 0o777)
        except OSError as error:
            status = report("cp", source, error)
    return status


def _ln(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "sfn")
    target, link = options.rest[0], options.rest[-1]
    place = writable(shell, link)
    if "f" in options.given:
        place.unlink(missing_ok=True)
    if "s" in options.given:
        place.symlink_to(target)
    else:
        os.link(host(shell, target), place)
    return 0


def _chmod(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "R"), 0
    mode, *paths = options.rest
    for path in paths:
        try:
            canonical = shell.files.resolve(path, shell.cwd)
            place = writable(shell, canonical)
            place.chmod(_mode(mode, place.stat().st_mode & 0o7777))
        except (OSError, ValueError) as error:
            problem = error if isinstance(error, OSError) else OSError(errno.EINVAL, f"bad mode '{mode}'")
            status = report("chmod", path, problem)
    return status


def _mode(text: str, before: int) -> int:
    if text.isdigit():
        return int(text, 8)
    for clause in text.split(","):
        sign = next((char for char in clause if char in "+-="), None)
        if sign is None:
            raise ValueError(text)
        who, what = clause.split(sign, 1)
        bits = sum({"r": 4, "w": 2, "x": 1}.get(char, 0) for char in what)
        shifts = {"u": 6, "g": 3, "o": 0}
        shift = [shifts[char] for char in (who.replace("a", "ugo") or "ugo")]
        mask = sum(bits << place for place in shift)
        if sign == "=":
            before &= ~sum(7 << place for place in shift)
        before = before & ~mask if sign == "-" else before | mask
    return before


def _touch(shell: Shell, words: list[str]) -> int:
    for path in read_options(words, "acm").rest:
        os.close(shell.open(path, os.O_WRONLY | os.O_CREAT))
        os.utime(host(shell, path))
    return 0


def _ls(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "1laAdhRtrnpFi"), 0
    paths = options.rest or ["."]
    for path in paths:
        try:
            place = host(shell, path, follow="l" not in options.given and "d" not in options.given)
            found = os.lstat(place)
            if stat.S_ISDIR(found.st_mode) and "d" not in options.given:
                if len(paths) > 1:
                    write(1, f"{path}:\n")
                _list_folder(place, options)
            else:
                write(1, _line(place, path, options))
        except OSError as error:
            status = report("ls", path, error)
    return status


def _list_folder(place: Path, options: Options) -> None:
    names = sorted(os.listdir(place))  # noqa: PTH208
    if not {"a", "A"} & set(options.given):
        names = [name for name in names if not name.startswith(".")]
    if "a" in options.given:
        names = [".", "..", *names]
    if "t" in options.given:
        names.sort(key=lambda name: -(place / name).lstat().st_mtime)
    if "r" in options.given:
        names.reverse()
    if "l" in options.given:
        blocks = sum((place / name).lstat().st_blocks for name in names) // 2
        write(1, f"total {blocks}\n")
    write(1, "".join(_line(place / name, name, options) for name in names))


def _line(place: Path, name: str, options: Options) -> str:
    if "l" not in options.given:
        return name + "\n"
    found = place.lstat()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.st_mtime))
    arrow = f" -> {place.readlink()}" if place.is_symlink() else ""
    mode = stat.filemode(found.st_mode)
    return f"{mode} {found.st_nlink} shell shell {found.st_size:8d} {when} {name}{arrow}\n"


def _stat(shell: Shell, words: list[str]) -> int:
    options, status = read_options(words, "c:Lft"), 0
    form = options.given.get("c", "  File: %n\n  Size: %s\t Mode: %a\n Modify: %y")
    for path in options.rest:
        try:
            found = host(shell, path, follow="L" in options.given).lstat()
        except OSError as error:
            write(2, f"stat: '{path}': {error.strerror}\n")
            status = 1
            continue
        write(1, _stat_line(form, path, found) + "\n")
    return status


def _stat_line(form: str, path: str, found: os.stat_result) -> str:
    local = time.localtime(found.st_mtime)
    kind = {stat.S_IFREG: "regular file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symbolic link"}
    values = {
        "n": path, "s": found.st_size, "a": f"{found.st_mode & 0o7777:o}", "f": f"{found.st_mode:x}",
        "Y": int(found.st_mtime), "X": int(found.st_atime), "Z": int(found.st_ctime), "u": 2000, "g": 2000,
        "U": "shell", "G": "shell", "h": found.st_nlink, "i": found.st_ino, "b": found.st_blocks, "B": 512,
        "A": stat.filemode(found.st_mode), "F": kind.get(stat.S_IFMT(found.st_mode), "special file"),
        "y": time.strftime("%Y-%m-%d %H:%M:%S.000000000 %z", local), "%": "%",
    }  # fmt: skip
    out, place = "", 0
    while place < len(form):
        if form[place] == "%" and place + 1 < len(form):
            out += str(values.get(form[place + 1], "?"))
            place += 2
        else:
            out += form[place]
            place += 1
    return out


def _du(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "skhma")
    for path in options.rest or ["."]:
        total = 0
        for folder, _folders, names in os.walk(host(shell, path)):
            total += sum(os.lstat(f"{folder}/{name}").st_blocks for name in names)
        write(1, f"{total // 2}\t{path}\n")
    return 0


def _digest(kind: str) -> Command:
    def run(shell: Shell, words: list[str]) -> int:
        import hashlib  # costs more than most commands take

        options, status = read_options(words, "b"), 0
        for path in options.rest or ["-"]:
            digest = hashlib.new(kind)
            try:
                for data in chunks(shell, path):
                    digest.update(data)
                write(1, f"{digest.hexdigest()}  {path}\n" if "b" not in options.given else f"{digest.hexdigest()}\n")
            except OSError as error:
                status = report(f"{kind}sum", path, error)
        return status

    return run


def _readlink(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "fne")
    for path in options.rest:
        if "f" in options.given:
            write(1, shell.files.resolve(path, shell.cwd) + "\n")
        else:
            place = host(shell, path, follow=False)
            if not place.is_symlink():
                return 1
            write(1, f"{place.readlink()}\n")
    return 0


def _realpath(shell: Shell, words: list[str]) -> int:
    return _readlink(shell, ["-f", *words])


def _basename(shell: Shell, words: list[str]) -> int:
    name = words[0].rstrip("/").rpartition("/")[2] or "/"
    write(1, (name.removesuffix(words[1]) if len(words) > 1 and name != words[1] else name) + "\n")
    return 0


def _dirname(shell: Shell, words: list[str]) -> int:
    for word in words:
        folder, slash, _name = word.rstrip("/").rpartition("/")
        write(1, (folder or slash or ".") + "\n")
    return 0


def _cmp(shell: Shell, words: list[str]) -> int:
    options = read_options(words, "s")
    same = content(shell, options.rest[0]) == content(shell, options.rest[1])
    if not same and "s" not in options.given:
        write(1, f"{options.rest[0]} {options.rest[1]} differ\n")
    return 0 if same else 1


def _find(shell: Shell, words: list[str]) -> int:
    from mtplab.standin.minish.expand import matcher_for

    start = words[0] if words and not words[0].startswith("-") else "."
    tests = dict(pairwise(words))
    name, kind = tests.get("-name"), tests.get("-type")
    depth = int(tests.get("-maxdepth", "64"))
    top = host(shell, start)
    places = [top, *sorted(top.rglob("*"))] if top.is_dir() else [top]
    for place in places:
        below = len(place.relative_to(top).parts)
        right_kind = kind is None or {"f": place.is_file, "d": place.is_dir, "l": place.is_symlink}[kind]()
        right_name = name is None or matcher_for([(name, False)]).fullmatch(place.name) is not None
        if below <= depth and right_kind and right_name:
            write(1, start + (f"/{place.relative_to(top)}" if below else "") + "\n")
    return 0 if top.exists() else 1


COMMANDS: dict[str, Command] = {
    "cat": _cat, "mkdir": _mkdir, "rm": _rm, "rmdir": _rmdir, "mv": _mv, "cp": _cp, "ln": _ln, "chmod": _chmod,
    "touch": _touch, "ls": _ls, "stat": _stat, "du": _du, "sha256sum": _digest("sha256"), "md5sum": _digest("md5"),
    "sha1sum": _digest("sha1"), "readlink": _readlink, "realpath": _realpath, "basename": _basename,
    "dirname": _dirname, "cmp": _cmp, "find": _find,
}  # fmt: skip
