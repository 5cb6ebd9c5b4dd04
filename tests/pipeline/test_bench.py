"""The bench stage: verdicts before a log ends, nothing left running, and what several logs say together."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtplab.benchlog.reader import LogReader
from mtplab.device import paths
from mtplab.device.errors import CommandFailed
from mtplab.device.npu import NpuCount
from mtplab.device.standin_host import StandinProcess
from mtplab.engine.options import RunOptions
from mtplab.pipeline.device_stage import DeviceContext, StageCancelled, StageFailed
from mtplab.pipeline.stages import bench, bench_log
from mtplab.pipeline.stages.bench_findings import compare_outputs, compare_times, same_time_text, weigh_npu_count
from mtplab.pipeline.stages.bench_log import Job, follow
from mtplab.session import events as ev
from mtplab.session.state import LabState, standing

HERE = Path(__file__).parent
REPLAY = "/data/local/tmp/replay"
# Prints a log up to its proving line, then waits until a file holds something: no clock decides what comes first.
REPLAY_CODE = """
import os, sys, time
log, proof, go = sys.argv[1:]
for line in open(log).read().splitlines():
    print(line, file=sys.stderr if line.startswith("VERBOSE") else sys.stdout, flush=True)
    time.sleep(0.01)
    while proof in line and not os.path.getsize(go):
        time.sleep(0.02)
"""
FALLBACK = """\
INFO: STARTING!
INFO: Use gpu: [1]
INFO: Graph: [/m.tflite]
INFO: Created TensorFlow Lite delegate for GPU.
VERBOSE: something else
INFO: Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.
INFO: count=10 first=5 curr=5 min=4 max=6 avg=5 std=0
INFO: count=50 first=5 curr=5 min=4 max=6 avg=5 std=0
INFO: Inference timings in us: Init: 9, First inference: 5, Warmup (avg): 5, Inference (avg): 5
"""
PROOF = "will not be executed"


@pytest.fixture(scope="module")
def phone() -> Iterator[StandinProcess]:
    fake = [sys.executable, str(HERE / "fake_benchmark.py")]
    programs = {
        REPLAY: [sys.executable, "-c", REPLAY_CODE],
        paths.BENCHMARK_MODEL: [*fake, "classic"],
        paths.BENCHMARK_LITERT_MODEL: [*fake, "litert"],
    }
    with StandinProcess(programs=programs) as standin:
        link = standin.link()
        link.run(["mkdir", "-p", paths.MODELS_DIR], check=True)
        yield standin


class Bench:
    """A context whose events arrive in a queue."""

    def __init__(self, phone: StandinProcess, folder: Path, **options: Any) -> None:
        self.news: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self.events: list[ev.Event] = []
        self.context = DeviceContext(
            link=phone.link(),
            post=self._post,
            cancel=threading.Event(),
            logs=folder / "logs" / "run1",
            heat=lambda: ev.Heat(t=0.0, clocks_khz={"policy0": (820_000, 1_950_000)}),
            throttled_since=lambda t: False,
            simulated=True,
            token_runner="",
            options=RunOptions(**options),
        )

    def _post(self, event: ev.Event) -> None:
        self.events.append(event)
        self.news.put(event)

    def wait_for_verdict(self, verdict: str) -> ev.VerdictReached:
        while True:
            event = self.news.get(timeout=60)
            if isinstance(event, ev.VerdictReached) and event.verdict == verdict:
                return event

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def start(self, command: tuple[str, ...]) -> tuple[threading.Thread, list[Any]]:
        ended: list[Any] = []

        def work() -> None:
            try:
                ended.append(follow(self.context, JOB, "bench-00", command, lambda reading: reading))
            except Exception as problem:  # noqa: BLE001 - the test looks at whatever it was
                ended.append(problem)

        thread = threading.Thread(target=work)
        thread.start()
        return thread, ended

    def stage(self, *signatures: str) -> dict[str, Any]:
        """Run the whole stage on the head's graph with these signatures."""
        self.context.figures = {
            "export": {"head_signatures": list(signatures), "backbone_signatures": []},
            "acceptance": {
                "bench_inputs": {f"head/{s}": [{"name": "x", "shape": [1], "artefact": "x"}] for s in signatures}
            },
        }
        self.context.pushed = {"head": f"{paths.MODELS_DIR}/head-0123456789ab.tflite", "x": "/data/local/tmp/x"}
        return bench.run(self.context).figures

    def state(self) -> LabState:
        state = LabState()
        for event in self.events:
            state.apply(event)
        return state


JOB = Job("backbone", "decode", "gpu")


