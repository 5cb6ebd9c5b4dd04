"""The table of actions is whole: what a key does is in bindings, help and palette, and nowhere else."""

from __future__ import annotations

import asyncio
from collections import Counter

import click
import synthetic
from bench_driver import FakeEngine, until

from mtplab.cli import cli
from mtplab.tui.actions import ACTIONS, GROUPS
from mtplab.tui.app import LabApp
from mtplab.tui.commands import LabCommands
from mtplab.tui.screens.bench import BenchScreen
from mtplab.tui.screens.help import help_content


def test_every_action_has_its_own_key_and_id_a_label_and_a_sentence() -> None:
    assert max(Counter(a.key for a in ACTIONS).values()) == 1
    assert max(Counter(a.id for a in ACTIONS).values()) == 1
    for action in ACTIONS:
        assert action.label and action.help.endswith(".") and action.group in GROUPS


def test_every_action_is_bound_and_helped() -> None:
    bound = {b.key: b.action for b in BenchScreen.BINDINGS}  # type: ignore[union-attr]
    text = help_content(100).plain
    for action in ACTIONS:
        assert bound[action.key] == f"do('{action.id}')"
        assert action.label in text and action.help.split()[0] in text
        for width in (60, 100):
            assert action.twin in help_content(width).plain


def test_every_action_that_is_not_about_the_screen_alone_has_a_command_that_exists() -> None:
    screen_only = {"follow", "zoom", "palette", "quit", "slower", "faster", "step", "step_back", "next_mark",
                   "previous_mark"}  # fmt: skip
    assert {a.id for a in ACTIONS if not a.twin} == screen_only
    for action in ACTIONS:
        program, *words = action.twin.split() or ["mtplab"]
        assert program == "mtplab", action.id
        if words and not words[0].startswith("--"):
            command = cli.get_command(click.Context(cli), words[0])
            assert command is not None, action.id
            known = {option for p in command.params for option in p.opts}
            assert {w for w in words if w.startswith("--")} <= known, action.id


def test_the_keys_of_the_brief_are_there() -> None:
    keys = {a.shown_key for a in ACTIONS}
    assert {"r", "c", "m", "/", "f", "space", ",", ".", "[", "]", "←", "→", "n", "p", "s", "o", "1", "2", "3", "4",
            "5", "?", "^p", "q"} <= keys  # fmt: skip


def test_every_action_is_in_the_palette(engine: FakeEngine, live_app: LabApp) -> None:
    async def found() -> set[str]:
        engine.write(*synthetic.whole_run()[:4])
        async with live_app.run_test(size=(120, 40)):
            provider = LabCommands(live_app.bench)
            return {str(hit.text) async for hit in provider.discover()}

    names = asyncio.run(found())
    assert len(names) == len(ACTIONS)
    assert all(any(a.help and a.label in name for name in names) for a in ACTIONS)


def test_every_handler_can_be_called_in_every_phase(engine: FakeEngine, live_app: LabApp) -> None:
    async def drive() -> None:
        async with live_app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: live_app.live is not None)
            for action in ACTIONS:
                if action.id in ("quit", "palette", "devices"):  # the last one has a test of its own, with an adb
                    continue
                await live_app.bench.action_do(action.id)
                await pilot.pause()
                while live_app.screen is not live_app.bench:
                    await pilot.press("escape")
                    await pilot.pause()

    asyncio.run(drive())
