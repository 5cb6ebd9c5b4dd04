"""How few bytes a backbone can have before its text and its drafts suffer: recipe × bytes × agreement × α × time.

    python benchmarks/low_bit.py GRAPH.tflite MODULES.json [--model smollm2] [--head token_conditioned]
        [--recipe NAME|FILE.toml[:NAME] …] [--prompts assistant] [--per-class 3] [--tokens 48] [--only STEP]
        [--work FOLDER] [--results benchmarks/results/low_bit_smollm2.json]

GRAPH is the float backbone as the export stage writes it, MODULES the names of its weights. Every recipe is applied
to it, read back, and run through LiteRT on this host's CPU:

  top-1        on the float graph's own greedy text: how often the recipe chooses the same next token (Wilson 95 %)
  prompts      the same on the prompts' own text, which no model wrote
  equal        tokens of the recipe's own greedy text before it first leaves the float one's, mean of the prompts
  perplexity   of the prompts' own text, per token
  accepted     drafts accepted a round, γ of the head, at every position of the recipe's OWN greedy text: what the
               user of that backbone gets (the head in float; teacher-forced, so rounds overlap)
  decode       milliseconds of one plain step, one thread, rows in turns: median of the turns' medians [least most]

Each step is kept, in the results file or in the work folder, and not done again: `texts` (prompts and the float
graph's answers), `quantise` (all files), `measure` (the first recipe that has no row), `drafts` (the head over every
row that lacks it), `time` (all rows anew, side by side), `table`. Without --only all of them run.
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

from mtplab.litert.audit import Audit, audit
from mtplab.litert.quantise import quantise
from mtplab.litert.recipes import Recipe, recipe_named
from mtplab.litert.runtime import LiteRtBackbone
from mtplab.model.prompts import load_prompts
from mtplab.pipeline.cache import file_sha256
from mtplab.speculation.intervals import wilson

THREADS = 2
TURNS, STEPS = 8, 15
REFERENCES = ("float", "dynamic_int8")


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
    top1_prompts: float
    prompt_positions: int
    equal_tokens: float
    perplexity: float
    measured_at: str
    decode_ms: tuple[float, float, float] | None = None
    accepted: float | None = None
    alphas: list[float] | None = None
    rounds: int | None = None


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
    given = _arguments()
    given.work.mkdir(parents=True, exist_ok=True)
    results = _results(given)
    chosen = [recipe_named(name) for name in dict.fromkeys([*REFERENCES, *given.recipe])]
    steps = {"texts": _texts, "quantise": _quantise, "measure": _measure, "drafts": _drafts, "time": _time}
    for name, step in steps.items():
        if given.only in (None, name):
            step(given, results, chosen)
            given.results.parent.mkdir(parents=True, exist_ok=True)
            given.results.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    if given.only in (None, "table"):
        print(table(results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("modules", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--head", default="token_conditioned")
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--prompts", default="assistant")
    parser.add_argument("--per-class", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--only", choices=("texts", "quantise", "measure", "drafts", "time", "table"))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mtplab-low-bit")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "low_bit_smollm2.json")
    return parser.parse_args()


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


def _texts(given: argparse.Namespace, results: Results, chosen: list[Recipe]) -> None:
    """The first prompts of every class, and the float graph's greedy answer to each."""
    if results.texts:
        return
    from tokenizers import Tokenizer

    from mtplab.model.sources import load_model

    model, seen = load_model(given.model), dict[str, int]()
    tokenizer = Tokenizer.from_file(str(model.tokenizer_path))
    prompts = []
    for prompt in load_prompts(given.prompts).prompts:
        text = prompt.text if prompt.raw else model.chat(prompt.text, prompt.system)
        tokens = list(tokenizer.encode(text).ids)
        seen[prompt.prompt_class] = seen.get(prompt.prompt_class, 0) + 1
        if seen[prompt.prompt_class] <= given.per_class and len(tokens) + given.tokens < model.config.context:
            prompts.append((prompt.prompt_class, tokens))
    del model
    runtime = LiteRtBackbone(given.graph, THREADS, "in_place")
    results.texts = [Text(klass, tokens, _greedy(runtime, tokens, given.tokens)) for klass, tokens in prompts]


