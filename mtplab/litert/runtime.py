"""Run exported graphs on the CPU with LiteRT: the backbone with its KV cache in place, and the draft head.

Light on purpose: numpy and ai_edge_litert only, so that the token runner starts like a binary on a phone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mtplab.litert.errors import LiteRtError

CacheMode = Literal["in_place", "two_buffers"]
Accelerator = Literal["cpu", "gpu", "npu"]
ACCELERATORS: tuple[Accelerator, ...] = ("cpu", "gpu", "npu")
Floats = NDArray[np.float32]

_VERIFY = re.compile(r"verify(_\d+)?")
_DRAFT = re.compile(r"draft(_\d+)?")
_MAGIC = b"TFL3"
_PROBE_TOKENS = 5  # enough to make decode read slots that other signatures wrote


def open_graph(path: Path | str, threads: int, accelerator: Accelerator = "cpu") -> tuple[Any, float]:
    """Compile a `.tflite` file for one accelerator; returns the model and the milliseconds that took.

    Raises `LiteRtError` when the file is missing, is no LiteRT graph, or does not run there as a whole: the CPU is
    never beside another accelerator, because then nobody could tell which of them was measured.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise LiteRtError(
            f"The graph {path} cannot be read ({error.strerror}); give the path of a .tflite file."
        ) from error
    if head[4:] != _MAGIC:
        raise LiteRtError(
            f"The file {path} is no LiteRT graph (its identifier is not TFL3); export or push it again."
        )
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.cpu_options import CpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import Options

    hardware = getattr(HardwareAccelerator, accelerator.upper())
    options = Options(hardware_accelerators=hardware, cpu_options=CpuOptions(num_threads=threads))
    began = time.perf_counter()
    try:
        model = CompiledModel.from_file(str(path), options=options)
    except (RuntimeError, ValueError) as error:
        if accelerator != "cpu":
            said = " ".join(str(error).split())[-160:]
            raise LiteRtError(
                f"The graph {path.name} does not run on the {accelerator.upper()} here ({said}); "
                "use the CPU, or a machine whose LiteRT has that accelerator."
            ) from error
        raise LiteRtError(
            f"The graph {path} does not compile for the CPU ({error}); it may be torn: export or push it again."
        ) from error
    return model, (time.perf_counter() - began) * 1e3


class _Signature:
    """Named buffers of one signature; the cache buffers are bound anew at every run."""

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name = model, name
        ins, outs = model.get_input_tensor_details(name), model.get_output_tensor_details(name)
        self.input_shapes = {key: tuple(int(n) for n in value["shape"]) for key, value in ins.items()}
        self.output_shapes = {key: tuple(int(n) for n in value["shape"]) for key, value in outs.items()}
        self.inputs = {
            key: model.create_input_buffer_by_name(name, key) for key in self.input_shapes if not _is_cache(key)
        }
        self.outputs = {
            key: model.create_output_buffer_by_name(name, key) for key in self.output_shapes if not _is_cache(key)
        }
        self.copied_ns: dict[str, int] = {}
        """What copying each input and output took last; an accelerator that works on its own is waited for there."""

    def run(self, inputs: dict[str, Any], cache_in: dict[str, Any], cache_out: dict[str, Any]) -> None:
        for key, value in inputs.items():
            began = time.perf_counter_ns()
            self.inputs[key].write(value)
            self.copied_ns[key] = time.perf_counter_ns() - began
        self.model.run_by_name(self.name, {**self.inputs, **cache_in}, {**self.outputs, **cache_out})

    def read(self, key: str) -> Floats:
        shape = self.output_shapes[key]
        began = time.perf_counter_ns()
        values: Floats = self.outputs[key].read(int(np.prod(shape)), np.float32).reshape(shape)
        self.copied_ns[key] = time.perf_counter_ns() - began
        return values


def _is_cache(name: str) -> bool:
    return name.startswith("kv_cache_")


