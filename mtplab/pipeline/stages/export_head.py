"""Export, first part: the draft head as a LiteRT graph, with the map from each weight in it to its module."""

from __future__ import annotations

import msgspec

from mtplab.litert.export import export_head, module_names, signature_names
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import ModelSettings, load_frozen, use_one_thread


class Settings(ModelSettings, frozen=True):
    """Parameters of the part."""

    gammas: list[int]


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: head.tflite, head_modules.json."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 1, "", "reading the model")
    _, head = load_frozen(settings, job)

    def progress(done: int, total: int, note: str) -> None:
        emit.progress(done, total, "", f"head: {note}")

    path = export_head(head, job.output("head.tflite"), progress, settings.gammas)
    names = module_names(head, path)
    job.output("head_modules.json").write_bytes(msgspec.json.encode(names))
    signatures = signature_names(settings.gammas)["head"]
    size = path.stat().st_size
    figures = {
        "head_bytes": size,
        "head_signatures": signatures,
        "head_kind": head.config.kind,
        "trained_gamma": head.gamma,
        "gammas": settings.gammas,
        "head_named_weights": len(set(names.values())),
    }
    emit.progress(1, 1, "", "exported")
    return Output(
        figures=figures,
        artefacts=("head.tflite", "head_modules.json"),
        summary=f"head {size / 1e6:.1f} MB ({', '.join(signatures)})",
    )
