"""All that a key can do, in one table: bindings, footer, help and the command palette are made from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mtplab.tui.view import Phase

if TYPE_CHECKING:
    from mtplab.tui.screens.bench import BenchScreen

Handler = Callable[["BenchScreen"], Any]
GROUPS = ("Run", "Log", "Replay", "Calculator", "Panes", "Lab")


class Action(msgspec.Struct, frozen=True):
    """One thing the lab does: its key, its word in the footer, its sentence in the help, and what is called.

    `twin` is the command line that does the same without a screen, "" for what only concerns the screen. `where`
    names the phases in whose footer it stands, most wanted first as in the table. A handler may be async.
    """

    id: str
    key: str
    label: str
    help: str
    handler: Handler
    group: str
    twin: str = ""
    where: tuple[Phase, ...] = ()
    sign: str = ""

    @property
    def shown_key(self) -> str:
        """The key as people read it."""
        return self.sign or self.key


LIVE: tuple[Phase, ...] = ("live",)
REPLAY: tuple[Phase, ...] = ("replay",)
NO_ENGINE: tuple[Phase, ...] = ("absent", "ended")
LIVE_OR_NONE: tuple[Phase, ...] = (*LIVE, *NO_ENGINE)
ANY: tuple[Phase, ...] = ("connecting", "absent", "live", "ended", "replay")


def _pane(name: str) -> Handler:
    return lambda bench: bench.choose_pane(name)


ACTIONS: tuple[Action, ...] = (
    Action("connect", "e", "engine", "Start an engine for the attached phone (again).",
           lambda b: b.lab.connect_phone(), "Run", "mtplab lab", NO_ENGINE),
    Action("standin", "t", "stand-in", "Start an engine on the stand-in Pixel; all it gives is SIMULATED.",
           lambda b: b.lab.connect_standin(), "Run", "mtplab lab --standin", NO_ENGINE),
    Action("run", "r", "run", "Run the pipeline; asks for model, head and recipe, Enter takes what stands there.",
           lambda b: b.ask_run(), "Run", "mtplab run", LIVE),
    Action("cancel", "c", "cancel", "Cancel the stage that runs, and with it the run.",
           lambda b: b.cancel(), "Run", "mtplab tell cancel", LIVE),
    Action("mark", "m", "mark", "Mark this moment on the time axis, with a word if you like.",
           lambda b: b.ask_mark(), "Run", "mtplab tell mark", LIVE),
    Action("stop", "o", "stop/keep", "Keep this session, cancel the run, or stop the engine.",
           lambda b: b.ask_engine(), "Run", "mtplab tell stop"),
    Action("pause", "space", "pause", "Live: hold the display, the recording goes on. Replay: pause or play.",
           lambda b: b.toggle_pause(), "Replay", "mtplab replay", (*LIVE, *REPLAY)),
    Action("back", "left", "−5 s", "Replay: five seconds back.",
           lambda b: b.seek_by(-5.0), "Replay", "mtplab replay --at", REPLAY, "←"),
    Action("ahead", "right", "+5 s", "Replay: five seconds ahead.",
           lambda b: b.seek_by(5.0), "Replay", "mtplab replay --at", REPLAY, "→"),
    Action("slower", "left_square_bracket", "slower", "Replay: slower.",
           lambda b: b.change_speed(-1), "Replay", "", REPLAY, "["),
    Action("faster", "right_square_bracket", "faster", "Replay: faster.",
           lambda b: b.change_speed(1), "Replay", "", REPLAY, "]"),
    Action("step_back", "comma", "step back", "Replay: one event back, and pause.",
           lambda b: b.step(-1), "Replay", "", (), ","),
    Action("step", "full_stop", "step", "Replay: one event ahead, and pause.",
           lambda b: b.step(1), "Replay", "", REPLAY, "."),
    Action("next_mark", "n", "next mark", "Replay: to the next marker, verdict, throttling, round or stage.",
           lambda b: b.seek_marker(1), "Replay", "", REPLAY),
    Action("previous_mark", "p", "previous", "Replay: to the previous one.",
           lambda b: b.seek_marker(-1), "Replay", "", REPLAY),
    Action("begin", "0", "begin", "Replay: to the beginning.",
           lambda b: b.seek_to(0.0), "Replay", "mtplab replay --at 0"),
    Action("live", "b", "live", "Back from a replay to the live bench.",
           lambda b: b.lab.back_to_live(), "Replay", "mtplab lab --attach", REPLAY),
    Action("filter", "slash", "filter", "Show only log lines that contain a word; the others are counted as hidden.",
           lambda b: b.filter_log(), "Log", "mtplab log", (*LIVE, *REPLAY), "/"),
    Action("follow", "f", "follow", "Follow the end of the log, or stand still.",
           lambda b: b.log_pane.toggle_follow(), "Log", "", LIVE),
    Action("jump", "j", "proof", "Jump to the log line that proves the verdict.",
           lambda b: b.jump(), "Log", "mtplab log", LIVE),
    Action("next_log", "l", "next log", "Show the next benchmark log of this run.",
           lambda b: b.log_pane.next_log(), "Log", "mtplab log"),
    Action("values", "v", "values", "Type α, γ, c and r by hand; ↑ ↓ nudge a value, Esc closes the fields.",
           lambda b: b.edit_values(), "Calculator", "mtplab calc"),
    Action("use_session", "u", "session's", "Calculate with the session's own counts and costs again.",
           lambda b: b.use_session_values(), "Calculator", "mtplab calc --session"),
    Action("devices", "w", "phones", "Which phone: all attached ones, live; Enter takes one and remembers it.",
           lambda b: b.lab.open_devices(), "Lab", "mtplab devices", LIVE_OR_NONE),
    Action("doctor", "d", "doctor", "The doctor: every precondition with its cause and the cure.",
           lambda b: b.lab.open_doctor(), "Lab", "mtplab doctor", LIVE_OR_NONE),
    Action("facts", "i", "facts", "All facts of the phone, each with its source or the reason why it is unknown.",
           lambda b: b.lab.open_facts(), "Lab", "mtplab facts", (*LIVE_OR_NONE, *REPLAY)),
    Action("recipes", "k", "recipes", "Recipes: bytes, acceptance and time of each, and the calibration's lengths.",
           lambda b: b.lab.open_recipes(), "Lab", "mtplab show", (*LIVE, *REPLAY)),
    Action("sessions", "s", "sessions", "Saved sessions: open one and replay it.",
           lambda b: b.lab.open_sessions(), "Lab", "mtplab sessions", ANY),
    Action("device_pane", "1", "device", "The device pane.", _pane("device"), "Panes", "mtplab show"),
    Action("stages_pane", "2", "stages", "The stage pane.", _pane("stages"), "Panes", "mtplab show"),
    Action("log_pane", "3", "log", "The log pane.", _pane("log"), "Panes", "mtplab show"),
    Action("calculator_pane", "4", "α/γ", "The α/γ pane.", _pane("calculator"), "Panes", "mtplab calc"),
    Action("heat_pane", "5", "heat", "The heat pane.", _pane("heat"), "Panes", "mtplab show"),
    Action("zoom", "z", "zoom", "One pane over the whole screen, or all of them again.",
           lambda b: b.toggle_zoom(), "Panes"),
    Action("help", "question_mark", "help", "What every key does.",
           lambda b: b.lab.open_help(), "Lab", "mtplab --help", ANY, "?"),
    Action("palette", "ctrl+p", "palette", "Find any command by its name, and change the theme.",
           lambda b: b.app.action_command_palette(), "Lab", "", ANY, "^p"),
    Action("quit", "q", "quit", "Close the lab; asks first while a run goes on.",
           lambda b: b.lab.ask_quit(), "Lab", "", ANY),
)  # fmt: skip
BY_ID = {action.id: action for action in ACTIONS}


def footer(phase: Phase) -> list[Action]:
    """The actions that matter in a phase, most wanted first; those of every phase stand last."""
    return [*(a for a in ACTIONS if phase in a.where and a.where != ANY), *(a for a in ACTIONS if a.where == ANY)]
