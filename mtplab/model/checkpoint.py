"""Resumable training: named tensors, optimiser state and progress in one safetensors file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from mtplab.model.errors import ModelError
from mtplab.model.optim import MuonAdam
from mtplab.model.weights import assign, read_tensors

Say = Callable[[str], None]
SAVE_EVERY_STEPS = 50


def save_checkpoint(path: Path, tensors: Mapping[str, torch.Tensor], optimiser: MuonAdam, seconds: float) -> None:
    """Write everything beside the file and replace it at once, so that a half-written one never appears."""
    everything = {f"model.{name}": value.detach().contiguous() for name, value in tensors.items()}
    everything |= {f"optim.{name}": value.contiguous() for name, value in optimiser.state.items()}
    partial = path.with_suffix(".part")
    save_file(everything, partial, metadata={"step": str(optimiser.steps), "seconds": repr(seconds)})
    partial.replace(path)


def load_checkpoint(path: Path, tensors: Mapping[str, torch.Tensor], optimiser: MuonAdam | None = None) -> float:
    """Restore `tensors` and the optimiser in place; returns the seconds spent so far."""
    stored, metadata = read_tensors(path)
    if "step" not in metadata:
        raise ModelError(f"{path.name} is no checkpoint of a training run; remove it and train again.")
    parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "optim": {}}
    for name, value in stored.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    assign(path.name, tensors, parts["model"])
    if optimiser is not None:
        assign(path.name, optimiser.state, parts["optim"])
        optimiser.steps = int(metadata["step"])
    return float(metadata["seconds"])


class Progress:
    """Counts time over resumed runs, prints a line and writes the checkpoint every `every` steps."""

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, torch.Tensor],
        optimiser: MuonAdam,
        of: int,
        say: Say,
        every: int = SAVE_EVERY_STEPS,
    ) -> None:
        self.every = every
        self.path, self.tensors, self.optimiser, self.of, self.say = path, tensors, optimiser, of, say
        self.before = load_checkpoint(path, tensors, optimiser) if path.exists() else 0.0
        self.first = optimiser.steps
        self.started = time.monotonic()
        self.smooth: float | None = None
        if self.first:
            say(f"resumed after step {self.first}")

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.started

    def steps(self) -> range:
        """The steps still to do."""
        return range(self.first, self.of)

    def done(self, loss: float, extra: Callable[[], Mapping[str, float]] = dict) -> None:
        """Account for one finished step; `extra` is asked only when a line is printed."""
        self.smooth = loss if self.smooth is None else 0.95 * self.smooth + 0.05 * loss
        step = self.optimiser.steps
        if step % self.every and step != self.of:
            return
        eta = (time.monotonic() - self.started) / (step - self.first) * (self.of - step)
        line = {"step": step, "of": self.of, "loss": round(self.smooth, 4), **extra()}
        self.say(json.dumps({**line, "seconds": round(self.seconds), "eta_s": round(eta)}))
        self.save()

    def save(self) -> None:
        """Write the checkpoint now."""
        save_checkpoint(self.path, self.tensors, self.optimiser, self.seconds)
