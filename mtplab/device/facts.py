"""What is known about a phone, each fact with the command it came from, or with the reason why it is not known."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mtplab.device import aicore, hardware, paths
from mtplab.device.answers import Answer, Fact, Parser, Unknown, Value, fact_of, int_in, one_word, word
from mtplab.device.clock import measure_clock
from mtplab.device.errors import CommandFailed, DeviceError, DeviceGone
from mtplab.device.link import Link
from mtplab.device.lock import serial_hash
from mtplab.device.transfer import parse_df


class Facts(msgspec.Struct, frozen=True):
    """Every fact that was asked for, in order. `t` is the host's monotonic time of the reading."""

    facts: tuple[Fact, ...]
    t: float

    def get(self, name: str) -> Value | None:
        """A fact's value, None if unknown; KeyError if it was never asked for."""
        return self.fact(name).value

    def fact(self, name: str) -> Fact:
        """A fact by name; KeyError if it was never asked for."""
        for fact in self.facts:
            if fact.name == name:
                return fact
        raise KeyError(name)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)


_COMMANDS: dict[str, str] = {
    "model": "getprop ro.product.model",
    "device": "getprop ro.product.device",
    "soc": "getprop ro.soc.model",
    "android": "getprop ro.build.version.release",
    "sdk": "getprop ro.build.version.sdk",
    "fingerprint": "getprop ro.build.fingerprint",
    "patch": "getprop ro.build.version.security_patch",
    "abi": "getprop ro.product.cpu.abi",
    "standin": "getprop ro.mtplab.standin",
    "kernel": "uname -r",
    "battery": "dumpsys battery",
    "display": (
        "dumpsys power | grep -E 'mWakefulness=|Display Power:'"
        " || dumpsys display | grep -E 'mScreenState=|mGlobalDisplayState='"
    ),
    "cores": "c=$(cat /sys/devices/system/cpu/possible) && echo list $c || echo count $(nproc)",
    "memory": "cat /proc/meminfo",
    "free": f"df -k {paths.TMP}",
    "aicore": f"dumpsys package {paths.AICORE_PACKAGE}",
    "uptime": "cat /proc/uptime",
    **hardware.COMMANDS,
}
_SCREEN_STATES = {
    "awake": "on", "on": "on", "dreaming": "on", "asleep": "off", "off": "off", "dozing": "off", "doze": "off",
}  # fmt: skip


def fingerprint(text: str) -> str:
    """A build's fingerprint: brand/product/device:release/id/incremental:type/tags (android.os.Build)."""
    said = one_word(text)
    if not re.fullmatch(r"[^/:]+/[^/:]+/[^/:]+:[^/:]+/[^/:]+/[^/:]+:[^/:]+/[^/:]+", said):
        raise Unknown("the command printed no build fingerprint")
    return said


def _simulated(text: str) -> bool:
    """True on a stand-in by its own property or fingerprint; the text is `property fingerprint`."""
    standin, _, rest = text.partition("\n")
    if standin.strip() == "1":
        return True
    try:
        return "standin" in fingerprint(rest).lower()
    except Unknown:
        raise Unknown("neither property was answered") from None


def battery_value(text: str, key: str) -> int:
    """An integer field of `dumpsys battery`; Unknown if it is missing, repeated with another value, or odd."""
    found = set(re.findall(rf"^[ \t]*{re.escape(key)}: ([^\r\n]*?)\r?$", text, re.MULTILINE))
    if not found:
        raise Unknown(f"dumpsys battery names no “{key}”")
    if len(found) > 1 or not re.fullmatch(r"-?\d{1,7}", word := found.pop(), re.ASCII):
        raise Unknown(f"dumpsys battery gives no single number for “{key}”")
    return int(word)


def battery_level(text: str) -> int:
    """Charge in per cent of the scale."""
    level, scale = battery_value(text, "level"), battery_value(text, "scale")
    if scale <= 0 or not 0 <= level <= scale:
        raise Unknown(f"level {level} of {scale} cannot be")
    return round(100 * level / scale)


def battery_temperature(text: str) -> float:
    """°C; the service gives tenths."""
    tenths = battery_value(text, "temperature")
    if tenths == 0 or not -400 <= tenths <= 1500:
        raise Unknown(f"a battery temperature of {tenths / 10:g} °C cannot be")
    return tenths / 10