class LiteRtBackbone:
    """A backbone graph with explicit KV cache: `reset`, `prefill`, `decode`, `verify`.

    The same buffer serves as cache input and output where that was proven, at load, to give bit-equal
    results on this machine (`cache_mode == "in_place"`); the runtime does not document it, so otherwise
    two sets of buffers take turns.
    """

    def __init__(
        self, path: Path | str, threads: int = 2, cache_mode: CacheMode | None = None,
        accelerator: Accelerator = "cpu",
    ) -> None:  # fmt: skip
        """Load, and prove the cache mode by a short probe unless one is demanded."""
        self.path, self.threads = Path(path), threads
        self._model, self.init_ms = open_graph(path, threads, accelerator)
        self.handover_ns: int | None = None
        """What reading the hidden states of the last call took: only a draft head needs them."""
        names = list(self._model.get_signature_list())
        self._prefills = sorted(
            (int(name.rpartition("_")[2]) for name in names if name.startswith("prefill_")), reverse=True
        )
        verifies = [name for name in names if _VERIFY.fullmatch(name)]
        if "decode" not in names or not verifies or not self._prefills:
            raise LiteRtError(
                f"The graph {path} has the signatures {', '.join(names) or 'none'} but a backbone needs "
                "prefill_N, decode and verify or verify_N; export it with mtplab."
            )
        self._signatures = {name: _Signature(self._model, name) for name in names}
        decode = self._signatures["decode"]
        self.vocab = decode.output_shapes["logits"][-1]
        self.d_model = decode.output_shapes["hidden"][-1]
        self._cache_shapes = {k: v for k, v in decode.input_shapes.items() if _is_cache(k)}
        if not self._cache_shapes:
            raise LiteRtError(
                f"The graph {path} has no kv_cache inputs, so every token would recompute its whole prefix; "
                "export the backbone with its cache as inputs and outputs."
            )
        self.context_limit = next(iter(self._cache_shapes.values()))[2]
        # The shape is the truth: a name only says what its exporter meant.
        self._verifies = {self._signatures[name].input_shapes["tokens"][1] - 1: name for name in verifies}
        self.gammas = tuple(sorted(self._verifies))
        self.gamma = self.gammas[-1]
        self.first_run_ms: dict[str, float] = {}
        self._back: dict[str, Any] | None = None
        self._front = self._new_cache()
        self.cache_mode: CacheMode = cache_mode or self._prove_in_place()
        if self.cache_mode == "two_buffers":
            self._back = self._new_cache()
        self.reset()

    def _new_cache(self) -> dict[str, Any]:
        return {key: self._model.create_input_buffer_by_name("decode", key) for key in self._cache_shapes}

    def reset(self) -> None:
        """Forget the last prompt: zero the caches, so that no later figure depends on what ran before."""
        for cache in (self._front, self._back):
            if cache is not None:
                for key, buffer in cache.items():
                    buffer.write(np.zeros(self._cache_shapes[key], np.float32))

    def caches(self) -> dict[str, Floats]:
        """A copy of every cache tensor, by name, in its static shape."""
        return {
            key: buffer.read(int(np.prod(self._cache_shapes[key])), np.float32).reshape(self._cache_shapes[key])
            for key, buffer in self._front.items()
        }

    def input_shape(self, signature: str, name: str) -> tuple[int, ...]:
        """Static shape of one input of one signature."""
        return self._signatures[signature].input_shapes[name]

    def prefill(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Consume a prompt from position 0; returns logits[V] and hidden[D] of its last token.

        Chunks are padded at their end: a padded slot lies after every real token, the causal mask hides it
        from them, and the token that takes that position later overwrites it before anyone may see it.
        """
        last = (np.empty(0, np.float32), np.empty(0, np.float32))
        for logits, hidden in self._chunks(tokens):
            last = (logits[-1], hidden[-1])
        return last

    def score(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Like `prefill`, but logits[n,V] and hidden[n,D] of every token of the prompt."""
        logits, hidden = zip(*self._chunks(tokens), strict=True)
        return np.concatenate(logits), np.concatenate(hidden)

    def _chunks(self, tokens: Sequence[int]) -> Iterator[tuple[Floats, Floats]]:
        n, at = len(tokens), 0
        if not 0 < n <= self.context_limit:
            raise LiteRtError(
                f"A prompt of {n} tokens does not fit a context of {self.context_limit}; "
                "shorten the prompt or export a longer context."
            )
        while at < n:
            left = n - at
            size = self._chunk(left, self.context_limit - at)
            real = min(size, left)
            chunk = np.zeros(size, np.int32)
            chunk[:real] = tokens[at : at + real]
            logits, hidden = self._run("decode" if size == 1 else f"prefill_{size}", chunk, at)
            yield logits[:real], hidden[:real]
            at += real

    def _chunk(self, left: int, room: int) -> int:
        """Size of the next prefill call: the smallest that holds all that is left, else the largest that fits.

        Near the end of the context a padded chunk would be pushed back over real slots, so single steps
        take over there.
        """
        fitting = [size for size in self._prefills if size <= room]
        holding = [size for size in fitting if size >= left]
        if left == 1 or not fitting:
            return 1
        return holding[-1] if holding else fitting[0]

    def decode(self, token: int, pos: int) -> tuple[Floats, Floats]:
        """Consume one token; returns logits[V] that choose the next one, and hidden[D]."""
        logits, hidden = self._run("decode", np.array([token], np.int32), pos)
        return logits[0], hidden[0]

    def verify(self, tokens: Sequence[int], pos: int) -> tuple[Floats, Floats]:
        """Consume γ+1 tokens at pos…, γ one of `gammas`; returns logits[γ+1,V] and hidden[γ+1,D]."""
        name = self._verifies.get(len(tokens) - 1)
        if name is None:
            exported = " or ".join(str(gamma + 1) for gamma in self.gammas)
            raise LiteRtError(
                f"This graph verifies {exported} tokens at once and was given {len(tokens)}; "
                f"draft γ = {' or '.join(map(str, self.gammas))}, or export another length."
            )
        return self._run(name, np.asarray(tokens, np.int32), pos)

    def _run(self, name: str, tokens: NDArray[np.int32], pos: int) -> tuple[Floats, Floats]:
        size = len(tokens)
        if not 0 <= pos <= self.context_limit - size:
            raise LiteRtError(
                f"{name} at position {pos} would write beyond the context of {self.context_limit}; "
                "lower the output limit or export a longer context."
            )
        signature = self._signatures[name]
        inputs = {
            "tokens": tokens.reshape(1, size),
            "input_pos": np.arange(pos, pos + size, dtype=np.int32),
        }
        began = time.perf_counter()
        if self._back is None:
            signature.run(inputs, self._front, self._front)
        else:
            signature.run(inputs, self._front, self._back)
            self._front, self._back = self._back, self._front
        logits, hidden = signature.read("logits")[0], signature.read("hidden")[0]
        self.handover_ns = signature.copied_ns["hidden"]
        self.first_run_ms.setdefault(name, (time.perf_counter() - began) * 1e3)
        return logits, hidden

    def _prove_in_place(self) -> CacheMode:
        """Run the same probe with two buffers and in place, and compare all outputs bit by bit."""
        self._back = self._new_cache()
        separate = self._probe()
        self._back = None
        together = self._probe()
        equal = all(np.array_equal(a, b) for a, b in zip(separate, together, strict=True))
        return "in_place" if equal else "two_buffers"

    def _probe(self) -> list[Floats]:
        """Outputs and caches of one pass through every signature."""
        self.reset()
        tokens = [(7 * i + 3) % self.vocab for i in range(_PROBE_TOKENS)]
        seen: list[Floats] = []
        at = 0
        for size in self._prefills:
            chunk = np.resize(np.asarray(tokens, np.int32), size)
            seen += self._run(f"prefill_{size}", chunk, 0)
        at = min(self._prefills[0], self.context_limit - self.gamma - 1 - _PROBE_TOKENS)
        for token in tokens:
            seen += self.decode(token, at)
            at += 1
        for gamma in self.gammas:
            seen += self.verify([tokens[i % _PROBE_TOKENS] for i in range(gamma + 1)], at)
        for key, buffer in self._front.items():
            seen.append(buffer.read(int(np.prod(self._cache_shapes[key])), np.float32))
        return seen


class LiteRtHead:
    """A draft head graph: one call gives the logits of all γ drafts, γ an exported length or a shorter one."""

    def __init__(self, path: Path | str, threads: int = 2, accelerator: Accelerator = "cpu") -> None:
        self.path, self.threads = Path(path), threads
        self._model, self.init_ms = open_graph(path, threads, accelerator)
        self.handover_ns: int | None = None
        """What copying the last draft's inputs to the head and its logits back took."""
        names = list(self._model.get_signature_list())
        drafts = [_Signature(self._model, name) for name in names if _DRAFT.fullmatch(name)]
        if not drafts:
            raise LiteRtError(
                f"The graph {path} has the signatures {', '.join(names) or 'none'} but a draft head needs "
                "one named draft or draft_N; export it with mtplab."
            )
        self._drafts = {one.output_shapes["logits"][1]: one for one in drafts}
        self.gammas = tuple(sorted(self._drafts))
        self.gamma = self.gammas[-1]
        longest = self._drafts[self.gamma]
        self.vocab = longest.output_shapes["logits"][2]
        self.d_model = longest.input_shapes["hidden"][-1]
        self.takes_token = "token" in longest.input_shapes
        began = time.perf_counter()
        for gamma in self.gammas:
            self.draft(np.zeros(self.d_model, np.float32), 0, gamma)
        self.first_run_ms = (time.perf_counter() - began) * 1e3

    def draft(self, hidden: Floats, token: int, gamma: int | None = None) -> Floats:
        """Logits[γ,V] from hidden[D] at p and the token already chosen for p+1; the longest draft unless γ is given.

        A length that was not exported is cut from the next longer one, and so costs what that one costs.
        """
        gamma = gamma or self.gamma
        holding = [exported for exported in self.gammas if exported >= gamma]
        if not holding:
            raise LiteRtError(f"This head drafts at most {self.gamma} tokens and was asked for {gamma}.")
        signature = self._drafts[holding[0]]
        inputs: dict[str, Any] = {"hidden": np.asarray(hidden, np.float32).reshape(1, 1, self.d_model)}
        if self.takes_token:
            inputs["token"] = np.array([[token]], np.int32)
        signature.run(inputs, {}, {})
        logits: Floats = signature.read("logits")[0, :gamma]
        self.handover_ns = sum(signature.copied_ns.values())
        return logits
