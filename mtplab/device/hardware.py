"""Facts of the silicon: governors and clocks of the CPU, clock and use of GPU and NPU, and LiteRT's programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mtplab.device import paths
from mtplab.device.answers import Answer, Fact, Unknown, Value, fact_of, files_of, why_no_file
from mtplab.device.counters import khz, npu_inferences

_POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"
_KGSL, _MALI = "/sys/class/kgsl/kgsl-3d0", "/sys/devices/platform/*.mali"
# Programs and libraries by which LiteRT runs; models are not hashed here, they are large.
_BINARIES = (
    "benchmark_model*", "litert_*", "lib*[lL]ite*.so", "lib*Dispatch*.so", "libtensorflow*.so", "mtplab-runner",
)  # fmt: skip
_MOST_BINARIES = 20
BENCHMARK = paths.BENCHMARK_MODEL.rpartition("/")[2]

# `grep .` prints each file's path before its content; /dev/null keeps the path there where only one file is found.
COMMANDS: dict[str, str] = {
    "governor": f"grep . {_POLICIES}/scaling_governor /dev/null",
    "clocks": f"grep . {_POLICIES}/scaling_cur_freq {_POLICIES}/scaling_max_freq {_POLICIES}/cpuinfo_max_freq",
    "gpu": (
        f"grep . {_KGSL}/devfreq/cur_freq {_KGSL}/devfreq/available_frequencies {_KGSL}/devfreq/governor"
        f" {_KGSL}/gpu_busy_percentage {_KGSL}/gpu_model {_MALI}/cur_freq {_MALI}/available_frequencies"
        f" {_MALI}/power_policy {_MALI}/utilization {_MALI}/gpuinfo"
    ),
    "npu": "grep . /sys/devices/platform/*/inference_count /dev/null",
    "binaries": "sha256sum " + " ".join(f"{paths.TMP}/{name}" for name in _BINARIES),
}


def facts(answers: Mapping[str, Answer]) -> list[Fact]:
    """All of them, whatever the answers hold; never raises."""
    parsers: tuple[tuple[str, str, Callable[[str], Value]], ...] = (
        ("cpu_governor", "governor", governor),
        ("cpu_clocks_khz", "clocks", clocks),
        ("gpu_model", "gpu", gpu_model),
        ("gpu_governor", "gpu", gpu_governor),
        ("gpu_clock_khz", "gpu", gpu_clock),
        ("gpu_clock_max_khz", "gpu", gpu_clock_max),
        ("gpu_busy_percent", "gpu", gpu_busy),
        ("npu_inferences", "npu", npu_count),
    )
    # grep fails as soon as one of its files is missing: what it printed of the others still stands.
    found = [fact_of(name, COMMANDS[key], answers.get(key), parse, True) for name, key, parse in parsers]
    return [*found, *_binaries(answers.get("binaries"))]


def _by_policy(text: str, file: str) -> dict[str, str]:
    found = {}
    for path, content in files_of(text).items():
        match = re.fullmatch(rf".*/(policy\d{{1,3}})/{file}", path, re.ASCII)
        if match is not None:
            found[match.group(1)] = content
    return found


def governor(text: str) -> str:
    """The governor's name, or `policy0 NAME, policy4 NAME` where they differ."""
    names = {policy: name for policy, name in _by_policy(text, "scaling_governor").items() if name.isidentifier()}
    if not names:
        raise Unknown(why_no_file(text, "governor"))
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{policy} {name}" for policy, name in names.items())


def clocks(text: str) -> str:
    """`policy0 NOW/LIMIT/MOST, …` in kHz, "?" where one of them is not told."""
    read = [_by_policy(text, file) for file in ("scaling_cur_freq", "scaling_max_freq", "cpuinfo_max_freq")]
    policies = list(dict.fromkeys(policy for part in read for policy in part))
    told = [[khz(part.get(policy, "")) for part in read] for policy in policies]
    if not any(clock is not None for row in told for clock in row):
        raise Unknown(why_no_file(text, "CPU clock"))
    rows = ("/".join("?" if clock is None else str(clock) for clock in row) for row in told)
    return ", ".join(f"{policy} {row}" for policy, row in zip(policies, rows, strict=True))


def _gpu(text: str, *files: str) -> str:
    for path, content in files_of(text).items():
        if path.rpartition("/")[2] in files:
            return content
    raise Unknown(why_no_file(text, f"GPU file {' or '.join(files)}"))


def gpu_model(text: str) -> str:
    """The driver's name of the GPU."""
    return _gpu(text, "gpu_model", "gpuinfo")


def gpu_governor(text: str) -> str:
    """The devfreq governor, or a Mali's power policy (the one in brackets)."""
    said = _gpu(text, "governor", "power_policy")
    chosen = re.search(r"\[(\w+)\]", said)
    return chosen.group(1) if chosen else said


def gpu_clock(text: str) -> int:
    """The clock now, kHz."""
    clock = khz(_gpu(text, "cur_freq"))
    if clock is None:
        raise Unknown("the GPU's clock reads as no clock: it may be switched off")
    return clock


def gpu_clock_max(text: str) -> int:
    """The highest step, kHz."""
    steps = [step for word in _gpu(text, "available_frequencies").split() if (step := khz(word)) is not None]
    if not steps:
        raise Unknown("the GPU's list of clocks has another form")
    return max(steps)


def gpu_busy(text: str) -> int:
    """Per cent of the time at work, by the driver's own short average."""
    match = re.fullmatch(r"(\d{1,3}) ?%?", _gpu(text, "gpu_busy_percentage", "utilization"), re.ASCII)
    if match is None or int(match.group(1)) > 100:
        raise Unknown("the GPU's use is no percentage")
    return int(match.group(1))


def npu_count(text: str) -> int:
    """Inferences of the NPU since boot: only their increase proves that it worked."""
    counts = [npu_inferences(said) for path, said in files_of(text).items() if path.endswith("/inference_count")]
    if not counts:
        raise Unknown(why_no_file(text, "NPU counter"))
    if any(count is None for count in counts):
        raise Unknown("the NPU's counter has another form")
    return sum(count for count in counts if count is not None)


def _binaries(answer: Answer | None) -> list[Fact]:
    """Which of LiteRT's files lie on the phone, and a fact `sha256 NAME` for each."""
    source = COMMANDS["binaries"]
    if answer is None:
        return [Fact("litert_binaries", None, source, "the command gave no answer")]
    hashes: dict[str, str] = {}
    others: list[str] = []
    for line in answer.text.split("\n"):
        match = re.match(rf"([0-9a-f]{{64}})  {re.escape(paths.TMP)}/([\w.+-]{{1,64}})\r?$", line, re.ASCII)
        if match is not None:
            hashes.setdefault(match.group(2), match.group(1))
        elif line.strip() and not re.search(r"(No such file or directory|Is a directory)\r?$", line):
            others.append(line)
    if others or (not hashes and not answer.text.strip()):
        why = f"sha256sum said: {others[0]}" if others else "sha256sum said nothing"
        reason = "".join(c if " " <= c <= "~" else "?" for c in why)[:160]
        return [Fact("litert_binaries", None, source, reason)]
    names = sorted(hashes, key=lambda name: (name != BENCHMARK, name))
    shown, more = names[:_MOST_BINARIES], len(names) - _MOST_BINARIES
    text = ", ".join([*shown, *([f"{more} more"] if more > 0 else [])])
    return [
        Fact("litert_binaries", text or "none", source),
        *[Fact(f"sha256 {name}", hashes[name], source) for name in shown],
    ]
