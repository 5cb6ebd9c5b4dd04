"""Each scenario's log gets the verdict that its file promises, from both benchmark programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtplab.benchlog.reader import LogReader
from mtplab.standin.bench_delegates import NPU_COUNTER, SCRIPT
from mtplab.standin.settings import HERE, load_profile, load_scenario

pytestmark = pytest.mark.pipeline

QUICK = ["--num_runs=5", "--warmup_runs=1", "--min_secs=0", "--warmup_min_secs=0", "--num_threads=1"]
CLASSIC_GPU, CLASSIC_NNAPI = ["--use_gpu=true"], ["--use_nnapi=true", "--nnapi_accelerator_name=google-edgetpu"]
LITERT_GPU, LITERT_NPU = ["--use_gpu=true"], ["--use_npu=true", "--dispatch_library_path=/data/local/tmp"]
ONLY_FULL = ["--require_full_delegation=true"]
NO_CPU = ["--use_cpu=false", *ONLY_FULL]

# scenario, requested, flags of benchmark_model -> verdict, exit code (as the shell of the phone reports it)
CLASSIC = [
    ("normal", "cpu", [], "cpu_baseline", 0),
    ("normal", "gpu", CLASSIC_GPU, "full_delegate", 0),
    ("gpu-silent-fallback", "gpu", CLASSIC_GPU, "fallback_cpu", 0),
    ("gpu-silent-fallback", "gpu", [*CLASSIC_GPU, *ONLY_FULL], "failed", 1),
    ("gpu-partial", "gpu", CLASSIC_GPU, "partial", 0),
    ("gpu-gl-downgrade", "gpu", CLASSIC_GPU, "backend_downgrade", 0),
    ("gpu-crash", "gpu", CLASSIC_GPU, "crash", 139),
    ("dynamic-tensor", "gpu", CLASSIC_GPU, "failed", 1),
    ("gpu-library-missing", "gpu", CLASSIC_GPU, "fallback_cpu", 0),
    ("normal", "nnapi", CLASSIC_NNAPI, "full_delegate", 0),
    ("npu-refused", "nnapi", CLASSIC_NNAPI, "failed", 1),
]
LITERT = [
    ("normal", "cpu", [], "cpu_baseline", 0),
    ("normal", "gpu", LITERT_GPU, "full_delegate", 0),
    ("normal", "gpu", [*LITERT_GPU, *NO_CPU], "full_delegate", 0),
    ("gpu-silent-fallback", "gpu", LITERT_GPU, "fallback_cpu", 0),
    ("gpu-partial", "gpu", LITERT_GPU, "partial", 0),
    ("gpu-partial", "gpu", [*LITERT_GPU, *NO_CPU], "failed", 1),
    ("gpu-gl-downgrade", "gpu", LITERT_GPU, "backend_downgrade", 0),
    ("gpu-crash", "gpu", LITERT_GPU, "crash", 139),
    ("dynamic-tensor", "gpu", LITERT_GPU, "failed", 1),
    ("gpu-library-missing", "gpu", LITERT_GPU, "fallback_cpu", 0),
    ("normal", "npu", LITERT_NPU, "full_delegate", 0),
    ("normal", "npu", ["--use_npu=true"], "fallback_cpu", 0),
    ("npu-refused", "npu", LITERT_NPU, "failed", 1),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_tflite: Callable[[dict[str, list[str]]], bytes]) -> Path:
    path = tmp_path_factory.mktemp("model") / "two.tflite"
    deep = ["FULLY_CONNECTED", "TANH", "FULLY_CONNECTED"]
    path.write_bytes(tiny_tflite({"small": ["FULLY_CONNECTED"], "deep": deep}))
    return path


def run(tool: str, model: Path, scenario: str, flags: list[str], counter: Path) -> tuple[int, str]:
    """One of the programs on this host, without a device around it: exit code and both streams merged."""
    found = load_scenario(scenario)
    script = {
        "gpu": found.gpu_outcome, "refuses": found.gpu_refuses, "npu": found.npu_outcome,
        "accelerators": load_profile("pixel-9-pro").nnapi_accelerators,
    }  # fmt: skip
    counter.write_text("7 0 0\n")
    done = subprocess.run(
        [sys.executable, str(HERE / f"{tool}.py"), f"--graph={model}", "--signature_to_run_for=deep", *QUICK, *flags],
        env={**os.environ, SCRIPT: json.dumps(script), NPU_COUNTER: str(counter)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, done.stdout.decode()


def judged(log: str, requested: str, code: int) -> str:
    reader = LogReader(requested)
    reader.feed_text(log)
    return reader.finish(code).verdict


@pytest.mark.parametrize(("scenario", "requested", "flags", "verdict", "code"), CLASSIC)
def test_benchmark_model_is_judged_as_the_scenario_says(
    model: Path, tmp_path: Path, scenario: str, requested: str, flags: list[str], verdict: str, code: int
) -> None:
    found, log = run("benchmark_model", model, scenario, flags, tmp_path / "counter")
    assert (judged(log, requested, found), found) == (verdict, code), log
    on_npu = requested == "nnapi" and verdict == "full_delegate"
    assert ((tmp_path / "counter").read_text() != "7 0 0\n") is on_npu


@pytest.mark.parametrize(("scenario", "requested", "flags", "verdict", "code"), LITERT)
def test_benchmark_litert_model_is_judged_as_the_scenario_says(
    model: Path, tmp_path: Path, scenario: str, requested: str, flags: list[str], verdict: str, code: int
) -> None:
    found, log = run("benchmark_litert_model", model, scenario, flags, tmp_path / "counter")
    assert (judged(log, requested, found), found) == (verdict, code), log
    assert "Inference timings in us" not in log
    counted = (tmp_path / "counter").read_text()
    assert counted == ("13 0 0\n" if (requested, verdict) == ("npu", "full_delegate") else "7 0 0\n")


def test_benchmark_litert_model_prints_its_results_in_milliseconds(model: Path, tmp_path: Path) -> None:
    _code, log = run("benchmark_litert_model", model, "normal", [], tmp_path / "counter")
    assert "INFO: [benchmark_litert_model.h:90] \n========== BENCHMARK RESULTS ==========\n" in log
    assert "INFO: [benchmark_litert_model.h:92] Signature name:       deep\n" in log
    reader = LogReader("cpu")
    reader.feed_text(log)
    reading = reader.finish(0)
    assert reading.tool == "benchmark_litert_model"
    assert reading.complete
    assert reading.inference_avg_us is not None


def test_full_delegation_beside_the_cpu_is_refused_as_the_tool_does(model: Path, tmp_path: Path) -> None:
    code, log = run("benchmark_litert_model", model, "normal", [*LITERT_GPU, *ONLY_FULL], tmp_path / "counter")
    assert code == 134
    assert "Requesting full delegation and CPU acceleration are incompatible." in log


@pytest.mark.parametrize(("scenario", "flags", "kinds"), [
    ("normal", [], ["FULLY_CONNECTED", "TANH", "FULLY_CONNECTED"]),
    ("normal", CLASSIC_GPU, ["TfLiteGpuDelegateV2"]),
    ("gpu-partial", CLASSIC_GPU, ["TfLiteGpuDelegateV2", "FULLY_CONNECTED", "FULLY_CONNECTED"]),
])  # fmt: skip
def test_the_op_profile_times_each_operation_and_is_not_taken_for_the_inference(
    model: Path, tmp_path: Path, scenario: str, flags: list[str], kinds: list[str]
) -> None:
    asked = ["--enable_op_profiling=true", *flags]
    code, log = run("benchmark_model", model, scenario, asked, tmp_path / "counter")
    reader = LogReader("gpu" if flags else "cpu")
    reader.feed_text(log)
    reading = reader.finish(code)
    assert [row.node_type for row in reading.op_profile] == kinds, log
    assert all(row.avg_ms >= 0 for row in reading.op_profile)
    assert reading.complete
    assert f"Inference (avg): {reading.inference_avg_us:g}" in log
