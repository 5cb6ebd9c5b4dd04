"""Every captured log is read as the people who captured it say, however it was carried here."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mtplab.benchlog.files import read_log
from mtplab.benchlog.reader import LogReader

# The runtime's lines come in one piece on stderr; these logs are such that no list stands among the tool's lines.
UNSTABLE_ORDER = ("01", "02", "03", "05", "06", "08", "14", "16", "17", "22")


def test_each_sample_reads_as_its_file_says(sample: Any, read: Any, differences: Any) -> None:
    assert differences(read(sample.lines), sample.expected) == {}


def test_a_file_reads_like_its_lines(sample: Any, read: Any) -> None:
    assert read_log(sample.path) == read(sample.lines)
    reader = LogReader()
    reader.feed_text("\n".join(sample.lines))
    assert reader.finish() == read(sample.lines)


@pytest.mark.parametrize("ending", ["\r", "\r\r"])
def test_carriage_returns_change_nothing(sample: Any, read: Any, ending: str) -> None:
    assert read([line + ending for line in sample.lines]) == read(sample.lines)


def test_colours_change_nothing(sample: Any, read: Any, differences: Any) -> None:
    painted = [f"\x1b[32m{line[:9]}\x1b[0m{line[9:]}\x1b]0;title\x07" for line in sample.lines]
    assert differences(read(painted), sample.expected) == {}


@pytest.mark.parametrize(
    "prefix",
    [
        "07-19 14:10:10.844  7937  7937 I tflite  : ",
        "2024-07-19 14:10:10.844  7937  7938 I tflite: ",
        "07-19 14:10:10.844 I/tflite  ( 7937): ",
        "I/tflite  ( 7937): ",
        "com.example.app                     I  ",
        "1721391010.844  7937  7937 I tflite  : ",
        "07-19 14:10:10.844 10123  7937  7937 I tflite  : ",
        "2024-07-19 14:10:10.844 7937-7938/com.example.app I/tflite: ",
        "I/tflite: ",
        "I( 7937: 7938) ",
        "2024-07-19T14:10:10.8441234Z ",
        "2024-07-19 14:10:10.844  7937-7938  tflite                  com.example.app                      I  ",
    ],
)
def test_logcat_prefixes_change_nothing(sample: Any, read: Any, differences: Any, prefix: str) -> None:
    assert differences(read([prefix + line for line in sample.lines]), sample.expected) == {}


def test_a_log_caught_twice_reads_like_one(sample: Any, read: Any, differences: Any) -> None:
    doubled = [line for line in sample.lines for _ in range(2)]
    reading, once = read(doubled), read(sample.lines)
    assert differences(reading, sample.expected) == {}
    assert reading.inference_runs == once.inference_runs
    assert reading.unsupported_ops == once.unsupported_ops


@pytest.mark.parametrize("stderr_first", [True, False])
@pytest.mark.parametrize("number", UNSTABLE_ORDER)
def test_the_order_of_the_two_streams_does_not_matter(
    samples: Any, read: Any, differences: Any, swapped: Any, number: str, stderr_first: bool
) -> None:
    sample = next(s for s in samples if s.name.startswith(number))
    lines = swapped(sample.lines, stderr_first)
    assert lines != sample.lines
    assert differences(read(lines), sample.expected) == {}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_marked_encoding_is_understood(sample: Any, differences: Any, encoding: str) -> None:
    data = "\r\n".join(sample.lines).encode(encoding)
    assert differences(read_log(io.BytesIO(data)), sample.expected) == {}


def test_bytes_that_are_no_text_do_not_hide_the_log(sample: Any, differences: Any) -> None:
    data = b"\xff\xfd\x00\xc3(\n" + "\n".join(sample.lines).encode() + b"\n\xf0\x28\n"
    assert differences(read_log(io.BytesIO(data)), sample.expected) == {}


def test_figures_beside_the_average_are_read(samples: Any, read: Any) -> None:
    reading = read(samples[0].lines)
    assert (reading.warmup_runs, reading.warmup_avg_us) == (3, 234331)
    assert (reading.inference_runs, reading.runs_asked) == (10, 10)
    assert (reading.inference_min_us, reading.inference_max_us) == (122974, 263039)
    assert (reading.inference_std_us, reading.inference_p5_us) == (44324, 122974)
    assert (reading.inference_median_us, reading.inference_p95_us) == (223165, 263039)
    assert reading.peak_memory_bytes == round(204.941 * 1048576)
    assert (reading.rss_bytes, reading.model_bytes) == (177 * 1048576, 50345800)
    assert (reading.threads, reading.graph) == (4, "/data/local/tmp/probe/enc-block-fp32.tflite")
    assert (reading.exit_code, reading.signature) == (0, None)


def test_unsupported_operations_come_with_their_reasons(samples: Any, read: Any) -> None:
    reading = read(next(s for s in samples if s.name.startswith("11")).lines)
    assert len(reading.unsupported_ops) == 14
    assert ("GATHER_ND", "Operation is not supported.") in reading.unsupported_ops
    assert reading.unsupported_ops[-1][0] == "SIGN"
    assert "14 unsupported op signatures" in reading.reason


def test_an_op_profile_is_not_the_inference_time(samples: Any, read: Any) -> None:
    reading = read(next(s for s in samples if s.name.startswith("48")).lines)
    assert reading.inference_runs == 108
    assert [row.name for row in reading.op_profile] == [
        "Delegate/convolution_2d 0 -> relu 1:0",
        "Delegate/convolution_2d 2 -> relu 3:1",
        "Delegate/convolution_2d 4:2",
        "Delegate/depth_to_space 5:3",
    ]
    assert reading.op_profile[-1].avg_ms == 0.631
    assert not any(row.on_cpu for row in reading.op_profile)


def test_the_reason_names_what_the_log_names(sample: Any, read: Any) -> None:
    """The reason is prose; what must not get lost is the sentence that the log itself prints."""
    reason = read(sample.lines).reason
    key = {
        "02": "Though NNAPI delegate is explicitly applied",
        "03": "NN API returned error ANEURALNETWORKS_BAD_DATA at line 1132 while adding operation.",
        "06": "(tensor#3814 is a dynamic-sized tensor)",
        "19": "UNPACK: Operation is not supported.",
        "22": "only supports static-sized tensors",
        "24": "GpuDelegate must run on the same thread",
        "26": "Created 0 GPU delegate kernels",
        "28": "undefined symbol: LiteRtRegisterAcceleratorGpuOpenCl",
        "32": "Retrying without this delegate",
        "34": "the log ends before any delegate line",
        "37": "No dispatch library found",
        "38": "Transport layer setup failed: 14001",
        "40": "No usable Dispatch runtime found",
        "42": "no backend or delegate line in the log",
        "44": "GATHER_ND",
        "51": "configuration is no proof",
    }.get(sample.name[:2])
    if sample.expected["reason"] is None:
        assert reason is None
    elif key is not None:
        assert key in reason
