"""Facts about a phone: captured forms are read right, and nonsense becomes unknown with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplab.device import aicore, facts
from mtplab.device.answers import Answer, Unknown
from mtplab.device.clock import measure_clock
from mtplab.device.link import Link, parse_devices
from mtplab.device.transfer import parse_df, parse_sha256


def test_battery_forms_of_the_capture(capture: dict[str, str]) -> None:
    first, second = capture["08_dumpsys_battery"].split("## (b)")
    assert facts.battery_level(first) == 9
    assert facts.charging(first) == "AC"
    with pytest.raises(Unknown, match="names no “temperature”"):
        facts.battery_temperature(first)
    assert facts.battery_level(second) == 65
    with pytest.raises(Unknown, match="names no “scale”"):
        facts.battery_level("level: 65")
    assert facts.battery_temperature(second) == 37.7
    assert facts.charging(second) == "USB"


def test_aicore_forms_of_the_captures(capture: dict[str, str]) -> None:
    found = aicore.parse(capture["09_aicore_package"])
    assert (found.state, found.version, found.code) == (
        "installed", "0.release.prod_aicore_20260723.00_RC11.964081323", 494417,
    )  # fmt: skip
    packages = capture["10_dumpsys_package_forms"]
    other = aicore.parse(packages, "com.github.uiautomator")
    assert (other.state, other.version, other.code) == ("installed", "2.3.3", 2003003)
    assert aicore.parse("Unable to find package: com.google.android.gms", "com.google.android.gms").state == "absent"
    assert aicore.parse(packages).state is None  # two other packages, nothing about AICore


TWO_BLOCKS = """Packages:
  Package [com.google.android.aicore] (7c0ffee):
    versionCode=494417 minSdk=31 targetSdk=35
    versionName=0.thirdpartyeap.prod_aicore_20240822.00_RC05.676804926
    User 0: ceDataInode=1 installed=true hidden=false stopped=false enabled={enabled} instant=false
Hidden system packages:
  Package [com.google.android.aicore] (1de5):
    versionCode=395592 minSdk=31 targetSdk=35
    versionName=stub
