"""session.json: a whole session in one self-contained file, reduced from its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import msgspec

from mtplab.session.atomic import write_atomic
from mtplab.session.configuration import Configuration
from mtplab.session.events import SCHEMA, Evidence, Fact, Figure, Header, SamplerCost
from mtplab.session.foreign import Unfit, convert_foreign, decode_foreign
from mtplab.session.heat import HeatPoint
from mtplab.session.identity import Identity, Policy
from mtplab.session.journal import SessionError, check_schema
from mtplab.session.recipes import RecipeTable, recipe_table
from mtplab.session.state import EarlierRun, LabState

DEPLOYED = "mtp-on"


class StageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ended. `seconds` is what it took, of the earlier run when cached; `wall_s` what it took now."""

    name: str
    status: str
    seconds: float | None = None
    wall_s: float | None = None
    reason: str | None = None
    summary: str = ""
    figures: dict[str, Any] = {}


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its proving lines."""

    graph: str
    requested: str
    verdict: str
    provisional: bool
    complete: bool
    delegated_nodes: int | None = None
    total_nodes: int | None = None
    partitions: int | None = None
    reason: str | None = None
    cause: str | None = None
    cure: str | None = None
    evidence: list[Evidence] = []
    findings: list[str] = []
    figures: dict[str, float | int | None] = {}


class ConfigurationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A measured configuration with its rounds per prompt."""

    name: str
    figures: dict[str, Figure]
    per_class: dict[str, dict[str, Figure]] = {}
    counts: list[int] = []
    counts_per_class: dict[str, list[int]] = {}
    rounds: list[dict[str, Any]] = []
    setting: Configuration | None = None
    advice: str | None = None
    reason: str | None = None


