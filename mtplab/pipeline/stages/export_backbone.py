"""Export, second part: the backbone as a LiteRT graph, with the map from each weight in it to its module."""

from __future__ import annotations

import msgspec

from mtplab.litert.export import export_backbone, module_names, prefill_sizes_for, signature_names
from mtplab.model.memory import require_export_memory
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import load_frozen_backbone, use_one_thread


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the part: nothing about heads, so that another head exports no backbone again."""

    model: str
    backbone_files: dict[str, str]
    gammas: list[int]


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: backbone.tflite, backbone_modules.json."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 1, "", "reading the model")
    model = load_frozen_backbone(settings.model, settings.backbone_files, job)

    def progress(done: int, total: int, note: str) -> None:
        emit.progress(done, total, "", f"backbone: {note}")

    require_export_memory(model.name, model.config)
    sizes = prefill_sizes_for(model.config.context)
    path = export_backbone(model.backbone, job.output("backbone.tflite"), settings.gammas, sizes, progress)
    names = module_names(model.backbone, path)
    job.output("backbone_modules.json").write_bytes(msgspec.json.encode(names))
    verifies = signature_names(settings.gammas)["backbone"]
    signatures = [*(f"prefill_{size}" for size in sizes), "decode", *verifies]
    size = path.stat().st_size
    figures = {
        "backbone_bytes": size,
        "backbone_signatures": signatures,
        "context": model.config.context,
        "backbone_named_weights": len(set(names.values())),
    }
    emit.progress(1, 1, "", "exported")
    return Output(
        figures=figures,
        artefacts=("backbone.tflite", "backbone_modules.json"),
        summary=f"backbone {size / 1e6:.1f} MB ({', '.join(signatures)})",
    )
