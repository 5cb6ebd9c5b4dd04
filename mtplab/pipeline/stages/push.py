"""Push: bring the deployed files to the phone, and prove by hash that they are there."""

from __future__ import annotations

import hashlib
import time

from mtplab.device import paths
from mtplab.device.errors import Cancelled, DeviceError
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageCancelled, StageFailed

_SUFFIXES = {"backbone": ".tflite", "head": ".tflite", "tokenizer": ".json", "prompts": ".jsonl"}


def device_path(name: str, sha256: str) -> str:
    """Where an artefact of that content lies on the phone.

    Named by content, so that two recipes can lie side by side and are never mixed up.
    """
    folder = paths.INPUTS_DIR if name.startswith("input-") else paths.MODELS_DIR
    return f"{folder}/{name.removesuffix('.bin')}-{sha256[:12]}{_SUFFIXES.get(name, '.bin')}"


def run(context: DeviceContext) -> Outcome:
    """Push every file of `context.files`; equal files (by hash) are not sent again."""
    began = time.monotonic()
    total = sum(path.stat().st_size for path in context.files.values())
    sent = skipped = finished = 0
    figures: dict[str, object] = {}
    for name, local in context.files.items():
        context.check_cancelled()
        target = device_path(name, hashlib.sha256(local.read_bytes()).hexdigest())

        def on_progress(done: int, _size: int, name: str = name, before: int = finished) -> None:
            context.progress("push", before + done, total, "bytes", name, began)

        try:
            result = context.link.push(local, target, on_progress, cancel=context.cancel.is_set)
        except Cancelled:
            raise StageCancelled from None
        except DeviceError as error:
            raise StageFailed(f"{name} could not be pushed: {error}") from error
        context.pushed[name] = result.dst
        finished += result.bytes
        sent += 0 if result.skipped else result.bytes
        skipped += result.skipped
        figures[name] = {"path": result.dst, "sha256": result.sha256, "bytes": result.bytes}
    seconds = time.monotonic() - began
    figures["bytes_sent"] = sent
    figures["seconds"] = round(seconds, 3)
    count = len(context.files)
    summary = (
        f"{count} files there already, equal by sha256"
        if skipped == count
        else f"{count} files, {sent / 1e6:.1f} MB sent at {sent / 1e6 / seconds:.0f} MB/s, verified by sha256"
    )
    return Outcome(figures, summary, cached=skipped == count)


