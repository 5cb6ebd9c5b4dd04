"""Heat follows load, clocks follow heat, and the status follows the skin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtplab.standin.physics import HeatModel, load_constants
from mtplab.standin.settings import load_profile, load_scenario

WORK = {"BIG": 1.0, "MID": 1.0, "LITTLE": 0.3}


def model(scenario: str = "normal") -> HeatModel:
    return HeatModel.start(load_profile("pixel-9-pro"), load_scenario(scenario))


def test_an_idle_phone_stays_where_it_is() -> None:
    phone = model()
    phone.step(1800)
    assert phone.temperature_c["skin"] == pytest.approx(30.5, abs=1.0)
    assert phone.clock["BIG"] == 1.0
    assert phone.status == 0


def test_work_heats_the_die_first_and_the_skin_later() -> None:
    phone = model()
    phone.load = dict(WORK)
    phone.step(60)
    assert phone.temperature_c["BIG"] > phone.temperature_c["soc"] > phone.temperature_c["skin"]
    skin_after_a_minute = phone.temperature_c["skin"]
    phone.step(300)
    assert phone.temperature_c["skin"] > skin_after_a_minute + 3


def test_long_work_throttles_and_rest_brings_the_clock_back() -> None:
    phone = model()
    phone.load = dict(WORK)
    phone.step(1200)
    throttled = phone.clock["BIG"]
    assert throttled < 0.9
    assert phone.status >= 1
    phone.load = {}
    phone.step(2400)
    assert phone.clock["BIG"] > throttled
    assert phone.status == 0


def test_presets_order_as_their_names_say() -> None:
    clocks = []
    for preset in ("mild", "usual", "harsh"):
        profile = load_profile("pixel-9-pro")
        phone = HeatModel.start(profile, load_scenario("normal"))
        from mtplab.standin.physics import load_constants

        phone.constants = load_constants(preset)
        phone.load = dict(WORK)
        phone.step(900)
        clocks.append(phone.clock["BIG"])
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[0] > clocks[2]


def test_hot_begins_hot_throttled_and_stays_so_for_a_while() -> None:
    phone = model("hot")
    assert phone.status in (1, 2)
    phone.load = {"BIG": 1.0}
    phone.step(30)
    assert phone.clock["BIG"] < 0.8
    assert phone.temperature_c["skin"] > 41


def test_the_status_has_hysteresis() -> None:
    phone = model()
    phone.temperature_c["skin"] = 39.2
    phone.step(0.01)
    assert phone.status == 1
    phone.temperature_c["skin"] = 38.0
    phone.step(0.01)
    assert phone.status == 1
    phone.temperature_c["skin"] = 36.9
    phone.step(0.01)
    assert phone.status == 0


def test_steps_of_any_size_lead_to_the_same_place() -> None:
    one, many = model(), model()
    one.load, many.load = dict(WORK), dict(WORK)
    one.step(120)
    for _ in range(480):
        many.step(0.25)
    assert one.temperature_c["BIG"] == pytest.approx(many.temperature_c["BIG"], abs=0.01)


def test_each_preset_ends_at_the_share_of_peak_that_it_stands_for() -> None:
    ends = {}
    for preset in ("mild", "usual", "harsh"):
        model = HeatModel.start(load_profile("pixel-9-pro"), replace(load_scenario("normal"), heat_preset=preset))
        model.load = {"BIG": 1.0, "MID": 1.0, "LITTLE": 0.5}
        model.step(1800)
        ends[preset] = round(model.clock["BIG"], 2)
    assert ends == pytest.approx({"mild": 0.82, "usual": 0.64, "harsh": 0.50}, abs=0.02)


def test_a_seed_is_another_specimen_and_always_the_same_one() -> None:
    def resistance(seed: int) -> float:
        return load_constants("usual", seed).body["skin_ambient_k_per_w"]

    assert resistance(7) == resistance(7) != resistance(0)
    assert resistance(8) != resistance(7)
    assert resistance(7) == pytest.approx(resistance(0), rel=0.2)


def test_a_sleeping_phone_in_airplane_mode_draws_less() -> None:
    awake = HeatModel.start(load_profile("pixel-9-pro"), load_scenario("normal"))
    asleep = HeatModel.start(load_profile("pixel-9-pro"), load_scenario("normal"))
    asleep.rest_share = 0.5
    for model in (awake, asleep):
        model.step(1200)
    assert asleep.temperature_c["skin"] < awake.temperature_c["skin"] - 1