@pytest.fixture
def replay(phone: StandinProcess, tmp_path: Path) -> tuple[str, ...]:
    """A command that stops after the proving line until `go` holds something."""
    (tmp_path / "log").write_text(FALLBACK)
    link = phone.link()
    link.wait_for_return(20)
    log = link.push(tmp_path / "log", "/data/local/tmp/slow.txt").dst
    link.run(": >/data/local/tmp/go", check=True)
    return (REPLAY, log, PROOF, "/data/local/tmp/go")


def nothing_runs(phone: StandinProcess) -> bool:
    return not phone.link().run("ps -A -o ARGS | grep [r]eplay").stdout.strip()


def test_a_verdict_is_told_while_the_program_still_runs_and_rests_on_the_line_that_proves_it(
    phone: StandinProcess, tmp_path: Path, replay: tuple[str, ...]
) -> None:
    one = Bench(phone, tmp_path)
    thread, ended = one.start(replay)
    live = one.wait_for_verdict("fallback_cpu")
    assert live.provisional and not live.complete and live.requested == "gpu"
    assert thread.is_alive() and not ended
    assert not [v for v in one.of(ev.VerdictReached) if not v.provisional]
    lines = {line.n: line.text for line in one.of(ev.LogLine)}
    assert PROOF in lines[live.evidence[0].line] and live.evidence[0].text in lines[live.evidence[0].line]
    assert [m.label for m in one.of(ev.Marker)] == ["backbone/decode asked gpu: fallback_cpu"]  # it sticks already

    one.context.link.run("echo on >/data/local/tmp/go", check=True)
    thread.join(60)
    followed = ended[0]
    assert followed.reading.verdict == "fallback_cpu" and followed.reading.complete
    assert followed.reading.exit_code == 0 and followed.reading.inference_runs == 50
    assert followed.proof["line"] == live.evidence[0].line and followed.proof["told_after_ms"] >= 0
    assert len(one.of(ev.Marker)) == 1
    assert standing(one.state().verdicts[0]) == "fallback_cpu"


def test_lines_are_spooled_whole_with_their_stream_and_arrival(
    phone: StandinProcess, tmp_path: Path, replay: tuple[str, ...]
) -> None:
    one = Bench(phone, tmp_path)
    one.context.link.run("echo on >/data/local/tmp/go", check=True)
    thread, _ = one.start(replay)
    thread.join(60)
    folder = tmp_path / "logs" / "run1"
    kept = (folder / "bench-00-backbone-decode-gpu.txt").read_text().splitlines()
    assert sorted(kept) == sorted(FALLBACK.splitlines())
    rows = [row.split("\t") for row in (folder / "bench-00-backbone-decode-gpu.arrivals.tsv").read_text().split("\n")]
    assert rows[0] == ["line", "seconds", "stream"]
    body = [row for row in rows[1:] if len(row) == 3]
    assert [int(number) for number, _, _ in body] == list(range(1, len(kept) + 1))
    times = [float(seconds) for _, seconds, _ in body]
    assert times == sorted(times) and times[0] > 0
    streams = dict(zip(kept, (stream for _, _, stream in body), strict=True))
    assert streams["VERBOSE: something else"] == "stderr" and streams["INFO: STARTING!"] == "stdout"


def test_a_cancelled_bench_ends_its_silent_program_on_the_phone(
    phone: StandinProcess, tmp_path: Path, replay: tuple[str, ...]
) -> None:
    one = Bench(phone, tmp_path)
    thread, ended = one.start(replay)
    one.wait_for_verdict("fallback_cpu")
    assert not nothing_runs(phone)
    one.context.cancel.set()
    thread.join(60)
    assert isinstance(ended[0], StageCancelled)
    assert nothing_runs(phone)


def test_a_program_that_hangs_is_ended_and_named(
    phone: StandinProcess, tmp_path: Path, replay: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_log, "SILENCE_S", 1.0)
    one = Bench(phone, tmp_path)
    thread, ended = one.start(replay)
    thread.join(60)
    assert isinstance(ended[0], StageFailed) and "printed nothing" in str(ended[0])
    assert nothing_runs(phone)


def test_a_pulled_cable_fails_the_stage_and_its_program_is_ended_once_the_phone_is_back(
    phone: StandinProcess, tmp_path: Path, replay: tuple[str, ...]
) -> None:
    one = Bench(phone, tmp_path)
    thread, ended = one.start(replay)
    one.wait_for_verdict("fallback_cpu")
    phone.control("unplug 1")
    thread.join(90)
    assert isinstance(ended[0], StageFailed)
    assert "was cut off" in str(ended[0]) and "was ended" in str(ended[0])
    assert nothing_runs(phone)
    assert all(verdict.provisional for verdict in one.of(ev.VerdictReached))


