"""The pages over the bench: doctor, facts and device picker, driven by keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench_driver import BIG, SMALL, FakeEngine, drive, running, until

from mtplab.device import choice
from mtplab.device.devices import parse_devices
from mtplab.device.lock import PhoneLock
from mtplab.device.readiness import Item, Options
from mtplab.device.tracking import Attached
from mtplab.engine import deep
from mtplab.session import events as ev
from mtplab.tui import LabOptions, examination
from mtplab.tui.app import LabApp
from mtplab.tui.connect import Connected
from mtplab.tui.screens import devices
from mtplab.tui.screens.devices import DevicesScreen
from mtplab.tui.screens.doctor import DoctorScreen, command_of, folded
from mtplab.tui.screens.facts import FactsScreen

ITEMS = [
    Item("host.system", "host", "pass", "Linux"),
    Item("package.torch", "toolchain", "pass", "torch 2.13"),
    Item("package.click", "toolchain", "pass", "click 8.1"),
    Item("device.attached", "device", "fail", "A is \x1b[2Joffline", "adb reconnect  (then wait)"),
    Item("data.calibration", "data", "unknown", "none was named", "Name one."),
]


def screen_text(app: LabApp) -> str:
    """All that stands in the page's title and list."""
    page: Any = app.screen
    listed = "\n".join(str(option.prompt) for option in page.list.options) if hasattr(page, "list") else ""
    return f"{page.heading.render()}\n{listed}"


# -- the doctor ----------------------------------------------------------------------------------
@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The checklist is ITEMS; gives what it was asked for."""
    seen: list[Options] = []

    def walk(link: object, options: Options) -> Iterator[Item]:
        seen.append(options)
        yield from ITEMS

    monkeypatch.setattr(examination, "walk", walk)
    return seen


@pytest.mark.parametrize("size", [BIG, SMALL])
def test_d_shows_every_item_with_cause_and_cure_and_c_copies_it(
    engine: FakeEngine, live_app: LabApp, asked: list[Options], size: tuple[int, int]
) -> None:
    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(live_app.screen, DoctorScreen) and "READY" in screen_text(live_app))
        text = screen_text(live_app)
        assert "NOT READY: 1 failed, 1 unknown, 3 passed" in text
        assert "✗ attached: A is offline" in text and "→ adb reconnect  (then wait)" in text
        assert "✓ packages: torch 2.13, click 8.1" in text and "? calibration: none was named" in text
        await pilot.press("c")  # the cursor stands on the first thing to cure
        await until(pilot, lambda: live_app.clipboard == "adb reconnect")
        await pilot.press("r")
        await until(pilot, lambda: len(asked) == 2)
        await pilot.press("escape")
        await until(pilot, lambda: live_app.screen is live_app.bench)
        await pilot.press("d")  # what was found stays
        await until(pilot, lambda: "NOT READY" in screen_text(live_app))
        assert len(asked) == 2

    drive(live_app, steps, size)
    # The phone of this lab's own engine is judged by what it records: holding it is no obstacle.
    assert asked[0] == Options(session=engine.session_dir.name, own=True)


def test_the_deep_look_tells_its_steps_and_can_be_ended(
    engine: FakeEngine, live_app: LabApp, asked: list[Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deep_check(tell: Callable[[str], None], cancel: threading.Event) -> Item:
        tell("2/7 importing litert_torch")
        assert cancel.wait(30)
        return Item("toolchain.toy", "toolchain", "unknown", "cancelled after 1 s", "mtplab doctor --deep")

    monkeypatch.setattr(deep, "deep_check", deep_check)

    async def steps(pilot: Any) -> None:
        await until(pilot, lambda: live_app.live is not None)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(live_app.screen, DoctorScreen))
        await pilot.press("t")
        await until(pilot, lambda: "s: 2/7 importing litert_torch …" in screen_text(live_app))
        await pilot.press("escape", "d")  # it goes on meanwhile
        await until(pilot, lambda: "importing litert_torch" in screen_text(live_app))
        await pilot.press("x")
        await until(pilot, lambda: "? toy: cancelled after 1 s" in screen_text(live_app))

    drive(live_app, steps)


def test_only_the_command_of_a_cure_is_copied_and_a_single_package_is_not_folded() -> None:
    assert command_of("adb push a b && chmod +x b  (a: the program)") == "adb push a b && chmod +x b"
    assert command_of("Replug the cable.") == "Replug the cable."
    assert folded(ITEMS[:2]) == ITEMS[:2]
    assert [item.id for item in folded(ITEMS)] == ["host.system", "packages", "device.attached", "data.calibration"]


# -- facts -----------------------------------------------------------------------------------------
def test_i_shows_all_facts_and_goes_on_living(engine: FakeEngine, live_app: LabApp) -> None:
    def text() -> str:
        page: Any = live_app.screen
        return str(page.facts.render()) if isinstance(page, FactsScreen) else ""

    async def steps(pilot: Any) -> None:
        running(engine)
        await until(pilot, lambda: live_app.live is not None and live_app.live.state.heat is not None)
        await pilot.press("i")
        await until(pilot, lambda: "unknown: the build hides it" in text())
        assert "getprop ro.product.model" in text()
        engine.write(ev.Heat(t=1056.0, skin_c=44.4, zones={"BIG": 80.0, "dead": None}, silent={"dead": "reads 0"}))
        await until(pilot, lambda: "44.4 °C" in text() and "silent: reads 0" in text())
        await pilot.press("q")
        await until(pilot, lambda: live_app.screen is live_app.bench)

    drive(live_app, steps)


# -- the picker --------------------------------------------------------------------------------------
LISTED = "AAA device usb:1-1 model:Pixel_8 transport_id:1\nBBB unauthorized usb:1-2 transport_id:2\n"


class FakeTracker:
    """Shows what this test says is attached."""

    listed = LISTED
    problem = None

    def __init__(self, *_: object) -> None:
        self.closed = False

    def start(self) -> FakeTracker:
        return self

    def close(self) -> None:
        self.closed = True

    @property
    def latest(self) -> Attached:
        return Attached(tuple(parse_devices(self.listed)), 1.0)


class Connections:
    """Notes what engines were asked for, and gives the same one each time."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.asked: list[LabOptions] = []

    def __call__(self, options: LabOptions) -> Connected:
        self.asked.append(options)
        self.engine.living = True
        return Connected(self.engine, owned=options.attach is None)


