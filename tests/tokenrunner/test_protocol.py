"""The token runner as a program: what it prints, line by line, and how it ends."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mtplab

pytestmark = pytest.mark.pipeline

ROOT = Path(mtplab.__file__).parent


def command(small: Any, *extra: str) -> list[str]:
    files = ["--backbone", small.backbone, "--tokenizer", small.tokenizer, "--prompts", small.prompts]
    return [sys.executable, str(ROOT / "tokenrunner"), *map(str, files), "--max-tokens", "12", *extra]


def run(small: Any, *extra: str) -> list[dict[str, Any]]:
    done = subprocess.run(command(small, *extra), capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def plain(small: Any) -> list[dict[str, Any]]:
    return run(small, "--run", "r1")


@pytest.fixture(scope="module")
def drafted(small: Any) -> list[dict[str, Any]]:
    return run(small, "--mtp", "on", "--head", str(small.head))


def of(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


def test_every_line_is_numbered_and_stamped_and_names_its_run(plain: list[dict[str, Any]]) -> None:
    assert [line["seq"] for line in plain] == list(range(len(plain)))
    assert {line["v"] for line in plain} == {1}
    assert {line["run"] for line in plain} == {"r1"}
    assert [line["type"] for line in plain[:2]] == ["hello", "env"]
    assert plain[0]["version"] == mtplab.__version__
    assert plain[-1]["type"] == "done"


def test_env_names_what_the_figures_depend_on(small: Any, drafted: list[dict[str, Any]]) -> None:
    env = of(drafted, "env")[0]
    assert env["gamma"] == 3 and env["mtp"] == "on" and env["threads"] == 2
    assert env["cache_mode"] in ("in_place", "two_buffers")
    assert env["backbone"]["sha256"] == hashlib.sha256(small.backbone.read_bytes()).hexdigest()
    assert env["head"]["sha256"] == hashlib.sha256(small.head.read_bytes()).hexdigest()
    assert env["backbone"]["init_ms"] > 0
    assert set(env["backbone"]["first_run_ms"]) == {"prefill_16", "decode", "verify"}
    assert env["prompts"]["count"] == 3


def test_without_mtp_there_is_no_gamma_and_no_head(plain: list[dict[str, Any]]) -> None:
    env = of(plain, "env")[0]
    assert env["gamma"] is None and env["head"] is None
    assert of(plain, "round") == []


def test_the_last_line_counts_and_hashes_all_earlier_lines(small: Any) -> None:
    done = subprocess.run(command(small), capture_output=True, check=True)
    lines = done.stdout.splitlines(keepends=True)
    last = json.loads(lines[-1])
    assert last["count"] == len(lines) - 1
    assert last["sha256"] == hashlib.sha256(b"".join(lines[:-1])).hexdigest()


def test_warm_up_comes_first_and_is_labelled(plain: list[dict[str, Any]]) -> None:
    begins = of(plain, "begin")
    assert [(line["prompt"], line["warmup"]) for line in begins] == [
        ("a", True),
        ("a", False),
        ("b", False),
        ("c", False),
    ]
    assert [line["class"] for line in begins] == ["code", "code", "chat", "code"]
    assert begins[1]["input_tokens"] == len("def add(a, b):")


def test_the_clock_runs_from_begin_over_every_token_to_end(drafted: list[dict[str, Any]]) -> None:
    stamps = [line["t_ns"] for line in drafted if line["type"] in ("begin", "token", "round", "end")]
    assert stamps == sorted(stamps)


def test_plain_tokens_carry_their_margin_and_drafted_ones_their_round(
    plain: list[dict[str, Any]], drafted: list[dict[str, Any]]
) -> None:
    assert all(line["margin"] >= 0 and line["round"] is None for line in of(plain, "token"))
    assert all("margin" not in line for line in of(drafted, "token"))
    assert any(line["round"] is not None for line in of(drafted, "token"))


def test_rounds_add_up_to_the_output(drafted: list[dict[str, Any]]) -> None:
    emitted = 0
    for line in drafted:
        if line["type"] == "begin":
            emitted = 1  # the token that prefill gives
        elif line["type"] == "round":
            assert line["gamma"] == 3 and 0 <= line["accepted"] <= 3 and len(line["ranks"]) == 3
            assert line["draft_ns"] > 0 and line["verify_ns"] > 0
            emitted += line["emitted"]
        elif line["type"] == "end":
            assert emitted + line["plain_steps"] == line["output_tokens"]


def test_the_same_tokens_come_out_with_and_without_mtp(
    plain: list[dict[str, Any]], drafted: list[dict[str, Any]]
) -> None:
    assert [line["output_sha256"] for line in of(plain, "end")] == [
        line["output_sha256"] for line in of(drafted, "end")
    ]
    output: list[int] = []
    for line in plain:
        if line["type"] == "begin":
            output = []
        elif line["type"] == "token":
            output.append(line["id"])
        elif line["type"] == "end":
            assert line["output_sha256"] == hashlib.sha256(",".join(map(str, output)).encode()).hexdigest()
            assert line["output_tokens"] == len(output) == 12


def test_a_stop_token_ends_the_output(small: Any, plain: list[dict[str, Any]]) -> None:
    first = of(plain, "token")[0]["id"]
    stopped = run(small, "--stop-id", str(first), "--warmup-prompts", "0")
    assert of(stopped, "end")[0]["reason"] == "stop"
    assert of(stopped, "end")[0]["output_tokens"] == 1


def test_flushing_every_line_prints_the_same_tokens(small: Any, plain: list[dict[str, Any]]) -> None:
    lines = run(small, "--flush", "line")
    assert [line["id"] for line in of(lines, "token")] == [line["id"] for line in of(plain, "token")]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"--backbone": "absent.tflite"}, "cannot be read"),
        ({"--tokenizer": "absent.json"}, "tokenizer"),
        ({"--prompts": "absent.jsonl"}, "prompt file"),
        ({"--mtp": "on"}, "needs a draft head"),
        ({"--max-tokens": "none"}, "--help"),
        ({"--threads": "0"}, "1 or more"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_exit_code_1(small: Any, change: dict[str, str], word: str) -> None:
    options = command(small)
    for name, value in change.items():
        options += [name, value]
    done = subprocess.run(options, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if word in line]
    assert len(said) == 1
    assert "Traceback" not in done.stderr
    assert '"done"' not in done.stdout


def test_a_prompt_that_does_not_fit_is_an_error_line_and_exit_code_4(small: Any, tmp_path: Path) -> None:
    prompts = tmp_path / "long.jsonl"
    prompts.write_text(json.dumps({"id": "long", "class": "code", "text": "x" * 200}))
    done = subprocess.run(command(small, "--prompts", str(prompts)), capture_output=True, text=True, check=False)
    assert done.returncode == 4
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "error" and "long" in last["message"] and "200 tokens" in last["message"]


def test_a_torn_prompt_line_is_named(small: Any, tmp_path: Path) -> None:
    prompts = tmp_path / "torn.jsonl"
    prompts.write_text('{"id": "a", "text": "fine"}\n{"id": "b", "te')
    done = subprocess.run(command(small, "--prompts", str(prompts)), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Line 2" in done.stderr


def test_a_terminate_signal_ends_it_at_once(small: Any) -> None:
    process = subprocess.Popen(
        command(small, "--warmup-prompts", "3", "--flush", "line"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    assert process.wait(timeout=30) == -signal.SIGTERM
    assert b'"done"' not in rest
    process.stdout.close()


def test_the_head_may_run_on_threads_of_its_own_and_the_hand_over_is_timed(
    small: Any, drafted: list[dict[str, Any]]
) -> None:
    lines = run(small, "--mtp", "on", "--head", str(small.head), "--head-threads", "1", "--draft-lengths", "3")
    env = of(lines, "env")[0]
    assert (env["threads"], env["head_threads"], env["head_backend"], env["gammas"]) == (2, 1, "cpu", [3])
    rounds = of(lines, "round")
    assert rounds and all(0 < r["handover_ns"] < r["draft_ns"] + r["verify_ns"] for r in rounds)
    assert [r["accepted"] for r in rounds] == [r["accepted"] for r in of(drafted, "round")]


@pytest.mark.parametrize(
    ("flag", "value", "word"),
    [("--draft-lengths", "2", "3 are exported"), ("--head-threads", "0", "threads"), ("--backend", "npu", "NPU")],
)
def test_what_this_runner_cannot_do_it_says_in_a_sentence(small: Any, flag: str, value: str, word: str) -> None:
    done = subprocess.run(
        command(small, "--mtp", "on", "--head", str(small.head), flag, value), capture_output=True, text=True
    )
    assert done.returncode == 1 and word in json.loads(done.stdout.splitlines()[-1])["message"]
