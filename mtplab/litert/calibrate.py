"""Run calibration prompts through every signature of both graphs and keep the range of each activation (R9)."""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from mtplab.litert.errors import LiteRtError
from mtplab.litert.shared_ranges import shared_ranges
from mtplab.litert.statistics import (
    Origin,
    Ranges,
    packed,
    require_every_signature,
    sha256_of,
    signatures_of,
    unpacked,
    write_json,
)

Progress = Callable[[int, int, str], None]
# moving_average is the quantiser's own (0.95 of the old range); min_max keeps the widest ever seen
Widening = Literal["moving_average", "min_max"]

PLAIN_STEPS = 2
"""Plain decode steps after each prompt: every prompt then counts as much for `decode` as a short round does."""
GRAPHS = ("backbone", "head")
_SAVE_EVERY_S = 5.0
_QUANTIZER = "ai-edge-quantizer"
_VERIFY = re.compile(r"verify(_\d+)?")
_DRAFT = re.compile(r"(draft|choices)(_\d+)?")


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What was collected; `resumed_after` prompts had been done by an earlier, interrupted call."""

    samples: dict[str, dict[str, int]]
    tensors: dict[str, int]
    prompts: int
    resumed_after: int


class _Graph:
    """One float graph under the quantiser's calibrator: running a signature also widens its ranges."""

    def __init__(self, path: Path, threads: int, widening: Widening) -> None:
        from ai_edge_quantizer import calibrator, recipe_manager
        from ai_edge_quantizer.utils.qsv_utils import min_max_update

        self.path, self.signatures = path, signatures_of(path)
        self.shapes = {name: one.inputs for name, one in self.signatures.items()}
        self.samples = dict.fromkeys(self.shapes, 0)
        more = {"qsv_update_func": min_max_update} if widening == "min_max" else {}
        # Ranges are found inside the kernels, some fifteen times faster than by copying out every tensor.
        mode = calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED
        self._calibrator = calibrator.Calibrator(str(path), num_threads=threads, mode=mode, **more)
        self._recipe = recipe_manager.RecipeManager()  # asked for, and of no effect in this mode: all ranges are kept

    @property
    def ranges(self) -> Ranges:
        """All ranges so far."""
        ranges: Ranges = self._calibrator.get_model_qsvs()
        return ranges

    def resume(self, ranges: Ranges, samples: dict[str, int]) -> None:
        """Go on from ranges that were saved."""
        self._calibrator.load_model_qsvs(ranges)
        self.samples = dict(samples)

    def run(self, signature: str, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Outputs of one run by name; its activations have widened the ranges."""
        with contextlib.redirect_stderr(io.StringIO()):  # a bar for every run
            self._calibrator.calibrate({signature: [inputs]}, self._recipe, cache_output=True)
        outputs: dict[str, NDArray[np.float32]] = self._calibrator.get_cached_output()[0]
        self._calibrator.clear_cached_output()
        self.samples[signature] += 1
        return outputs


def collect(
    graphs: dict[str, Path],
    prompts: Sequence[Sequence[int]],
    set_sha256: str,
    folder: Path,
    progress: Progress,
    *,
    resume: Path | None = None,
    widening: Widening = "moving_average",
    threads: int = 1,
) -> Collected:
    """Write `backbone_statistics.json` and `head_statistics.json` into `folder`.

    Every prompt goes through every prefill shape, then through one true round of each exported draft length and a few
    plain steps, so that draft, verify and decode see the states, tokens and caches of real use. In `resume`, where
    given, the work done so far is kept: an interrupted call goes on there and ends with the same ranges. Raises
    `LiteRtError` where a signature gets no data or an activation is no number.
    """
    work = _Work(graphs, set_sha256, widening, threads, resume)
    done = work.begin(len(prompts))
    saved = time.monotonic()
    for number in range(done, len(prompts)):
        progress(number, len(prompts), f"{sum(work.samples.values())} runs")
        work.one(prompts[number])
        if time.monotonic() - saved > _SAVE_EVERY_S:
            work.save(number + 1)
            saved = time.monotonic()
    return work.finish(folder, len(prompts), done)


class _Work:
    """Both graphs, and the state that survives an interruption."""

    def __init__(
        self, graphs: dict[str, Path], set_sha256: str, widening: Widening, threads: int, resume: Path | None
    ) -> None:
        self.backbone, self.head = (_Graph(graphs[name], threads, widening) for name in GRAPHS)
        self._set_sha256, self._widening, self._resume = set_sha256, widening, resume
        self._version = metadata.version(_QUANTIZER)
        self._sha256 = {name: sha256_of(graphs[name]) for name in GRAPHS}
        shapes = self.backbone.shapes
        self.prefills = sorted(shape["tokens"][1] for name, shape in shapes.items() if name.startswith("prefill_"))
        self.verifies = {shape["tokens"][1] - 1: name for name, shape in shapes.items() if _VERIFY.fullmatch(name)}
        self.caches = {
            name: shape for name, shape in shapes.get("decode", {}).items() if name.startswith("kv_cache_")
        }
        if not self.prefills or not self.verifies or not self.caches:
            raise LiteRtError(
                f"The backbone has the signatures {', '.join(shapes) or 'none'} but calibration needs prefill_N, "
                "decode and verify with a cache; export it with mtplab."
            )
        self.context = next(iter(self.caches.values()))[2]

    @property
    def samples(self) -> dict[str, int]:
        return self.backbone.samples | self.head.samples

    # -- what survives ----------------------------------------------------------
    def _origin(self, name: str, prompts: int, samples: dict[str, int]) -> Origin:
        return Origin(
            graph_sha256=self._sha256[name],
            set_sha256=self._set_sha256,
            ranges=self._widening,
            prompts=prompts,
            samples=samples,
            quantizer=self._version,
        )

    def _graphs(self) -> Iterator[tuple[str, _Graph]]:
        return zip(GRAPHS, (self.backbone, self.head), strict=True)

    def begin(self, total: int) -> int:
        """Prompts that an interrupted call has done already; 0 where it was about something else, or left nothing."""
        if self._resume is None or not self._resume.is_file():
            return 0
        try:
            value = json.loads(self._resume.read_text(encoding="utf-8"))
            found = {name: unpacked(value[name]) for name in GRAPHS}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return 0  # of another version, or torn by other hands
        done = found["backbone"][1].prompts
        for name, graph in self._graphs():
            origin = found[name][1]
            if origin != self._origin(name, done, origin.samples) or set(origin.samples) != set(graph.shapes):
                return 0
        if done > total:
            return 0
        for name, graph in self._graphs():
            graph.resume(found[name][0], found[name][1].samples)
        return done

    def save(self, prompts: int) -> None:
        """Keep what is done, both graphs in one file, so that they never disagree."""
        if self._resume is not None:
            kept = {
                name: packed(graph.ranges, self._origin(name, prompts, graph.samples))
                for name, graph in self._graphs()
            }
            write_json(self._resume, kept)

    def finish(self, folder: Path, prompts: int, done: int) -> Collected:
        """Prove that nothing is missing, let signatures agree, and write the result."""
        for name, graph in self._graphs():
            require_every_signature(name, graph.signatures, graph.ranges, graph.samples)
            agreed = shared_ranges(graph.path, graph.ranges)
            origin = self._origin(name, prompts, graph.samples)
            write_json(folder / f"{name}_statistics.json", packed(agreed, origin))
        if self._resume is not None:
            self._resume.unlink(missing_ok=True)
        return Collected(
            samples={name: graph.samples for name, graph in self._graphs()},
            tensors={name: len(graph.ranges) for name, graph in self._graphs()},
            prompts=prompts,
            resumed_after=done,
        )

    # -- one prompt -------------------------------------------------------------
    def one(self, tokens: Sequence[int]) -> None:
        """Prefill, one round of every draft length, and some plain steps."""
        state = self._prefill(tokens)
        self._drafts_and_verifies(state)
        for _ in range(PLAIN_STEPS):
            if state.position + 1 >= self.context:
                break
            state = self._step("decode", [state.token], state, real=1)
            self._drafts(state)

    def _prefill(self, tokens: Sequence[int]) -> _State:
        empty = {name: np.zeros(shape, np.float32) for name, shape in self.caches.items()}
        start = _State(0, empty, np.empty(0, np.float32), 0)
        plan = self._chunks(len(tokens))
        for size in self.prefills:
            if size != plan[0]:  # this shape, too, begins with every prompt
                self._step(f"prefill_{size}", tokens[:size], start, real=min(size, len(tokens)))
        state, at = start, 0
        for size in plan:
            real = min(size, len(tokens) - at)
            state = self._step("decode" if size == 1 else f"prefill_{size}", tokens[at : at + real], state, real)
            at += real
        return state

    def _chunks(self, length: int) -> list[int]:
        """Sizes of the calls that prefill a prompt, as the runtime chooses them: 1 is a plain step."""
        if not 0 < length < self.context:
            raise LiteRtError(
                f"A calibration prompt of {length} tokens does not fit the exported context of {self.context}; build "
                "the set again for this model."
            )
        plan, left = [], length
        while left > 0:
            fitting = [size for size in self.prefills if size <= self.context - (length - left)]
            holding = [size for size in fitting if size >= left]
            plan.append(1 if left == 1 or not fitting else holding[0] if holding else fitting[-1])
            left -= plan[-1]
        return plan

    def _step(self, signature: str, tokens: Sequence[int], state: _State, real: int) -> _State:
        """Run a backbone signature on `tokens`, padded to its shape; the state after the `real` ones."""
        size = self.backbone.shapes[signature]["tokens"][1]
        padded = np.zeros((1, size), np.int32)
        padded[0, :real] = tokens[:real]
        positions = np.arange(state.position, state.position + size, dtype=np.int32)
        out = self.backbone.run(signature, {"tokens": padded, "input_pos": positions, **state.caches})
        token = int(np.argmax(out["logits"][0, real - 1]))
        caches = {name: out[name] for name in self.caches}
        return _State(state.position + real, caches, out["hidden"][0, real - 1], token)

    def _drafts_and_verifies(self, state: _State) -> None:
        drafts = self._drafts(state)
        for gamma, signature in self.verifies.items():
            if state.position + gamma + 1 <= self.context:
                self._step(signature, [state.token, *drafts[:gamma]], state, real=min(gamma, len(drafts)) + 1)

    def _drafts(self, state: _State) -> list[int]:
        """Run every draft signature on a state; the longest draft."""
        known: dict[str, NDArray[Any]] = {
            "hidden": state.hidden.reshape(1, 1, -1),
            "token": np.array([[state.token]], np.int32),
            "input_pos": np.array([state.position], np.int32),
            **state.caches,
        }
        longest: list[int] = []
        for signature, shapes in self.head.shapes.items():
            strange = [name for name in shapes if name not in known]
            if strange or not _DRAFT.fullmatch(signature):
                raise LiteRtError(
                    f"The head's signature {signature} takes {', '.join(strange) or 'nothing known'}, which no "
                    "backbone gives; export it with mtplab."
                )
            out = self.head.run(signature, {name: known[name] for name in shapes})
            ids = out["ids"][0] if "ids" in out else out["logits"][0].argmax(axis=-1)
            found = [int(token) for token in ids]
            longest = found if len(found) > len(longest) else longest
        return longest


class _State(msgspec.Struct, frozen=True):
    """After consuming `position` tokens: the caches, the last hidden state and the token chosen next."""

    position: int
    caches: dict[str, NDArray[np.float32]]
    hidden: NDArray[np.float32]
    token: int
