"""Align: the same real text through torch and LiteRT; below the threshold nothing is quantised (R7)."""

from __future__ import annotations

from typing import Any

import msgspec

from mtplab.litert.align import Agreement, align_backbone, align_head
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
from mtplab.pipeline.stages.loading import ModelSettings, load_frozen, read_texts, use_one_thread

HIDDEN_STATES = 400  # through the head; one position in 400 still passes a threshold of 0.99
SEQUENCES = 12  # real texts through the backbone
THREADS = 1  # logits do not depend on it
LONGEST = 96  # tokens of each


class Settings(ModelSettings, frozen=True):
    """Parameters of the stage."""

    acceptance_prompts: dict[str, str]
    alignment_threshold: float


def run(job: Job, emit: Emitter) -> Output:
    """No artefact; figures per graph: top-1 agreement, largest difference, positions compared."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 3, "graphs", "reading the model")
    model, head = load_frozen(settings, job)
    longest = min(LONGEST, model.config.context)
    texts = read_texts(settings.acceptance_prompts["path"], model.tokenizer_path, longest, model.reading())
    # Evenly from the whole set, so that every class of prompt is in it.
    chosen = texts[:: max(1, len(texts) // SEQUENCES)]
    sequences = [text.tokens for text in chosen]
    backbone_runtime = LiteRtBackbone(job.input("backbone.tflite"), THREADS)
    head_runtime = LiteRtHead(job.input("head.tflite"), THREADS, backbone=backbone_runtime)
    emit.progress(1, 3, "graphs", "head")
    found = align_head(head_runtime, head, model.backbone, sequences, HIDDEN_STATES, backbone_runtime)
    emit.progress(2, 3, "graphs", "backbone")
    found += align_backbone(backbone_runtime, model.backbone, sequences)
    figures: dict[str, Any] = {agreement.graph: msgspec.to_builtins(agreement) for agreement in found}
    figures |= {"threshold": settings.alignment_threshold, "cache_mode": backbone_runtime.cache_mode}
    worst = min(found, key=lambda agreement: agreement.worst)
    figures["worst_top1"] = worst.worst
    for agreement in found:
        emit.figure(f"{agreement.graph} top-1", agreement.worst)
    if worst.worst < settings.alignment_threshold:
        raise StageFailed(complaint(worst, settings.alignment_threshold), figures)
    emit.progress(3, 3, "graphs", "aligned")
    return Output(
        figures=figures,
        summary=(
            f"torch and LiteRT choose the same token in {worst.worst:.1%} or more of positions in every graph "
            f"(largest difference {max(agreement.max_abs_diff for agreement in found):.1e})"
        ),
    )


def complaint(worst: Agreement, threshold: float) -> str:
    """What to say when a graph does not agree with torch."""
    where = ""
    if len(worst.top1) > 1:
        where = f" at draft position {worst.top1.index(worst.worst) + 1}"
    return (
        f"The exported {worst.graph} graph chooses torch's token in only {worst.worst:.1%} of {worst.n} positions"
        f"{where}, below {threshold:.0%}, so quantisation would be measured on a wrong graph; look at the norm "
        "layers (epsilon, float32 inside) and the dtypes of the export."
    )
