"""Which benchmark program lies there: its machine, its origin, its kind; what cannot run is refused beforehand."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.device import binaries, npu, paths
from mtplab.device.binaries import check_machine, kind_of, look_at, machine_of, push_binary
from mtplab.device.errors import CommandFailed
from mtplab.device.link import Link

AARCH64, X86_64, ARM = 183, 62, 40
LINKER = b"/system/bin/linker64\0"

CLASSIC_USAGE = """\
ERROR: Failed to parse flag 'num_runs' against argv '--num_runs=?'
ERROR: usage: ./benchmark_model <flags>
Flags:
\t--num_runs=50                 \tint32\toptional\texpected number of runs, see also min_secs, max_secs
\t--input_layer=                \tstring\toptional\tinput layer names
\t--use_xnnpack=false           \tbool\toptional\tuse XNNPack delegate
"""
LITERT_USAGE = """\
ERROR: usage: ./benchmark_model <flags>
Flags:
\t--num_runs=50                 \tint32\toptional\texpected number of runs, see also min_secs, max_secs
\t--use_npu=false               \tbool\toptional\tWhether to use NPU accelerator.
\t--dispatch_library_path=      \tstring\toptional\tDispatch library path.
"""


def elf(machine: int = AARCH64, linker: bytes = LINKER, kind: int = 3, entry: int = 0x1000) -> bytes:
    """A whole little ELF64 program: header, two segments (linker, content), content, an empty section table."""
    heads, content = 64 + 2 * 56, b"\x90" * 64
    end = heads + len(linker) + len(content)
    sections = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) + struct.pack(
        "<IIQQQQIIQQ", 0, 3, 0, 0, heads, 1, 0, 0, 1, 0
    )
    header = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    header += struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, entry, 64, end, 0, 64, 56, 2, 64, 2, 1)
    interpreter = struct.pack("<IIQQQQQQ", 3 if linker else 0, 4, heads, 0, 0, len(linker), len(linker), 1)
    loaded = struct.pack("<IIQQQQQQ", 1, 5, heads + len(linker), 0, 0, len(content), len(content), 1)
    return header + interpreter + loaded + linker + content + sections


@pytest.mark.parametrize(("machine", "abi"), [(AARCH64, "arm64-v8a"), (X86_64, "x86_64"), (ARM, "armeabi-v7a")])
def test_the_header_names_the_machine(machine: int, abi: str) -> None:
    assert machine_of(io.BytesIO(elf(machine)), "b") == abi
    assert machine_of(io.BytesIO(elf(machine, linker=b"")), "b") == abi  # statically linked


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"#!/bin/sh\n", "no ELF program"),
        (b"", "no ELF program"),
        (elf(kind=1), "library or object"),
        (elf(entry=0), "library or object"),
        (elf(linker=b"/lib/ld-linux-aarch64.so.1\0"), "desktop Linux"),
        (elf()[:-1], "truncated"),
    ],
)
def test_what_no_phone_can_run_is_refused_with_a_sentence(data: bytes, why: str) -> None:
    with pytest.raises(CommandFailed, match=why):
        machine_of(io.BytesIO(data), "benchmark_model")


def test_a_program_cut_anywhere_is_never_taken_for_a_whole_one() -> None:
    whole = elf()
    for size in range(len(whole)):
        with pytest.raises(CommandFailed, match=r"truncated|no ELF"):
            machine_of(io.BytesIO(whole[:size]), "benchmark_model")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(elf()) - 1), st.binary(min_size=1, max_size=12))
def test_a_damaged_header_is_a_sentence_or_an_answer_and_nothing_else(place: int, junk: bytes) -> None:
    data = bytearray(elf())
    data[place : place + len(junk)] = junk
    try:
        assert machine_of(io.BytesIO(bytes(data)), "b")
    except CommandFailed as refused:
        assert str(refused).endswith(".")


def test_another_machine_is_refused_and_a_phone_that_does_not_say_is_not_guessed_at() -> None:
    check_machine("armeabi-v7a", ("arm64-v8a", "armeabi-v7a"), "b")
    check_machine("x86_64", (), "b")
    with pytest.raises(CommandFailed, match="built for x86_64, but the phone runs arm64-v8a"):
        check_machine("x86_64", ("arm64-v8a",), "b")


def test_the_two_tools_of_one_name_are_told_apart_by_their_flags() -> None:
    classic, litert = (frozenset(binaries._FLAG_LINE.findall(text)) for text in (CLASSIC_USAGE, LITERT_USAGE))
    assert kind_of(classic) == "benchmark_model"
    assert kind_of(litert) == "benchmark_litert_model"
    assert kind_of(frozenset()) is None
    assert kind_of(frozenset({"verbose"})) is None


def test_only_a_listed_hash_has_a_known_origin(tmp_path: Path) -> None:
    listed = tmp_path / "binaries.toml"
    rows = [f'[[binary]]\nsha256 = "{digest}"\nrelease = "LiteRT 2.1"\n' for digest in ("ab" * 32, "not a hash")]
    listed.write_text("".join(rows))
    assert list(binaries.known_binaries(listed)) == ["ab" * 32]
    assert binaries.release_of("ab" * 32) is None and binaries.release_of(None) is None


def test_a_wrong_program_is_refused_before_anything_is_sent(link: Link, tmp_path: Path) -> None:
    for name, data in (("pc", elf(X86_64)), ("torn", elf()[:200]), ("text", b"not a program")):
        local = tmp_path / name
        local.write_bytes(data)
        with pytest.raises(CommandFailed):
            push_binary(link, local)
    with pytest.raises(CommandFailed, match="cannot be read"):
        push_binary(link, tmp_path / "absent")
    assert link.run(["ls", paths.BIN_DIR]).exit_code != 0


def test_a_pushed_program_is_named_by_its_content_and_asked_what_it_is(link: Link, tmp_path: Path) -> None:
    local = tmp_path / "benchmark_model"
    local.write_bytes(elf())
    there = push_binary(link, local)
    tool = look_at(link, there, simulated=True)
    assert tool.sha256 and there == f"{paths.BIN_DIR}/benchmark_model-{tool.sha256[:12]}"
    assert link.pull(there) == elf()
    assert (tool.machine, tool.kind, tool.origin) == ("arm64-v8a", "benchmark_model", "origin unverified")
    assert {"graph", "num_runs", "input_layer_value_files", "delegate_serialize_dir"} <= tool.flags
    local.write_bytes(elf() + b"litert/tools/benchmark_litert_model.cc")
    tool = look_at(link, push_binary(link, local), simulated=True)
    assert tool.kind == "benchmark_litert_model" and "use_npu" in tool.flags
    link.run(["rm", "-r", paths.BIN_DIR], check=True)


def test_the_stand_ins_own_program_is_called_that(link: Link) -> None:
    tool = look_at(link, paths.BENCHMARK_MODEL, simulated=True)
    assert (tool.machine, tool.kind, tool.release) == (None, "benchmark_model", None)
    assert tool.origin == "the stand-in's own program"


def test_an_absent_or_barred_program_is_refused_with_the_cure(link: Link) -> None:
    with pytest.raises(CommandFailed, match="There is no /data/local/tmp/o'hara"):
        look_at(link, "/data/local/tmp/o'hara", simulated=True)
    link.run("echo x >/data/local/tmp/barred; chmod 644 /data/local/tmp/barred", check=True)
    with pytest.raises(CommandFailed, match="chmod 755"):
        look_at(link, "/data/local/tmp/barred", simulated=True)


def test_a_pull_is_bounded_and_says_what_is_missing(link: Link) -> None:
    link.run("printf 12345 >/data/local/tmp/five", check=True)
    assert link.pull("/data/local/tmp/five") == b"12345"
    with pytest.raises(CommandFailed, match="more than"):
        link.pull("/data/local/tmp/five", limit_bytes=4)
    with pytest.raises(CommandFailed, match=r"refused .*/data/local/tmp/none"):
        link.pull("/data/local/tmp/none")


@pytest.mark.parametrize(
    ("text", "value"), [("3 0 4\n", 7), ("12", 12), ("", None), ("cat: no such file", None), ("-1 0 0", None)]
)
def test_the_npu_counts_in_three_fields(text: str, value: int | None) -> None:
    assert npu.parse_count(text) == value


def test_the_npu_counter_of_a_phone_is_read(link: Link) -> None:
    count = npu.read_count(link)
    assert count.value is not None or count.reason