class PitfallRecord(TypedDict):
    """A pitfall that was found, with its evidence."""

    pitfall: str
    text: str
    evidence: str


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What `session.json` holds; it opens and compares without anything else."""

    schema: int
    session: str
    created_utc: str
    format: str = "mtplab-session"
    sealed: bool = True
    recovered: bool = False
    recovery: str | None = None
    simulated: bool = False
    identity: Identity = Identity()
    identity_missing: list[str] = []
    facts: dict[str, Fact] = {}
    policy: Policy | None = None
    run: dict[str, Any] | None = None
    outcome: str | None = None
    exit_code: int | None = None
    outcome_reason: str | None = None
    duration_s: float = 0.0
    stages: list[StageRecord] = []
    configurations: list[ConfigurationRecord] = []
    verdicts: list[VerdictRecord] = []
    recipes: RecipeTable | None = None
    conclusion: str | None = None
    earlier_runs: list[EarlierRun] = []
    scenarios: list[dict[str, Any]] = []
    exactness: dict[str, Any] = {}
    predicted: dict[str, Any] = {}
    comparisons: list[dict[str, Any]] = []
    adaptive: list[dict[str, Any]] = []
    pitfalls: list[PitfallRecord] = []
    heat: list[HeatPoint] = []
    throttling: list[dict[str, Any]] = []
    silent_zones: dict[str, str] = {}
    sampler: SamplerCost | None = None
    markers: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    artefacts: dict[str, dict[str, Any]] = {}
    versions: dict[str, str] = {}
    event_count: int = 0
    events_sha256: str | None = None


def record_of(
    state: LabState,
    header: Header,
    *,
    events_sha256: str | None,
    sealed: bool = True,
    recovery: str | None = None,
) -> SessionRecord:
    """Reduce a state to the record that people mail each other; times become seconds since the session began."""

    def since(t: float) -> float:
        return round(t - header.t0, 3)

    def timed(event: msgspec.Struct) -> dict[str, Any]:
        fields = msgspec.to_builtins(event)
        return {**fields, "t": since(fields["t"])}

    return SessionRecord(
        schema=SCHEMA,
        session=header.session,
        created_utc=header.created_utc,
        sealed=sealed,
        recovered=recovery is not None,
        recovery=recovery,
        simulated=state.identity.simulated,
        identity=state.identity,
        identity_missing=state.identity.missing(),
        facts=state.facts,
        policy=state.policy,
        run=timed(state.run) if state.run else None,
        outcome=state.run_end.outcome if state.run_end else None,
        exit_code=state.run_end.exit_code if state.run_end else None,
        outcome_reason=state.run_end.reason if state.run_end else None,
        duration_s=round(state.elapsed_s, 3),
        stages=[
            StageRecord(
                name=s.name,
                status=s.status,
                seconds=s.seconds,
                wall_s=s.wall_s,
                reason=s.reason,
                summary=s.summary,
                figures=dict(s.figures),
            )
            for s in state.stages.values()
        ],
        configurations=[
            ConfigurationRecord(
                name=c.name,
                figures=c.figures,
                per_class=c.per_class,
                counts=c.counts,
                counts_per_class=c.counts_per_class,
                rounds=[timed(r) for r in c.rounds],
                setting=c.setting,
                advice=c.advice,
                reason=c.reason,
            )
            for c in state.configurations.values()
        ],
        verdicts=[
            msgspec.convert(
                {k: v for k, v in msgspec.to_builtins(v).items() if k not in ("t", "k", "log")}, VerdictRecord
            )
            for v in state.verdicts
        ],
        recipes=recipe_table(state.recipes) if state.recipes else None,
        conclusion=state.conclusion.text if state.conclusion else None,
        earlier_runs=list(state.earlier),
        scenarios=state.conclusion.scenarios if state.conclusion else [],
        exactness=state.conclusion.exactness if state.conclusion else {},
        predicted=state.conclusion.predicted if state.conclusion else {},
        comparisons=state.conclusion.comparisons if state.conclusion else [],
        adaptive=state.conclusion.adaptive if state.conclusion else [],
        pitfalls=[{"pitfall": p.pitfall, "text": p.text, "evidence": p.evidence} for p in state.pitfalls],
        heat=[msgspec.structs.replace(p, t=since(p.t)) for p in state.heat_history.points],
        throttling=[timed(e) for e in state.throttle_events],
        silent_zones=state.silent_zones,
        sampler=state.sampler_cost,
        markers=[timed(m) for m in state.markers],
        gaps=[timed(g) for g in state.gaps],
        artefacts={a.name: {"sha256": a.sha256, "bytes": a.size_bytes} for a in state.artefacts.values()},
        versions=header.versions,
        event_count=state.event_count,
        events_sha256=events_sha256,
    )


def write_record(path: Path, record: SessionRecord) -> None:
    """Write `session.json` atomically, readable by its owner only."""
    write_atomic(path, msgspec.json.encode(record), mode=0o600)


def read_record(path: Path) -> SessionRecord:
    """Read a `session.json`; torn, foreign or newer files are refused with a sentence."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"{path} cannot be read ({error.strerror}).") from None
    try:
        head = decode_foreign(data)
    except Unfit as error:
        raise SessionError(
            f"{path} cannot be used: {error}; if its folder still holds events.jsonl, open the folder to recover it."
        ) from None
    if not isinstance(head, dict) or head.get("format") != "mtplab-session":
        raise SessionError(f"{path} is not an mtplab session: it lacks the format mark.")
    schema = head.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise SessionError(f"{path} names no session schema: the file is damaged.")
    check_schema(schema, path)
    try:
        record: SessionRecord = convert_foreign(head, SessionRecord)
    except Unfit as error:
        raise SessionError(f"{path} is a damaged session: {error}.") from None
    return _reconciled(record)


def _reconciled(record: SessionRecord) -> SessionRecord:
    """The record with everything that it says twice said the careful way: marks are never lost in a mailed file."""
    simulated = record.simulated or record.identity.simulated
    return msgspec.structs.replace(
        record,
        simulated=simulated,
        identity=msgspec.structs.replace(record.identity, simulated=simulated),
        identity_missing=record.identity.missing(),
    )