def charging(text: str) -> str:
    """What feeds the phone: AC, USB, wireless, dock, several joined by +, or "none"."""
    found = re.findall(r"^[ \t]*(AC|USB|Wireless|Dock) powered: (true|false)\r?$", text, re.MULTILINE)
    if not found:
        raise Unknown("dumpsys battery names no power source")
    return "+".join(name for name, on in found if on == "true") or "none"


def screen(text: str) -> str:
    """"on" or "off"."""
    match = re.search(r"(?:mWakefulness|mScreenState|mGlobalDisplayState|Display Power: state)=(\w+)", text)
    state = _SCREEN_STATES.get(match.group(1).lower()) if match else None
    if state is None:
        raise Unknown("neither dumpsys power nor dumpsys display tells")
    return state


def core_count(text: str) -> int:
    """Cores in `list 0-8` (the kernel's form, also `0-3,5`) or `count 9`; other lines are complaints."""
    match = re.search(r"^(list|count) ([\d,-]{1,100})\r?$", text, re.MULTILINE | re.ASCII)
    if match is None:
        raise Unknown("neither the kernel nor nproc names the cores")
    if match.group(1) == "count":
        return int_in(1, 512)(match.group(2))
    total = 0
    for part in match.group(2).split(","):
        pair = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part, re.ASCII)
        first, last = (int(pair.group(1)), int(pair.group(2) or pair.group(1))) if pair else (1, 0)
        if last < first:
            raise Unknown("the kernel's list of cores has another form")
        total += last - first + 1
    return int_in(1, 512)(str(total))


def memory_total(text: str) -> int:
    """Bytes of memory by /proc/meminfo."""
    return _meminfo(text, "MemTotal")


def memory_available(text: str) -> int:
    """Bytes that programs could still have, by the kernel's own estimate."""
    available = _meminfo(text, "MemAvailable")
    if available > memory_total(text):
        raise Unknown("more memory would be available than there is")
    return available


def _meminfo(text: str, name: str) -> int:
    match = re.search(rf"^{name}:[ \t]+([1-9]\d{{0,11}}) kB\r?$", text, re.MULTILINE | re.ASCII)
    if match is None:
        raise Unknown(f"/proc/meminfo names no {name}")
    return int(match.group(1)) * 1024


def _free(text: str) -> int:
    free = parse_df(text)
    if free is None:
        raise Unknown("df printed another form")
    return free


def uptime(text: str) -> float:
    """Seconds since boot by /proc/uptime."""
    match = re.match(r"(\d{1,10}\.\d{1,9}) \d", text, re.ASCII)
    if match is None:
        raise Unknown("/proc/uptime has another form")
    return float(match.group(1))


# fact -> (command, parser)
_FACTS: dict[str, tuple[str, Parser]] = {
    "model": ("model", word),
    "device": ("device", one_word),
    "soc": ("soc", word),
    "android_release": ("android", one_word),
    "sdk": ("sdk", int_in(1, 999)),
    "build_fingerprint": ("fingerprint", fingerprint),
    "security_patch": ("patch", one_word),
    "kernel": ("kernel", one_word),
    "abi": ("abi", one_word),
    "battery_level_percent": ("battery", battery_level),
    "battery_temperature_c": ("battery", battery_temperature),
    "charging": ("battery", charging),
    "screen": ("display", screen),
    "cores": ("cores", core_count),
    "memory_bytes": ("memory", memory_total),
    "memory_available_bytes": ("memory", memory_available),
    "free_bytes": ("free", _free),
}


# How long the whole batch may take, and then what is left of it after one and two commands that hung.
_PATIENCE_S = (20.0, 10.0, 10.0)


def batch_script(mark: str, keys: Iterable[str] = tuple(_COMMANDS)) -> str:
    """One script that runs those commands; `mark`, which no output can foresee, frames the answers."""
    return "\n".join(
        f'echo "{mark} begin {key}"; {{ {_COMMANDS[key]}; }} 2>&1; echo "{mark} end {key} $?"' for key in keys
    )


def split_batch(stdout: str, mark: str) -> dict[str, Answer]:
    """The answers of `batch_script`; only those whose end was seen. Text before an end mark may lack a newline."""
    answers: dict[str, Answer] = {}
    for key in _COMMANDS:
        begin = f"{mark} begin {key}\n"
        start = stdout.find(begin)
        if start < 0:
            continue
        match = re.compile(rf"{mark} end {key} (\d{{1,3}})\r?\n", re.ASCII).search(stdout, start + len(begin))
        if match is not None:
            answers[key] = Answer(stdout[start + len(begin) : match.start()], int(match.group(1)))
    return answers


