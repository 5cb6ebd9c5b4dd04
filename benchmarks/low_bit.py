"""How few bytes a backbone can have before its text and its drafts suffer: recipe × bytes × agreement × α × time.

    python benchmarks/low_bit.py GRAPH.tflite MODULES.json [--model smollm2] [--head token_conditioned]
        [--recipe NAME|FILE.toml[:NAME] …] [--prompts assistant] [--per-class 3] [--tokens 48]
        [--results benchmarks/results/low_bit_smollm2.json]

GRAPH is the float backbone as the export stage writes it, MODULES the names of its weights. Every recipe is applied
to it, read back, and run through LiteRT on this host's CPU:

  top-1        on the float graph's own greedy text: how often the recipe chooses the same next token (Wilson 95 %)
  equal        tokens of the recipe's own greedy text before it first leaves the float one's, mean of the prompts
  perplexity   of the prompts' own text, per token
  accepted     drafts accepted a round, γ of the head, at every position of the recipe's OWN greedy text: what the
               user of that backbone gets (the head in float; teacher-forced, so rounds overlap)
  decode       median milliseconds of one plain step, two threads; compare only rows that one run measured

Rows that stand in the results file for the same graph, recipe and texts are not measured again; the table is printed
from that file, so it can be made in several sittings.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mtplab.litert.quantise import quantise
from mtplab.litert.recipes import Recipe, recipe_named
from mtplab.litert.runtime import LiteRtBackbone
from mtplab.model.prompts import Prompt, load_prompts
from mtplab.pipeline.cache import file_sha256
from mtplab.speculation.intervals import wilson

THREADS = 2


class Text(msgspec.Struct, frozen=True):
    """A prompt's tokens and the float graph's own continuation."""

    klass: str
    prompt: list[int]
    output: list[int]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one recipe came to."""

    recipe: str
    sha256: str
    weight_bytes: int
    scale_bytes: int
    file_bytes: int
    bytes_by_dtype: dict[str, int]
    top1: float
    top1_low: float
    top1_high: float
    positions: int
    equal_tokens: float
    perplexity: float
    accepted: float
    alphas: list[float]
    decode_ms: float
    seconds: float
    measured_at: str


