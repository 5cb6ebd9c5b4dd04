"""The stage pane: what runs, how far, how long yet, what came out and why something failed."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from mtplab.session.events import RunStarted
from mtplab.session.state import LabState, StageView
from mtplab.tui import texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Pane, wrapped

NAME_WIDTH = 11


class StagesPane(Pane):
    """One line a stage, then how the run ended or what the engine said last."""

    TITLE = "2 Stages"

    def render_view(self, view: View, width: int, height: int) -> Content:
        return texts.lines(stage_rows(view, width, height), width, height)


def stage_rows(view: View, width: int, height: int) -> list[list[Part]]:
    """Rows of the pane: pending stages give way first when there is little room."""
    nothing = view.nothing()
    if nothing is not None:
        return wrapped(texts.clean(nothing), width, "$text-warning")
    state = view.state
    if state.run is None:
        return [*wrapped(_no_run(view), width, "$text-muted"), *_refusal(view, width), *_last_message(state, width)]
    stages = list(state.stages.values())
    ending = end_rows(view, width)
    room = max(3, height - len(ending))
    rows = [row for stage in stages for row in stage_block(stage, view, width)]
    if len(rows) > room:
        rows = _folded(stages, view, width, room)
    return [*rows, *ending[: max(0, height - len(rows))]]


def _no_run(view: View) -> str:
    if view.phase == "live":
        return "No run yet.  r runs the pipeline."
    if view.replay is not None and any(isinstance(e, RunStarted) for e in view.replay.events):
        return "Nothing has run yet at this point."
    return "Nothing was run in this session."


def _folded(stages: list[StageView], view: View, width: int, room: int) -> list[list[Part]]:
    """Pending and skipped stages on a line each; then what ended well gives way, the oldest first."""
    folded: list[list[Part]] = []
    for status, glyph in (("pending", "·"), ("skipped", "–")):
        names = [texts.clean(s.name, NAME_WIDTH) for s in stages if s.status == status]
        word = "skipped " if names and status == "skipped" else ""
        folded += [[(f"{glyph} {word}" + f" {glyph} ".join(names), "$text-muted")]] if names else []
    told = [s for s in stages if s.status not in ("pending", "skipped")]
    surplus = sum(len(stage_block(s, view, width)) for s in told) + len(folded) - room
    for stage in [s for s in told if s.status in ("done", "cached")][: max(0, surplus)]:
        told.remove(stage)
    return [*(row for s in told for row in stage_block(s, view, width)), *folded]


def stage_block(stage: StageView, view: View, width: int) -> list[list[Part]]:
    """The stage's row, and below it what it does now (a cool-down's countdown) where the row has no room for that."""
    row = stage_row(stage, view, width)
    note = texts.clean(stage.note, 200)
    if stage.status != "running" or not note or _stopped(stage, view) or note in Content.assemble(*row).plain:
        return [row]
    style = "bold $text-warning" if note.startswith("cooling") else "$text-muted"
    return [row, *([("  ", ""), *more] for more in wrapped(note, width - 2, style)[:2])]


def stage_row(stage: StageView, view: View, width: int) -> list[Part]:
    """Glyph, name, what there is to say, seconds flush right."""
    stopped = _stopped(stage, view)
    glyph, style = texts.STAGES.get("cancelled" if stopped else stage.status, ("?", "bold $text-warning"))
    head: list[Part] = [(f"{glyph} ", style), (texts.pad(texts.clean(stage.name), NAME_WIDTH), _name_style(stage))]
    right = _right(stage, view, width)
    room = width - 2 - NAME_WIDTH - 1 - cell_len(right)
    word = "" if stage.status in ("done", "running", "pending") and width < 60 else stage.status
    if stopped:
        middle = stopped
    elif stage.status == "running":
        middle = progress_text(stage, room)
    else:
        said = texts.clean(stage.reason or "") if stage.status in ("failed", "cancelled", "skipped") else ""
        middle = " ".join(w for w in (f"{word:9}" if width >= 60 else word, said or texts.clean(stage.summary)) if w)
    return [*head, " ", texts.pad(middle, max(0, room)), (right, "$text-muted")]


def _name_style(stage: StageView) -> str:
    return "bold" if stage.status in ("running", "failed") else "$text-muted" if stage.status == "pending" else ""


def _stopped(stage: StageView, view: View) -> str:
    """Why a stage that was told to run cannot be running any more; empty where it may."""
    if stage.status != "running":
        return ""
    if view.state.run_end is not None:
        return "was running when the run ended"
    return "stopped: the engine ended" if view.phase == "ended" else ""


def _right(stage: StageView, view: View, width: int) -> str:
    """Seconds: what is left, what it took, and of a cached stage what it took when it ran."""
    state = view.state
    if _stopped(stage, view):
        return ""
    if stage.status == "running":
        if stage.eta_s is not None:
            return f" ETA {texts.duration(stage.eta_s)}"
        began = stage.began_t
        return f" {texts.duration(state.t - began)}" if began is not None and state.t is not None else ""
    if stage.seconds is None:
        return ""
    # A stage on the phone finds its work done and says what finding out took; a host stage says what its run took.
    if stage.status == "cached" and (stage.wall_s is None or stage.seconds > stage.wall_s + 0.05):
        now = f" {texts.duration(stage.wall_s)}," if stage.wall_s is not None and width >= 60 else ""
        return f"{now} was {texts.duration(stage.seconds)}"
    return f" {texts.duration(stage.seconds)}"


def progress_text(stage: StageView, room: int) -> str:
    """Bar, count and unit as far as they fit, and the note where all of it fits; without a total the count alone."""
    note = texts.clean(stage.note, 200)
    if not stage.total:
        count = f"{stage.done:g} {texts.clean(stage.unit, 12)}".strip() if stage.done else ""
        text = " ".join(w for w in (count, note) if w) or "running"
        return text if cell_len(text) <= room else count or "running"
    unit = texts.clean(stage.unit, 12)
    count = f"{stage.done:g}/{stage.total:g} {unit}" if unit else _percent(stage.done, stage.total)
    width = min(20, room - cell_len(count) - 1)
    text = f"{texts.bar(stage.done, stage.total, width)} {count}" if width >= 4 else count
    return f"{text} {note}" if note and cell_len(text) + 1 + cell_len(note) <= room else text


def _percent(done: float, total: float) -> str:
    """A share without a unit; 100 % only when all is done."""
    share = 100 * done / total
    return f"{round(share) if done >= total else min(99, round(share))} %"


def end_rows(view: View, width: int) -> list[list[Part]]:
    """How the run ended, its conclusion, pitfalls; while it runs the engine's last sentence."""
    state = view.state
    rows: list[list[Part]] = []
    if view.phase == "ended" and state.running:
        rows += wrapped("The engine ended in the middle of this run.", width, "bold $loud-text on $loud-error")
    failed = [s for s in state.stages.values() if s.status == "failed"]
    for stage in failed:
        why = texts.clean(stage.reason or "no reason was given")
        rows += wrapped(f"✗ {texts.clean(stage.name, 20)} failed: {why}", width, "bold $text-error")
    if state.run_end is not None:
        end = state.run_end
        glyph = {"done": "✓", "failed": "✗", "cancelled": "■"}[end.outcome]
        reason = f": {texts.clean(end.reason)}" if end.reason and not failed else ""
        style = {"done": "$text-success", "failed": "bold $text-error", "cancelled": "bold $text-warning"}[
            end.outcome
        ]
        rows += wrapped(f"{glyph} run {end.outcome}, exit code {end.exit_code}{reason}", width, style)
    if state.conclusion is not None:
        rows += wrapped(texts.clean(state.conclusion.text, 600), width, "bold")
    for pitfall in state.pitfalls:
        rows += wrapped(f"! {texts.clean(pitfall.text)} ({texts.clean(pitfall.evidence)})", width, "$text-warning")
    return [*_refusal(view, width), *(rows or _last_message(state, width))]


def _refusal(view: View, width: int) -> list[list[Part]]:
    if view.phase != "live" or not view.problem:
        return []
    return wrapped(f"✗ {texts.clean(view.problem)}", width, "bold $text-error")


def _last_message(state: LabState, width: int) -> list[list[Part]]:
    if not state.messages:
        return []
    last = state.messages[-1]
    style = {"info": "$text-muted", "warning": "$text-warning", "error": "bold $text-error"}[last.level]
    return wrapped(texts.clean(last.text), width, style)
