"""Run exported graphs on the CPU with LiteRT: the backbone with its KV cache in place, and the draft head.

Light on purpose: numpy and ai_edge_litert only, so that the token runner starts like a binary on a phone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mtplab.litert.errors import LiteRtError
from mtplab.litert.graph import ACCELERATORS, Accelerator, Floats, Signature, is_cache, open_graph

__all__ = ["ACCELERATORS", "Accelerator", "LiteRtBackbone", "LiteRtHead"]

CacheMode = Literal["in_place", "two_buffers"]
HeadCacheMode = Literal["none", "shared", "copied"]

_VERIFY = re.compile(r"verify(_\d+)?")
_DRAFT = re.compile(r"draft(_\d+)?")
_CHOICES = re.compile(r"choices(_\d+)?")
_PROBE_TOKENS = 5  # enough to make decode read slots that other signatures wrote


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
        self._signatures = {name: Signature(self._model, name, on_host=accelerator == "cpu") for name in names}
        decode = self._signatures["decode"]
        self.vocab = decode.output_shapes["logits"][-1]
        self.d_model = decode.output_shapes["hidden"][-1]
        self.cache_shapes = {k: v for k, v in decode.input_shapes.items() if is_cache(k)}
        if not self.cache_shapes:
            raise LiteRtError(
                f"The graph {path} has no kv_cache inputs, so every token would recompute its whole prefix; "
                "export the backbone with its cache as inputs and outputs."
            )
        self.context_limit = next(iter(self.cache_shapes.values()))[2]
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
        return {key: self._model.create_input_buffer_by_name("decode", key) for key in self.cache_shapes}

    def reset(self) -> None:
        """Forget the last prompt: zero the caches, so that no later figure depends on what ran before."""
        for cache in (self._front, self._back):
            if cache is not None:
                for key, buffer in cache.items():
                    buffer.write(np.zeros(self.cache_shapes[key], np.float32))

    def caches(self) -> dict[str, Floats]:
        """A copy of every cache tensor, by name, in its static shape."""
        return {
            key: buffer.read(int(np.prod(self.cache_shapes[key])), np.float32).reshape(self.cache_shapes[key])
            for key, buffer in self._front.items()
        }

    def cache_buffers(self, names: Iterable[str]) -> dict[str, Any]:
        """The buffers that hold these caches now; they may be others after the next step."""
        return {name: self._front[name] for name in names}

    def input_shape(self, signature: str, name: str) -> tuple[int, ...]:
        """Static shape of one input of one signature."""
        return self._signatures[signature].input_shapes[name]

    def prefill(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Consume a prompt from position 0; returns logits[V] and hidden[D] of its last token.

        Chunks are padded at their end: a padded slot lies after every real token, the causal mask hides it
        from them, and the token that takes that position later overwrites it before anyone may see it.
        """
        logits, hidden = list(self._chunks(tokens, only_last=True))[-1]
        return logits[-1], hidden[-1]

    def score(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Like `prefill`, but logits[n,V] and hidden[n,D] of every token of the prompt."""
        logits, hidden = zip(*self._chunks(tokens), strict=True)
        return np.concatenate(logits), np.concatenate(hidden)

    def _chunks(self, tokens: Sequence[int], only_last: bool = False) -> Iterator[tuple[Floats, Floats]]:
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
            rows = slice(real - 1 if only_last else 0, real)
            yield self._run("decode" if size == 1 else f"prefill_{size}", chunk, at, rows)
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

    def _run(
        self, name: str, tokens: NDArray[np.int32], pos: int, rows: slice = slice(None)
    ) -> tuple[Floats, Floats]:
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
        logits, hidden = signature.read("logits", rows), signature.read("hidden", rows)
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
            seen.append(buffer.read(int(np.prod(self.cache_shapes[key])), np.float32))
        return seen


class LiteRtHead:
    """A draft head graph: one call gives the logits of all γ drafts, γ an exported length or a shorter one.

    A zero-copy head reads the caches of `backbone` where they lie (`cache_mode == "shared"`), if that was proven
    at load to give bit-equal results; else its inputs are written anew for every draft ("copied").
    """

    def __init__(
        self,
        path: Path | str,
        threads: int = 2,
        accelerator: Accelerator = "cpu",
        backbone: LiteRtBackbone | None = None,
        ranked: bool = False,
    ) -> None:
        """`ranked` drafts by logits even where the graph chooses, so that the rank of a missed token is known."""
        self.path, self.threads = Path(path), threads
        self._model, self.init_ms = open_graph(path, threads, accelerator)
        self.handover_ns: int | None = None
        """What copying the last draft's inputs to the head and its logits back took."""
        names = list(self._model.get_signature_list())
        drafts = [
            Signature(self._model, name, on_host=accelerator == "cpu") for name in names if _DRAFT.fullmatch(name)
        ]
        if not drafts:
            raise LiteRtError(
                f"The graph {path} has the signatures {', '.join(names) or 'none'} but a draft head needs "
                "one named draft or draft_N; export it with mtplab."
            )
        self._drafts = {one.output_shapes["logits"][1]: one for one in drafts}
        self._choices = {
            one.output_shapes["ids"][1]: one
            for name in names
            if _CHOICES.fullmatch(name) and not ranked
            for one in [Signature(self._model, name, on_host=accelerator == "cpu")]
        }
        self.gammas = tuple(sorted(self._drafts))
        self.gamma = self.gammas[-1]
        longest = self._drafts[self.gamma]
        self.vocab = longest.output_shapes["logits"][2]
        self.d_model = longest.input_shapes["hidden"][-1]
        self.takes_token = "token" in longest.input_shapes
        self._caches = {name: shape for name, shape in longest.input_shapes.items() if is_cache(name)}
        self._backbone = self._fitting(backbone)
        self._own = {name: self._model.create_input_buffer_by_name(longest.name, name) for name in self._caches}
        self.cache_mode: HeadCacheMode = self._prove_shared() if self._caches else "none"
        began = time.perf_counter()
        for gamma in self.gammas:
            self.draft(np.zeros(self.d_model, np.float32), 0, gamma, 1)
            self.choices(np.zeros(self.d_model, np.float32), 0, gamma, 1)
        self.first_run_ms = (time.perf_counter() - began) * 1e3

    @property
    def takes_cache(self) -> bool:
        """Whether it reads the backbone's caches (a zero-copy head)."""
        return bool(self._caches)

    def draft(self, hidden: Floats, token: int, gamma: int | None = None, pos: int | None = None) -> Floats:
        """Logits[γ,V] from hidden[D] at p and the token already chosen for p+1; the longest draft unless γ is given.

        `pos` is p+1, which only a zero-copy head needs: of the caches it sees what the backbone wrote before it.
        A length that was not exported is cut from the next longer one, and so costs what that one costs.
        """
        gamma = gamma or self.gamma
        logits: Floats = self._run(self._holding(self._drafts, gamma), "logits", hidden, token, gamma, pos)
        return logits

    @property
    def chooses(self) -> bool:
        """Whether the graph gives the ids of its drafts, so that their logits never leave it."""
        return bool(self._choices)

    def choices(
        self, hidden: Floats, token: int, gamma: int | None = None, pos: int | None = None
    ) -> list[int] | None:
        """Like `draft`, but the ids of the γ drafts alone; None where the graph was exported without them."""
        if not self._choices:
            return None
        gamma = gamma or self.gamma
        ids: list[int] = self._run(self._holding(self._choices, gamma), "ids", hidden, token, gamma, pos).tolist()
        return ids

    def _holding(self, signatures: dict[int, Signature], gamma: int) -> Signature:
        """The shortest exported draft of at least γ tokens."""
        holding = [exported for exported in sorted(signatures) if exported >= gamma]
        if not holding:
            raise LiteRtError(f"This head drafts at most {self.gamma} tokens and was asked for {gamma}.")
        return signatures[holding[0]]

    def _run(
        self, signature: Signature, output: str, hidden: Floats, token: int, gamma: int, pos: int | None
    ) -> NDArray[Any]:
        inputs: dict[str, Any] = {"hidden": np.asarray(hidden, np.float32).reshape(1, 1, self.d_model)}
        if self.takes_token:
            inputs["token"] = np.array([[token]], np.int32)
        if self._caches:
            if pos is None:
                raise LiteRtError("A zero-copy head needs to know where it drafts; pass the position of the token.")
            inputs["input_pos"] = np.array([pos], np.int32)
        began = time.perf_counter_ns()
        caches = self._seen_caches()
        handover_ns = time.perf_counter_ns() - began
        signature.run(inputs, caches, {})
        drafted = signature.read(output, slice(0, gamma))
        self.handover_ns = handover_ns + sum(signature.copied_ns.values())
        return drafted

    def _fitting(self, backbone: LiteRtBackbone | None) -> LiteRtBackbone | None:
        """`backbone`, if its caches are those that this head reads."""
        if not self._caches:
            return None
        if backbone is None:
            raise LiteRtError(
                f"The head {self.path.name} reads its backbone's cache and was loaded without it; load both together."
            )
        have = backbone.cache_shapes
        unlike = [name for name, shape in self._caches.items() if have.get(name) != shape]
        if unlike:
            raise LiteRtError(
                f"The head {self.path.name} reads {unlike[0]} {list(self._caches[unlike[0]])}, which "
                f"{backbone.path.name} does not have; use the head that was exported with this backbone."
            )
        return backbone

    def _seen_caches(self) -> dict[str, Any]:
        if self._backbone is None:
            return {}
        current = self._backbone.cache_buffers(self._caches)
        if self.cache_mode == "shared":
            return current
        for name, buffer in current.items():
            shape = self._caches[name]
            self._own[name].write(buffer.read(int(np.prod(shape)), np.float32).reshape(shape))
        return self._own

    def _prove_shared(self) -> HeadCacheMode:
        """Draft over a cache that is not empty, once where it lies and once from a copy, and compare bit by bit."""
        assert self._backbone is not None
        self._backbone.reset()
        _, hidden = self._backbone.prefill([(5 * i + 2) % self.vocab for i in range(_PROBE_TOKENS)])
        drafted = []
        modes: tuple[HeadCacheMode, ...] = ("copied", "shared")
        try:
            for self.cache_mode in modes:
                drafted.append([self.draft(hidden, 1, gamma, _PROBE_TOKENS) for gamma in self.gammas])
        except RuntimeError:
            return "copied"  # buffers of one accelerator that another cannot read
        finally:
            self._backbone.reset()
        equal = all(np.array_equal(a, b) for a, b in zip(*drafted, strict=True))
        return "shared" if equal else "copied"
