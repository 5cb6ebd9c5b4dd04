"""Unfold a session.json back into events, so that a record without its journal is drawn by the same panes."""

from __future__ import annotations

from typing import Any

import msgspec

from mtplab.session import events as ev
from mtplab.session.identity import Policy
from mtplab.session.record import SessionRecord, VerdictRecord


def events_of_record(record: SessionRecord) -> list[ev.Event]:
    """Events that reduce to what the record holds; times are seconds since the session began.

    Entries that cannot be are left out, and a message says how many: a mailed record may hold anything.
    """
    unfolding = _Unfolding(record)
    return sorted(unfolding.events, key=lambda e: e.t)


class _Unfolding:
    """The events of one record, collected; every entry passes the types of the journal."""

    def __init__(self, record: SessionRecord) -> None:
        self.record, self.end = record, record.duration_s
        self.events: list[ev.Event] = []
        self._left_out = 0
        self._unfold()
        if self._left_out:
            text = f"{self._left_out} entries of this record are damaged and are not shown."
            self.events.append(ev.Message(t=self.end, text=text, level="warning"))

    def _add(self, kind: type[ev.Event], fields: dict[str, Any]) -> None:
        """Add an event, if the entry has what its kind needs."""
        try:
            self.events.append(msgspec.convert(fields, kind, strict=False))
        except msgspec.ValidationError:
            self._left_out += 1

    def _unfold(self) -> None:
        record, end = self.record, self.end
        self.events.append(ev.DeviceSeen(t=0.0, identity=record.identity, facts=record.facts))
        for point in record.heat:
            zones = {"cpu": point.die_high_c}
            self.events.append(ev.Heat(t=point.t, skin_c=point.skin_high_c, zones=zones, status=point.status))
        for kind, entries in ((ev.Throttled, record.throttling), (ev.Marker, record.markers), (ev.Gap, record.gaps)):
            for entry in entries:
                self._add(kind, entry)
        if record.run is not None:
            self._run(record.run)
        for name, artefact in record.artefacts.items():
            fields = {"name": name, "sha256": artefact.get("sha256"), "size_bytes": artefact.get("bytes")}
            self._add(ev.Artefact, {"t": end, **fields})
        for index, verdict in enumerate(record.verdicts):
            self._log(index, verdict)
        for configuration in record.configurations:
            for measured in configuration.rounds:
                self._add(ev.RoundMeasured, measured)
            kept = {f: getattr(configuration, f) for f in configuration.__struct_fields__ if f != "rounds"}
            self._add(ev.ConfigurationMeasured, {"t": end, **kept})
        if record.recipes is not None:
            self._add(ev.RecipesJudged, {"t": end, **msgspec.to_builtins(record.recipes)})
        for pitfall in record.pitfalls:
            self._add(ev.PitfallFound, {"t": end, **pitfall})
        if record.conclusion is not None:
            names = ("scenarios", "exactness", "predicted", "comparisons", "adaptive")
            more = {name: getattr(record, name) for name in names}
            self._add(ev.Concluded, {"t": end, "text": record.conclusion, **more})

    def _run(self, run: dict[str, Any]) -> None:
        record, end = self.record, self.end
        name = str(run.get("run", ""))
        began = {
            "t": run.get("t", 0.0),
            "run": name,
            "stages": [s.name for s in record.stages],
            "policy": record.policy or Policy(),
            **{key: str(run.get(key, "")) for key in ("model", "head", "recipe")},
        }
        self._add(ev.RunStarted, began)
        for s in record.stages:
            self.events.append(ev.StageReport(t=end, name=s.name, figures=s.figures, summary=s.summary))
            fields = {"name": s.name, "status": s.status, "seconds": s.seconds, "reason": s.reason}
            self._add(ev.StageChanged, {"t": end, **fields})
        if record.outcome is not None:
            ended = {
                "t": end,
                "run": name,
                "outcome": record.outcome,
                "exit_code": record.exit_code or 0,
                "reason": record.outcome_reason,
            }
            self._add(ev.RunEnded, ended)

    def _log(self, index: int, verdict: VerdictRecord) -> None:
        log, end = f"record-{index}", self.end
        opened = ev.LogOpened(t=end, log=log, graph=verdict.graph, requested=verdict.requested, command="")
        self.events.append(opened)
        for evidence in sorted(verdict.evidence, key=lambda e: e.line):
            self.events.append(ev.LogLine(t=end, log=log, n=evidence.line, text=evidence.text))
        self._add(ev.VerdictReached, {"t": end, "log": log, **msgspec.to_builtins(verdict)})
