"""Acceptance of a model's shipped heads on held-out prompts, through the quantised LiteRT graphs, class by class.

    python benchmarks/held_out.py --model smollm2 --folder DIR [--recipe dynamic_int8] [--prompts assistant]
        [--heads zero_copy,token_conditioned] [--output-tokens 64] [--threads 2] [--every 1] [--out FILE.json]

DIR keeps the float graphs: `backbone_float.tflite` with `backbone_modules.json` (exported here where they are not
there yet, as are the heads), so that a second run judges only. Prompts go through the model's chat template. A pair
writes its own backbone's greedy text in true draft–verify rounds; the same texts are judged teacher-forced, too. Per
class and in all: rounds, mean accepted, conditional α by position (Wilson), α with a bootstrap by prompt,
and the same without the texts that end in a loop. Beside them stands what `results/smollm2_prototype.json` holds for
that head family and class. Plain decoding says whether drafting changed a token.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.litert.recipes import Recipe, head_recipe_for, recipe_named
from mtplab.litert.runtime import LiteRtBackbone
from mtplab.model.prompts import load_prompts
from mtplab.pipeline.job import Job
from mtplab.pipeline.judging import (
    Graphs,
    Limits,
    Pair,
    PromptRounds,
    added,
    exactness,
    forced_hits,
    judge_output,
    plain_texts,
    summary_of,
    true_rounds,
)
from mtplab.pipeline.recipe_graphs import FloatGraphs
from mtplab.pipeline.stages.loading import Text

PROTOTYPE = Path(__file__).parent / "results" / "smollm2_prototype.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--recipe", default="dynamic_int8")
    parser.add_argument("--prompts", default="assistant")
    parser.add_argument("--heads", default="zero_copy,token_conditioned")
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="take every N-th prompt")
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    kinds = asked.heads.split(",")
    texts, stop = prepare(asked, kinds)
    if asked.export_only:
        return 0
    found = judge_all(asked, kinds, texts, stop)
    for line in lines(found):
        print(line)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def prepare(asked: argparse.Namespace, kinds: Sequence[str]) -> tuple[list[Text], frozenset[int]]:
    """Export what is not in the folder; the prompts as tokens, in the model's chat template, and its end token."""
    import torch
    from tokenizers import Tokenizer

    from mtplab.model.sources import load_model

    torch.set_num_threads(1)
    model = load_model(asked.model, from_command_line=True)
    export(asked.folder, model, kinds, asked.gamma)
    encoder = Tokenizer.from_file(str(model.tokenizer_path))
    room = model.config.context - asked.output_tokens - asked.gamma - 1
    texts = []
    for prompt in load_prompts(asked.prompts).prompts[:: asked.every]:
        written = prompt.text if prompt.raw else model.chat(prompt.text, prompt.system)
        tokens = encoder.encode(written, add_special_tokens=False).ids
        if len(tokens) <= room:
            texts.append(Text(prompt, tokens, len(tokens)))
    return texts, frozenset([model.end_token])


def export(folder: Path, model: Any, kinds: Sequence[str], gamma: int) -> None:
    """The float graphs with their maps of modules; a torn one never stands under its name."""
    from mtplab.litert.evaluation_graph import export_evaluation
    from mtplab.litert.export import export_backbone, export_head, module_names

    model.backbone.eval().requires_grad_(False)
    works: dict[str, Any] = {
        "backbone": (model.backbone, lambda path: export_backbone(model.backbone, path, (gamma,), (64, 128)))
    }
    for kind in kinds:
        head = model.heads[kind].eval().requires_grad_(False)
        works[f"head_{kind}"] = (head, lambda path, head=head: export_head(head, path, gammas=(gamma,)))
        works[f"evaluation_{kind}"] = (head, lambda path, head=head: export_evaluation(head, path))
    folder.mkdir(parents=True, exist_ok=True)
    for name, (module, write) in works.items():
        path, modules = folder / f"{name}_float.tflite", folder / f"{name}_modules.json"
        if not path.is_file():
            began = time.monotonic()
            partial = path.with_suffix(".part")
            write(partial)
            partial.replace(path)
            print(f"exported {name} in {time.monotonic() - began:.0f} s", file=sys.stderr)
        if not modules.is_file():
            modules.write_bytes(msgspec.json.encode(module_names(module, path)))


