"""Export frozen torch modules to LiteRT graphs with static shapes and an explicit KV cache."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import torch
import torch.nn as nn

from mtplab.litert.audit import audit, key
from mtplab.litert.errors import LiteRtError
from mtplab.model.backbone import Backbone, empty_cache
from mtplab.model.heads import Head, at_gamma, choosing

# done, total, what is being done
Progress = Callable[[int, int, str], None]

PREFILL_SIZES = (64,)
_LONG_CONTEXT = 512


def prefill_sizes_for(context: int) -> tuple[int, ...]:
    """The prefill lengths to export: short prompts are everyday's, long ones need room for themselves first."""
    return (*PREFILL_SIZES, 128) if context >= _LONG_CONTEXT else PREFILL_SIZES


def unwatched(done: int, total: int, note: str) -> None:
    """Progress that nobody watches."""


def cache_update_slice(cache: torch.Tensor, new: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
    """Write new[1,KV,S,HD] at input_pos[0]…: one DYNAMIC_UPDATE_SLICE, where index_copy becomes a scatter."""
    from litert_torch.generative.custom_ops.dynamic_update_slice import dynamic_update_slice

    zero = torch.zeros((), dtype=torch.int32)
    return cast(torch.Tensor, dynamic_update_slice(cache, new, [zero, zero, input_pos[0], zero]))


def signature_names(gammas: Sequence[int]) -> dict[str, list[str]]:
    """Names of the signatures that depend on γ, by graph: plain where one γ is exported, `verify_G` where several."""
    marks = [""] if len(gammas) == 1 else [f"_{gamma}" for gamma in gammas]
    return {"backbone": [f"verify{mark}" for mark in marks], "head": [f"draft{mark}" for mark in marks]}


def export_head(
    head: Head,
    path: Path,
    progress: Progress = unwatched,
    gammas: Sequence[int] | None = None,
    choices: bool = True,
) -> Path:
    """Write `head` with signatures for each γ of `gammas` (its own γ unless given), weights shared.

    `draft` or `draft_G`: hidden[1,1,D] (and what its family takes) in, logits[1,G,V] out. With `choices` beside each
    a `choices` or `choices_G` of the same inputs that gives ids[1,G] alone.
    """
    gammas = gammas or (head.gamma,)
    names = signature_names(gammas)["head"]
    parts = [at_gamma(head, gamma) for gamma in gammas]
    signatures: dict[str, tuple[nn.Module, dict[str, torch.Tensor]]] = {}
    for name, part in zip(names, parts, strict=True):
        signatures[name] = part, part.example_inputs()
        if choices:
            signatures[name.replace("draft", "choices")] = choosing(part), part.example_inputs()
    return convert(signatures, path, progress)


def export_backbone(
    backbone: Backbone,
    path: Path,
    gammas: Sequence[int],
    prefill_sizes: Sequence[int] = PREFILL_SIZES,
    progress: Progress = unwatched,
) -> Path:
    """Write `backbone` with signatures prefill_N, decode and, for each γ, verify (γ+1 positions), weights shared."""
    context = backbone.config.context
    sizes = {f"prefill_{size}": size for size in prefill_sizes} | {"decode": 1}
    sizes |= {name: gamma + 1 for name, gamma in zip(signature_names(gammas)["backbone"], gammas, strict=True)}
    too_long = [name for name, size in sizes.items() if size > context]
    if too_long:
        raise LiteRtError(
            f"{', '.join(too_long)} cannot be exported for a context of {context} tokens; choose fewer positions."
        )
    signatures = {
        name: (
            backbone,
            {
                "tokens": torch.zeros(1, size, dtype=torch.int32),
                "input_pos": torch.arange(size, dtype=torch.int32),
                **empty_cache(backbone.config),
            },
        )
        for name, size in sizes.items()
    }
    before = backbone.cache_update
    backbone.cache_update = cache_update_slice
    try:
        return convert(signatures, path, progress)
    finally:
        backbone.cache_update = before


def convert(
    signatures: dict[str, tuple[nn.Module, dict[str, torch.Tensor]]], path: Path, progress: Progress
) -> Path:
    """Write the signatures, each a module with example inputs; equal weights are stored once."""
    for module, _ in signatures.values():
        if module.training:
            raise LiteRtError(
                f"{type(module).__name__} is in training mode, so dropout and norm statistics would be exported "
                "live; freeze it first."
            )
        _refuse_half(module)
    import litert_torch

    converter: Any = litert_torch
    for name, (module, inputs) in signatures.items():
        converter = converter.signature(name, module, sample_kwargs=inputs)
    # Per signature one torch export and one lowering; then passes, merge and conversion of the whole.
    with _watched(progress, total=2 * len(signatures) + 3):
        try:
            converter.convert().export(str(path))
        except Exception as error:
            raise LiteRtError(_why_not_converted(module, error)) from error
    return path


# What makes float16 arithmetic fail, and what gives small files all the same.
_HALF = (
    "the converter refuses norms in float16 (tfl.pow and tfl.rsqrt): compute in float32 (torch.nn.RMSNorm does) and "
    "let the recipe fp16 store the weights as float16"
)


def _refuse_half(module: nn.Module) -> None:
    """Before minutes of work: weights in half precision make half-precision norms."""
    half = [name for name, value in module.named_parameters() if value.dtype in (torch.float16, torch.bfloat16)]
    if half:
        raise LiteRtError(
            f"{type(module).__name__} holds {len(half)} weights in half precision ({half[0]} for one), and {_HALF}."
        )


def _why_not_converted(module: nn.Module, error: Exception) -> str:
    reason = str(error).strip().splitlines()
    what = f"{type(module).__name__} could not be converted"
    if re.search(r"'tfl\.\w+' that was explicitly marked illegal.*xf16>", str(error)):
        return f"{what}, because {_HALF}."
    first = reason[0] if reason else "no reason given"
    return f"{what} ({type(error).__name__}: {first}); look at its norm layers and dtypes first."


def module_names(module: nn.Module, path: Path) -> dict[str, str]:
    """Which parameter of `module` each operation of the float graph at `path` reads, by `audit.key`.

    Found by content: tensor names of a converted graph are fused from several modules and name the wrong one.
    """
    by_content = {
        hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest(): name
        for name, value in reversed(list(module.state_dict().items()))
    }
    return {
        key(use): by_content[weight.sha256]
        for weight in audit(path).weights
        if weight.sha256 in by_content
        for use in weight.uses
    }


_LINE = re.compile(r"\[\s*(START|DONE|FAIL)\s*\]\s+LiteRT-Torch Convert > ([^>()]+?)\s*(?:\(\+.*)?$")


class ConverterLines(io.TextIOBase):
    """Standard output of the converter: passed on, and its [START]/[DONE] lines turned into progress."""

    def __init__(self, progress: Progress, total: int, onward: TextIO) -> None:
        self._progress, self._total, self._onward = progress, total, onward
        self._done, self._rest = 0, ""

    def write(self, text: str) -> int:
        self._onward.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._read(line)
        return len(text)

    def flush(self) -> None:
        self._onward.flush()

    def _read(self, line: str) -> None:
        found = _LINE.search(line)
        if not found:
            return
        if found[1] == "DONE":
            self._done = min(self._done + 1, self._total)
        self._progress(self._done, self._total, found[2])


@contextlib.contextmanager
def _watched(progress: Progress, total: int) -> Iterator[None]:
    # The converter reports in no other way than by printing.
    with warnings.catch_warnings(), contextlib.redirect_stdout(ConverterLines(progress, total, sys.stdout)):
        warnings.simplefilter("ignore")
        yield