def parse_facts(answers: Mapping[str, Answer]) -> tuple[Fact, ...]:
    """Facts from answers, whatever they hold; never raises."""
    facts = [_fact(name, key, parse, answers) for name, (key, parse) in _FACTS.items()]
    facts += _aicore_facts(answers)
    silicon = hardware.facts(answers)
    facts += silicon
    facts += _benchmark_facts({fact.name: fact for fact in silicon})
    facts.append(_simulated_fact(answers))
    return tuple(facts)


def _fact(name: str, key: str, parse: Parser, answers: Mapping[str, Answer]) -> Fact:
    return fact_of(name, _COMMANDS[key], answers.get(key), parse)


def _aicore_facts(answers: Mapping[str, Answer]) -> list[Fact]:
    source, answer = _COMMANDS["aicore"], answers.get("aicore")
    found = aicore.parse(answer.text) if answer is not None else aicore.UNANSWERED
    reason = None if found.state is not None else found.reason
    lacks = found.reason or "the package manager names no version"
    absent = "absent" if found.state == "absent" else None
    return [
        Fact("aicore_state", found.state, source, reason),
        Fact("aicore_version", found.version or absent, source, None if found.version or absent else lacks),
        Fact("aicore_code", found.code or absent, source, None if found.code or absent else lacks),
    ]


def _benchmark_facts(binaries: Mapping[str, Fact]) -> list[Fact]:
    """Whether benchmark_model is there, and its hash; both follow from the list of LiteRT's programs."""
    listed = binaries["litert_binaries"]
    source, digest = listed.source, binaries.get(f"sha256 {hardware.BENCHMARK}")
    if digest is not None:
        return [
            Fact("benchmark_model", paths.BENCHMARK_MODEL, source),
            Fact("benchmark_model_sha256", digest.value, source),
        ]
    if listed.value is None:
        return [Fact(name, None, source, listed.reason) for name in ("benchmark_model", "benchmark_model_sha256")]
    return [
        Fact("benchmark_model", "absent", source),
        Fact("benchmark_model_sha256", None, source, f"there is no {paths.BENCHMARK_MODEL}"),
    ]


def _simulated_fact(answers: Mapping[str, Answer]) -> Fact:
    texts = [answers[key].text.strip() if key in answers else "" for key in ("standin", "fingerprint")]
    source = f"{_COMMANDS['standin']}; {_COMMANDS['fingerprint']}"
    try:
        return Fact("simulated", _simulated("\n".join(texts)), source)
    except Unknown as why:
        return Fact("simulated", None, source, str(why))


def read_facts(link: Link) -> Facts:
    """Ask the phone everything, in a few round trips. Raises DeviceGone if it went away meanwhile."""
    facts = list(parse_facts(_ask(link)))
    facts.append(_clock_fact(link))
    try:
        facts.append(Fact("serial_hash", serial_hash(link.serial), "keyed hash of adb's serial"))
    except DeviceError as problem:
        facts.append(Fact("serial_hash", None, "keyed hash of adb's serial", str(problem)))
    return Facts(tuple(facts), time.monotonic())


def _ask(link: Link) -> dict[str, Answer]:
    """The answers of all commands but those that hang: such a one is ended, and the rest asked without it."""
    left, answers = list(_COMMANDS), dict[str, Answer]()
    for patience_s in _PATIENCE_S:
        mark = f"#{secrets.token_hex(6)}"
        try:
            return answers | split_batch(link.run(batch_script(mark, left), timeout_s=patience_s).stdout, mark)
        except CommandFailed as ended:
            answers |= split_batch(ended.stdout, mark)
            begun = [key for key in left if f"{mark} begin {key}\n" in ended.stdout.replace("\r\n", "\n")]
            if not begun:
                raise
            left = left[len(begun) :]
    return answers


def _clock_fact(link: Link) -> Fact:
    """The host's monotonic time minus the phone's uptime, in seconds."""
    source = _COMMANDS["uptime"]
    try:
        return Fact("clock_offset_s", round(measure_clock(link).offset_s, 4), source)
    except DeviceGone:
        raise
    except DeviceError as problem:
        return Fact("clock_offset_s", None, source, str(problem))

