"""Push: bring the deployed files to the phone, and prove by hash that they are there."""

from __future__ import annotations

import hashlib
import time

from mtplab.device import paths
from mtplab.device.errors import Cancelled, DeviceError
from mtplab.device.transfer import Progress
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageCancelled, StageFailed

_SUFFIXES = {
    "backbone": ".tflite", "head": ".tflite", "tokenizer": ".json", "prompts": ".jsonl", "bundle": ".litertlm",
}  # fmt: skip


def device_path(name: str, sha256: str) -> str:
    """Where an artefact of that content lies on the phone.

    Named by content, so that two recipes can lie side by side and are never mixed up.
    """
    folder = paths.INPUTS_DIR if name.startswith("input-") else paths.MODELS_DIR
    return f"{folder}/{name.removesuffix('.bin')}-{sha256[:12]}{_SUFFIXES.get(name, '.bin')}"


def run(context: DeviceContext) -> Outcome:
    """Push every file of `context.files`; equal files (by hash) are not sent again."""
    began = time.monotonic()
    targets = {
        name: device_path(name, hashlib.sha256(local.read_bytes()).hexdigest())
        for name, local in context.files.items()
    }

    def on_progress(at: Progress) -> None:
        rate = "" if at.bytes_per_s is None else f" · {at.bytes_per_s / 1e6:.1f} MB/s"
        eta_s = None if at.eta_s is None else round(at.eta_s, 1)
        context.progress("push", at.done, at.total, "bytes", f"{at.name}{rate}", eta_s=eta_s)

    try:
        results = context.link.push_all(
            [(local, targets[name]) for name, local in context.files.items()], on_progress, context.cancel.is_set
        )
    except Cancelled:
        raise StageCancelled from None
    except DeviceError as error:
        raise StageFailed(f"The files could not be pushed: {error}") from error
    figures: dict[str, object] = {}
    for name, result in zip(targets, results, strict=True):
        context.pushed[name] = result.dst
        figures[name] = {"path": result.dst, "sha256": result.sha256, "bytes": result.bytes}
    sent = [result for result in results if not result.skipped]
    sent_bytes, sending_s = sum(result.bytes for result in sent), sum(result.seconds for result in sent)
    figures |= {"bytes_sent": sent_bytes, "sending_s": round(sending_s, 3)}
    figures["seconds"] = round(time.monotonic() - began, 3)
    return Outcome(figures, _summary(len(results), len(sent), sent_bytes, sending_s), cached=not sent)


def _summary(count: int, sent: int, sent_bytes: int, sending_s: float) -> str:
    if not sent:
        return f"{count} files there already, equal by sha256"
    rate = f" at {sent_bytes / 1e6 / sending_s:.1f} MB/s" if sending_s > 0 else ""
    there = f" ({count - sent} were there)" if sent < count else ""
    return f"{sent} files{there}, {sent_bytes / 1e6:.1f} MB sent{rate}, verified by sha256"
