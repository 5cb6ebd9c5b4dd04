"""Export: head and backbone as LiteRT graphs, with the map from each weight in them to its module."""

from __future__ import annotations

import msgspec

from mtplab.litert.export import PREFILL_SIZES, export_backbone, export_head, module_names
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import load_frozen, use_one_thread

# Shares of the progress bar: the backbone has more signatures and takes far longer.
_HEAD_SHARE = 0.15


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage."""

    model: str
    model_files: dict[str, str]
    head: str
    gamma: int


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: head.tflite, backbone.tflite, modules.json."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 1, "", "reading the model")
    model, head = load_frozen(
        settings.model, settings.model_files, settings.head, settings.gamma, job.input("weights.json")
    )
    emit.log(f"exporting a {settings.head} head with γ = {settings.gamma}")

    def head_progress(done: int, total: int, note: str) -> None:
        emit.progress(_HEAD_SHARE * done / total, 1, "", f"head: {note}")

    def backbone_progress(done: int, total: int, note: str) -> None:
        emit.progress(_HEAD_SHARE + (1 - _HEAD_SHARE) * done / total, 1, "", f"backbone: {note}")

    head_path = export_head(head, job.output("head.tflite"), head_progress)
    backbone_path = export_backbone(
        model.backbone, job.output("backbone.tflite"), settings.gamma, PREFILL_SIZES, backbone_progress
    )
    modules = {
        "backbone": module_names(model.backbone, backbone_path),
        "head": module_names(head, head_path),
    }
    job.output("modules.json").write_bytes(msgspec.json.encode(modules))
    signatures = [*(f"prefill_{size}" for size in PREFILL_SIZES), "decode", "verify"]
    backbone_bytes, head_bytes = backbone_path.stat().st_size, head_path.stat().st_size
    figures = {
        "backbone_bytes": backbone_bytes,
        "head_bytes": head_bytes,
        "backbone_signatures": signatures,
        "head_signatures": ["draft"],
        "context": model.config.context,
        "gamma": settings.gamma,
        "named_weights": {graph: len(set(names.values())) for graph, names in modules.items()},
    }
    emit.progress(1, 1, "", "exported")
    return Output(
        figures=figures,
        artefacts=("head.tflite", "backbone.tflite", "modules.json"),
        summary=(f"backbone {backbone_bytes / 1e6:.1f} MB ({', '.join(signatures)}), head {head_bytes / 1e6:.1f} MB"),
    )
