"""The sampler against the stand-in: every sample was sent once, gaps are told, nothing stays on the phone."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mtplab.device import sampler as module
from mtplab.device.frames import FrameReader, loop_script
from mtplab.device.link import Link
from mtplab.device.sampler import Sampler
from mtplab.device.standin_host import StandinProcess
from mtplab.device.thermal import Clock, ThermalSample, ThermalService
from mtplab.session.heat import hottest_die


def wait_until(condition: object, seconds: float = 15) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_five_seconds_of_samples_with_a_pulled_cable_in_the_middle(
    link: Link, standin: StandinProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[int]] = []  # the numbers the phone gave, by connection

    class Watched(FrameReader):
        def feed(self, line: str, t: float) -> ThermalSample | None:
            if line.startswith("#H "):
                sent.append([])
            sample = super().feed(line, t)
            sent[-1] += [sample.seq] if sample else []
            return sample

    monkeypatch.setattr(module, "FrameReader", Watched)
    samples: list[ThermalSample] = []
    services: list[ThermalService] = []
    gaps: list[tuple[str, float]] = []
    lost: list[str] = []
    sampler = Sampler(
        link, 10, samples.append, on_gap=lambda why, s: gaps.append((why, s)), on_status=services.append,
        on_lost=lost.append,
    )  # fmt: skip
    with sampler:
        wait_until(lambda: len(samples) >= 15)
        standin.control("unplug 0.7")
        wait_until(lambda: gaps != [])
        before = len(samples)
        wait_until(lambda: len(samples) >= before + 15 and services != [])
        cost, duplicates = sampler.cost, sampler.duplicates
    assert len(lost) == len(gaps) == 1
    assert gaps[0][1] > 0.5
    assert "lost" in gaps[0][0]
    # None invented, none lost, none twice: the phone's numbers begin at 0 on each connection and have no holes, and
    # every one of them was delivered once. Times never fall; two frames may come in one packet and share a time.
    assert len(sent) == 2
    assert all(numbers == list(range(len(numbers))) for numbers in sent)
    assert sum(map(len, sent)) == len(samples)
    assert [sample.seq for sample in samples] == list(range(len(samples)))
    uptimes = [sample.device_uptime_s for sample in samples]
    assert all(a is not None and b is not None and a <= b for a, b in itertools.pairwise(uptimes))
    assert all(a.t <= b.t for a, b in itertools.pairwise(samples))
    assert (cost.rejected, duplicates) == (0, 0)
    assert cost.samples == len(samples)
    assert cost.bytes is not None and cost.bytes > 100
    assert cost.packets is not None and 0.5 < cost.packets < 3
    assert cost.rate_hz is not None and cost.host_ms is not None
    assert services[0].skin_c is not None
    assert standin_is_idle(standin)


def standin_is_idle(standin: StandinProcess) -> bool:
    deadline = time.monotonic() + 5
    while standin.control("status")["processes"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return standin.control("status")["processes"] == []


def test_heat_on_the_phone_is_heat_in_the_samples(link: Link, standin: StandinProcess) -> None:
    samples: list[ThermalSample] = []
    with Sampler(link, 5, samples.append):
        wait_until(lambda: samples != [])
        standin.control("load BIG 1.0")
        try:
            first = hottest_die(samples[0].zones)
            assert first is not None
            wait_until(lambda: (hottest_die(samples[-1].zones) or ("", 0.0))[1] > first[1] + 1.0)
            busy = max(name for name in samples[-1].clocks_khz if name != "gpu")  # the big cores come last
            wait_until(lambda: any(sample.load.get(busy) == 1.0 for sample in samples))
        finally:
            standin.control("load BIG auto")
    dark = {name for name, value in samples[-1].zones.items() if value is None}  # a denied zone is None, not 0
    assert dark == set(samples[-1].silent) != set()
    clocks = samples[-1].clocks_khz
    assert all(clock.max_khz and clock.current_khz for clock in clocks.values())
    assert {"gpu", busy} < set(clocks)


def test_a_callback_that_fails_stops_the_sampler_and_is_told(link: Link, standin: StandinProcess) -> None:
    def fail(sample: ThermalSample) -> None:
        raise RuntimeError("journal closed")

    sampler = Sampler(link, 10, fail).start()
    wait_until(lambda: sampler.problem is not None)
    with pytest.raises(RuntimeError, match="journal closed"):
        sampler.stop()
    assert standin_is_idle(standin)


def test_a_phone_that_was_never_there_is_lost_from_the_start(standin: StandinProcess) -> None:
    lost: list[str] = []
    with Sampler(Link(standin.server, "NO-SUCH-PHONE"), 10, lambda sample: None, on_lost=lost.append):
        wait_until(lambda: lost != [])
    assert len(lost) == 1
    assert "not attached" in lost[0]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "mksh"])
def test_the_loop_runs_in_every_shell_and_survives_odd_zones(tmp_path: Path, shell: str) -> None:
    """The script itself, on this machine's shells and a made-up /sys; Android's shell is mksh."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    zones, policy = "sys/class/thermal/thermal_zone", "sys/devices/system/cpu/cpufreq/policy4"
    gpu = "sys/devices/platform/1f000000.mali"
    write(tmp_path, {
        f"{zones}0/type": "BIG", f"{zones}0/temp": "41000",
        f"{zones}1/type": "quiet therm", f"{zones}1/temp": "31500 x",
        f"{zones}2/type": "unreadable", f"{zones}3/temp": "25000", f"{zones}4/type": "empty", f"{zones}4/temp": "",
        f"{zones}5/type": "ocp_cpu1", f"{zones}5/temp": "6900000", f"{policy}/related_cpus": "4 5",
        f"{policy}/cpuinfo_max_freq": "2600000", f"{policy}/scaling_cur_freq": "900000",
        f"{gpu}/available_frequencies": "150000 890000", f"{gpu}/cur_freq": "150000", f"{gpu}/utilization": "7",
        "stat": "cpu  1 1 1 1 1 1 1\ncpu4 10 0 0 90 0 0 0 0 0 0\ncpu5 1 0 0 99 0 0 0 0 0 0\nintr 1 2 3\nctxt 5",
    })  # fmt: skip
    script = loop_script(0.1).replace("/sys/", f"{tmp_path}/sys/").replace("/proc/stat", f"{tmp_path}/stat")
    loop = subprocess.Popen(
        [shell, "-c", "{ " + script + " } 2>/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert loop.stdout is not None
    reader = FrameReader()
    found: list[ThermalSample] = []
    while len(found) < 12:  # the cores' times stand in the first frame and in the one a second later
        sample = reader.feed(loop.stdout.readline().rstrip("\n"), 0.0)
        found += [sample] if sample else []
        if len(found) == 3:
            (tmp_path / "stat").write_text("cpu  1\ncpu4 20 0 0 180 0 0 0\ncpu5 91 0 0 109 0 0 0\nintr 1\n")
    if reader.pacing != "read":
        loop.kill()
    loop.communicate()  # where the shell can read with a time limit, the end of input ends the loop
    assert [sample.seq for sample in found] == list(range(12))
    assert found[0].zones == {"BIG": 41.0, "quiet therm": 31.5, "unreadable": None, "zone3": 25.0, "empty": None}
    assert found[0].clocks_khz == {
        "policy4": Clock(900_000, None, 2_600_000), "gpu": Clock(150_000, None, 890_000),
    }  # fmt: skip
    assert found[0].load == {"gpu": 0.07}
    assert {sample.load.get("policy4") for sample in found} == {None, 0.9}
    assert reader.rejected == 0
