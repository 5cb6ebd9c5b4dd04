"""Export, a part of its own: the draft head once more, for judging whole texts in few calls; never deployed."""

from __future__ import annotations

import msgspec

from mtplab.litert.evaluation_graph import POSITIONS, export_evaluation
from mtplab.litert.export import module_names
from mtplab.model.heads import at_gamma
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import ModelSettings, load_frozen, use_one_thread


class Settings(ModelSettings, frozen=True):
    """Parameters of the part."""

    gammas: list[int]


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: evaluation.tflite, evaluation_modules.json."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, 1, "", "reading the model")
    _, head = load_frozen(settings, job)

    longest = at_gamma(head, max(settings.gammas))

    def progress(done: int, total: int, note: str) -> None:
        emit.progress(done, total, "", f"evaluation: {note}")

    path = export_evaluation(longest, job.output("evaluation.tflite"), progress)
    job.output("evaluation_modules.json").write_bytes(msgspec.json.encode(module_names(head, path)))
    emit.progress(1, 1, "", "exported")
    return Output(
        figures={"evaluation_bytes": path.stat().st_size, "evaluation_positions": POSITIONS},
        artefacts=("evaluation.tflite", "evaluation_modules.json"),
        summary=f"evaluation graph of {POSITIONS} positions",
    )