@pytest.fixture
def picker(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LabApp, Connections]]:
    monkeypatch.setattr(devices, "Tracker", FakeTracker)
    monkeypatch.setattr(FakeTracker, "listed", LISTED)
    connections = Connections(engine)
    yield LabApp(LabOptions(standin="normal"), connections), connections


async def open_picker(pilot: Any, app: LabApp) -> None:
    await until(pilot, lambda: app.live is not None)
    await pilot.press("w")
    await until(pilot, lambda: isinstance(app.screen, DevicesScreen) and "AAA" in screen_text(app))


def test_w_lists_phones_as_they_come_and_go_with_state_and_cure(
    picker: tuple[LabApp, Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = picker

    async def steps(pilot: Any) -> None:
        await open_picker(pilot, app)
        text = screen_text(app)
        assert "2 attached, 1 ready" in text and "▸ AAA  Pixel 8  usb  ✓ ready" in text
        assert "BBB  model unknown  usb  ✗ unauthorized" in text and "tap Allow" in " ".join(text.split())
        monkeypatch.setattr(FakeTracker, "listed", "192.168.1.7:5555 device transport_id:3\n" + LISTED)
        await until(pilot, lambda: "connected without a cable" in " ".join(screen_text(app).split()))
        page: Any = app.screen
        assert page.list.highlighted == 1  # the cursor went along with its phone
        monkeypatch.setattr(FakeTracker, "listed", "")
        await until(pilot, lambda: "no phone is attached" in screen_text(app) and "AAA" not in screen_text(app))
        assert "the stand-in Pixel  SIMULATED" in screen_text(app)

    drive(app, steps)


def test_taking_a_phone_remembers_it_and_closes_the_own_engine_that_only_watched(
    picker: tuple[LabApp, Connections],
) -> None:
    app, connections = picker

    async def steps(pilot: Any) -> None:
        await open_picker(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: len(connections.asked) == 2 and app.live is not None)

    drive(app, steps)
    assert (connections.asked[1].serial, connections.asked[1].standin) == ("AAA", None)
    assert connections.engine.commands == [{"cmd": "stop"}]
    both = parse_devices(LISTED.replace("unauthorized", "device"))
    assert choice.choose(both, None, choice.remembered()).entry == both[0]


def test_a_phone_that_cannot_be_used_is_refused_with_the_cure(picker: tuple[LabApp, Connections]) -> None:
    app, connections = picker

    async def steps(pilot: Any) -> None:
        await open_picker(pilot, app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: len(app._notifications) > 0)
        assert "BBB is unauthorized" in next(iter(app._notifications)).message
        assert isinstance(app.screen, DevicesScreen)

    drive(app, steps)
    assert len(connections.asked) == 1


def test_a_run_that_goes_on_is_never_ended_by_the_picker(picker: tuple[LabApp, Connections]) -> None:
    app, connections = picker

    async def steps(pilot: Any) -> None:
        running(connections.engine)
        await until(pilot, lambda: app.live is not None and app.live.state.running)
        await open_picker(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.bench and len(app._notifications) > 0)
        assert "A run goes on" in next(iter(app._notifications)).message

    drive(app, steps)
    assert connections.engine.commands == [] and len(connections.asked) == 1


def test_a_phone_that_another_engine_holds_is_watched_not_taken(picker: tuple[LabApp, Connections]) -> None:
    app, connections = picker

    async def steps(pilot: Any) -> None:
        await open_picker(pilot, app)
        assert "held by session of-another: Enter watches that" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: len(connections.asked) == 2)

    with PhoneLock("AAA", "of-another"):
        drive(app, steps)
    assert connections.asked[1].attach == "of-another"


def test_a_hostile_model_name_is_harmless_in_the_picker() -> None:
    entries = parse_devices("AAA device usb:1-1 model:\x1b[31mred\x9b5m transport_id:1\n")
    shown = devices.pick_content(devices.Pick("phone", entries[0]), 76).plain
    assert "\x1b" not in shown and "\x9b" not in shown
