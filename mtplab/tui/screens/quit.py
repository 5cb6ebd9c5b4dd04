"""What is asked before a run is left alone, and what can be done to an engine."""

from __future__ import annotations

from mtplab.tui.screens.choice import Answer, ChoiceScreen

STOP, LEAVE, KEEP, CANCEL = "stop", "leave", "keep", "cancel"


def quit_screen(session: str) -> ChoiceScreen:
    """Asked when the lab is closed while a run goes on."""
    return ChoiceScreen(
        "A run goes on.",
        "Stop the run or leave it running?",
        (
            Answer("s", "stop the run and the engine; what was recorded is kept", STOP),
            Answer("l", f"leave it running; `mtplab lab --attach {session}` finds it again", LEAVE),
        ),
    )


def engine_screen(session: str, *, running: bool) -> ChoiceScreen:
    """What can be done to the engine and its session."""
    answers = [Answer("k", "keep this session even if nothing but watching happens in it", KEEP)]
    if running:
        answers.append(Answer("c", "cancel the run; the engine goes on watching the phone", CANCEL))
    answers.append(Answer("x", "stop the engine; the lab stays open on what was recorded", STOP))
    return ChoiceScreen("Engine and session", session, tuple(answers))
