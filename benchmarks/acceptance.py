"""Batched acceptance beside loops over single positions: the same prompts, the same counts, how much faster.

    python benchmarks/acceptance.py [--recipe mixed] [--prompts 24] [--repeats 5] [--threads 2]
    python benchmarks/acceptance.py --backbone F.tflite --head F.tflite --evaluation F.tflite --tokenizer F.json

The naive loop is how one writes it first: at every position the backbone reads the whole text before it, and the head
is asked once. The cached loop keeps the cache: one decode step and one draft a position. Batched, the same backbone
file reads the text by its long prefill windows and the head's evaluation graph takes many positions a call. All judge
the backbone's own greedy text, teacher-forced: draft k at every position against the backbone's own choice there.
They take turns, so that a drifting host disturbs all; the ratio is taken within a turn: of the clock's seconds, and
of the processor's, which other work on the machine disturbs less. Without files the tiny model is taken, from the
stage cache or through the pipeline's own stages. Exit code 4 where one count differs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mtplab.litert.evaluate import HeadEvaluator, judge
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.pipeline.stages.loading import read_texts
from mtplab.speculation.decode import TokenRecord, decode_plain
from mtplab.speculation.forced import Hits, hits

OUTPUT_TOKENS = 48


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="mixed", help="recipe of the tiny graphs; float takes them as exported")
    parser.add_argument("--prompt-set", default="acceptance")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    for name in ("backbone", "head", "evaluation", "tokenizer"):
        parser.add_argument(f"--{name}", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = given_files(asked) or tiny_files(asked.recipe, Path(folder))
        return measure(files, asked)


def given_files(asked: argparse.Namespace) -> dict[str, Path] | None:
    names = ("backbone", "head", "evaluation", "tokenizer")
    files = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    if files and len(files) < len(names):
        sys.exit(f"Give all of {', '.join(f'--{name}' for name in names)}, or none.")
    return files or None


def tiny_files(recipe: str, folder: Path) -> dict[str, Path]:
    """The graphs of the tiny model by `recipe`, with the evaluation graph beside them."""
    from mtplab.litert.recipes import head_recipe_for, recipe_named
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.host_run import run_host_stage
    from mtplab.pipeline.job import Job
    from mtplab.pipeline.recipe_graphs import FloatGraphs
    from mtplab.pipeline.stage import RunParameters, StageResult, inputs_for, params_for
    from mtplab.session import paths

    run, store = RunParameters(), Store(paths.cache_dir() / "stages")
    results: dict[str, StageResult] = {}
    for name in ("freeze", "export"):
        print(f"{name} …", file=sys.stderr)
        results[name] = run_host_stage(
            name, params_for(name, run), inputs_for(name, results), store, lambda event: None, threading.Event()
        )
        if results[name].status not in ("done", "cached"):
            sys.exit(f"{name} {results[name].status}: {results[name].reason}")
    wanted = inputs_for("sensitivity", results)
    inputs = {own: str(store.path(sha256)) for own, sha256 in wanted.items()}
    graphs = FloatGraphs(Job(stage="", module="", params={}, inputs=inputs, workdir=str(folder)))
    chosen = recipe_named(recipe)
    head = graphs.head(head_recipe_for(chosen), "head")
    if head.evaluation is None:
        sys.exit(f"The recipe {recipe} leaves no evaluation graph to batch with.")
    return {
        "backbone": graphs.backbone(chosen, "backbone").path,
        "head": head.head,
        "evaluation": head.evaluation,
        "tokenizer": Path(inputs["tokenizer.json"]),
    }


def measure(files: dict[str, Path], asked: argparse.Namespace) -> int:
    from mtplab.pipeline.stage import prompt_file

    backbone = LiteRtBackbone(files["backbone"], asked.threads)
    head = LiteRtHead(files["head"], asked.threads, backbone=backbone)
    evaluator = HeadEvaluator(files["evaluation"], asked.threads)
    texts = read_texts(prompt_file(asked.prompt_set)["path"], files["tokenizer"], backbone.context_limit)
    texts = [text for text in texts if text.split + OUTPUT_TOKENS < backbone.context_limit][: asked.prompts]
    whole = [(own_text(backbone, text.tokens[: text.split]), text.split - 1) for text in texts]
    ways = {"naive": naive, "cached": cached, "batched": batched}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    counts: dict[str, list[Hits]] = {}
    for _ in range(asked.repeats):
        for name, work in ways.items():
            clock, processor = time.perf_counter(), time.process_time()
            counts[name] = [work(backbone, head, evaluator, tokens, start) for tokens, start in whole]
            times[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return told(times, counts, whole, asked)


def own_text(backbone: LiteRtBackbone, prompt: Sequence[int]) -> list[int]:
    """The prompt with the backbone's greedy continuation."""
    records = decode_plain(backbone, prompt, limit=OUTPUT_TOKENS)
    return [*prompt, *[record.id for record in records if isinstance(record, TokenRecord)]]


