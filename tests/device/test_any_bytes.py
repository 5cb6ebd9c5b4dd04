"""Whatever stands in place of a command's output: it is unknown with a reason, or what really stands there."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import aicore, answers, facts, shell, transfer
from mtplab.device.answers import Answer, Unknown
from mtplab.device.frames import FrameReader
from mtplab.device.link import Link, parse_devices
from mtplab.device.sampler import Sampler
from mtplab.device.shell import CommandResult, Line
from mtplab.device.thermal import STATUS_NAMES, parse_thermalservice

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "device").glob("*.txt"))
ANY = st.binary(max_size=300).map(lambda data: data.decode("utf-8", "replace"))


class Liar:
    """A phone on which every command of the batch, and every other one, prints the same."""

    serial = "LIAR"

    def __init__(self, said: str, code: int) -> None:
        self._said, self._code = said, code

    def run(self, command: object, **_options: object) -> CommandResult:
        said, mark = self._said, re.match(r'echo "(#\w+) begin', str(command))
        if mark is not None:
            keys = re.findall(rf"{mark.group(1)} begin (\w+)", str(command))
            said = "".join(f"{mark[1]} begin {k}\n{said}{mark[1]} end {k} {self._code}\n" for k in keys)
        return CommandResult(said, self._said, self._code, 0.01)


    @contextlib.contextmanager
    def stream(self, _command: object) -> Iterator[Babble]:
        yield Babble(self._said)


class Babble:
    """What an open command says back, whatever it is sent."""

    problem = None

    def __init__(self, said: str) -> None:
        self._lines = iter(said.split("\n"))

    def send(self, _data: bytes) -> None:
        """Nothing that is said changes the answer."""

    def line(self, _timeout_s: float) -> Line | None:
        text = next(self._lines, None)
        return None if text is None else Line("stdout", text, time.monotonic())


# A property is whatever text it holds; what has a form of its own may not be made of nonsense.
FREE_TEXT = {
    "model", "device", "soc", "android_release", "security_patch", "kernel", "abi", "gpu_model", "gpu_governor",
    "serial_hash",
}  # fmt: skip


@given(ANY, st.integers(0, 255))
def test_a_phone_that_answers_everything_with_the_same_bytes_is_unknown(said: str, code: int) -> None:
    read = facts.read_facts(cast(Link, Liar(said, code)))
    told = {fact.name: fact.value for fact in read if fact.value is not None}
    assert told.pop("simulated", True) is True  # nothing clears a phone of being a stand-in
    if not (code == 0 and said.strip().isascii() and said.strip().isdigit()):  # "36" may be true of `sdk`
        assert set(told) <= FREE_TEXT
    assert all(fact.reason for fact in read if fact.value is None)
    assert all(said.strip() == value for name, value in told.items() if name != "serial_hash" and name in FREE_TEXT)


@given(ANY)
def test_the_service_and_the_sampler_make_nothing_of_it(said: str) -> None:
    sampler = Sampler(cast(Link, Liar(said, 0)), 1.0, lambda sample: None)
    service = sampler._read_status()
    assert service is not None
    assert (service.sensors, service.skin_c, service.status, service.headroom) == ((), None, None, None)
    assert service.reason
    reader = FrameReader()
    assert [reader.feed(line, 0.0) for line in said.split("\n")] == [None] * len(said.split("\n"))


@given(ANY)
def test_the_small_parsers_make_nothing_of_it(said: str) -> None:
    assert aicore.parse(said).state is None and aicore.parse(said).reason
    assert (transfer.parse_sha256(said), transfer.parse_df(said)) == (None, None)
    assert shell.parse_mark(said.encode()) is None
    assert answers.files_of(said) == {}
    parsers: tuple[Any, ...] = (
        facts.battery_level, facts.battery_temperature, facts.charging, facts.screen, facts.core_count,
        facts.memory_total, facts.memory_available, facts.uptime,
    )  # fmt: skip
    for parse in parsers:
        with pytest.raises(Unknown):
            parse(said)
    assert all(entry.explanation for entry in parse_devices(said))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_in_another_commands_place_is_not_read_as_that_command(path: Path) -> None:
    """Each captured output under every command: only facts that it is the true source of may come of it."""
    text = path.read_text()
    found = {fact.name: fact.value for fact in facts.parse_facts({k: Answer(text, 0) for k in facts._COMMANDS})}
    told = {name for name, value in found.items() if value is not None} - FREE_TEXT
    own = {
        "08": {"battery_temperature_c", "charging"},  # two batteries, so no level; one of them tells its temperature
        "09": {"aicore_state", "aicore_version", "aicore_code"},
    }
    assert told == own.get(path.stem[:2], set())
    if path.stem[:2] > "05":
        assert parse_thermalservice(text).sensors == ()


def test_the_status_names_are_those_of_the_captured_header(capture: dict[str, str]) -> None:
    lines = [line.split(" = ") for line in capture["12_thermal_status_and_headroom"].splitlines() if " = " in line]
    named = {int(value): name.removeprefix("ATHERMAL_STATUS_") for name, value in lines if "STATUS" in name}
    assert {number: name for number, name in named.items() if number >= 0} == STATUS_NAMES


@given(st.sampled_from([path for path in CAPTURES if path.stem[:2] < "06"]), st.integers(0, 10_000), ANY)
def test_bytes_put_into_a_capture_never_add_a_temperature(path: Path, place: int, said: str) -> None:
    text = path.read_text()
    place %= len(text)
    whole, spoilt = parse_thermalservice(text), parse_thermalservice(text[:place] + "\n" + said + "\n" + text[place:])
    assert {sensor.value_c for sensor in spoilt.sensors} <= {sensor.value_c for sensor in whole.sensors}
