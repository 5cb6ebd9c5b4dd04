"""The cable bar: while the phone is gone, how long, what to do and what becomes of the run; then that it is back."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Painted

LOST_ROWS = 3
BACK_S = 15.0
# Stages that need the phone while they run; all others run on this computer.
ON_THE_PHONE = ("push", "bench", "measure", "baseline")


class CableBar(Painted):
    """Three loud rows while the cable is out, one quiet row for a while after its return, nothing else."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return texts.lines(cable_rows(view, width), width, height)


def cable_rows(view: View, width: int) -> list[list[Part]]:
    """The bar's rows, what matters most first; none where nothing is to be said."""
    state = view.state
    if view.phase not in ("live", "replay") or state.link_lost_t is None:
        return []
    now = view.now if view.now is not None else state.t if state.t is not None else state.link_lost_t
    if state.link == "lost":
        out_s = max(0.0, now - state.link_lost_t)
        reason = texts.clean(state.link_reason) or "no reason was given"
        loud = "bold $loud-text on $loud-error"
        return [
            [(f" ✗ CABLE LOST {_seconds(out_s)}: plug it in; nothing that was recorded is lost ", loud)],
            [_whole(f"   {_run(view)}", "The engine reconnects by itself; the gap is marked.", width)],
            [(f"   {reason}", "$text-muted")],
        ]
    if state.link == "returned" and state.link_t is not None and 0 <= now - state.link_t < BACK_S:
        out_s = state.link_t - state.link_lost_t
        said = f" ✓ cable back after {_seconds(out_s)}: the gap is marked, the session goes on."
        return [[(_whole(said, _run(view), width), "bold $text-success")]]
    return []


def _whole(first: str, more: str, width: int) -> str:
    """Both sentences where both fit, else the first alone: half a sentence helps nobody."""
    both = f"{first}  {more}"
    return both if cell_len(both) <= width else first


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else texts.duration(seconds)


def _run(view: View) -> str:
    """What the run does meanwhile: a stage of this computer needs no phone."""
    stage = view.state.current_stage() if view.state.running else None
    if stage is None:
        end = view.state.run_end
        if end is not None and end.outcome == "failed" and end.t >= (view.state.link_lost_t or 0.0):
            return "The run failed meanwhile: r runs it again, the rest is cached."
        return "No stage runs." if not view.state.running else ""
    name = texts.clean(stage.name, 16)
    if stage.name in ON_THE_PHONE:
        return f"Stage {name} needs the phone; if it fails: r again, the rest is cached."
    return f"Stage {name} runs on this computer and goes on."
