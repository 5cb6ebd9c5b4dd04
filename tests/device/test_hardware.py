"""Facts of the silicon: the forms of Tensor and Snapdragon phones, denied files, and nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import hardware
from mtplab.device.answers import Answer, Fact
from mtplab.device.hardware import COMMANDS

CPU = "/sys/devices/system/cpu/cpufreq/policy"
MALI = "/sys/devices/platform/1f000000.mali"
KGSL = "/sys/class/kgsl/kgsl-3d0"
NO_KGSL = f"grep: {KGSL}/devfreq/cur_freq: No such file or directory\n"
HASH = "ab" * 32


def facts(code: int = 0, **texts: str) -> dict[str, Fact]:
    return {fact.name: fact for fact in hardware.facts({key: Answer(text, code) for key, text in texts.items()})}


def test_governors_and_clocks_by_policy() -> None:
    same = f"{CPU}0/scaling_governor:sched_pixel\n{CPU}4/scaling_governor:sched_pixel\n"
    found = facts(
        governor=same,
        clocks=f"{CPU}0/scaling_cur_freq:324000\n{CPU}0/scaling_max_freq:1704000\n{CPU}0/cpuinfo_max_freq:1704000\n"
        f"grep: {CPU}8/scaling_cur_freq: Permission denied\n{CPU}8/cpuinfo_max_freq:2914000\n",
    )
    assert found["cpu_governor"].value == "sched_pixel"
    assert found["cpu_clocks_khz"].value == "policy0 324000/1704000/1704000, policy8 ?/?/2914000"
    other = facts(governor=same.replace("4/scaling_governor:sched_pixel", "4/scaling_governor:performance"))
    assert other["cpu_governor"].value == "policy0 sched_pixel, policy4 performance"


def test_the_gpu_of_a_tensor_and_of_a_snapdragon() -> None:
    tensor = facts(2, gpu=(
        f"{NO_KGSL}{MALI}/cur_freq:150000\r\n{MALI}/available_frequencies:890000 850000 150000\n"
        f"{MALI}/power_policy:coarse_demand [adaptive] always_on\n{MALI}/utilization:7\n"
        f"{MALI}/gpuinfo:Mali-G715 7 cores r1p2 0x0B080A02\n"
    ))  # fmt: skip
    values = {name: fact.value for name, fact in tensor.items() if name.startswith("gpu_")}
    assert values == {
        "gpu_model": "Mali-G715 7 cores r1p2 0x0B080A02", "gpu_governor": "adaptive", "gpu_clock_khz": 150_000,
        "gpu_clock_max_khz": 890_000, "gpu_busy_percent": 7,
    }  # fmt: skip
    dragon = facts(2, gpu=(
        f"{KGSL}/devfreq/cur_freq:587000000\n{KGSL}/devfreq/available_frequencies:220000000 1050000000\n"
        f"{KGSL}/devfreq/governor:msm-adreno-tz\n{KGSL}/gpu_busy_percentage:0 %\n"
        f"grep: {MALI}/cur_freq: No such file or directory\n"
    ))  # fmt: skip
    values = {name: fact.value for name, fact in dragon.items() if name.startswith("gpu_") and fact.value is not None}
    assert values == {
        "gpu_governor": "msm-adreno-tz", "gpu_clock_khz": 587_000, "gpu_clock_max_khz": 1_050_000,
        "gpu_busy_percent": 0,
    }  # fmt: skip


def test_denied_is_another_reason_than_missing_and_a_sleeping_gpu_has_no_clock() -> None:
    denied = facts(2, gpu=f"grep: {MALI}/cur_freq: Permission denied\n")
    assert denied["gpu_clock_khz"].reason == "this build denies GPU file cur_freq to the shell"
    missing = facts(2, gpu=NO_KGSL, npu="grep: /sys/devices/platform/*/inference_count: No such file or directory\n")
    assert missing["gpu_clock_khz"].reason == "this phone shows no GPU file cur_freq"
    assert missing["npu_inferences"].reason == "this phone shows no NPU counter"
    asleep = facts(gpu=f"{MALI}/cur_freq:0\n")
    assert asleep["gpu_clock_khz"].value is None


def test_the_npus_counter_is_the_sum_of_its_fields_and_zero_is_a_value() -> None:
    rio = "/sys/devices/platform/1a000000.rio/inference_count"
    assert facts(npu=f"{rio}:1078 0 4\n")["npu_inferences"].value == 1082
    assert facts(npu=f"{rio}:0 0 0\n")["npu_inferences"].value == 0
    assert facts(npu=f"{rio}:0 -1 0\n")["npu_inferences"].reason == "the NPU's counter has another form"


def test_binaries_are_listed_with_their_hashes() -> None:
    missing = "sha256sum: /data/local/tmp/litert_*: No such file or directory\n"
    there = "".join(f"{HASH}  /data/local/tmp/{name}\n" for name in ("libLiteRt.so", "benchmark_model"))
    found = facts(1, binaries=missing + there)
    assert found["litert_binaries"].value == "benchmark_model, libLiteRt.so"
    assert found["sha256 libLiteRt.so"].value == HASH
    assert facts(1, binaries=missing)["litert_binaries"].value == "none"


@pytest.mark.parametrize("said", ["", "sh: sha256sum: inaccessible or not found\n", f"{HASH}  /etc/passwd\n"])
def test_a_list_that_cannot_be_trusted_is_unknown(said: str) -> None:
    fact = facts(127, binaries=said)["litert_binaries"]
    assert (fact.value, bool(fact.reason)) == (None, True)


PIECES = [f"{MALI}/cur_freq:150000", f"{MALI}/utilization:300", f"{CPU}0/scaling_governor:x", "grep: no", HASH, "\r"]
BYTES = st.binary().map(lambda data: data.decode("utf-8", "replace"))
TEXTS = BYTES | st.lists(st.sampled_from(PIECES)).map("\n".join)


@given(st.dictionaries(st.sampled_from(sorted(COMMANDS)), st.tuples(TEXTS, st.integers(0, 255))))
def test_any_bytes_give_a_possible_value_or_a_reason(answers: dict[str, tuple[str, int]]) -> None:
    found = hardware.facts({key: Answer(text, code) for key, (text, code) in answers.items()})
    assert len({fact.name for fact in found}) == len(found)
    for fact in found:
        assert (fact.value is None) == (fact.reason is not None)
        assert fact.value != ""
        if fact.name.endswith("_khz") and isinstance(fact.value, int):
            assert 10_000 <= fact.value < 10_000_000
        if fact.name == "gpu_busy_percent" and fact.value is not None:
            assert isinstance(fact.value, int) and 0 <= fact.value <= 100