def _file(given: argparse.Namespace, recipe: Recipe) -> Path:
    return Path(given.work / f"{recipe.sha256[:16]}.tflite")


def _quantise(given: argparse.Namespace, results: Results, chosen: list[Recipe]) -> None:
    """Every recipe's file, and beside it what was read back from it; with `--only` the first that is missing."""
    modules = msgspec.json.decode(given.modules.read_bytes())
    for recipe in chosen:
        target = _file(given, recipe)
        if recipe.rules and not target.with_suffix(".json").exists():
            found = quantise(given.graph, target, recipe, modules.get("backbone", modules)).after
            target.with_suffix(".json").write_bytes(msgspec.json.encode(found))
            if given.only:
                return


def _measure(given: argparse.Namespace, results: Results, chosen: list[Recipe]) -> None:
    """A row for every recipe; with `--only` the first that is missing."""
    for recipe in chosen:
        if recipe.sha256 not in results.rows:
            results.rows[recipe.sha256] = _row(given, recipe, results.texts)
            if given.only:
                return


def _row(given: argparse.Namespace, recipe: Recipe, texts: list[Text]) -> Row:
    path = _file(given, recipe) if recipe.rules else given.graph
    seen = path.with_suffix(".json") if recipe.rules else None
    graph = msgspec.json.decode(seen.read_bytes(), type=Audit) if seen else audit(path)
    runtime = LiteRtBackbone(path, THREADS, "in_place")
    same, nll, equal, choices, states = [], [], [], {}, {}
    for number, text in enumerate(texts):
        start = len(text.prompt) - 1
        logits = runtime.score([*text.prompt, *text.output][:-1])[0]
        choices[str(number)] = logits[:start].argmax(-1)
        same += (logits[start:].argmax(-1) == np.array(text.output)).tolist()
        nll += _nll(logits[:start], text.prompt[1:])
        own = _greedy(runtime, text.prompt, len(text.output))
        left = [i for i, (a, b) in enumerate(zip(own, text.output, strict=True)) if a != b]
        equal.append(left[0] if left else len(own))
        states[f"{number} tokens"] = np.array(own)
        states[f"{number} hidden"] = runtime.score([*text.prompt, *own][:-1])[1][start:]
    np.savez(given.work / f"{recipe.sha256[:16]}.npz", **choices, **states)
    reference = choices if not recipe.rules else np.load(given.work / f"{recipe_named('float').sha256[:16]}.npz")
    alike = np.concatenate([choices[name] == reference[name] for name in choices])
    low, high = wilson(sum(same), len(same))
    return Row(
        recipe=recipe.name,
        sha256=recipe.sha256,
        weight_bytes=sum(weight.bytes for weight in graph.weights),
        scale_bytes=sum(weight.scale_bytes for weight in graph.weights),
        file_bytes=graph.file_bytes,
        bytes_by_dtype=graph.bytes_by_dtype(),
        top1=sum(same) / len(same),
        top1_low=low,
        top1_high=high,
        positions=len(same),
        top1_prompts=float(alike.mean()),
        prompt_positions=len(alike),
        equal_tokens=statistics.mean(equal),
        perplexity=float(np.exp(statistics.mean(nll))),
        measured_at=time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
    )


def _drafts(given: argparse.Namespace, results: Results, chosen: list[Recipe]) -> None:
    """What the head's drafts are worth on every row's own text."""
    rows = [row for row in results.rows.values() if row.accepted is None]
    if not rows:
        return
    import torch

    from mtplab.model.sources import load_model

    torch.set_num_threads(1)
    head = load_model(given.model).heads[given.head]
    for row in rows:
        kept = np.load(given.work / f"{row.sha256[:16]}.npz")
        accepted: list[int] = []
        for number in range(len(results.texts)):
            accepted += _accepted(head, kept[f"{number} hidden"], kept[f"{number} tokens"].tolist())
        reached = [sum(a >= k for a in accepted) for k in range(head.gamma + 1)]
        results.rows[row.sha256] = msgspec.structs.replace(
            row,
            accepted=statistics.mean(accepted),
            alphas=[reached[k + 1] / reached[k] if reached[k] else 0.0 for k in range(head.gamma)],
            rounds=len(accepted),
        )


