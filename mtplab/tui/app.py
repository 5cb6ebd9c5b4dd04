"""The lab as an application: gets an engine or a session, polls it ten times a second, lets the bench draw it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from textual import work
from textual.app import App
from textual.command import Provider
from textual.notifications import SeverityLevel
from textual.screen import Screen

from mtplab.engine.errors import EngineError
from mtplab.session import archive
from mtplab.session.events import Event, Message
from mtplab.session.journal import SessionError
from mtplab.tui import LabOptions, texts
from mtplab.tui.connect import Connected, Connector, connect
from mtplab.tui.screens.bench import BenchScreen
from mtplab.tui.source import LiveSource, ReplaySource, Source
from mtplab.tui.view import View, empty_view

TICK_S = 0.1
CHECK_S = 1.0
STOP_WAIT_S = 8.0
DEFAULT_THEME = "bench-dark"


def _commands() -> type[Provider]:
    from mtplab.tui.commands import LabCommands

    return LabCommands


class LabApp(App[int]):
    """Wiring only: what is drawn lives in widgets, what keys do in `actions`, what happened in the session."""

    TITLE = "mtplab"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = App.COMMANDS | {_commands}
    CSS_PATH = "screens/bench.tcss"  # named here because Textual reads no CSS of a default screen

    def __init__(self, options: LabOptions, connector: Connector = connect) -> None:
        super().__init__()
        self.options = options
        self.connector = connector
        self.bench = BenchScreen()
        self.live: LiveSource | None = None
        self.replay: ReplaySource | None = None
        self.problem: str | None = None
        self.connecting = False
        self.leaving = False
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

    # -- engines -----------------------------------------------------------------
    def connect_phone(self) -> None:
        """Start an engine for the phone."""
        self.connect_to(LabOptions(serial=self.options.serial))

    def connect_standin(self) -> None:
        """Start an engine on the stand-in."""
        self.connect_to(LabOptions(standin=self.options.standin or "normal"))

    def connect_to(self, options: LabOptions) -> None:
        """Get an engine, unless one is there or on its way."""
        if self.connecting or (self.live is not None and not self.live.ended):
            self.notify("An engine runs already: o stops it.", severity="warning")
            return
        self.connecting, self.problem, self.replay = True, None, None
        self._connect(options)

    @work(thread=True, group="connect")
    def _connect(self, options: LabOptions) -> None:
        try:
            connected = self.connector(options)
        except EngineError as error:
            self.call_from_thread(self._not_connected, str(error), error.exit_code)
        else:
            self.call_from_thread(self._connected, connected)

    def _connected(self, connected: Connected) -> None:
        self.connecting = False
        if self.live is not None:
            self.live.close()
        self.live = LiveSource(connected.engine, owned=connected.owned)
        if self.leaving:
            self.leave(stop=connected.owned)

    def _not_connected(self, sentence: str, exit_code: int) -> None:
        self.connecting, self.problem = False, sentence
        if self.leaving:
            self.exit(0)
        elif self.options.attach is not None:
            self.exit(return_code=exit_code, message=texts.clean(sentence, 1000))
        self.redraw_soon()

    @work(thread=True, exclusive=True, group="check")
    def check(self) -> None:
        """Ask the engine whether it lives, off the screen's thread."""
        if self.live is not None and not self.leaving:
            self.live.check()

    def can_command(self, what: str) -> bool:
        """Whether an engine listens; says so where none does."""
        listening = self.replay is None and self.live is not None and not self.live.ended
        if not listening:
            why = "this is a replay: b goes back to the live bench" if self.replay else "no engine runs: e starts one"
            self.notify(f"Nothing to {what}: {why}.", severity="warning")
        return listening

    def send(self, command: dict[str, Any], said: str = "") -> None:
        """Send a command; its answer comes as a toast where it is no."""
        if self.live is not None and self.can_command(str(command["cmd"])):
            self._send(self.live, command, said)

    @work(thread=True, group="send")
    def _send(self, source: LiveSource, command: dict[str, Any], said: str) -> None:
        try:
            reply = source.send(command)
        except EngineError as error:
            reply = {"ok": False, "error": str(error)}
        text = said if reply.get("ok") else texts.clean(reply.get("error") or "The engine refused without a reason.")
        if text:
            self.call_from_thread(self.say, text, "information" if reply.get("ok") else "error")

    def say(self, text: str, severity: SeverityLevel = "information") -> None:
        """A toast; never reads markup out of what it says."""
        self.notify(text, severity=severity, markup=False)

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
                self._tell(self.live.poll())
            if self.replay is not None:
                self.replay.poll()
        except SessionError as error:
            self.live, self.problem = None, str(error)
        self.bench.draw(self.view(), self._count, warm=self.warm)

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
            trail=source.trail(),
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

    async def action_quit(self) -> None:
        """Textual's own way out asks as well."""
        self.ask_quit()

    def ask_quit(self) -> None:
        """Leave; while a run goes on ask what becomes of it."""
        from mtplab.tui.screens.quit import STOP, quit_screen

        live = self.live
        if self.connecting:
            self.leaving = True
            self.notify("Waiting for the engine to start, to end it again …")
        elif live is None or live.ended:
            self.leave(stop=False)
        elif live.state.running:
            self.push_screen(
                quit_screen(live.session_dir.name),
                lambda answer: self.leave(stop=answer == STOP) if answer is not None else None,
            )
        else:
            self.leave(stop=live.owned)

    def leave(self, *, stop: bool) -> None:
        """Close the lab, with the engine or without it."""
        self.leaving = True
        if stop and self.live is not None:
            self.notify("Stopping the engine …")
            self._stop_and_exit(self.live)
        else:
            self.exit(0)

    @work(thread=True, exclusive=True, group="stop")
    def _stop_and_exit(self, source: LiveSource) -> None:
        deadline = time.monotonic() + STOP_WAIT_S
        try:
            source.send({"cmd": "stop"})
            while source.engine.alive() and time.monotonic() < deadline:
                time.sleep(0.1)
        except EngineError:
            source.ended = True  # gone before it could be asked
        self.call_from_thread(self.exit, 0)
