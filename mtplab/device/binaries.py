"""Benchmark programs as files: what machine they were built for, where they come from, which tool they are.

Google ships two tools under one file name: TensorFlow Lite's `benchmark_model` and LiteRT's `benchmark_litert_model`
know different flags and print different figures. A program is asked for its flags, never judged by its name.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from mtplab.device import paths
from mtplab.device.errors import CommandFailed
from mtplab.session.text import clean_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from mtplab.device.link import Link

Kind = Literal["benchmark_model", "benchmark_litert_model"]
KNOWN_BINARIES = Path(__file__).with_name("binaries.toml")
LONGEST_BYTES = 512 << 20

# e_machine (pyelftools' names) -> the ABI that Android calls it by
_ABIS = {"EM_AARCH64": "arm64-v8a", "EM_ARM": "armeabi-v7a", "EM_X86_64": "x86_64", "EM_386": "x86"}
_ANDROID_LINKERS = ("/system/bin/", "/apex/")
# Every version of either tool prints its flags when one of them cannot be parsed; `--help` exists in some only.
_ASK_FLAGS = ("--help", "--num_runs=?")
_FLAG_LINE = re.compile(r"^\s*--([A-Za-z_]\w{0,80})=", re.MULTILINE | re.ASCII)
_ABSL_FLAG = re.compile(r"^\s*--([A-Za-z_]\w{0,80}) \(", re.MULTILINE | re.ASCII)
_LITERT_FLAGS = frozenset({"use_npu", "dispatch_library_path", "compiler_plugin_library_path"})
_CLASSIC_FLAGS = frozenset({"use_xnnpack", "input_layer", "enable_op_profiling"})


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark program on the phone, as far as it was looked at.

    `machine` is the ABI its ELF header names; None for a script. `kind` is None, and `flags` empty, where the program
    did not tell its flags. `release` is set only where binaries.toml knows its hash.
    """

    path: str = paths.BENCHMARK_MODEL
    sha256: str | None = None
    machine: str | None = None
    kind: Kind | None = "benchmark_model"
    flags: frozenset[str] = frozenset()
    release: str | None = None
    simulated: bool = False

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        if self.release:
            return self.release
        return "the stand-in's own program" if self.simulated and self.machine is None else "origin unverified"

    def knows(self, flag: str) -> bool:
        """Whether it has a flag; one that did not tell its flags is taken at its kind's word."""
        return not self.flags or flag in self.flags


