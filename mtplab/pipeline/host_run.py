"""Run a host stage: out of the cache where its key is finished, else in a worker process, part by part."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Mapping
from typing import Any

from mtplab.pipeline import fingerprint
from mtplab.pipeline.cache import Finished, Store, stage_key
from mtplab.pipeline.errors import PipelineError
from mtplab.pipeline.job import Job
from mtplab.pipeline.process import OnEvent, run_worker
from mtplab.pipeline.stage import HostStage, StageResult, Status, host_stage


def key_of(name: str, params: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The stage's key; no heavy package is imported for it."""
    stage = host_stage(name)
    if stage.parts:
        keys = [key_of(part.name, *_for_part(part, params, inputs)) for part in stage.parts]
        return hashlib.sha256("".join(keys).encode()).hexdigest()
    # The place of a prompt file says nothing; its hash does.
    placeless = {k: _without_path(v) for k, v in params.items()}
    return stage_key(
        name,
        sources=fingerprint.source_hashes([stage.module], stage.data),
        versions=fingerprint.package_versions(stage.packages),
        machine=fingerprint.machine(),
        params=placeless,
        inputs=inputs,
    )


def _without_path(value: Any) -> Any:
    return {k: _without_path(v) for k, v in value.items() if k != "path"} if isinstance(value, dict) else value


def run_host_stage(
    name: str,
    params: Mapping[str, Any],
    inputs: Mapping[str, str],
    store: Store,
    on_event: OnEvent,
    cancel: threading.Event,
    *,
    fresh: bool = False,
) -> StageResult:
    """Give the stage's result from the cache, or run it in a worker process; blocks, calls `on_event` meanwhile.

    `inputs` are hashes of files in `store`. `fresh` runs it again even where it is cached.
    """
    stage = host_stage(name)
    if stage.parts:
        return _run_parts(stage, params, inputs, store, on_event, cancel, fresh=fresh)
    began = time.monotonic()
    key = key_of(name, params, inputs)
    found = None if fresh else store.lookup(key)
    if found is not None:
        return _result(found, "cached", key)
    absent = [own for own, sha256 in inputs.items() if not store.has(sha256)]
    if absent:
        raise PipelineError(
            f"The stage {name} cannot start because its input {absent[0]} is no longer in the cache; "
            "run the stage that makes it again."
        )
    workdir = store.scratch()
    try:
        job = Job(
            stage=name,
            module=stage.module,
            params=dict(params),
            inputs={own: str(store.path(sha256)) for own, sha256 in inputs.items()},
            workdir=str(workdir),
        )
        ended = run_worker(job, on_event, cancel)
        seconds = time.monotonic() - began
        if ended.status != "done":
            return StageResult(
                stage=name,
                status=ended.status,
                seconds=seconds,
                figures=ended.event.get("figures", {}),
                records=ended.event.get("records", {}),
                reason=ended.reason,
                key=key,
            )
        artefacts = {artefact: store.put(workdir / artefact) for artefact in ended.event["artefacts"]}
        finished = Finished(
            stage=name,
            seconds=seconds,
            figures=ended.event["figures"],
            artefacts=artefacts,
            records=ended.event["records"],
            summary=ended.event["summary"],
        )
        store.finish(key, finished)
        return _result(finished, "done", key)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)


def _for_part(
    part: HostStage, params: Mapping[str, Any], inputs: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    return {use: params[use] for use in part.uses}, {own: inputs[own] for own in part.takes if own in inputs}


def _run_parts(
    stage: HostStage,
    params: Mapping[str, Any],
    inputs: Mapping[str, str],
    store: Store,
    on_event: OnEvent,
    cancel: threading.Event,
    *,
    fresh: bool,
) -> StageResult:
    """Run the parts in their order up to the first that does not end well, and join what they gave."""
    results: list[StageResult] = []
    before = 0.0
    for part in stage.parts:
        told = _scaled(on_event, before, part.share)
        own_params, own_inputs = _for_part(part, params, inputs)
        results.append(run_host_stage(part.name, own_params, own_inputs, store, told, cancel, fresh=fresh))
        before += part.share
        if results[-1].status not in ("done", "cached"):
            break
    last = results[-1]
    ended = all(one.status == "cached" for one in results)
    return StageResult(
        stage=stage.name,
        status="cached" if ended else last.status if last.status != "cached" else "done",
        seconds=sum(one.seconds for one in results),
        figures={name: value for one in results for name, value in one.figures.items()},
        artefacts={name: ref for one in results for name, ref in one.artefacts.items()},
        records={name: value for one in results for name, value in one.records.items()},
        summary="; ".join(one.summary for one in results if one.summary),
        reason=last.reason,
        key=key_of(stage.name, params, inputs),
    )


def _scaled(on_event: OnEvent, before: float, share: float) -> OnEvent:
    """Progress of a part as progress of the whole."""

    def told(event: dict[str, Any]) -> None:
        if event["e"] == "progress" and event.get("total"):
            done = before + share * float(event["done"]) / float(event["total"])
            event = {**event, "done": done, "total": 1.0, "unit": ""}
        on_event(event)

    return told


def _result(finished: Finished, status: Status, key: str) -> StageResult:
    return StageResult(
        stage=finished.stage,
        status=status,
        seconds=finished.seconds,
        figures=finished.figures,
        artefacts=finished.artefacts,
        records=finished.records,
        summary=finished.summary,
        key=key,
    )
