"""Export a draft head as LiteRT-LM's drafter: a graph of its own, so that it decides nothing of our own exports."""

from __future__ import annotations

from pathlib import Path

from mtplab.litert.export import Progress, convert, unwatched
from mtplab.model.backbone import Backbone
from mtplab.model.heads import Head
from mtplab.model.single_step import SingleStep


def export_drafter(head: Head, backbone: Backbone, path: Path, progress: Progress = unwatched) -> Path:
    """Write `head` as signature `mtp_drafter`; see `model/single_step.py`."""
    step = SingleStep(head, backbone)
    return convert({"mtp_drafter": (step, step.example_inputs())}, path, progress)