@functools.cache
def known_binaries(path: Path = KNOWN_BINARIES) -> dict[str, dict[str, Any]]:
    """Programs of official releases by their sha256."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("binary", [])
    return {str(row["sha256"]): row for row in rows if re.fullmatch(r"[0-9a-f]{64}", str(row.get("sha256")))}


def release_of(sha256: str | None) -> str | None:
    """The official release that a file of this hash belongs to, or None: unlisted is unverified, not suspect."""
    row = known_binaries().get(sha256 or "")
    return None if row is None else str(row.get("release") or "an official release")


def machine_of(file: BinaryIO, name: str) -> str:
    """The ABI of a whole Android program.

    Raises CommandFailed with one sentence where the file is no ELF program, is cut short, or was built for a desktop.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) != b"\x7fELF":
        raise CommandFailed(
            f"{name} is no ELF program, so no phone can run it: name the benchmark_model of an Android release."
        )
    try:
        elf = ELFFile(file)
        ends = [part["p_offset"] + part["p_filesz"] for part in elf.iter_segments()]
        ends.append(elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"])
        interpreters = [part.get_interp_name() for part in elf.iter_segments() if isinstance(part, InterpSegment)]
        machine, entry, kind = str(elf["e_machine"]), elf["e_entry"], elf["e_type"]
    except (ELFError, ValueError, ArithmeticError, TypeError, LookupError, OSError, AssertionError) as problem:
        raise CommandFailed(f"{name} is a damaged or truncated ELF file ({problem}): copy it again.") from None
    if max(ends) > size:
        raise CommandFailed(f"{name} is truncated: it should have {max(ends)} bytes and has {size}; copy it again.")
    if kind not in ("ET_EXEC", "ET_DYN") or not entry:
        raise CommandFailed(f"{name} is an ELF library or object, not a program: name the benchmark_model itself.")
    foreign = [path for path in interpreters if not path.startswith(_ANDROID_LINKERS)]
    if foreign:
        raise CommandFailed(
            f"{name} was built for a desktop Linux ({clean_text(foreign[0], 80)}), not for Android: "
            "take the android build of the release."
        )
    return _ABIS.get(machine, machine)


def check_machine(machine: str, abis: tuple[str, ...], name: str) -> None:
    """CommandFailed where the phone (its ABIs, as it lists them) cannot run a program of this machine."""
    if abis and machine not in abis:
        raise CommandFailed(
            f"{name} is built for {machine}, but the phone runs {', '.join(abis)}: take the build for {abis[0]}."
        )


def phone_abis(link: Link) -> tuple[str, ...]:
    """The ABIs the phone runs, best first; empty where it does not say."""
    for name in ("ro.product.cpu.abilist", "ro.product.cpu.abi"):
        said = clean_text(link.run(["getprop", name], timeout_s=10).stdout.strip(), 200)
        if said:
            return tuple(part for part in said.split(",") if part)
    return ()


def push_binary(link: Link, local: Path) -> str:
    """Push a benchmark program, named by its content, after it has been found fit for this phone; its path there.

    Raises CommandFailed (before anything is sent) where the file is unreadable or cannot run on the phone.
    """
    shown = clean_text(str(local), 200)
    try:
        with local.open("rb") as file:
            check_machine(machine_of(file, shown), phone_abis(link), shown)
            file.seek(0)
            data = file.read()
    except OSError as problem:
        raise CommandFailed(f"{shown} cannot be read ({problem.strerror}): check the path.") from problem
    # Only a name for people: which tool it is, its flags will tell.
    name = "benchmark_litert_model" if b"benchmark_litert_model" in data else "benchmark_model"
    digest = hashlib.sha256(data).hexdigest()
    return link.push(local, f"{paths.BIN_DIR}/{name}-{digest[:12]}", mode=0o755).dst


def look_at(link: Link, path: str, *, simulated: bool) -> Tool:
    """Inspect the program at `path` on the phone and ask it for its flags.

    Raises CommandFailed where it is absent, not executable, truncated or built for another machine.
    """
    file = shlex.quote(path)
    state = link.run(f"if [ ! -f {file} ]; then echo absent; elif [ ! -x {file} ]; then echo barred; fi")
    if state.stdout.strip() == "absent":
        raise CommandFailed(f"There is no {path} on the phone: push one, or name one with --benchmark-binary.")
    if state.stdout.strip() == "barred":
        raise CommandFailed(f"{path} on the phone is not executable: adb shell chmod 755 {path}")
    data = link.pull(path, LONGEST_BYTES)
    machine = None
    if not data.startswith(b"#!"):
        machine = machine_of(io.BytesIO(data), path)
        check_machine(machine, phone_abis(link), path)
    digest = hashlib.sha256(data).hexdigest()
    flags = flags_of(link, path)
    return Tool(
        path=path,
        sha256=digest,
        machine=machine,
        kind=kind_of(flags),
        flags=flags,
        release=release_of(digest),
        simulated=simulated,
    )


def flags_of(link: Link, path: str) -> frozenset[str]:
    """The flags that the program says it has; empty where it does not tell them."""
    said = link.run([path, *_ASK_FLAGS], timeout_s=60)
    return frozenset(_FLAG_LINE.findall(said.stdout + "\n" + said.stderr))


def lm_flags_of(link: Link, path: str) -> frozenset[str]:
    """The flags of LiteRT-LM's program, which lists them as absl does; empty where it does not."""
    said = link.run([path, "--helpfull"], timeout_s=60)
    return frozenset(_ABSL_FLAG.findall(said.stdout + "\n" + said.stderr))


def kind_of(flags: frozenset[str]) -> Kind | None:
    """Which of the two tools has these flags; None where they fit neither."""
    if flags & _LITERT_FLAGS:
        return "benchmark_litert_model"
    return "benchmark_model" if flags & _CLASSIC_FLAGS else None