"""


def test_an_updated_system_app_is_its_first_block() -> None:
    found = aicore.parse(TWO_BLOCKS.format(enabled=0))
    assert (found.state, found.code, found.blocks) == ("installed", 494417, 2)


def test_a_disabled_aicore_is_disabled_and_an_uninstalled_one_absent() -> None:
    assert aicore.parse(TWO_BLOCKS.format(enabled=3)).state == "disabled"
    assert aicore.parse(TWO_BLOCKS.format(enabled=0).replace("installed=true", "installed=false")).state == "absent"


def test_absent_is_a_value_and_unknown_is_not() -> None:
    absent = {"aicore": Answer("Unable to find package: com.google.android.aicore\n", 0)}
    found = {fact.name: fact for fact in facts.parse_facts(absent)}
    assert (found["aicore_version"].value, found["aicore_version"].reason) == ("absent", None)
    unknown = {fact.name: fact for fact in facts.parse_facts({"aicore": Answer("Can't find service: package\n", 0)})}
    assert unknown["aicore_version"].value is None
    assert "Can't find service" in str(unknown["aicore_version"].reason)


def test_the_output_of_a_failed_command_is_no_fact() -> None:
    found = {fact.name: fact for fact in facts.parse_facts({"model": Answer("Pixel 8\n\x1b[2J", 1)})}
    assert found["model"].value is None
    assert found["model"].reason == "exit code 1: Pixel 8 [2J"
    assert found["kernel"].reason == "the command gave no answer"


@given(st.dictionaries(st.sampled_from(sorted(facts._COMMANDS)), st.tuples(st.text(), st.integers(0, 255))))
def test_any_output_in_place_of_any_answer_gives_a_value_or_a_reason(answers: dict[str, tuple[str, int]]) -> None:
    found = facts.parse_facts({key: Answer(text, code) for key, (text, code) in answers.items()})
    assert len({fact.name for fact in found}) == len(found)
    for fact in found:
        assert (fact.value is None) == (fact.reason is not None)
        assert fact.value != ""
        zero_is_known = fact.name in ("battery_level_percent", "gpu_busy_percent", "npu_inferences")
        assert fact.value is False or fact.value != 0 or zero_is_known


@given(st.binary())
def test_bytes_in_place_of_every_answer_never_become_a_number(garbage: bytes) -> None:
    text = garbage.decode("utf-8", "replace") + "\x00"
    found = facts.parse_facts({key: Answer(text, 0) for key in facts._COMMANDS})
    assert [fact.name for fact in found if isinstance(fact.value, int) and fact.name != "simulated"] == []


@given(st.text(alphabet=st.characters(blacklist_characters="#")))
def test_the_batch_is_split_whatever_the_answers_hold(text: str) -> None:
    mark = "#abc"
    stdout = "".join(f"{mark} begin {key}\n{text}{mark} end {key} 3\n" for key in facts._COMMANDS)
    assert facts.split_batch(stdout, mark) == dict.fromkeys(facts._COMMANDS, Answer(text, 3))
    cut = facts.split_batch(stdout[: stdout.index(f"{mark} end kernel")], mark)
    assert "kernel" not in cut
    assert "model" in cut


@pytest.mark.parametrize(
    ("text", "expected"), [("list 0-8\n", 9), ("list 0-3,5\n", 5), ("cat: no\ncount 9\n", 9), ("list 7-0\n", None)]
)
def test_cores(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(Unknown):
            facts.core_count(text)
    else:
        assert facts.core_count(text) == expected


def test_df_and_sha256sum_forms() -> None:
    head = "Filesystem 1K-blocks Used Available Use% Mounted on\n"
    long_name = head + "/dev/block/dm-61\n  118000 1000 117000  1% /data\n"
    assert parse_df(long_name) == 117000 * 1024
    assert parse_df("df: /x: No such file or directory\n") is None
    assert parse_df("") is None
    assert parse_sha256("a" * 64 + "  /data/local/tmp/x\n") == "a" * 64
    assert parse_sha256("a" * 63 + "  /data/local/tmp/x\n") is None


def test_every_adb_state_of_the_capture_is_explained(capture: dict[str, str]) -> None:
    found = {entry.serial: entry for entry in parse_devices(capture["07_adb_devices_states"])}
    assert {serial: entry.state for serial, entry in found.items()} == {
        "R58M123": "device", "emulator-5554": "offline", "ABC": "unauthorized", "XYZ789": "unauthorized",
        "NOAUTH": "no permissions", "00000000": "no permissions", "CCCC": "no permissions",
    }  # fmt: skip
    assert found["R58M123"].model == "Pixel_7"
    assert all(entry.cure for entry in found.values() if not entry.usable)
    assert "plugdev" in found["NOAUTH"].cure
    assert not any(entry.wireless for entry in found.values())


STATES_BY_NAME = ("authorizing", "recovery", "sideload", "bootloader", "rescue", "connecting", "host")


@pytest.mark.parametrize("state", STATES_BY_NAME)
def test_states_known_only_by_name_have_a_cure_too(state: str) -> None:
    (entry,) = parse_devices(f"ABC\t{state}\n")
    assert (entry.state, entry.usable, bool(entry.cure)) == (state, False, True)


def test_wireless_connections_are_recognised_and_the_loopback_is_none() -> None:
    text = (
        "192.168.1.20:5555\tdevice\nadb-3A-xyz._adb-tls-connect._tcp\tdevice\n127.0.0.1:40000\tdevice\n"
        "39121FDJH003A\tdevice\n"
    )
    assert [entry.wireless for entry in parse_devices(text)] == [True, True, False, False]


@given(st.text())
def test_any_device_list_is_survived(text: str) -> None:
    assert all(entry.explanation for entry in parse_devices(text))


def test_the_stand_in_is_known_by_its_facts(link: Link) -> None:
    read = facts.read_facts(link)
    assert read.get("simulated") is True
    assert read.get("screen") == "on"
    assert "standin" in str(read.get("build_fingerprint"))
    assert str(read.get("aicore_version")).startswith("0.")
    assert isinstance(read.get("free_bytes"), int)
    assert read.get("charging") == "USB"
    assert len(str(read.get("benchmark_model_sha256"))) == 64
    assert read.get("sha256 benchmark_model") == read.get("benchmark_model_sha256")
    assert "benchmark_model" in str(read.get("litert_binaries"))
    assert read.get("cpu_governor") == "sched_pixel"
    assert "policy0 " in str(read.get("cpu_clocks_khz"))
    assert isinstance(read.get("npu_inferences"), int)
    assert read.get("gpu_clock_khz") == 150_000
    assert "Mali" in str(read.get("gpu_model"))
    offset = measure_clock(link)
    assert abs(float(str(read.get("clock_offset_s"))) - offset.offset_s) < 0.02 + offset.uncertainty_s
    assert link.serial not in str(read.get("serial_hash"))
    for fact in read:
        assert (fact.value is None) == (fact.reason is not None)
        assert fact.source


def test_a_command_that_hangs_costs_its_own_facts_and_no_others(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(facts._COMMANDS, "battery", "sleep 600")
    monkeypatch.setattr(facts, "_PATIENCE_S", (4.0, 20.0))
    read = facts.read_facts(link)
    known = {fact.name: fact for fact in read}
    assert known["battery_level_percent"].value is None
    assert known["battery_level_percent"].reason == "the command gave no answer"
    assert known["model"].value  # asked before it
    assert known["free_bytes"].value  # and after it
    assert "sleep 600" not in link.run("ps -A -o ARGS").stdout