class Results(msgspec.Struct):
    """All rows of one graph and one choice of texts, by the hash of the recipe."""

    script: str
    graph_sha256: str
    model: str
    head: str
    prompts: str
    tokens: int
    texts: list[Text]
    rows: dict[str, Row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("modules", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--head", default="token_conditioned")
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--prompts", default="assistant")
    parser.add_argument("--per-class", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "low_bit_smollm2.json")
    given = parser.parse_args()
    results = _results(given)
    model = _Model(given.model, given.head)
    modules = msgspec.json.decode(given.modules.read_bytes())
    modules = modules.get("backbone", modules)
    if not results.texts:
        results.texts = _texts(given, model)
    for name in dict.fromkeys(["float", "dynamic_int8", *given.recipe]):
        recipe = recipe_named(name)
        if recipe.sha256 in results.rows:
            continue
        results.rows[recipe.sha256] = _measure(given.graph, modules, recipe, results.texts, model)
        given.results.parent.mkdir(parents=True, exist_ok=True)
        given.results.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    print(table(results))


def _results(given: argparse.Namespace) -> Results:
    graph = file_sha256(given.graph)
    new = Results("benchmarks/low_bit.py", graph, given.model, given.head, given.prompts, given.tokens, [], {})
    if not given.results.exists():
        return new
    kept = msgspec.json.decode(given.results.read_bytes(), type=Results)
    same = ("graph_sha256", "model", "head", "prompts", "tokens")
    if any(getattr(kept, name) != getattr(new, name) for name in same):
        sys.exit(f"{given.results} holds rows of another graph, model or choice of texts; name another --results.")
    return kept


class _Model:
    """Tokenizer, chat template and head of the model; torch is needed for the head only."""

    def __init__(self, name: str, head: str) -> None:
        import torch
        from tokenizers import Tokenizer

        from mtplab.model.sources import load_model

        torch.set_num_threads(1)
        self.loaded = load_model(name)
        self.head = self.loaded.heads[head]
        self.tokenizer = Tokenizer.from_file(str(self.loaded.tokenizer_path))

    def prompt(self, prompt: Prompt) -> list[int]:
        text = prompt.text if prompt.raw else self.loaded.chat(prompt.text, prompt.system)
        return list(self.tokenizer.encode(text).ids)

    def accepted(self, hidden: np.ndarray, tokens: list[int]) -> np.ndarray:
        """How many drafts each position's round would have had accepted, [n]: hidden[n,D] at p, tokens from p+1 on.

        Feeding the true tokens instead of the drafts changes nothing up to the first rejection.
        """
        import torch

        gamma, n = self.head.gamma, len(tokens) - self.head.gamma
        ids = torch.tensor(tokens)
        fed = torch.stack([ids[k : n + k] for k in range(gamma)], dim=-1)
        with torch.no_grad():
            drafts = self.head.drafts_given(torch.tensor(hidden[None, :n]), fed[None])
        hits = np.stack([self._choice(d)[0] == ids[k + 1 : n + k + 1].numpy() for k, d in enumerate(drafts)], axis=-1)
        return np.asarray(hits.cumprod(axis=-1).sum(axis=-1))

    def _choice(self, logits: Any) -> np.ndarray:
        return np.asarray(logits.argmax(-1).numpy())


def _texts(given: argparse.Namespace, model: _Model) -> list[Text]:
    """The first prompts of every class and the float graph's greedy continuation of each."""
    runtime, found, seen = LiteRtBackbone(given.graph, THREADS), [], dict[str, int]()
    for prompt in load_prompts(given.prompts).prompts:
        seen[prompt.prompt_class] = seen.get(prompt.prompt_class, 0) + 1
        tokens = model.prompt(prompt)
        if seen[prompt.prompt_class] <= given.per_class and len(tokens) + given.tokens < runtime.context_limit:
            found.append(Text(prompt.prompt_class, tokens, _greedy(runtime, tokens, given.tokens)[0]))
    return found


def _greedy(runtime: LiteRtBackbone, prompt: list[int], count: int) -> tuple[list[int], list[float]]:
    """`count` tokens, through any end-of-text, and the milliseconds of every step."""
    token = int(runtime.prefill(prompt)[0].argmax())
    output, times = [token], []
    for pos in range(len(prompt), len(prompt) + count - 1):
        began = time.perf_counter()
        logits, _ = runtime.decode(token, pos)
        times.append((time.perf_counter() - began) * 1e3)
        token = int(logits.argmax())
        output.append(token)
    return output, times


def _measure(graph: Path, modules: dict[str, str], recipe: Recipe, texts: list[Text], model: _Model) -> Row:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "backbone.tflite"
        audit = quantise(graph, target, recipe, modules).after
        runtime = LiteRtBackbone(target, THREADS)
        same, nll, equal, accepted, times = [], [], [], [], []
        for text in texts:
            start, whole = len(text.prompt) - 1, [*text.prompt, *text.output]
            logits = runtime.score(whole[:-1])[0]
            same += (logits[start:].argmax(-1) == np.array(text.output)).tolist()
            nll += _nll(logits[:start], text.prompt[1:])
            own, took = _greedy(runtime, text.prompt, len(text.output))
            times += took
            left = [i for i, (a, b) in enumerate(zip(own, text.output, strict=True)) if a != b]
            equal.append(left[0] if left else len(own))
            hidden = runtime.score([*text.prompt, *own][:-1])[1]
            accepted += model.accepted(hidden[start:], own).tolist()
    top1 = wilson(sum(same), len(same))
    reached = [sum(a >= k for a in accepted) for k in range(model.head.gamma + 1)]
    return Row(
        recipe=recipe.name,
        sha256=recipe.sha256,
        weight_bytes=sum(weight.bytes for weight in audit.weights),
        scale_bytes=sum(weight.scale_bytes for weight in audit.weights),
        file_bytes=audit.file_bytes,
        bytes_by_dtype=audit.bytes_by_dtype(),
        top1=sum(same) / len(same),
        top1_low=top1[0],
        top1_high=top1[1],
        positions=len(same),
        equal_tokens=statistics.mean(equal),
        perplexity=float(np.exp(statistics.mean(nll))),
        accepted=statistics.mean(accepted),
        alphas=[reached[k + 1] / reached[k] if reached[k] else 0.0 for k in range(model.head.gamma)],
        decode_ms=statistics.median(times),
        seconds=time.monotonic() - began,
        measured_at=time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
    )


def _nll(logits: np.ndarray, tokens: list[int]) -> list[float]:
    """Negative log-likelihood in nats of each token under the logits[n,V] before it."""
    top = logits.max(axis=-1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
    return [float(norm[i] - logits[i, token]) for i, token in enumerate(tokens)]


def table(results: Results) -> str:
    """The rows by size of their weights, for people."""
    head = (
        f"{'recipe':<28} {'weights MB':>10} {'file MB':>8} {'top-1':>6} {'95 %':>13} {'equal':>6} {'perpl.':>7} "
        f"{'accepted':>8} {'α by position':>17} {'decode ms':>9}"
    )
    lines = [head]
    for row in sorted(results.rows.values(), key=lambda row: -row.weight_bytes):
        alphas = " ".join(f"{alpha:.2f}" for alpha in row.alphas)
        lines.append(
            f"{row.recipe:<28} {row.weight_bytes / 1e6:>10.1f} {row.file_bytes / 1e6:>8.1f} {row.top1:>6.3f} "
            f"{row.top1_low:>6.3f}–{row.top1_high:.3f} {row.equal_tokens:>6.1f} {row.perplexity:>7.2f} "
            f"{row.accepted:>8.2f} {alphas:>17} {row.decode_ms:>9.1f}"
        )
    n = next(iter(results.rows.values())).positions
    lines.append(
        f"{results.model}, head {results.head} (float): {len(results.texts)} prompts of {results.prompts}, "
        f"{results.tokens} tokens each, {n} positions; made by {results.script}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
