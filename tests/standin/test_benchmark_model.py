"""The stand-in's benchmark_model: the phone's log around real runs of a real file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtplab.standin.bench_flags import FlagError, parse
from mtplab.standin.bench_graph import Graph, Node, largest_partition, partitions, read_model, with_graph_in_front
from mtplab.standin.bench_stats import parse_layers, summary

from .conftest import Adb, Device, device_starter

TOOL = "/data/local/tmp/benchmark_model"
MODEL = "/data/local/tmp/two.tflite"
QUICK = "--num_runs=20 --warmup_runs=2 --min_secs=0 --warmup_min_secs=0 --num_threads=1"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, tiny_tflite: Callable[[dict[str, list[str]]], bytes]) -> Path:
    """A file with two signatures: `small` is one dense layer, `deep` has a tanh between two of them."""
    path = tmp_path_factory.mktemp("model") / "two.tflite"
    path.write_bytes(
        tiny_tflite({"small": ["FULLY_CONNECTED"], "deep": ["FULLY_CONNECTED", "TANH", "FULLY_CONNECTED"]})
    )
    return path


@pytest.fixture(scope="module")
def on_scenario(adb: Adb, two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Device]]:
    """A device of a scenario with the model on it; one for all tests of it."""
    started: list[Device] = []
    known: dict[str, Device] = {}
    start = device_starter(adb, tmp_path_factory.mktemp("scenarios"), started)

    def get(scenario: str) -> Device:
        if scenario not in known:
            known[scenario] = start("--scenario", scenario)
            assert known[scenario]("push", str(two), MODEL).returncode == 0
        return known[scenario]

    yield get
    for device in started:
        device.stop()


GpuRun = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gpu_run(on_scenario: Callable[[str], Device]) -> GpuRun:
    """Runs `deep` with the GPU requested on a device of a scenario."""

    def run(scenario: str, more: str = "") -> tuple[int, str, str]:
        command = f"{TOOL} --graph={MODEL} --signature_to_run_for=deep {QUICK} --use_gpu=true {more}"
        return on_scenario(scenario).shell(command)

    return run


@pytest.mark.pipeline
def test_a_cpu_run_logs_as_the_phone_does(device: Device, two: Path) -> None:
    device("push", str(two), MODEL)
    code, out, err = device.shell(f"{TOOL} --graph={MODEL} --signature_to_run_for=deep {QUICK} --use_xnnpack=false")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[:2] == ["INFO: STARTING!", "INFO: Log parameter values verbosely: [0]"]
    assert lines[2:12] == [
        "INFO: Min num runs: [20]", "INFO: Min runs duration (seconds): [0]", "INFO: Num threads: [1]",
        "INFO: Min warmup runs: [2]", "INFO: Min warmup runs duration (seconds): [0]", f"INFO: Graph: [{MODEL}]",
        "INFO: Signature to run: [deep]", "INFO: #threads used for CPU inference: [1]", "INFO: Use xnnpack: [0]",
        f"INFO: Loaded model {MODEL}",
    ]  # fmt: skip
    assert "INFO: Using signature: deep" in lines
    warm, runs = re.findall(r"^INFO: count=(\d+) first=\d+ curr=\d+ min=\d+ max=\d+ avg=\S+ std=\d+ p5", out, re.M)
    assert (warm, runs) == ("2", "20")
    timings = r"Init: \d+, First inference: \d+, Warmup \(avg\): \S+, Inference \(avg\): \S+"
    assert re.search(rf"^INFO: Inference timings in us: {timings}$", out, re.MULTILINE)
    assert lines[-1] == "INFO: mtplab stand-in: host timings, not a phone"
    assert err == "INFO: Initialized TensorFlow Lite runtime.\n"


@pytest.mark.pipeline
def test_xnnpack_counts_are_those_of_the_graph(on_scenario: Callable[[str], Device]) -> None:
    device = on_scenario("normal")
    code, out, err = device.shell(f"{TOOL} --graph={MODEL} --signature_to_run_for=deep {QUICK} --use_xnnpack=true")
    assert code == 0, err
    said = "VERBOSE: Replacing 3 out of 3 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 1 partitions"
    assert f"{said} for subgraph 1 (deep)." in err
    assert "Explicitly applied XNNPACK delegate, and the model graph will be completely executed" in out


@pytest.mark.pipeline
def test_values_from_files_are_checked_for_size(on_scenario: Callable[[str], Device], tmp_path: Path) -> None:
    device = on_scenario("normal")
    (tmp_path / "x").write_bytes(bytes(64))
    (tmp_path / "short").write_bytes(bytes(60))
    for name in ("x", "short"):
        device("push", str(tmp_path / name), f"/data/local/tmp/{name}.bin")
    shared = f"{TOOL} --graph={MODEL} --signature_to_run_for=small {QUICK}"
    shared += " --input_layer=small_x --input_layer_shape=1,16"
    code, out, err = device.shell(f"{shared} --input_layer_value_files=small_x:/data/local/tmp/x.bin")
    assert code == 0, err
    assert "WARN" not in out
    code, _, err = device.shell(f"{shared} --input_layer_value_files=small_x:/data/local/tmp/short.bin")
    assert code == 134
    assert "FATAL: The size of /data/local/tmp/short.bin is 60 bytes. It should be 64 bytes." in err
    code, out, _ = device.shell(f"{shared.replace('=small_x', '=other')}")
    assert "WARN: Tensor # 0 is named small_x but flags call it other" in out


@pytest.mark.pipeline
def test_what_goes_wrong_ends_as_on_the_phone(on_scenario: Callable[[str], Device]) -> None:
    device = on_scenario("normal")
    code, out, err = device.shell(f"{TOOL} --graph=/data/local/tmp/none.tflite")
    assert code == 1
    assert err == (
        "ERROR: Could not open '/data/local/tmp/none.tflite'.\n"
        "ERROR: Failed to load model /data/local/tmp/none.tflite\nERROR: Benchmarking failed.\n"
    )
    code, _, err = device.shell(f"{TOOL} --graph={MODEL}")
    assert code == 1
    assert "ERROR: Signature not specified or incorrect." in err
    assert "ERROR:  #> Signature key: deep" in err
    code, out, _ = device.shell(f"{TOOL} --graph={MODEL} --signature_to_run_for=small {QUICK} --use_gpuu=true")
    assert code == 0
    assert "WARN: Unconsumed cmdline flags: --use_gpuu=true" in out
    assert device.shell(TOOL)[0] == 1


@pytest.mark.pipeline
def test_gpu_takes_everything_in_normal(gpu_run: GpuRun) -> None:
    code, out, err = gpu_run("normal")
    assert code == 0
    said = "VERBOSE: Replacing 3 out of 3 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 1 partitions"
    assert f"{said} for subgraph 1 (deep)." in err
    assert "INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by" in out
    assert "INFO: GPU delegate created." in out
    assert "INFO: Created TensorFlow Lite delegate for GPU." in err


@pytest.mark.pipeline
def test_gpu_falls_back_in_silence(gpu_run: GpuRun) -> None:
    code, out, err = gpu_run("gpu-silent-fallback")
    assert code == 0
    assert "INFO: Though GPU delegate is explicitly applied, the model graph will not be executed by" in out
    assert "TfLiteGpuDelegateV2" not in err
    assert "Inference timings in us" in out


@pytest.mark.pipeline
def test_gpu_takes_part(gpu_run: GpuRun) -> None:
    code, out, err = gpu_run("gpu-partial")
    assert code == 0
    assert "ERROR: Following operations are not supported by GPU delegate:\n" in err
    assert "partially executed by the delegate w/ 1 delegate kernels." in out
    code, out, err = gpu_run("gpu-partial", "--require_full_delegation=true")
    assert code == 1
    assert "ERROR: Disallowed CPU fallback detected.\nERROR: Benchmarking failed.\n" in err


@pytest.mark.pipeline
def test_gpu_crashes(gpu_run: GpuRun) -> None:
    code, out, _ = gpu_run("gpu-crash")
    assert code == 139
    assert "Inference timings" not in out
    assert out.endswith("INFO: Loaded OpenCL library with dlopen.\n")


@pytest.mark.pipeline
def test_gpu_refuses_a_dynamic_tensor(gpu_run: GpuRun) -> None:
    code, _, err = gpu_run("dynamic-tensor")
    assert code == 1
    assert "WARNING: Attempting to use a delegate that only supports static-sized tensors" in err
    assert err.endswith("ERROR: Failed to apply GPU delegate.\nERROR: Benchmarking failed.\n")


@pytest.mark.pipeline
def test_a_graph_moved_to_the_front_is_the_same_model(two: Path) -> None:
    data = two.read_bytes()
    model = read_model(data)
    assert model.signatures == {"small": 0, "deep": 1}
    moved = read_model(with_graph_in_front(data, 1))
    assert [graph.name for graph in moved.graphs] == ["deep", "small"]
    assert moved.graphs[0].nodes == model.graphs[1].nodes


def chain(ops: str) -> Graph:
    """A graph whose node i feeds node i + 1; its ops are letters."""
    nodes = tuple(Node(op, (i,), (i + 1,)) for i, op in enumerate(ops))
    return Graph(0, "", nodes, (0,), (len(ops),), (), (), (), False)


def test_partitions_alternate_and_the_largest_is_taken() -> None:
    graph = chain("aabaaab")
    supported = {i for i, node in enumerate(graph.nodes) if node.op == "a"}
    assert [(kind, len(members)) for kind, members in partitions(graph, supported)] == [
        (True, 2), (False, 1), (True, 3), (False, 1),
    ]  # fmt: skip
    taken, subsets = largest_partition(graph, supported)
    assert (sorted(taken), subsets) == ([3, 4, 5], 3)
    assert largest_partition(graph, set()) == (set(), 1)


def test_statistics_have_the_tools_form() -> None:
    # Figures of a captured log: two runs, averages above a million in exponent form.
    text = summary([2626588.0, 2600779.0])
    assert text == (
        "count=2 first=2626588 curr=2600779 min=2600779 max=2626588 avg=2.61368e+06 std=12904 "
        "p5=2600779 median=2626588 p95=2626588"
    )
    assert summary([]) == "count=0"
    assert summary([7.9]) == "count=1 curr=7 p5=7 median=7 p95=7"
    assert summary([5.0, 5.0]).startswith("count=2 curr=5(all same)")


def test_flags_and_layers_are_read_and_bad_ones_refused() -> None:
    flags = parse(["--num_runs=5", "--use_gpu=true", "--typo=1", "stray"])
    assert (flags["num_runs"], flags["use_gpu"], flags.unknown) == (5, True, ("--typo=1", "stray"))
    with pytest.raises(FlagError):
        parse(["--num_runs=many"])
    layers = parse_layers("a,b:0", "1,2:3", r"a:/x,b\:0:/y")
    assert [(layer.name, layer.shape, layer.path) for layer in layers] == [("a", (1, 2), "/x"), ("b:0", (3,), "/y")]
    for bad in (("a", "1:2", ""), ("a", "x", ""), ("", "1", ""), ("a", "1", "b:/x")):
        with pytest.raises(ValueError):
            parse_layers(*bad)