def judge_all(
    asked: argparse.Namespace, kinds: Sequence[str], texts: Sequence[Text], stop: frozenset[int]
) -> dict[str, Any]:
    """Every head on the backbone by the recipe."""
    recipe = recipe_named(asked.recipe)
    limits = Limits(gamma=asked.gamma, output_tokens=asked.output_tokens, stop=stop)
    work = asked.folder / f"work-{recipe.name}"
    work.mkdir(exist_ok=True)
    path = floats(asked.folder, work, kinds[0]).backbone(recipe, "backbone").path
    backbone = LiteRtBackbone(path, asked.threads)
    plain = plain_texts(backbone, texts, limits, teller("plain"))
    heads = {}
    for kind in kinds:
        made = floats(asked.folder, work, kind).head(head_recipe(recipe), kind)
        graphs = Graphs(backbone=path, head=made.head, evaluation=made.evaluation)
        pair = Pair.load(graphs, asked.threads, backbone)
        rounds = true_rounds(pair, texts, limits, teller(kind))
        told = teller(f"{kind}, teacher-forced")
        hits = []
        for text, one in zip(texts, rounds, strict=True):
            told(text.prompt.id)
            hits.append(forced_hits(judge_output(pair, text, one.output), text, asked.gamma))
        heads[kind] = {
            "recipe": head_recipe(recipe).label,
            "bytes": graphs.sizes[1],
            "asked": "many positions a call" if made.evaluation else "position by position",
            "exactness": exactness(plain, rounds),
            "top1": [msgspec.to_builtins(rate) for rate in added(hits, asked.gamma).rates()],
            "all": summary_of(rounds, asked.gamma),
            "by_class": {klass: summary_of(of, asked.gamma) for klass, of in by_class(rounds).items()},
        }
    return {
        "script": "benchmarks/held_out.py",
        "model": asked.model,
        "recipe": recipe.label,
        "backbone_bytes": path.stat().st_size,
        "prompt_set": asked.prompts,
        "prompt_set_sha256": load_prompts(asked.prompts).sha256,
        "prompts": len(texts),
        "every": asked.every,
        "output_tokens": asked.output_tokens,
        "gamma": asked.gamma,
        "threads": asked.threads,
        "heads": heads,
    }


def head_recipe(recipe: Recipe) -> Recipe:
    return head_recipe_for(recipe)


def floats(folder: Path, work: Path, kind: str) -> FloatGraphs:
    """The float graphs of the folder, as a stage would be given them."""
    inputs = {}
    for name, file in (("backbone", "backbone"), ("head", f"head_{kind}"), ("evaluation", f"evaluation_{kind}")):
        inputs[f"float_{name}.tflite"] = str(folder / f"{file}_float.tflite")
        inputs[f"{name}_modules.json"] = str(folder / f"{file}_modules.json")
    return FloatGraphs(Job(stage="", module="", params={}, inputs=inputs, workdir=str(work)))


def by_class(rounds: Sequence[PromptRounds]) -> dict[str, list[PromptRounds]]:
    classes = dict.fromkeys(one.klass for one in rounds)
    return {klass: [one for one in rounds if one.klass == klass] for klass in classes}


def teller(what: str) -> Any:
    state = {"told": 0.0, "n": 0}

    def tell(prompt: str) -> None:
        state["n"] += 1
        if time.monotonic() - state["told"] > 20:
            state["told"] = time.monotonic()
            print(f"{what}: {state['n']} {prompt}", file=sys.stderr, flush=True)

    return tell


def lines(found: dict[str, Any]) -> list[str]:
    """The table for people."""
    told = [
        f"{found['model']}, {found['recipe']} ({found['backbone_bytes'] / 1e6:.0f} MB), γ {found['gamma']}, "
        f"{found['prompts']} prompts of {found['prompt_set']}, {found['output_tokens']} tokens each, true rounds",
        f"{'head':<18} {'class':<11} {'prompts':>7} {'rounds':>6}  {'mean accepted':>13}  α_1 α_2 α_3 by position"
        f"{'':<37} α [95 % by prompt]       without loops: prompts, mean, α   prototype's mean",
    ]
    for kind, head in found["heads"].items():
        for klass, row in [("all", head["all"]), *head["by_class"].items()]:
            told.append(f"{kind:<18} {klass:<11} {line(row)}   {prototype(kind, klass)}")
        shown = " ".join(f"{rate['value']:.3f}" for rate in head["top1"])
        exact = head["exactness"]
        told.append(f"{'':<18} teacher-forced top-1 by position {shown} of {head['top1'][0]['n']} positions")
        told.append(
            f"{'':<18} tokens equal to plain decoding in {exact['equal']} of {exact['prompts']} prompts, "
            f"{exact['different_at_small_margin']} differ at a margin of a near tie, {exact['different']} otherwise"
        )
    return told


def line(row: dict[str, Any]) -> str:
    positions = " ".join(
        f"{one['value']:.2f} [{one['low']:.2f} {one['high']:.2f}]" if one["value"] is not None else "none"
        for one in row["conditional_alpha"]
    )
    calm = row["without_loops"]
    alpha = row["alpha"]
    return (
        f"{row['prompts']:>7} {row['rounds']:>6}  {row['mean_accepted']:>13.2f}  {positions:<61} "
        f"{interval(alpha):<24} {calm['prompts']:>3} {number(calm['mean_accepted'])} {interval(calm['alpha'])}"
    )


def interval(estimate: dict[str, Any]) -> str:
    if estimate["value"] is None or estimate["low"] is None:
        return number(estimate["value"])
    return f"{estimate['value']:.3f} [{estimate['low']:.3f} {estimate['high']:.3f}]"


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def prototype(kind: str, klass: str) -> str:
    """What the prototype's head of that family reached in that class, where it is written down."""
    if not PROTOTYPE.is_file():
        return ""
    row = json.loads(PROTOTYPE.read_text(encoding="utf-8"))["heads"].get(kind, {}).get(klass)
    return "–" if row is None else f"{row['mean_accepted']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
