"""LabState: everything the screen and the reports show, reduced from events and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from mtplab.session import events as ev
from mtplab.session.configuration import Configuration
from mtplab.session.heat import HeatHistory, HeatTrend, NextThreshold, Trend, ZoneWatch, skin_limits_c
from mtplab.session.identity import Identity, Policy
from mtplab.session.recipes import merged_recipes

VISIBLE_LOG_LINES = 5000
INFERENCE_FIGURES = ("first_us", "warmup_avg_us", "warmup_runs", "inference_avg_us", "inference_runs")
GOOD_VERDICTS = ("full_delegate", "cpu_baseline")


class Judged(Protocol):
    """What an event and a record of a verdict have in common."""

    @property
    def verdict(self) -> str:
        """The verdict's word."""

    @property
    def provisional(self) -> bool:
        """Whether the log had not ended."""

    @property
    def complete(self) -> bool:
        """Whether the log has its closing lines."""

    @property
    def figures(self) -> Mapping[str, float | int | None]:
        """The figures that the log gave."""


def standing(judged: Judged) -> str:
    """The verdict as it may be summed up: a good one stands only on a log that ended or gave inference figures.

    Bad verdicts stand at once. A provisional good one, or one of a log cut before any inference, is `unknown` yet.
    """
    if judged.verdict not in GOOD_VERDICTS:
        return judged.verdict
    inferred = judged.complete or any(judged.figures.get(name) is not None for name in INFERENCE_FIGURES)
    return judged.verdict if inferred and not judged.provisional else "unknown"


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier run of the same session came to; its rounds and logs stand in the journal and in logs/RUN."""

    run: str
    policy: Policy
    recipe: str
    head: str
    outcome: str | None = None
    exit_code: int | None = None
    verdicts: list[str] = []
    figures: dict[str, dict[str, ev.Figure]] = {}
    conclusion: str | None = None


class StageView(msgspec.Struct):
    """A stage as it stands now."""

    name: str
    status: str = "pending"
    seconds: float | None = None
    reason: str | None = None
    done: float = 0.0
    total: float | None = None
    unit: str = ""
    note: str = ""
    eta_s: float | None = None
    began_t: float | None = None
    wall_s: float | None = None
    figures: dict[str, object] = {}
    summary: str = ""


class LogView(msgspec.Struct):
    """A benchmark log as read so far; only the last lines are kept here, all stand in the journal."""

    log: str
    graph: str
    requested: str
    command: str
    lines: deque[ev.LogLine]
    total_lines: int = 0
    verdict: ev.VerdictReached | None = None


class ConfigurationView(msgspec.Struct):
    """One measured configuration: its figures and its rounds."""

    name: str
    figures: dict[str, ev.Figure] = {}
    per_class: dict[str, dict[str, ev.Figure]] = {}
    counts: list[int] = []
    counts_per_class: dict[str, list[int]] = {}
    rounds: list[ev.RoundMeasured] = []
    setting: Configuration | None = None
    advice: str | None = None
    reason: str | None = None


class LabState:
    """State after the events applied so far; the same events always give the same state."""

    def __init__(self) -> None:
        self.t0: float | None = None
        self.t: float | None = None
        self.event_count = 0
        self.identity = Identity()
        self.facts: dict[str, ev.Fact] = {}
        self.link = "closed"
        self.link_reason = ""
        self.link_t: float | None = None
        self.link_lost_t: float | None = None
        """When the cable was lost last; kept after its return, so that the silence can be told."""
        self.heat: ev.Heat | None = None
        self.heat_history = HeatHistory()
        self.heat_trend = HeatTrend()
        self.zone_watch = ZoneWatch()
        self.sampler_cost: ev.SamplerCost | None = None
        self.host: ev.HostLoad | None = None
        self.throttling: dict[str, ev.Throttled] = {}
        self.throttle_events: list[ev.Throttled] = []
        self.markers: list[ev.Marker] = []
        self.messages: deque[ev.Message] = deque(maxlen=200)
        self.gaps: list[ev.Gap] = []
        self.run: ev.RunStarted | None = None
        self.run_end: ev.RunEnded | None = None
        self.stages: dict[str, StageView] = {}
        self.artefacts: dict[str, ev.Artefact] = {}
        self.logs: dict[str, LogView] = {}
        self.current_log: str | None = None
        self.configurations: dict[str, ConfigurationView] = {}
        self.recipes: ev.RecipesJudged | None = None
        """The recipe table of the current run: all its rows, merged."""
        self.conclusion: ev.Concluded | None = None
        self.earlier: list[EarlierRun] = []
        self.pitfalls: list[ev.PitfallFound] = []

    # -- what viewers ask -------------------------------------------------
    @property
    def running(self) -> bool:
        """Whether a run began and has not ended."""
        return self.run is not None and self.run_end is None

    @property
    def policy(self) -> Policy | None:
        """The policy of the current or last run."""
        return self.run.policy if self.run else None

    @property
    def verdicts(self) -> list[ev.VerdictReached]:
        """The newest verdict of every log, in the order the logs began.

        A repeat that says what an earlier log of the same graph and accelerator said takes that one's place; one
        that says something else stands beside it.
        """
        newest: dict[tuple[str, str, str], ev.VerdictReached] = {}
        for verdict in (log.verdict for log in self.logs.values() if log.verdict is not None):
            key = (verdict.graph, verdict.requested, standing(verdict))
            newest.pop(key, None)
            newest[key] = verdict
        return list(newest.values())

    @property
    def elapsed_s(self) -> float:
        """Seconds between the first event and the last one applied."""
        return (self.t - self.t0) if self.t is not None and self.t0 is not None else 0.0

    @property
    def throttled(self) -> ev.Throttled | None:
        """The oldest throttling that has not ended; None where none is seen. All of them: `throttling`, by kind."""
        return next(iter(self.throttling.values()), None)

    @property
    def silent_zones(self) -> dict[str, str]:
        """Zones that give no temperature, with the reason: unreadable, dead, constant while others moved, a limit."""
        return self.zone_watch.silent

    @property
    def hottest_die(self) -> tuple[str, float] | None:
        """The hottest compute die now by a sensor that is alive: (zone, °C)."""
        return self.zone_watch.hottest_die

    @property
    def skin_trend(self) -> Trend:
        """How fast the skin warms (°C per minute), or why that is not known."""
        return self.heat_trend.skin

    @property
    def die_trend(self) -> Trend:
        """How fast the hottest die warms (°C per minute), or why that is not known."""
        return self.heat_trend.die

    @property
    def next_threshold(self) -> NextThreshold:
        """The skin's next throttling limit: name, °C away, seconds away at the present trend (None with a reason)."""
        return self.heat_trend.next_threshold(skin_limits_c(self.facts))

    def current_stage(self) -> StageView | None:
        """The stage that runs now, if any."""
        return next((s for s in self.stages.values() if s.status == "running"), None)

    # -- the reducer --------------------------------------------------------
    def apply(self, event: ev.Event) -> None:
        """Take one event in; unknown kinds cannot occur, the journal refuses them."""
        if self.t0 is None:
            self.t0 = event.t
        self.t = event.t
        self.event_count += 1
        _REDUCERS[type(event)](self, event)

    def _device(self, e: ev.DeviceSeen) -> None:
        # Once a stand-in was seen, the session stays SIMULATED, whatever a later reading leaves out.
        simulated = self.identity.simulated or e.identity.simulated
        self.identity = msgspec.structs.replace(e.identity, simulated=simulated)
        self.facts = {**self.facts, **e.facts}

    def _facts(self, e: ev.FactsSeen) -> None:
        self.facts = {**self.facts, **e.facts}

    def _link(self, e: ev.LinkChanged) -> None:
        if e.state == "lost" and self.link != "lost":
            self.link_lost_t = e.t
        self.link, self.link_reason, self.link_t = e.state, e.reason, e.t

    def _heat(self, e: ev.Heat) -> None:
        self.heat = e
        self.zone_watch.add(e)
        die = self.zone_watch.hottest_die
        self.heat_history.add(e, die[1] if die else None)
        self.heat_trend.add(e, die[1] if die else None)
        if e.cost is not None:
            self.sampler_cost = e.cost

    def _host(self, e: ev.HostLoad) -> None:
        self.host = e

    def _throttle(self, e: ev.Throttled) -> None:
        if e.began:
            self.throttling[e.kind] = e
        else:
            self.throttling.pop(e.kind, None)
        self.throttle_events.append(e)

    def _run(self, e: ev.RunStarted) -> None:
        # A new run is a new measurement round (R4): nothing of an earlier policy may stay beside it, nor be lost.
        if self.run is not None:
            self.earlier.append(self._as_earlier(self.run))
        self.run, self.run_end, self.conclusion = e, None, None
        self.stages = {name: StageView(name=name) for name in e.stages}
        self.configurations, self.pitfalls, self.artefacts, self.recipes = {}, [], {}, None
        self.logs, self.current_log = {}, None

    def _as_earlier(self, run: ev.RunStarted) -> EarlierRun:
        return EarlierRun(
            run=run.run,
            policy=run.policy,
            recipe=run.recipe,
            head=run.head,
            outcome=self.run_end.outcome if self.run_end else None,
            exit_code=self.run_end.exit_code if self.run_end else None,
            verdicts=[f"{v.graph} asked {v.requested}: {standing(v)}" for v in self.verdicts],
            figures={name: c.figures for name, c in self.configurations.items()},
            conclusion=self.conclusion.text if self.conclusion else None,
        )

    def _run_end(self, e: ev.RunEnded) -> None:
        self.run_end = e

    def _stage(self, e: ev.StageChanged) -> None:
        stage = self.stages.setdefault(e.name, StageView(name=e.name))
        stage.status, stage.seconds, stage.reason = e.status, e.seconds, e.reason
        if e.status == "running":
            stage.began_t = e.t
        else:
            stage.eta_s = None
            stage.wall_s = round(e.t - stage.began_t, 3) if stage.began_t is not None else None

    def _progress(self, e: ev.StageProgress) -> None:
        stage = self.stages.setdefault(e.name, StageView(name=e.name))
        stage.done, stage.total, stage.unit, stage.note, stage.eta_s = (
            e.done,
            e.total,
            e.unit,
            e.note,
            e.eta_s,
        )

    def _stage_report(self, e: ev.StageReport) -> None:
        stage = self.stages.setdefault(e.name, StageView(name=e.name))
        stage.figures, stage.summary = e.figures, e.summary

    def _artefact(self, e: ev.Artefact) -> None:
        self.artefacts[e.name] = e

    def _log(self, e: ev.LogOpened) -> None:
        lines: deque[ev.LogLine] = deque(maxlen=VISIBLE_LOG_LINES)
        self.logs[e.log] = LogView(log=e.log, graph=e.graph, requested=e.requested, command=e.command, lines=lines)
        self.current_log = e.log

    def _line(self, e: ev.LogLine) -> None:
        log = self.logs.get(e.log)
        if log is not None:
            log.lines.append(e)
            log.total_lines = max(log.total_lines, e.n)

    def _verdict(self, e: ev.VerdictReached) -> None:
        log = self.logs.get(e.log)
        if log is not None:
            log.verdict = e

    def _recipes(self, e: ev.RecipesJudged) -> None:
        self.recipes = merged_recipes(self.recipes, e)

    def _configuration(self, e: ev.ConfigurationMeasured) -> None:
        view = self.configurations.setdefault(e.name, ConfigurationView(name=e.name))
        view.figures, view.per_class = e.figures, e.per_class
        view.counts, view.counts_per_class = e.counts, e.counts_per_class
        view.setting, view.advice, view.reason = e.setting, e.advice, e.reason

    def _round(self, e: ev.RoundMeasured) -> None:
        self.configurations.setdefault(e.configuration, ConfigurationView(name=e.configuration)).rounds.append(e)

    def _conclusion(self, e: ev.Concluded) -> None:
        self.conclusion = e


_REDUCERS: dict[type, Callable[[LabState, Any], None]] = {
    ev.DeviceSeen: LabState._device,
    ev.FactsSeen: LabState._facts,
    ev.LinkChanged: LabState._link,
    ev.Heat: LabState._heat,
    ev.HostLoad: LabState._host,
    ev.Throttled: LabState._throttle,
    ev.Marker: lambda s, e: s.markers.append(e),
    ev.Message: lambda s, e: s.messages.append(e),
    ev.Gap: lambda s, e: s.gaps.append(e),
    ev.RunStarted: LabState._run,
    ev.RunEnded: LabState._run_end,
    ev.StageChanged: LabState._stage,
    ev.StageProgress: LabState._progress,
    ev.StageReport: LabState._stage_report,
    ev.Artefact: LabState._artefact,
    ev.LogOpened: LabState._log,
    ev.LogLine: LabState._line,
    ev.VerdictReached: LabState._verdict,
    ev.RecipesJudged: LabState._recipes,
    ev.RoundMeasured: LabState._round,
    ev.ConfigurationMeasured: LabState._configuration,
    ev.Concluded: LabState._conclusion,
    ev.PitfallFound: lambda s, e: s.pitfalls.append(e),
}
