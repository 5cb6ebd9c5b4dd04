"""The bench: header, five panes, results and keys; draws Views and turns actions into commands."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget

from mtplab.tui.actions import ACTIONS, BY_ID
from mtplab.tui.view import View
from mtplab.tui.widgets.bars import PANES, KeyBar, PaneChosen, ReplayBar, SeekTo, TabBar
from mtplab.tui.widgets.cable import LOST_ROWS, CableBar, cable_rows
from mtplab.tui.widgets.calculator import CalculatorPane
from mtplab.tui.widgets.device import DevicePane
from mtplab.tui.widgets.header import HeaderLine
from mtplab.tui.widgets.heat import HeatPane
from mtplab.tui.widgets.log import LogPane
from mtplab.tui.widgets.pane import badge
from mtplab.tui.widgets.stages import StagesPane
from mtplab.tui.widgets.strip import ResultsStrip

if TYPE_CHECKING:
    from mtplab.tui.app import LabApp

ALL_PANES_WIDTH, ALL_PANES_HEIGHT = 100, 34
NO_REPLAY = "Replay keys work in a replay: s opens a saved session."


class BenchScreen(Screen[None]):
    """The one screen that is looked at for hours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(a.key, f"do('{a.id}')", a.label, key_display=a.shown_key, tooltip=a.help) for a in ACTIONS
    ]

    def __init__(self) -> None:
        super().__init__()
        self.log_pane: LogPane = LogPane(id="log", classes="pane")
        self.calculator: CalculatorPane = CalculatorPane(id="calculator", classes="pane")
        self.header = HeaderLine()
        self.replay_bar = ReplayBar()
        self.tabs = TabBar()
        self.cable = CableBar()
        self.device = DevicePane(id="device", classes="pane")
        self.stages = StagesPane(id="stages", classes="pane")
        self.heat = HeatPane(id="heat", classes="pane")
        self.strip = ResultsStrip()
        self.keys = KeyBar()
        self.panes: dict[str, Widget] = dict(
            zip(PANES, (self.device, self.stages, self.log_pane, self.calculator, self.heat), strict=True)
        )
        self.active = "device"
        self.zoomed = False

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.header
        yield self.replay_bar
        yield self.cable
        yield self.tabs
        yield Container(self.device, self.stages, self.calculator, self.log_pane, self.heat, id="grid")
        yield self.strip
        yield self.keys

    @property
    def lab(self) -> LabApp:
        """The application, as what it is."""
        return cast("LabApp", self.app)

    # -- layout ---------------------------------------------------------------
    def on_mount(self) -> None:
        """Begin with a layout that fits."""
        self._lay_out()

    def on_resize(self, event: events.Resize) -> None:
        """All panes where they fit, else one at a time."""
        self._lay_out(event.size.width, event.size.height)

    def _lay_out(self, width: int = 0, height: int = 0) -> None:
        width, height = width or self.app.size.width, height or self.app.size.height
        small = width < ALL_PANES_WIDTH or height < ALL_PANES_HEIGHT
        self.set_class(small or self.zoomed, "-single")
        for name, pane in self.panes.items():
            pane.set_class(name == self.active, "-active")
        self.tabs.active = self.active
        self.lab.redraw_soon()

    def choose_pane(self, name: str) -> None:
        """Show a pane and give it the keys."""
        self.active = name
        self._lay_out()
        target = self.log_pane.text if name == "log" else self.panes[name]
        self.call_after_refresh(target.focus)

    def toggle_zoom(self) -> None:
        """One pane over the whole screen, or all again."""
        holders = self.focused.ancestors_with_self if self.focused is not None else []
        self.active = next((name for name, pane in self.panes.items() if pane in holders), self.active)
        self.zoomed = not self.zoomed
        self._lay_out()

    # -- drawing ---------------------------------------------------------------
    def draw(self, view: View, count: int, *, warm: bool) -> None:
        """Draw what is due at tick number `count` (ten a second); plots only once their library is there."""
        self.set_class(view.replay is not None, "-replaying")
        rows = len(cable_rows(view, self.size.width))
        self.set_class(rows == LOST_ROWS, "-cable-lost")
        self.set_class(0 < rows < LOST_ROWS, "-cable-back")
        if count % 2 == 0:
            self.header.show(view)
            self.keys.show(view)
            self.replay_bar.show(view)
            self.cable.show(view)
            for pane in self.panes.values():
                badge(pane, view)
        if view.paused:
            return
        self.log_pane.show(view)
        if count % 2 == 0:
            self.stages.show(view)
            self.tabs.show(view)
        if count % 5 == 0:
            self.device.show(view)
            self.strip.show(view)
        if warm and count % 10 == 0:
            self.heat.show(view)
            self.calculator.show(view)

    # -- actions -----------------------------------------------------------------
    async def action_do(self, name: str) -> None:
        """Run an action of the table."""
        result = BY_ID[name].handler(self)
        if inspect.isawaitable(result):
            await result

    def command(self, command: dict[str, Any], said: str = "") -> None:
        """Send a command to the engine without waiting for it."""
        self.lab.send(command, said)

    def ask_run(self) -> None:
        """Ask what to run."""
        if not self.lab.can_command("run"):
            return
        if self.lab.source is not None and self.lab.source.state.running:
            self.notify("A run goes on already: c cancels it.", severity="warning")
            return
        from mtplab.engine.options import recipe_names
        from mtplab.tui.screens.ask import run_screen

        self.app.push_screen(run_screen(recipe_names()), self._run)

    def _run(self, filled: dict[str, str] | None) -> None:
        if filled is None:
            return
        from mtplab.tui.screens.ask import run_options

        try:
            options = run_options(filled)
        except ValueError as problem:
            self.notify(str(problem), severity="error", markup=False)
            return
        self.command({"cmd": "run", "options": options}, "starting the run …")

    def cancel(self) -> None:
        """Cancel the run that goes on."""
        source = self.lab.source
        if self.lab.can_command("cancel") and source is not None and not source.state.running:
            self.notify("No run goes on.")
        else:
            self.command({"cmd": "cancel"}, "cancelling …")

    def ask_mark(self) -> None:
        """Ask for a word and mark."""
        if not self.lab.can_command("mark"):
            return
        from mtplab.tui.screens.ask import mark_screen

        def mark(filled: dict[str, str] | None) -> None:
            if filled is not None:
                self.command({"cmd": "mark", "label": filled["label"] or "mark"}, "marked")

        self.app.push_screen(mark_screen(), mark)

    def ask_engine(self) -> None:
        """Ask what to do with the engine."""
        if not self.lab.can_command("stop or keep"):
            return
        from mtplab.tui.screens.quit import engine_screen

        def answer(choice: str | None) -> None:
            if choice is not None:
                self.command({"cmd": choice}, f"{choice}: sent to the engine")

        source = self.lab.source
        running = source is not None and source.state.running
        self.app.push_screen(engine_screen(source.session_dir.name if source else "", running=running), answer)

    def toggle_pause(self) -> None:
        """Hold the display, or pause and play a replay."""
        replay = self.lab.replay
        if replay is not None:
            replay.replay.toggle()
        else:
            self.lab.paused = not self.lab.paused
        self.lab.redraw_soon()

    def filter_log(self) -> None:
        """Open the filter, bringing the log to the front."""
        self.active = "log"
        self._lay_out()
        self.call_after_refresh(self.log_pane.ask_filter)

    def jump(self) -> None:
        """Go to the proof."""
        self.choose_pane("log")
        self.call_after_refresh(self._jump)

    def _jump(self) -> None:
        problem = self.log_pane.jump()
        if problem is not None:
            self.notify(problem, severity="warning", markup=False)

    async def edit_values(self) -> None:
        """Type α, γ, c, r."""
        self.active = "calculator"
        self._lay_out()
        await self.calculator.edit()

    async def use_session_values(self) -> None:
        """Calculate with the session's counts again."""
        if not await self.calculator.use_session():
            self.notify("This session holds no accept counts yet: run the stage `measure`.", severity="warning")

    # -- replay --------------------------------------------------------------------
    def seek_by(self, seconds: float) -> None:
        """Go some seconds back or ahead."""
        if self._replaying():
            self.seek_to(self.lab.replay.replay.position_s + seconds)  # type: ignore[union-attr]

    def seek_to(self, position_s: float) -> None:
        """Go to a place of the replay."""
        if self._replaying():
            self.lab.replay.replay.seek(position_s)  # type: ignore[union-attr]
            self.lab.redraw_soon()

    def change_speed(self, steps: int) -> None:
        """Faster or slower."""
        if self._replaying():
            self.lab.replay.replay.faster(steps)  # type: ignore[union-attr]
            self.lab.redraw_soon()

    def step(self, count: int) -> None:
        """One event ahead or back."""
        if self._replaying():
            self.lab.replay.replay.step(count)  # type: ignore[union-attr]
            self.lab.redraw_soon()

    def seek_marker(self, direction: int) -> None:
        """To the next or previous place worth stopping at."""
        if self._replaying():
            if self.lab.replay.replay.seek_marker(direction) is None:  # type: ignore[union-attr]
                self.notify("There is no further mark that way.")
            self.lab.redraw_soon()

    def _replaying(self) -> bool:
        if self.lab.replay is None:
            self.notify(NO_REPLAY, severity="warning")
        return self.lab.replay is not None

    def on_seek_to(self, message: SeekTo) -> None:
        """The track was clicked."""
        self.seek_to(message.position_s)

    def on_pane_chosen(self, message: PaneChosen) -> None:
        """A tab was clicked."""
        self.choose_pane(message.pane)
