"""A delegate goes through every subgraph of a model; only the one of the signature that was run counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtplab.benchlog.reader import LogReader
from mtplab.benchlog.reading import Reading

FOLDER = Path(__file__).parents[1] / "data" / "benchlogs-signatures"
FULL = (FOLDER / "decode-gpu-full.txt").read_text(encoding="utf-8")
PARTIAL = (FOLDER / "decode-gpu-partial.txt").read_text(encoding="utf-8")
TOOK = "Replacing {} out of {} node(s) with delegate (TfLiteGpuDelegateV2) node, yielding {} partitions"
DECODE = TOOK.format(494, 494, 1)
PREFILL = TOOK.format(552, 552, 1) + " for subgraph 0"
COMPLETELY, PARTIALLY = (
    "completely executed by the delegate.",
    "partially executed by the delegate w/ 1 delegate kernels.",
)


def _read(text: str, requested: str | None = None) -> Reading:
    reader = LogReader(requested)
    reader.feed_text(text)
    return reader.finish()


def _edited(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _counts(reading: Reading) -> tuple[int | None, int | None, int | None]:
    return reading.delegated_nodes, reading.total_nodes, reading.partitions


def _others(reading: Reading) -> list[str]:
    return [finding.text for finding in reading.findings if finding.rule == "other-subgraph"]


def test_the_counts_and_the_proof_are_those_of_the_signature_that_was_run() -> None:
    reading = _read(FULL)
    assert (reading.signature, reading.verdict, _counts(reading)) == ("decode", "full_delegate", (494, 494, 1))
    proofs = [proof.text for proof in reading.evidence if proof.rule == "replacing"]
    assert proofs == [f"{DECODE} for subgraph 1 (decode)."]
    assert _others(reading) == []


@pytest.mark.parametrize("said", ["INFO: Using signature: decode\n", "INFO: Signature to run: [decode]\n"])
def test_either_line_says_which_signature_was_run(said: str) -> None:
    assert _counts(_read(_edited(FULL, (said, "")))) == (494, 494, 1)


def test_a_partial_decode_is_partial_by_its_own_counts_whatever_the_tool_says_of_the_first_subgraph() -> None:
    reading = _read(_edited(FULL, (DECODE, TOOK.format(10, 494, 3))))
    assert (reading.verdict, _counts(reading)) == ("partial", (10, 494, 3))
    assert [proof.text for proof in reading.evidence] == [f"{TOOK.format(10, 494, 3)} for subgraph 1 (decode)."]
    assert _others(reading) == []


def test_a_partial_prefill_is_only_a_finding_for_decode() -> None:
    text = _edited(FULL, (PREFILL, TOOK.format(30, 552, 2) + " for subgraph 0"), (COMPLETELY, PARTIALLY))
    reading = _read(text)
    assert (reading.verdict, reading.reason, _counts(reading)) == ("full_delegate", None, (494, 494, 1))
    assert [proof.text for proof in reading.evidence] == [f"{DECODE} for subgraph 1 (decode)."]
    found = next(finding for finding in reading.findings if finding.rule == "other-subgraph")
    assert found.text == "another subgraph, prefill_64: 30 of 552"
    assert found.line is not None
    assert "(prefill_64)" in text.split("\n")[found.line - 1]


def test_a_real_partial_log_is_read_by_decodes_lines() -> None:
    reading = _read(PARTIAL)
    assert (reading.verdict, _counts(reading)) == ("partial", (47, 494, 3))
    assert len(reading.unsupported_ops) == 5
    spoken = " ".join(proof.text for proof in reading.evidence)
    assert "47 operations will run" in spoken
    assert "54 operations" not in spoken
    assert _others(reading) == ["another subgraph, prefill_64: 54 of 552", "another subgraph, verify: 54 of 552"]


def test_what_another_subgraph_cannot_run_is_not_decodes_reason() -> None:
    start, end = PARTIAL.index("47 operations will run"), PARTIAL.index("(decode).")
    own = PARTIAL.rindex("ERROR: Following operations", 0, start)
    reading = _read(PARTIAL[:own] + f"VERBOSE: {DECODE} for subgraph 1 " + PARTIAL[end:])
    assert (reading.verdict, _counts(reading), reading.unsupported_ops) == ("full_delegate", (494, 494, 1), ())
    only = "ERROR: Following operations are not supported by GPU delegate:\nTOPK_V2: Operation is not supported.\n"
    reading = _read(PARTIAL[:own] + only + PARTIAL[start:])
    assert (reading.verdict, reading.reason) == ("partial", "TOPK_V2: Operation is not supported.")


def test_nothing_of_decode_taken_is_a_fallback_although_prefill_is_full() -> None:
    cpu = TOOK.format(400, 494, 5).replace("TfLiteGpuDelegateV2", "TfLiteXNNPackDelegate")
    reading = _read(_edited(FULL, (DECODE, cpu)))
    assert (reading.verdict, _counts(reading)) == ("fallback_cpu", (None, None, None))
    assert [proof.text for proof in reading.evidence] == [f"{cpu} for subgraph 1 (decode)."]
    assert reading.reason == "the GPU delegate took nodes of other subgraphs, and no line shows any of decode"


@pytest.mark.parametrize("name", ["decode_other", "serving_default", ""])
def test_a_signature_that_no_subgraph_is_named_after_lets_every_line_count(name: str) -> None:
    text = FULL.replace("signature: decode", f"signature: {name}").replace("run: [decode]", f"run: [{name}]")
    assert _counts(_read(text)) == (552, 552, 1)
    partial = _edited(text, (DECODE, TOOK.format(10, 494, 3)))
    assert (_read(partial).verdict, _others(_read(partial))) == ("partial", [])


def test_a_line_that_names_no_subgraph_counts_as_well() -> None:
    text = FULL + f"VERBOSE: {TOOK.format(5, 9, 1)}.\n"
    reading = _read(text)
    assert (reading.verdict, _counts(reading)) == ("partial", (494, 494, 1))
    assert [proof.text for proof in reading.evidence] == [f"{TOOK.format(5, 9, 1)}."]


@pytest.mark.parametrize("requested", ["cpu", "nnapi", "npu"])
def test_another_requested_backend_is_never_made_good(requested: str) -> None:
    assert _read(FULL, requested).verdict == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "INFO: Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.",
        "ERROR: No operations will run on the GPU, and all 552 operations will run on the CPU.",
        "INFO: Created 0 GPU delegate kernels.",
    ],
)
def test_a_sentence_that_names_no_subgraph_is_not_held_against_one_that_the_delegate_took(line: str) -> None:
    first = f"VERBOSE: {PREFILL} (prefill_64)."
    reading = _read(_edited(FULL, (first, line)))  # what is printed where nothing of prefill is taken
    assert (reading.verdict, _counts(reading)) == ("full_delegate", (494, 494, 1))
    assert any(line.split(": ", 1)[1] in text for text in _others(reading))
    unnamed = FULL.replace("signature: decode", "signature: x").replace("run: [decode]", "run: [x]")
    assert _read(_edited(unnamed, (first, line))).verdict == "fallback_cpu"
    nothing = _edited(FULL, (first, line), (f"VERBOSE: {DECODE} for subgraph 1 (decode).", ""))
    assert _read(nothing).verdict == "fallback_cpu"


def test_a_subgraph_of_which_nothing_was_taken_has_no_node_line_and_makes_no_fallback_of_another() -> None:
    """The GPU delegate names refused operations before each subgraph's node line, and there is none for 0 nodes."""
    nothing = (
        "ERROR: Following operations are not supported by GPU delegate:\n"
        "FULLY_CONNECTED: OP is supported, but tensor type/shape isn't compatible.\n"
        "0 operations will run on the GPU, and the remaining 1 operations will run on the CPU.\n"
    )
    first = FULL.index("VERBOSE: Replacing")
    with_nothing = FULL[:first] + nothing + FULL[first:]
    assert _read(with_nothing, "gpu").verdict == _read(FULL, "gpu").verdict == "full_delegate"
    unnamed = with_nothing.replace("INFO: Using signature: decode\n", "").replace("Signature to run: [decode]", "")
    # Which subgraph was run is not known then: too strict, never too good.
    assert _read(unnamed, "gpu").verdict == "fallback_cpu"
