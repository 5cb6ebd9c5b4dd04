"""Calibrate: the set of prompts through every signature of both float graphs, for recipes that fix ranges (R9)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mtplab.calibration.build import Plan, build_set
from mtplab.calibration.reader import Reader
from mtplab.calibration.record import CalibrationSet, load_set, require_tokenizer
from mtplab.calibration.sources import read_logs
from mtplab.litert.calibrate import GRAPHS, PLAIN_STEPS, Collected, Widening, collect
from mtplab.litert.statistics import sha256_of, signatures_of
from mtplab.pipeline.job import Emitter, Job, Output
from mtplab.pipeline.stages.loading import load_chosen, require_files, use_one_thread
from mtplab.session.paths import cache_dir

if TYPE_CHECKING:
    from mtplab.model.sources import LoadedModel

THREADS = 1  # ranges do not depend on it
SHIPPED_LOG = "calibration"
STATISTICS = "statistics.json"
SHIPPED_SIZE = 256
"""Prompts of the set that is built here, out of a log without a plan of its own."""


class Settings(msgspec.Struct, frozen=True):
    """Parameters of the stage. `calibration` is a finished set, or a log to build one of."""

    model: str
    model_files: dict[str, str]
    calibration: dict[str, str]
    calibration_ranges: Widening


def run(job: Job, emit: Emitter) -> Output:
    """Artefacts: statistics of each graph in the quantiser's own form, and both in statistics.json.

    `statistics.json` is {graph: {tensor: {min, max}}}. Token ids are as private as the log they came from, so the
    set is no artefact: its hash stands in the figures. Work is kept in the cache as it goes on, so that a stage that
    was killed goes on where it was.
    """
    settings = job.settings(Settings)
    graphs = {name: job.input(f"{name}.tflite") for name in GRAPHS}
    found = _calibration_set(settings, job, graphs["backbone"], emit)

    def progress(done: int, total: int, note: str) -> None:
        emit.progress(done, total, "prompts", note)

    collected = collect(
        graphs,
        [one.tokens for one in found.prompts],
        found.sha256,
        job.output("."),
        progress,
        resume=_resume(found, graphs, settings),
        widening=settings.calibration_ranges,
        threads=THREADS,
    )
    files = {name: f"{name}_statistics.json" for name in GRAPHS}
    whole = {name: json.loads(job.output(file).read_bytes())["model_qsvs"] for name, file in files.items()}
    job.output(STATISTICS).write_bytes(msgspec.json.encode(whole))
    emit.progress(collected.prompts, collected.prompts, "prompts", "every signature has its ranges")
    return Output(
        figures={
            "set": msgspec.to_builtins(found.report()),
            "statistics": msgspec.to_builtins(collected),
            "ranges": settings.calibration_ranges,
        },
        artefacts=(STATISTICS, *files.values()),
        summary=_sentence(found, collected),
    )


def _calibration_set(settings: Settings, job: Job, backbone: Path, emit: Emitter) -> CalibrationSet:
    decode = signatures_of(backbone)["decode"]
    vocab, path = decode.outputs["logits"][-1], Path(settings.calibration["path"])
    tokenizer = job.input("tokenizer.json")
    if path.suffix == ".json":
        found = load_set(path)
        require_tokenizer(found, settings.model, hashlib.sha256(tokenizer.read_bytes()).hexdigest(), vocab)
        return found
    use_one_thread()
    model = load_chosen(settings.model)
    require_files(model.name, model.files, settings.model_files)
    # The shipped log has none; a log of the user's must carry production's, or be built into a set that declares it.
    no_system = settings.calibration["name"] == SHIPPED_LOG
    plan = Plan(longest=longest(signatures_of(backbone)), size=SHIPPED_SIZE, no_system=no_system)

    def progress(done: int, total: int, note: str) -> None:
        emit.progress(0, 1, "", f"{note}: {done} of {total}")

    return build_set(read_logs([path]), reader_of(model, tokenizer), plan, progress)


def reader_of(model: LoadedModel, tokenizer: Path) -> Reader:
    """How a loaded model reads prompts."""
    return Reader(model.name, tokenizer, model.config.vocab, model.chat_template, model.special_tokens)


def longest(signatures: dict[str, Any]) -> int:
    """Tokens of a prompt that leave room for a round of the longest draft and for the plain steps."""
    context = next(shape[2] for name, shape in signatures["decode"].inputs.items() if name.startswith("kv_cache_"))
    widest = max(one.inputs["tokens"][1] for name, one in signatures.items() if name.startswith("verify"))
    return room_in(context, widest - 1)


def room_in(context: int, gamma: int) -> int:
    """The same of a context of that many tokens and drafts of γ."""
    return context - max(gamma + 1, PLAIN_STEPS) - 1


def _resume(found: CalibrationSet, graphs: dict[str, Path], settings: Settings) -> Path:
    """Where the work on exactly this is kept until it is done."""
    about = [found.sha256, settings.calibration_ranges, *(sha256_of(graphs[name]) for name in GRAPHS)]
    return cache_dir() / "calibration" / f"{hashlib.sha256(repr(about).encode()).hexdigest()[:32]}.json"


def _sentence(found: CalibrationSet, collected: Collected) -> str:
    lengths, counts = found.lengths, found.counts
    if lengths.distance_tokens is None:
        distance = f"distance to production unknown: {lengths.reason}"
    else:
        distance = f"{lengths.distance_tokens:.1f} tokens (Wasserstein) from {lengths.production_name}"
    runs = sum(sum(one.values()) for one in collected.samples.values())
    signatures = sum(map(len, collected.samples.values()))
    return (
        f"{counts.chosen} of {counts.read} prompts ({lengths.shortest}–{lengths.longest} tokens, mean "
        f"{lengths.mean:.0f}; {distance}), {runs} runs over {signatures} signatures"
    )