def naive(backbone: LiteRtBackbone, head: LiteRtHead, _: Any, tokens: Sequence[int], start: int) -> Hits:
    """The whole text before it anew for every position, one head call a position."""
    choices, drafts = [], []
    for position in range(len(tokens)):
        backbone.reset()
        logits, hidden = backbone.prefill(tokens[: position + 1])
        choices.append(int(logits.argmax()))
        if position + 1 < len(tokens):
            drafts.append(head.draft(hidden, tokens[position + 1], pos=position + 1).argmax(axis=-1))
    return hits(np.asarray(choices, np.int32), np.asarray(drafts, np.int32), start)


def cached(backbone: LiteRtBackbone, head: LiteRtHead, _: Any, tokens: Sequence[int], start: int) -> Hits:
    """One decode step a token, one head call a position."""
    backbone.reset()
    choices, drafts = [], []
    for position, token in enumerate(tokens):
        logits, hidden = backbone.decode(token, position)
        choices.append(int(logits.argmax()))
        if position + 1 < len(tokens):
            drafts.append(head.draft(hidden, tokens[position + 1], pos=position + 1).argmax(axis=-1))
    return hits(np.asarray(choices, np.int32), np.asarray(drafts, np.int32), start)


def batched(
    backbone: LiteRtBackbone, _: LiteRtHead, evaluator: HeadEvaluator, tokens: Sequence[int], start: int
) -> Hits:
    """Long windows and many positions a call."""
    judged = judge(backbone, evaluator, tokens)
    return hits(judged.choices, judged.drafts, start)


def told(
    times: dict[str, list[tuple[float, float]]],
    counts: dict[str, list[Hits]],
    whole: Sequence[tuple[list[int], int]],
    asked: argparse.Namespace,
) -> int:
    """Print every way and their ratios; 4 where a count differs."""
    positions = sum(len(tokens) for tokens, _ in whole)
    for name, seconds in times.items():
        total = sum(counts[name][1:], start=counts[name][0])
        shown = " ".join(f"{n}/{total.positions}" for n in total.hits)
        each = [1e3 * clock / positions for clock, _ in seconds]
        print(
            f"{name:<8} {statistics.median(each):7.3f} ms a position [{min(each):.3f} {max(each):.3f}]  "
            f"hits by draft position {shown}"
        )
    loops = [name for name in times if name != "batched"]
    for name in loops:
        for kind, of in (("clock", 0), ("processor", 1)):
            ratios = [slow[of] / fast[of] for slow, fast in zip(times[name], times["batched"], strict=True)]
            low, high = min(ratios), max(ratios)
            print(f"{name:<8} ÷ batched {statistics.median(ratios):.1f}× [{low:.1f} {high:.1f}] by the {kind}")
    print(f"         {asked.repeats} turns, {len(whole)} prompts, {positions} positions, {asked.threads} threads")
    unequal = {name: sum(a != b for a, b in zip(counts[name], counts["batched"], strict=True)) for name in loops}
    for name, prompts in unequal.items():
        print(f"counts   {name} and batched {f'DIFFER in {prompts} prompts' if prompts else 'equal to the last hit'}")
    return 4 if any(unequal.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