def test_accelerators_take_turns_in_processes_of_their_own() -> None:
    order = bench.jobs({"head": ["draft"], "backbone": ["decode"]}, ("cpu", "gpu"), 2)
    assert [(job.round, job.graph, job.requested) for job in order] == [
        (0, "head/draft", "cpu"), (0, "head/draft", "gpu"), (0, "backbone/decode", "cpu"),
        (0, "backbone/decode", "gpu"), (1, "head/draft", "gpu"), (1, "head/draft", "cpu"),
        (1, "backbone/decode", "gpu"), (1, "backbone/decode", "cpu"),
    ]  # fmt: skip


def test_the_stage_tells_tool_origin_cold_and_warm_starts_numbers_and_times(
    phone: StandinProcess, tmp_path: Path
) -> None:
    one = Bench(phone, tmp_path, check_numerics=True, op_profile=True, core_mask="3")
    figures = one.stage("draft", "nan", "idle")
    tool = figures["tool"]
    assert (tool["kind"], tool["origin"]) == ("benchmark_model", "the stand-in's own program")
    assert len(tool["sha256"]) == 64 and tool["flags_told"]
    runs = figures["runs"]
    assert len([r for r in runs if r["purpose"] == "timed"]) == 3 * 2 * 2
    assert len([r for r in runs if r["purpose"] == "profiled"]) == 3 * 2
    for row in runs:
        assert row["verdict"] == ("full_delegate" if row["requested"] == "gpu" else "cpu_baseline")
        assert row["inference_runs"] == 50 and row["warmup_runs"] == 10 and row["exit_code"] == 0
        assert row["real_inputs"] and row["command"].startswith("taskset 3 ")
        assert row["proof"]["told_after_ms"] is not None
        assert ("enable_op_profiling" in row["command"]) == (row["purpose"] == "profiled")
    # Round 0 found no compiled graph, round 1 found it: their initialisations are never mixed.
    inits = {(r["graph"], r["requested"]): r for r in figures["initialisation"]}
    assert inits["head/draft", "gpu"]["cold_us"][0] == 9500 and inits["head/draft", "gpu"]["warm_us"] == [9500]
    same = {c["graph"]: c["same"] for c in figures["comparisons"]}
    assert same == {"head/draft": False, "head/nan": False, "head/idle": True}
    broken = {n["graph"]: n["not_finite"] for n in figures["numerics"]}
    assert broken == {"head/draft": 0, "head/nan": 1, "head/idle": 0}
    # What needs several logs stands beside the verdicts it is about.
    found = {(v.graph, v.requested): v.findings for v in one.state().verdicts}
    told = {key: " ".join(findings) for key, findings in found.items()}
    assert "inf or NaN" in told["head/nan", "gpu"] and "policy0 820/1950 MHz" in told["head/idle", "gpu"]
    for quiet in (told["head/draft", "gpu"], told["head/idle", "cpu"]):
        assert "NaN" not in quiet and "repeats" not in quiet
    assert not one.context.link.run(["ls", paths.OUTPUTS_DIR]).stdout.strip()


def test_fewer_runs_than_asked_fail_the_stage_but_its_figures_are_kept(phone: StandinProcess, tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match="head/short on cpu shows 7 measured runs where 50") as failed:
        Bench(phone, tmp_path, bench_rounds=1).stage("short")
    assert failed.value.figures["runs"][0]["inference_runs"] == 7


def test_litert_is_asked_in_its_own_flags_and_an_npu_whose_counter_stands_still_is_not_believed(
    phone: StandinProcess, tmp_path: Path
) -> None:
    one = Bench(phone, tmp_path, accelerators=("cpu", "npu"), bench_rounds=1, dispatch_dir="/data/local/tmp/npu")
    figures = one.stage("draft")
    assert figures["tool"]["kind"] == "benchmark_litert_model"
    cpu, npu = figures["runs"]
    assert "--use_cpu=true" in cpu["command"] and "xnnpack" not in cpu["command"]
    assert "--use_npu=true" in npu["command"] and "--dispatch_library_path=/data/local/tmp/npu" in npu["command"]
    assert npu["verdict"] == "unknown" and "did not move" in npu["reason"]
    assert any("random bytes" in text for text in npu["findings"]) and not npu["real_inputs"]
    assert one.state().verdicts[-1].verdict == "unknown"


