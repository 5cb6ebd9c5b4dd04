"""A session for one cell of an experiment, cut out of the session in which it was measured beside the others."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.benchlog.files import exit_code_of
from mtplab.engine.experiment import Cell, Experiment
from mtplab.measure import pitfalls
from mtplab.measure.conclude import MeasuredRound
from mtplab.measure.exactness import Exactness, compare_outputs
from mtplab.measure.figures import configuration_figures, from_builtins, round_rates
from mtplab.measure.plan import DEPLOYED, PLAIN, plain_of
from mtplab.measure.protocol import PromptRun
from mtplab.measure.rounds import advise, cold_rounds
from mtplab.model.prompts import PromptSet, prompts_sha256
from mtplab.pipeline.stages.conclude import concluded, summarise
from mtplab.session import archive
from mtplab.session import events as ev
from mtplab.session.configuration import Configuration
from mtplab.session.events import Header
from mtplab.session.identity import Identity, Policy
from mtplab.session.record import record_of, write_record
from mtplab.session.state import ConfigurationView, LabState, standing


def write_cell(
    cell: Cell,
    experiment: Experiment,
    state: LabState,
    header: Header,
    configurations: Sequence[Configuration],
    outputs: Mapping[str, Sequence[PromptRun]],
    prompts: PromptSet,
) -> Path:
    """Write the cell's `session.json`, complete by itself, into a folder of its own named after it.

    Its events stay in the session it was measured in, which its run names. OSError or SessionError where the folder
    cannot be written.
    """
    device = state.identity.device_model or "unknown-device"
    folder, own = archive.new_session(device, f"{experiment.name}-{cell.name}", header.versions)
    told = Header(
        schema=own.schema, session=own.session, created_utc=header.created_utc, t0=header.t0, versions=own.versions
    )
    seen = cut_out(cell, state, header.session, configurations, outputs, prompts)
    record = msgspec.structs.replace(record_of(seen, told, events_sha256=None), event_count=0)
    write_record(folder / archive.RECORD, record)
    return folder


def cut_out(
    cell: Cell,
    state: LabState,
    session: str,
    configurations: Sequence[Configuration],
    outputs: Mapping[str, Sequence[PromptRun]],
    prompts: PromptSet,
) -> LabState:
    """The state as if nothing but this cell had been measured; heat, facts and stages are those of the whole."""
    assert state.run is not None and state.run_end is not None
    plain = plain_of(cell.configuration, configurations)
    assert plain is not None  # a group measures plain decoding on every ground
    policy = _policy(state.run.policy, cell, prompts)
    seen = copy.copy(state)
    seen.identity = _identity(state.identity, cell)
    seen.run = msgspec.structs.replace(
        state.run, policy=policy, experiment=f"{cell.name}, measured beside others in {session}"
    )
    # The cell is whole whatever became of the others, but what the bench saw is true of it, too.
    code = exit_code_of([standing(verdict) for verdict in state.verdicts if verdict.requested != "cpu"])
    seen.run_end = msgspec.structs.replace(state.run_end, outcome="done", exit_code=code, reason=None)
    deployed = msgspec.structs.replace(cell.configuration, name=DEPLOYED)
    off = msgspec.structs.replace(plain, name=PLAIN)
    seen.configurations = {
        PLAIN: _view(off, state.configurations[plain.name], cell.klass),
        DEPLOYED: _view(deployed, state.configurations[cell.configuration.name], cell.klass),
    }
    rounds = {name: _rounds(view) for name, view in seen.configurations.items()}
    own = None if policy.temperature else _exactness(cell, plain, outputs)
    _, seen.conclusion = concluded(
        [off, deployed], rounds, {DEPLOYED: own}, own, policy=policy, simulated=seen.identity.simulated,
        metadata_missing=seen.identity.missing(),
    )  # fmt: skip
    stages: dict[str, dict[str, Any]] = {name: dict(stage.figures) for name, stage in state.stages.items()}
    summary = summarise(stages, seen, PLAIN, DEPLOYED)
    t = state.run_end.t
    seen.pitfalls = [
        ev.PitfallFound(t=t, pitfall=f.pitfall, text=f.text, evidence=f.evidence) for f in pitfalls.found(summary)
    ]
    seen.earlier, seen.markers = [], []
    return seen


def _exactness(cell: Cell, plain: Configuration, outputs: Mapping[str, Sequence[PromptRun]]) -> Exactness:
    """Whether drafting changed an output of this cell's own prompts."""
    off, on = (
        [run for run in outputs.get(name, []) if cell.klass in (None, run.klass)]
        for name in (plain.name, cell.configuration.name)
    )
    return compare_outputs(off, on)


def _identity(identity: Identity, cell: Cell) -> Identity:
    return msgspec.structs.replace(
        identity, gamma=cell.configuration.gamma, draft_length=cell.configuration.draft_length
    )


def _policy(policy: Policy, cell: Cell, prompts: PromptSet) -> Policy:
    """The cell's own policy; a class of prompts is another prompt set, with a hash of its own."""
    configuration = cell.configuration
    if cell.klass is not None:
        policy = msgspec.structs.replace(
            policy,
            prompt_set=f"{policy.prompt_set}/{cell.klass}",
            prompt_set_sha256=prompts_sha256(tuple(prompts.of_class(cell.klass))),
        )
    return msgspec.structs.replace(
        policy,
        draft_length=configuration.draft_length or "",
        threads=configuration.threads,
        backend=configuration.backend,
        core_mask=configuration.core_mask,
    )


def _view(setting: Configuration, whole: ConfigurationView, klass: str | None) -> ConfigurationView:
    rounds = [
        msgspec.structs.replace(
            r, configuration=setting.name, prompts=[p for p in r.prompts if klass in (None, p.get("class"))]
        )
        for r in whole.rounds
    ]
    chosen, _ = cold_rounds([(r.marks, from_builtins(r.prompts)) for r in rounds])
    result = configuration_figures(chosen, mtp=setting.mtp)
    return ConfigurationView(
        name=setting.name,
        figures=result.figures,
        per_class=result.per_class,
        counts=result.counts,
        counts_per_class=result.counts_per_class,
        rounds=rounds,
        setting=setting,
        advice=advise(round_rates(chosen)).text,
    )


def _rounds(view: ConfigurationView) -> list[MeasuredRound]:
    return [MeasuredRound(tuple(r.marks), tuple(from_builtins(r.prompts))) for r in view.rounds]
