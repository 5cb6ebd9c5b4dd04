"""The thin bars of the bench: tabs of a small terminal, the replay's track, and the keys that matter now."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message

from mtplab.session import events as ev
from mtplab.session.replay import Replay
from mtplab.tui import actions, texts
from mtplab.tui.texts import Part
from mtplab.tui.view import View
from mtplab.tui.widgets.pane import Painted

PANES = ("device", "stages", "log", "calculator", "heat")
TAB_NAMES = ("Device", "Stages", "Log", "α/γ", "Heat")
MARKS: dict[type[ev.Event], tuple[str, str]] = {
    ev.Throttled: ("▲", "throttle"),
    ev.VerdictReached: ("▼", "verdict"),
    ev.LinkChanged: ("✂", "cable"),
    ev.Marker: ("◆", "mark"),
    ev.RoundMeasured: ("•", "round"),
    ev.StageChanged: ("│", "stage"),
}


class TabBar(Painted):
    """`1 Device  2 Stages  3 Log ▌PARTIAL 41/44 …`: the panes of a small terminal and the worst verdict."""

    active = "device"

    def render_view(self, view: View, width: int, height: int) -> Content:
        return tab_line(view, self.active, width)

    def on_click(self, event: events.Click) -> None:
        """Show the tab that was clicked."""
        position = 0
        for name, text in zip(PANES, _tab_texts(self.view), strict=True) if self.view else ():
            position += cell_len(text)
            if event.x < position:
                self.post_message(PaneChosen(name))
                return


class PaneChosen(Message):
    """Somebody wants to see a pane."""

    def __init__(self, pane: str) -> None:
        super().__init__()
        self.pane = pane


def _tab_texts(view: View | None) -> list[str]:
    found = [f" {i} {name} " for i, name in enumerate(TAB_NAMES, 1)]
    if view is None:
        return found
    stage = view.state.current_stage()
    if stage is not None and view.state.run_end is None and view.phase != "ended":
        found[1] = f" 2 Stages ▶ {texts.clean(stage.name, 12)} "
    newest = {v.requested: v for v in view.state.verdicts}
    look = texts.summed(newest.values(), _stages(view))
    if look is not None:
        glyph, word, _ = look
        found[2] = f" 3 Log {glyph} {word} "
    return found


def _stages(view: View) -> list[tuple[str, str]]:
    return [(s.name, s.status) for s in view.state.stages.values()]


def tab_line(view: View, active: str, width: int) -> Content:
    """Tabs with what must not be missed while another pane is shown."""
    parts: list[Part] = []
    look = texts.summed(view.state.verdicts, _stages(view))
    for name, text in zip(PANES, _tab_texts(view), strict=True):
        style = "bold reverse" if name == active else "$text-muted"
        if name == "log" and look is not None and name != active:
            style = look[2]
        parts.append((text, style))
    return Content.assemble(*texts.fit_parts(parts, width))


class SeekTo(Message):
    """Somebody clicked the replay's track."""

    def __init__(self, position_s: float) -> None:
        super().__init__()
        self.position_s = position_s


class ReplayBar(Painted):
    """Where a replay stands: play state, speed, the track with its marks, time."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return replay_line(view, width) if view.replay is not None else Content("")

    def on_click(self, event: events.Click) -> None:
        """Seek to the clicked place of the track."""
        if self.view is None or self.view.replay is None:
            return
        left, room = _track_place(self.view, self.view.replay, self.content_size.width)
        if room > 1 and left <= event.x < left + room:
            self.post_message(SeekTo(self.view.replay.duration_s * (event.x - left) / (room - 1)))


LEGEND = "  ▲ throttle ▼ verdict • round"


def _ends(view: View, replay: Replay, width: int) -> tuple[list[Part], str]:
    name = texts.fit(view.session, max(10, width // 4))
    state = "▶ playing" if replay.playing else "⏸ paused "
    left: list[Part] = [(" REPLAY ", "bold $loud-text on $loud-replay"), f" {name} ", (f" {state} ", "bold")]
    left.append(f"{replay.speed:g}×  ")
    return left, f" {texts.clock(replay.position_s)} / {texts.clock(replay.duration_s)}"


def _track_place(view: View, replay: Replay, width: int) -> tuple[int, int]:
    left, right = _ends(view, replay, width)
    legend = len(LEGEND) if width >= 110 else 0
    return texts.parts_len(left), max(4, width - texts.parts_len(left) - len(right) - legend - 1)


def replay_line(view: View, width: int) -> Content:
    """`REPLAY name ▶ playing 4× ├──▲──●──▼──┤ 00:07:12 / 00:31:40`."""
    replay = view.replay
    if replay is None:
        return Content("")
    left, right = _ends(view, replay, width)
    _, room = _track_place(view, replay, width)
    parts: list[Part] = [*left, *track(replay, room), right]
    if width >= 110:
        parts.append((LEGEND, "$text-muted"))
    return Content.assemble(*texts.fit_parts(parts, width))


def track(replay: Replay, room: int) -> list[Part]:
    """The time line in `room` cells: marks where something happened, ● where the replay stands."""
    cells = ["├", *["─"] * (room - 2), "┤"]
    scale = (room - 1) / replay.duration_s if replay.duration_s > 0 else 0.0
    order = [type(None), *list(MARKS)[::-1]]  # what matters more is drawn later, over the rest
    for event in sorted(replay.markers(), key=lambda e: order.index(type(e)) if type(e) in MARKS else 0):
        glyph, _ = MARKS.get(type(event), ("·", ""))
        cells[min(room - 1, max(0, round((event.t - replay.t0) * scale)))] = glyph
    here = min(room - 1, round(replay.position_s * scale))
    return [("".join(cells[:here]), "$text-primary"), ("●", "bold $text-accent"), ("".join(cells[here + 1 :]), "")]


class KeyBar(Painted):
    """The keys that matter now, from the table of actions; a click does the same."""

    def render_view(self, view: View, width: int, height: int) -> Content:
        return key_line(view, width)

    async def on_click(self, event: events.Click) -> None:
        """Do what was clicked."""
        position = 0
        for action in _fitting(self.view, self.content_size.width) if self.view else ():
            position += cell_len(_key_text(action))
            if event.x < position:
                await self.screen.run_action(f"do('{action.id}')")
                return


def _key_text(action: actions.Action) -> str:
    return f" {action.shown_key} {action.label} "


def key_line(view: View, width: int) -> Content:
    """As many keys as fit whole, by their order in the table; help and quit always stand at the end."""
    parts: list[Part] = []
    for action in _fitting(view, width):
        parts += [(f" {action.shown_key} ", "bold $text-accent"), f"{action.label} "]
    return Content.assemble(*texts.fit_parts(parts, width))


def _fitting(view: View, width: int) -> list[actions.Action]:
    wanted = actions.footer(view.phase)
    last = [a for a in wanted if a.id in ("help", "quit")]
    room = width - sum(cell_len(_key_text(a)) for a in last)
    kept: list[actions.Action] = []
    for action in (a for a in wanted if a not in last):
        room -= cell_len(_key_text(action))
        if room < 0:
            break
        kept.append(action)
    return [*kept, *last]