def _accepted(head: Any, hidden: np.ndarray, tokens: list[int]) -> list[int]:
    """How many drafts each position's round would have had accepted: hidden[n,D] at p, tokens from p+1 on.

    Feeding the true tokens instead of the drafts changes nothing up to the first rejection.
    """
    import torch

    n, ids = len(tokens) - head.gamma, torch.tensor(tokens)
    fed = torch.stack([ids[k : n + k] for k in range(head.gamma)], dim=-1)
    with torch.no_grad():
        drafts = head.drafts_given(torch.tensor(hidden[None, :n]), fed[None])
    hits = [draft.argmax(-1)[0] == ids[k + 1 : n + k + 1] for k, draft in enumerate(drafts)]
    return [int(count) for count in torch.stack(hits, dim=-1).long().cumprod(dim=-1).sum(dim=-1)]


def _greedy(runtime: LiteRtBackbone, prompt: list[int], count: int) -> list[int]:
    """`count` tokens, through any end-of-text."""
    output = [int(runtime.prefill(prompt)[0].argmax())]
    for pos in range(len(prompt), len(prompt) + count - 1):
        output.append(int(runtime.decode(output[-1], pos)[0].argmax()))
    return output


def _time(given: argparse.Namespace, results: Results, chosen: list[Recipe]) -> None:
    """Plain steps of all rows in turns, forwards and backwards; the first steps of a turn do not count."""
    paths = {r.sha256: _file(given, r) if r.rules else given.graph for r in chosen if r.sha256 in results.rows}
    runtimes = {sha256: LiteRtBackbone(path, 1, "in_place") for sha256, path in paths.items()}
    text = results.texts[0]
    medians: dict[str, list[float]] = {sha256: [] for sha256 in runtimes}
    for turn in range(TURNS + 1):
        for sha256 in list(runtimes) if turn % 2 else reversed(runtimes):
            runtime, times = runtimes[sha256], []
            runtime.reset()
            token, pos = int(runtime.prefill(text.prompt)[0].argmax()), len(text.prompt)
            for step in range(STEPS):
                began = time.perf_counter()
                token = int(runtime.decode(token, pos + step)[0].argmax())
                times.append((time.perf_counter() - began) * 1e3)
            if turn:  # the first turn only warms up
                medians[sha256].append(statistics.median(times[3:]))
    for sha256, of in medians.items():
        spread = statistics.median(of), min(of), max(of)
        results.rows[sha256] = msgspec.structs.replace(results.rows[sha256], decode_ms=spread)


def _nll(logits: np.ndarray, tokens: list[int]) -> list[float]:
    """Negative log-likelihood in nats of each token under the logits[n,V] before it."""
    top = logits.max(axis=-1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
    return [float(norm[i] - logits[i, token]) for i, token in enumerate(tokens)]


def table(results: Results) -> str:
    """The rows by size of their weights, for people."""
    lines = [
        f"{'recipe':<26} {'weights MB':>10} {'file MB':>8} {'top-1':>6} {'95 %':>12} {'prompts':>8} {'equal':>6} "
        f"{'perpl.':>7} {'accepted':>8} {'α by position':>15} {'decode ms':>20}"
    ]
    for row in sorted(results.rows.values(), key=lambda row: -row.weight_bytes):
        accepted = "–" if row.accepted is None else f"{row.accepted:.2f}"
        decode = "–" if row.decode_ms is None else "{:.1f} [{:.1f} {:.1f}]".format(*row.decode_ms)
        lines.append(
            f"{row.recipe:<26} {row.weight_bytes / 1e6:>10.1f} {row.file_bytes / 1e6:>8.1f} {row.top1:>6.3f} "
            f"{row.top1_low:>6.3f}–{row.top1_high:.3f} {row.top1_prompts:>7.3f} {row.equal_tokens:>6.1f} "
            f"{row.perplexity:>7.2f} {accepted:>8} {' '.join(f'{a:.2f}' for a in row.alphas or []):>15} "
            f"{decode:>20}"
        )
    row = next(iter(results.rows.values()))
    lines.append(
        f"{results.model}, head {results.head} (float): {len(results.texts)} prompts of {results.prompts}, "
        f"{results.tokens} tokens each, {row.positions} positions of own text, {row.prompt_positions} of prompts; "
        f"made by {results.script}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
