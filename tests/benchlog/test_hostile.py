"""Text from a phone is hostile: escapes, endless lines, bytes that are no text. Nothing raises and nothing hangs."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.benchlog.files import contract, read_log, table, whole_lines
from mtplab.benchlog.lines import HALF_LIMIT, clean, strip_controls
from mtplab.benchlog.reader import LogReader

FRAGMENTS = st.sampled_from(
    [
        "Replacing ",
        "9 out of 9 node(s) with delegate (",
        "TfLiteGpuDelegateV2",
        ") node, yielding ",
        "1 partitions",
        "\n",
        "count=",
        "1 curr=",
        "9" * 400,
        "e+",
        "-",
        "--use_gpu=",
        "Use gpu: [1]",
        "\x1b[",
        "\x1b]",
        "\r",
        "\x9b",
        "INFO: ",
        "[a.cc:1] ",
        "I0000 00:00:1.2 3 a.cc:4] ",
        "Inference timings in us: Init: ",
        ", First inference: ",
        "[node type]\t",
        "Following operations are not supported by GPU delegate:",
        "ADD: x",
        "exit 999",
        "## exit 1",
        "STARTING!",
        "\0",
    ]
)


@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=20)), max_size=60))
@settings(max_examples=200, deadline=None)
def test_pieces_of_logs_in_any_order_never_raise(parts: list[str]) -> None:
    text = "".join(parts)
    reading = read_log(io.BytesIO(text.encode("utf-8", "surrogatepass")))
    assert contract(reading, "x")["verdict"] == reading.verdict
    assert "\x1b" not in table([("x", reading)])


@given(st.binary(max_size=4000))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read(data: bytes) -> None:
    assert read_log(io.BytesIO(data)).complete is False


def test_one_line_of_fifty_megabytes_is_read_and_its_glued_log_line_found() -> None:
    proof = "I0000 00:00:1758744860.457295   56310 main.cc:193] Falling back to OpenGL\n"
    data = b"".join([b"word " * 10_000_000, proof.encode()])
    reading = read_log(io.BytesIO(data), "gpu")
    assert (reading.verdict, reading.evidence[0].line) == ("backend_downgrade", 1)
    reader = LogReader("gpu")
    reader.feed(data.decode())
    assert reader.finish().verdict == "backend_downgrade"


@pytest.mark.parametrize(
    "unit", ["[" * 9, "\x1b[0;", "\x1b]", "--a=b ", "│ ", "1.0, ", "I0000 a.cc:1] ", "(((", "count=1 "]
)
def test_lines_made_to_slow_a_pattern_down_are_read(unit: str) -> None:
    line = (unit * 200_000)[:1_000_000]
    reader = LogReader()
    for _ in range(5):
        reader.feed(line)
        reader.feed("Explicitly applied " + line)
        reader.feed("Following operations are not supported by GPU delegate:")
        reader.feed("[node type]\t" + line)
    assert reader.finish().verdict == "unknown"


def test_whole_lines_keep_no_more_than_the_ends_of_a_line_without_end() -> None:
    data = b"a" * 2_000_000 + b"\nnext\n" + b"b" * 300_000
    pieces = "".join(whole_lines(io.BytesIO(data)))
    assert len(pieces) < 40 * HALF_LIMIT
    assert "\nnext\n" in pieces


def test_escapes_and_control_characters_go() -> None:
    hostile = "\x1b]0;owned\x07\x1b[31mINFO: \x1b[0mHel\x00lo\u202e \x9b1mwor\x1b(Bld\x1b[?25h\x7f"
    assert strip_controls(hostile) == "INFO: Hello world"
    assert clean(hostile).text == "Hello world"
    assert strip_controls("10 %\r50 %\rdone") == "done"


@given(st.text())
def test_clean_text_is_clean(text: str) -> None:
    line = clean(text.replace("\n", " "))
    assert not any(ord(c) < 32 and c != "\t" for c in line.whole)
    assert line.text in line.whole


@pytest.mark.parametrize(
    ("raw", "text", "severity", "tag"),
    [
        ("VERBOSE: Replacing 4", "Replacing 4", "VERBOSE", None),
        ("WARN: Tensor # 0", "Tensor # 0", "WARN", None),
        ("INFO: [benchmark_litert_model.h:92] Signature name: x", "Signature name: x", "INFO", None),
        ("INFO: [/a/b/litert_logging.cc:9] x", "x", "INFO", None),
        ("05-31 10:38:42.569 22206 22206 E tflite  : UNPACK: no", "UNPACK: no", "ERROR", "tflite"),
        ("I/tflite  (22206): Use gpu: [1]", "Use gpu: [1]", "INFO", "tflite"),
        ("com.example.app                     I  [gpu_registry.cc:149] ok", "ok", "INFO", "com.example.app"),
        ("litert: [litert_dispatch.cc:97] No dispatch", "No dispatch", None, "litert"),
        ("E0000 engine.cc:807] Failed", "Failed", "ERROR", None),
        ("words!I0000 00:00:1758744860.457236   56314 io.cc:3] Done.", "Done.", "INFO", None),
        ("[01/May/2024:05:54:09 +10:00: profiler/warning] [job_id: j] [tflite] Node", "Node", None, None),
        ("└ ERROR: [./litert/cc/x.h:142] y", "y", "ERROR", None),
        ("I( 7937) Use gpu: [1]  (tflite)", "Use gpu: [1]", "INFO", None),
        ("W( 7937: 7938) Use gpu: [1]", "Use gpu: [1]", "WARNING", None),
        ("E/tflite: UNPACK: no", "UNPACK: no", "ERROR", "tflite"),
        ("[ 07-19 14:10:10.844  7937: 7938 I/tflite ]", "", None, None),
        ("1721391010.844  7937  7938 I tflite  : Use gpu: [1]", "Use gpu: [1]", "INFO", "tflite"),
        ("07-19 14:10:10.844123 +0200 u0_a1  7937  7938 I tflite: x y", "x y", "INFO", "tflite"),
        ("2019-07-25 12:00:00.123 1234-1250/com.example.app I/tflite: x", "x", "INFO", "tflite"),
        ("com.example.app I/tflite: x", "x", "INFO", "tflite"),
        ("2026-11-29 20:13:55 INFO benchmark_litert_model: Loading", "Loading", "INFO", "benchmark_litert_model"),
        ("2024-05-01T05:54:09.1234567Z INFO: count=1", "count=1", "INFO", None),
        ("2021-03-18 10:20:30.123456+0100 App[1234:56789] INFO: x", "x", "INFO", None),
        ("Jul 19 14:10:10 bench benchmark[123]: ERROR: x", "x", "ERROR", None),
        ("[12:03:04] VERBOSE: x", "x", "VERBOSE", None),
        ("I/O: slow", "I/O: slow", None, None),
        ("Graph: [/data/local/tmp/m.tflite]", "Graph: [/data/local/tmp/m.tflite]", None, None),
    ],
)
def test_prefixes_are_set_apart(raw: str, text: str, severity: str | None, tag: str | None) -> None:
    line = clean(raw)
    assert (line.text, line.severity, line.tag) == (text, severity, tag)
    assert line.whole == raw
