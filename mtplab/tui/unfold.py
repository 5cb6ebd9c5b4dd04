"""Unfold a session.json back into events, so that a record without its journal is drawn by the same panes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mtplab.session import events as ev
from mtplab.session.identity import Policy
from mtplab.session.record import SessionRecord, VerdictRecord


def events_of_record(record: SessionRecord) -> list[ev.Event]:
    """Events that reduce to what the record holds; times are seconds since the session began."""
    return sorted(_unfold(record), key=lambda e: e.t)


def _unfold(record: SessionRecord) -> Iterator[ev.Event]:
    end = record.duration_s
    yield ev.DeviceSeen(t=0.0, identity=record.identity, facts=record.facts)
    for point in record.heat:
        zones = {"cpu": point.die_high_c}
        yield ev.Heat(t=point.t, skin_c=point.skin_high_c, zones=zones, status=point.status)
    for throttled in record.throttling:
        yield msgspec.convert({**throttled}, ev.Throttled, strict=False)
    for marker in record.markers:
        yield msgspec.convert({**marker}, ev.Marker, strict=False)
    for gap in record.gaps:
        yield msgspec.convert({**gap}, ev.Gap, strict=False)
    if record.run is not None:
        yield from _run(record, end)
    for name, artefact in record.artefacts.items():
        yield ev.Artefact(t=end, name=name, sha256=str(artefact.get("sha256")), size_bytes=int(artefact["bytes"]))
    for index, verdict in enumerate(record.verdicts):
        yield from _log(index, verdict, end)
    for configuration in record.configurations:
        for measured in configuration.rounds:
            yield msgspec.convert({**measured}, ev.RoundMeasured, strict=False)
        yield ev.ConfigurationMeasured(
            t=end,
            name=configuration.name,
            figures=configuration.figures,
            per_class=configuration.per_class,
            counts=configuration.counts,
            counts_per_class=configuration.counts_per_class,
        )
    for pitfall in record.pitfalls:
        yield ev.PitfallFound(t=end, **pitfall)
    if record.conclusion is not None:
        yield ev.Concluded(
            t=end,
            text=record.conclusion,
            scenarios=record.scenarios,
            exactness=record.exactness,
            predicted=record.predicted,
        )


def _run(record: SessionRecord, end: float) -> Iterator[ev.Event]:
    run = record.run or {}
    yield ev.RunStarted(
        t=float(run.get("t", 0.0)),
        run=str(run.get("run", "")),
        stages=[s.name for s in record.stages],
        policy=record.policy or Policy(),
        model=str(run.get("model", "")),
        head=str(run.get("head", "")),
        recipe=str(run.get("recipe", "")),
    )
    for stage in record.stages:
        yield ev.StageReport(t=end, name=stage.name, figures=stage.figures, summary=stage.summary)
        yield ev.StageChanged(
            t=end,
            name=stage.name,
            status=msgspec.convert(stage.status, ev.StageStatus),
            seconds=stage.seconds,
            reason=stage.reason,
        )
    if record.outcome is not None:
        yield msgspec.convert(
            {
                "t": end,
                "run": str(run.get("run", "")),
                "outcome": record.outcome,
                "exit_code": record.exit_code or 0,
                "reason": record.outcome_reason,
            },
            ev.RunEnded,
        )


def _log(index: int, verdict: VerdictRecord, end: float) -> Iterator[ev.Event]:
    log = f"record-{index}"
    yield ev.LogOpened(t=end, log=log, graph=verdict.graph, requested=verdict.requested, command="")
    for evidence in sorted(verdict.evidence, key=lambda e: e.line):
        yield ev.LogLine(t=end, log=log, n=evidence.line, text=evidence.text)
    yield msgspec.convert({"t": end, "log": log, **msgspec.to_builtins(verdict)}, ev.VerdictReached)
