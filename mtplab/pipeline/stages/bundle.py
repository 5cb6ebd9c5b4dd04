"""Bundle: the deployed backbone and its head as a `.litertlm` file, which LiteRT-LM runs with and without MTP."""

from __future__ import annotations

from mtplab.litert.bundle import Bundle, Text, write_bundle
from mtplab.litert.drafter import export_drafter
from mtplab.litert.quantise import quantise
from mtplab.litert.recipes import Recipe
from mtplab.model.errors import ModelError
from mtplab.pipeline.job import Emitter, Job, Output, StageFailed
from mtplab.pipeline.stages.loading import ModelSettings, load_frozen, use_one_thread

ARTEFACT = "model.litertlm"
_STEPS = 3


class Settings(ModelSettings, frozen=True):
    """Parameters of the stage."""

    gamma: int
    recipes: dict[str, Recipe]


def run(job: Job, emit: Emitter) -> Output:
    """Artefact: model.litertlm, with the quantised backbone of this run and a drafter by the head's recipe."""
    settings = job.settings(Settings)
    use_one_thread()
    emit.progress(0, _STEPS, "steps", "reading the model")
    model, head = load_frozen(settings, job)
    emit.progress(1, _STEPS, "steps", "drafter: export")
    try:
        exported = export_drafter(head, model.backbone, job.output("drafter.float.tflite"))
    except ModelError as error:
        raise StageFailed(str(error)) from error
    done = quantise(exported, job.output("drafter.tflite"), settings.recipes["head"])
    emit.progress(2, _STEPS, "steps", "packing")
    text = Text(
        stop_tokens=sorted({model.end_token, *model.end_tokens}),
        chat_template=model.chat_template,
        special_tokens=model.special_tokens,
    )
    made = write_bundle(
        job.input("backbone.tflite"), job.output("drafter.tflite"), job.input("tokenizer.json"),
        text, settings.gamma, job.output(ARTEFACT),
    )  # fmt: skip
    emit.progress(_STEPS, _STEPS, "steps", "bundled")
    figures = {
        "bytes": made.bytes,
        "sections": made.sections,
        "gamma": made.gamma,
        "context": made.context,
        "prefill_sizes": list(made.prefill_sizes),
        "drafter_recipe": done.recipe,
        "drafter_dtypes_by_role": done.after.dtypes_by_role(),
    }
    return Output(figures=figures, artefacts=(ARTEFACT,), summary=_sentence(made))


def _sentence(made: Bundle) -> str:
    parts = ", ".join(f"{section.lower()} {size / 1e6:.1f} MB" for section, size in made.sections.items())
    return f"{made.bytes / 1e6:.1f} MB for LiteRT-LM (γ = {made.gamma}, context {made.context}): {parts}"
