"""The application's dealings with an engine: get one, command it, notice its end, leave it in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import App
from textual.notifications import SeverityLevel

from mtplab.engine.errors import EngineError
from mtplab.tui import LabOptions, texts
from mtplab.tui.connect import Connected, Connector
from mtplab.tui.source import LiveSource, ReplaySource

if TYPE_CHECKING:
    from mtplab.device.devices import DeviceEntry

STOP_WAIT_S = 15.0
USAGE = 1


class EngineApp(App[int]):
    """What of the lab knows that there is another process; all waiting is done in threads."""

    def __init__(self, options: LabOptions, connector: Connector) -> None:
        super().__init__()
        self.options = options
        self.connector = connector
        self.live: LiveSource | None = None
        self.replay: ReplaySource | None = None
        self.problem: str | None = None
        self.problem_code = 0
        self.connecting = False
        self.leaving = False

    def redraw_soon(self) -> None:
        """Draw everything at the next tick."""
        raise NotImplementedError

    def open_devices(self) -> None:
        """Let the user choose a phone."""
        raise NotImplementedError

    def say(self, text: str, severity: SeverityLevel = "information") -> None:
        """A toast; never reads markup out of what it says."""
        self.notify(text, severity=severity, markup=False, timeout=15 if severity == "error" else 5)

    def connect_phone(self) -> None:
        """Start an engine for the phone."""
        self.connect_to(LabOptions(serial=self.options.serial))

    def connect_standin(self) -> None:
        """Start an engine on the stand-in."""
        self.connect_to(LabOptions(standin=self.options.standin or "normal"))

    def take(self, entry: DeviceEntry | None, held_by: str | None) -> None:
        """Show another phone, or with None the stand-in: remember it, leave this engine in order, get the other.

        A phone that another engine holds is watched, not taken. A run that goes on is never ended by this.
        """
        live = self.live if self.live is not None and not self.live.ended else None
        if live is not None and held_by == live.session_dir.name:
            self.notify("This lab shows it already.")
            return
        if self.connecting:
            self.notify("An engine is still starting: pick again when it is there.", severity="warning")
            return
        if live is not None and live.owned and live.state.running:
            self.notify("A run goes on: c cancels it, then pick again.", severity="warning")
            return
        if entry is not None:
            self._remember(entry)
        serial = entry.serial if entry is not None else None
        wanted = LabOptions(serial=serial, standin=None if entry is not None else self.options.standin or "normal")
        self.options = LabOptions(serial=serial, standin=self.options.standin, theme=self.options.theme)
        self._switch(live, LabOptions(attach=held_by) if held_by else wanted)

    def _remember(self, entry: DeviceEntry) -> None:
        from mtplab.device import choice
        from mtplab.device.errors import DeviceError

        try:
            choice.remember(entry)
        except DeviceError as problem:
            self.say(texts.clean(problem), "warning")

    @work(thread=True, exclusive=True, group="switch")
    def _switch(self, live: LiveSource | None, wanted: LabOptions) -> None:
        """Stop an engine of our own that only watches; one that others started is left alone."""
        if live is not None and live.owned:
            self.call_from_thread(self.say, "Closing this engine, opening the other phone …")
            _stop(live)
        self.call_from_thread(self._switched, wanted)

    def _switched(self, wanted: LabOptions) -> None:
        if self.live is not None:
            self.live.close()
        self.live = None
        self.connect_to(wanted)

    def connect_to(self, options: LabOptions) -> None:
        """Get an engine, unless one is there or on its way."""
        if self.connecting or (self.live is not None and not self.live.ended):
            self.notify("An engine runs already: o stops it.", severity="warning")
            return
        self.connecting, self.problem, self.problem_code, self.replay = True, None, 0, None
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
        if connected.note:
            self.notify(texts.clean(connected.note), severity="warning", timeout=15, markup=False)
        if self.leaving:
            self.leave(stop=connected.owned)

    def _not_connected(self, sentence: str, exit_code: int) -> None:
        self.connecting, self.problem, self.problem_code = False, sentence, exit_code
        if self.leaving:
            self.exit(0)
        elif self.options.attach is not None:
            self.exit(return_code=exit_code, message=texts.clean(sentence, 1000))
        elif exit_code == USAGE and len(self.screen_stack) == 1:
            self.open_devices()  # several phones, and none is guessed
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
            why = "no engine runs: e starts one"
            if self.replay is not None:
                why = "this is a replay: b goes back to the live bench"
            elif self.connecting:
                why = "the engine is still starting"
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
        refused = (
            None if reply.get("ok") else texts.clean(reply.get("error") or "The engine refused without a reason.")
        )
        self.problem = refused  # stays in the stage pane when the toast has gone
        if refused or said:
            self.call_from_thread(self.say, refused or said, "error" if refused else "information")

    # -- ending ---------------------------------------------------------------
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
        elif self.problem_code and self.live is None:
            # Who closes a lab that never got an engine is told again why, where it stays to be read.
            self.exit(return_code=self.problem_code, message=texts.clean(self.problem or "", 1000))
        else:
            self.exit(0)

    @work(thread=True, exclusive=True, group="stop")
    def _stop_and_exit(self, source: LiveSource) -> None:
        message = None if _stop(source) else "The engine has not ended yet; `mtplab lab --attach` shows what it does."
        self.call_from_thread(self.exit, 0, 0, message)


def _stop(source: LiveSource) -> bool:
    """Tell an engine to stop and wait for its end; False where it takes longer than STOP_WAIT_S. Blocks."""
    deadline = time.monotonic() + STOP_WAIT_S
    try:
        source.send({"cmd": "stop"})
        while source.engine.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
    except EngineError:
        source.ended = True  # gone before it could be asked
    return source.ended or not source.engine.alive()