def test_a_tool_that_cannot_ask_the_npu_is_refused_before_anything_runs(
    phone: StandinProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "BENCHMARK_LITERT_MODEL", "/data/local/tmp/absent")
    one = Bench(phone, tmp_path, accelerators=("cpu", "npu"))
    with pytest.raises(CommandFailed, match="cannot ask the NPU"):
        one.stage("draft")
    assert not one.of(ev.LogOpened)


def row(requested: str, median: float, spread: float = 4.0, verdict: str = "full_delegate", **more: Any) -> Any:
    half = spread / 2 * 3.29
    return {
        "graph": "g", "requested": requested, "purpose": "timed", "verdict": verdict, "clocks": None,
        "inference_median_us": median, "inference_avg_us": median, "inference_std_us": spread,
        "inference_p5_us": median - half, "inference_p95_us": median + half, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "same"),
    [
        ([row("cpu", 100), row("gpu", 103)], True),
        ([row("cpu", 100), row("gpu", 110)], False),
        ([row("cpu", 100), row("gpu", 90)], False),  # faster by more than repeats scatter
        ([row("cpu", 100), row("gpu", 110), row("cpu", 118), row("gpu", 108)], True),  # the CPU drifts by 18 itself
        ([row("cpu", 1000, 40), row("gpu", 1049, 40)], True),  # 5 % is nothing where repeats scatter by 4 %
        ([row("cpu", 1000, 1), row("gpu", 1049, 1)], False),  # and much where they do not
    ],
)
def test_times_are_the_same_only_within_the_repeats_own_noise(rows: list[Any], same: bool) -> None:
    (found,) = compare_times(rows)
    assert found["same"] is same
    assert (same_time_text(found, rows, simulated=False) is not None) is same


def test_times_that_no_log_gave_are_not_compared_and_a_known_fallback_needs_no_doubt() -> None:
    silent = row("gpu", 100, inference_median_us=None, inference_avg_us=None)
    assert compare_times([row("cpu", 100), silent]) == []
    assert compare_times([row("cpu", 100), row("gpu", 100, verdict="crash")]) == []
    rows = [row("cpu", 100), row("gpu", 100, verdict="fallback_cpu")]
    assert same_time_text(compare_times(rows)[0], rows, simulated=False) is None


def floats(*values: float) -> bytes:
    import numpy as np

    return np.asarray(values, "<f4").tobytes()


@pytest.mark.parametrize(
    ("cpu", "gpu", "said"),
    [
        (floats(1, 2, 3), floats(1, 2.01, 3), None),
        (floats(1, -2), floats(1, -2.2), "differ from the CPU's by up to 10 %"),
        (floats(1, 2), floats(1, float("inf")), "1 of 2 output values are inf or NaN"),
        (floats(1, float("inf")), floats(1, float("inf")), None),  # the model's own infinity is no overflow
        (floats(0, 0), floats(0, 0), None),
        (floats(0, 0), floats(0, 1), "nothing that could be compared"),
        (floats(1, 2), floats(1), "cannot be compared"),
        (b"", b"", "cannot be compared"),
    ],
)
def test_outputs_may_differ_by_rounding_and_nothing_more(cpu: bytes, gpu: bytes, said: str | None) -> None:
    text = compare_outputs(cpu, gpu)["text"]
    assert text is None if said is None else said in text


def npu_reading() -> Any:
    reader = LogReader("npu")
    for line in ("INFO: STARTING!", "VERBOSE: Replacing 1 out of 1 node(s) with delegate (DispatchDelegate) node."):
        reader.feed(line)
    return reader.finish(0)


def test_only_a_counter_that_moved_lets_an_npu_verdict_stand() -> None:
    reading = npu_reading()
    assert reading.verdict == "full_delegate"
    assert weigh_npu_count(reading, NpuCount(4), NpuCount(64)).verdict == "full_delegate"
    still = weigh_npu_count(reading, NpuCount(4), NpuCount(4))
    assert still.verdict == "unknown" and still.evidence == reading.evidence
    blind = weigh_npu_count(reading, NpuCount(None, "denied"), NpuCount(None, "denied"))
    assert blind.verdict == "full_delegate" and "denied" in blind.findings[-1].text


def test_only_the_draft_length_that_is_measured_is_benched() -> None:
    exported = ["prefill_64", "decode", "verify_1", "verify_2", "verify_3", "draft_2", "draft_3"]
    assert bench.deployed(exported, 2) == ["prefill_64", "decode", "verify_2", "draft_2"]
    assert bench.deployed(["decode", "verify", "draft"], 3) == ["decode", "verify", "draft"]
