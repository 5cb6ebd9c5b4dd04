"""The lab as an application: gets an engine or a session, polls it ten times a second, lets the bench draw it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from textual import work
from textual.app import App
from textual.command import Provider
from textual.screen import Screen

from mtplab.session import archive
from mtplab.session.events import Event, Message
from mtplab.session.journal import SessionError
from mtplab.tui import LabOptions, texts
from mtplab.tui.connect import Connector, connect
from mtplab.tui.engines import EngineApp
from mtplab.tui.examination import Examination
from mtplab.tui.screens.bench import BenchScreen
from mtplab.tui.screens.page import Page
from mtplab.tui.source import LiveSource, ReplaySource, Source
from mtplab.tui.view import View, empty_view

TICK_S = 0.1
CHECK_S = 1.0
DEFAULT_THEME = "bench-dark"


def _commands() -> type[Provider]:
    from mtplab.tui.commands import LabCommands

    return LabCommands


class LabApp(EngineApp):
    """Wiring only: what is drawn lives in widgets, what keys do in `actions`, what happened in the session."""

    TITLE = "mtplab"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = App.COMMANDS | {_commands}
    CSS_PATH = "screens/bench.tcss"  # named here because Textual reads no CSS of a default screen

    def __init__(self, options: LabOptions, connector: Connector = connect) -> None:
        super().__init__(options, connector)
        self.bench = BenchScreen()
        self.examination = Examination()
        self.paused = False
        self.warm = False
        self._count = 0

    # -- beginning -------------------------------------------------------------
    def get_default_screen(self) -> Screen[Any]:
        """The bench is there from the first paint on."""
        return self.bench

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The panes' own variables, for themes that do not set them."""
        from mtplab.tui.themes import LOUD

        return LOUD

    def on_mount(self) -> None:
        """Themes, then the engine or the session, then the clock."""
        self._load_themes()
        self.set_interval(TICK_S, self.tick)
        self.set_interval(CHECK_S, self.check)
        if self.options.replay is not None:
            self.open_session(self.options.replay, self.options.at_s, fatal=True)
        else:
            self.connect_to(self.options)
        self.call_after_refresh(self.tick)
        self.call_after_refresh(self.warm_up)

    def _load_themes(self) -> None:
        from mtplab.tui.themes import load_themes

        loaded, failed = load_themes()
        for theme in loaded:
            self.register_theme(theme)
        wanted = self.options.theme or DEFAULT_THEME
        if wanted in self.available_themes:
            self.theme = wanted
        elif self.options.theme:
            failed.append(f"There is no theme {texts.clean(wanted, 40)}; ^p Theme lists those there are.")
        for sentence in failed:
            self.notify(sentence, severity="warning", markup=False)

    @work(thread=True)
    def warm_up(self) -> None:
        """Load what only the plots and the calculator need, after the first paint."""
        import plotext

        from mtplab.speculation import calculator

        assert plotext and calculator
        self.warm = True
        self.call_from_thread(self.redraw_soon)

    # -- sessions ----------------------------------------------------------------
    def open_sessions(self) -> None:
        """List the saved sessions."""
        from mtplab.tui.screens.sessions import SessionsScreen

        def chosen(path: Path | None) -> None:
            if path is not None:
                self.open_session(path)

        self.push_screen(SessionsScreen(), chosen)

    @work(thread=True, exclusive=True, group="open")
    def open_session(self, path: Path, at_s: float | None = None, fatal: bool = False) -> None:
        """Open a session and replay it; on the command line's own session failing means leaving."""
        try:
            source = ReplaySource(archive.open_session(path), at_s)
        except SessionError as error:
            if fatal:
                self.call_from_thread(self.exit, None, 1, texts.clean(error, 1000))
            else:
                self.call_from_thread(self.say, texts.clean(error, 600), "error")
            return
        self.call_from_thread(self._replay, source)

    def _replay(self, source: ReplaySource) -> None:
        self.replay, self.paused = source, False
        if source.record_only:
            self.notify("Only session.json is left of this session: it shows how it ended.", severity="warning")
        if source.record.recovered:
            self.notify(f"Recovered: {texts.clean(source.record.recovery)}.", severity="warning", markup=False)
        self.redraw_soon()

    def back_to_live(self) -> None:
        """Leave the replay."""
        if self.replay is not None:
            self.replay.close()
        self.replay = None
        if self.live is None and not self.connecting and self.problem is None:
            self.problem = "No engine runs."
        self.redraw_soon()

    # -- pages -------------------------------------------------------------------
    def open_doctor(self) -> None:
        """Every precondition, with cause and cure."""
        from mtplab.tui.screens.doctor import DoctorScreen

        self.push_screen(DoctorScreen())
        self.redraw_soon()

    def open_facts(self) -> None:
        """Everything that is known of the phone."""
        from mtplab.tui.screens.facts import FactsScreen

        self.push_screen(FactsScreen())
        self.redraw_soon()

    def open_recipes(self) -> None:
        """Which recipe is worth having, and what was calibrated on what."""
        from mtplab.tui.screens.recipes import RecipesScreen

        self.push_screen(RecipesScreen())
        self.redraw_soon()

    def open_devices(self) -> None:
        """The attached phones; the one that is picked becomes this lab's."""
        from mtplab.tui.screens.devices import DevicesScreen, Pick

        def picked(pick: Pick | None) -> None:
            if pick is not None:
                self.take(pick.entry, pick.held_by)

        self.push_screen(DevicesScreen(), picked)
        self.redraw_soon()

    # -- the clock -----------------------------------------------------------------
    @property
    def source(self) -> Source | None:
        """What is looked at: the replay if there is one, else the live session."""
        return self.replay if self.replay is not None else self.live

    def tick(self) -> None:
        """Take in what is new, draw what is due."""
        self._count += 1
        try:
            if self.live is not None:
                fresh = self.live.caught_up  # what was said before this lab looked is no news
                events = self.live.poll()
                if fresh:
                    self._tell(events)
            if self.replay is not None:
                self.replay.poll()
        except SessionError as error:
            self.live, self.problem = None, str(error)
        view = self.view()
        self.bench.draw(view, self._count, warm=self.warm)
        for page in self.screen_stack:
            if isinstance(page, Page):
                page.draw(view, self._count)

    def redraw_soon(self) -> None:
        """Draw everything at the next tick."""
        self._count = -1

    def _tell(self, events: list[Event]) -> None:
        told = [e for e in events if isinstance(e, Message) and e.level != "info"]
        for event in told[-3:]:
            self.say(texts.clean(event.text), "error" if event.level == "error" else "warning")

    def view(self) -> View:
        """This moment of the bench."""
        source = self.source
        if source is None:
            wanted = self.connecting or (self.options.replay is not None and self.problem is None)
            return empty_view("connecting" if wanted else "absent", self.problem)
        live = source if isinstance(source, LiveSource) else None
        header = source.header
        return View(
            state=source.state,
            phase="replay" if live is None else "ended" if live.ended else "live",
            session=texts.clean(header.session if header is not None else source.session_dir.name, 80),
            place=str(source.session_dir) if source.session_dir.is_dir() else "",
            t0=header.t0 if header is not None else source.state.t0 or 0.0,
            now=time.monotonic() if self.replay is None else self.replay.replay.t0 + self.replay.replay.position_s,
            trail=source.trail(),
            problem=self.problem,
            paused=self.paused and live is not None,
            behind=live is not None and live.behind,
            record_only=self.replay is not None and self.replay.record_only,
            replay=self.replay.replay if self.replay is not None else None,
        )

    # -- ending -----------------------------------------------------------------
    def open_help(self) -> None:
        """What every key does."""
        from mtplab.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen())
