"""The model card: measured by `measure`, rendered by `render`; no figure in it is written by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import torch

from mtplab.model import evaluate
from mtplab.model.backbone import Backbone
from mtplab.model.fit_backbone import mean_loss
from mtplab.model.heads import head_cost
from mtplab.model.loops import LOOP_TOKENS
from mtplab.model.prompts import load_prompts
from mtplab.model.sources import LoadedModel

NEW_TOKENS = 64
_HELD_OUT_BATCHES = 24

LIMITS = (
    "The model knows the style of Python source and its documentation, nothing else; its text is often wrong.",
    "It exists to run a whole MTP pipeline on real parts; its α says nothing about a larger model's.",
    "Acceptance is counted for greedy decoding (temperature 0) only.",
    "Wilson intervals treat rounds as independent; rounds of one prompt correlate, so the truth is wider.",
    "The backbone's run was interrupted, resumed and shortened before its decay began: the recipe repeats it "
    "closely, but does not give the very same weights.",
    "Held-out modules share authors, idioms and licence headers with the training modules.",
)


def measure(model: LoadedModel, before: Backbone, held_out: torch.Tensor, facts: dict[str, Any]) -> dict[str, Any]:
    """Every figure of the card, from the shipped files; `before` is the backbone before the loop fine-tuning."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model.tokenizer_path))
    prompts = load_prompts("acceptance")
    heads: dict[str, Any] = {}
    gamma = max(head.gamma for head in model.heads.values())
    texts = evaluate.greedy_texts(model.backbone, tokenizer, prompts.prompts, NEW_TOKENS, gamma)
    for kind, head in model.heads.items():
        heads[kind] = {
            "gamma": head.gamma,
            "cost": head_cost(head, model.backbone),
            "own_greedy_text": evaluate.own_text(model.backbone, head, texts),
            "held_out_real_text": evaluate.real_text(model.backbone, head, tokenizer, prompts.prompts),
        }
    earlier = evaluate.greedy_texts(before, tokenizer, prompts.prompts, NEW_TOKENS, gamma)
    return msgspec.to_builtins(
        {
            "name": model.name,
            "config": model.config,
            "parameters": model.backbone.parameter_count(),
            "held_out_nats_per_token": round(mean_loss(model.backbone, held_out, _HELD_OUT_BATCHES), 4),
            "held_out_nats_per_token_before_unloop": round(mean_loss(before, held_out, _HELD_OUT_BATCHES), 4),
            "held_out_tokens_scored": _HELD_OUT_BATCHES * 8 * (model.config.context - 1),
            "uniform_nats_per_token": round(math.log(model.config.vocab), 4),
            "acceptance_prompts_nats_per_token": round(
                evaluate.prompt_loss(model.backbone, tokenizer, prompts.prompts), 4
            ),
            "prompts": {"set": prompts.name, "sha256": prompts.sha256, "n": len(prompts.prompts)},
            "new_tokens": NEW_TOKENS,
            "repetition": {
                "before_unloop": evaluate.own_repetition(earlier),
                "shipped": evaluate.own_repetition(texts),
                "real_text": evaluate.real_repetition(tokenizer, prompts.prompts, NEW_TOKENS),
            },
            "heads": heads,
            "training": facts,
            "limits": LIMITS,
            "files": model.files,
        }
    )


def _interval(share: dict[str, Any]) -> str:
    if share["value"] is None:
        return f"– ({share['reason']})"
    return f"{share['value']:.2f} [{share['low']:.2f}, {share['high']:.2f}] n={share['trials']}"


def acceptance_row(name: str, acceptance: dict[str, Any]) -> str:
    """One row of an acceptance table."""
    mean = acceptance["mean_accepted"]
    cells = [name, str(acceptance["rounds"]), "–" if mean is None else f"{mean:.2f}"]
    return "| " + " | ".join([*cells, *(_interval(share) for share in acceptance["alpha"])]) + " |"


def head_cost_lines(cost: dict[str, Any]) -> list[str]:
    """What a head costs, in a sentence, and a warning where it is large."""
    return [
        f"Own parameters {cost['own_parameters']:,}, {cost['own_share']:.1%} of the backbone's; it reads "
        f"{cost['bytes_read_per_round']:,} bytes a round at {cost['bytes_per_parameter']:g} bytes a parameter, "
        f"the shared output projection ({cost['shared_parameters']:,} parameters) once per draft.",
        *([cost["warning"]] if cost["warning"] else []),
    ]


def _head_section(kind: str, head: dict[str, Any]) -> list[str]:
    own, cost = head["own_greedy_text"], head["cost"]
    positions = [f"α_{k}" for k in range(1, head["gamma"] + 1)]
    return [
        f"### {kind} (γ = {head['gamma']})",
        "",
        *head_cost_lines(cost),
        "",
        "True greedy draft–verify rounds on the backbone's own text; α_k is conditional on the drafts before:",
        "",
        "| text | rounds | mean accepted | " + " | ".join(positions) + " |",
        "|---|---|---|" + "---|" * len(positions),
        acceptance_row("all", own["overall"]),
        *(acceptance_row(name, value) for name, value in own["by_class"].items()),
        acceptance_row("first draft completes a 4-gram seen before", own["repeating_rounds"]),
        acceptance_row("first draft is new", own["fresh_rounds"]),
        "",
        f"Accepted drafts that complete a 4-gram seen before: {_interval(own['accepted_that_repeat'])}.",
        "",
        "Teacher-forced hit rate on held-out real text (states and fed tokens real, target the backbone's top-1; "
        "not what decoding reaches):",
        "",
        "| text | " + " | ".join(f"draft {k}" for k in range(1, head["gamma"] + 1)) + " |",
        "|---|" + "---|" * len(positions),
        *(
            "| " + " | ".join([name, *(_interval(share) for share in shares)]) + " |"
            for name, shares in head["held_out_real_text"].items()
        ),
        "",
    ]


def _repetition_rows(repetition: dict[str, Any]) -> list[str]:
    names = {"before_unloop": "own, before", "shipped": "own, shipped", "real_text": "real continuations"}
    return [
        f"| {label} | {repetition[key]['texts']} | {repetition[key]['distinct_4']:.3f} "
        f"| {_interval(repetition[key]['looping'])} |"
        for key, label in names.items()
    ]


def render(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    config, training, corpus = card["config"], card["training"], card["training"]["corpus"]
    lines = [
        f"# {card['name']}: a small model for a whole MTP pipeline",
        "",
        f"Decoder-only transformer, {card['parameters']:,} parameters: {config['layers']} layers, width "
        f"{config['d_model']}, {config['heads']} query heads on {config['kv_heads']} KV heads, vocabulary "
        f"{config['vocab']} (byte-level BPE), context {config['context']}, tied embedding. Every figure below was "
        "measured on the shipped files by `python -m mtplab.model.train card` and stands in `card.json`.",
        "",
        "## Language modelling",
        "",
        f"Held-out modules: **{card['held_out_nats_per_token']:.3f} nats/token** "
        f"(before the fine-tuning against loops {card['held_out_nats_per_token_before_unloop']:.3f}; a uniform "
        f"guess {card['uniform_nats_per_token']:.3f}), {card['held_out_tokens_scored']:,} tokens scored. "
        f"Acceptance prompts with their real continuations: {card['acceptance_prompts_nats_per_token']:.3f}.",
        "",
        "## Repetition",
        "",
        f"Greedy continuations of {card['new_tokens']} tokens after {card['prompts']['n']} held-out prompts. A text "
        f"loops when it ends in three or more turns of a cycle that cover at least {LOOP_TOKENS} tokens.",
        "",
        "| text | n | distinct 4-grams | looping |",
        "|---|---|---|---|",
        *_repetition_rows(card["repetition"]),
        "",
        "## Draft heads",
        "",
        "Brackets are Wilson 95 % intervals.",
        "",
    ]
    for kind, head in card["heads"].items():
        lines += _head_section(kind, head)
    lines += [
        "## Training",
        "",
        f"Text: source and documentation of the standard library of Python {corpus['python']}, without tests, "
        f"character tables and build folders: {corpus['files_train']} modules, {corpus['bytes_train']:,} bytes. "
        f"{corpus['files_held_out']} modules ({corpus['bytes_held_out']:,} bytes) are held out by the hash of their "
        f"name. Corpus sha256 `{corpus['sha256']}`.",
        "",
        "| run | seed | steps | minutes |",
        "|---|---|---|---|",
        *(
            f"| {name} | {run['recipe']['seed']} | {run['steps']} | {run['seconds'] / 60:.1f} |"
            for name, run in training["runs"].items()
        ),
        "",
        f"Seeds fix every batch; minutes are of a shared machine with torch {training['torch']}. Heads learned on "
        "the frozen backbone from its own greedy text; no test prompt or held-out module was trained on.",
        "",
        "## Licences",
        "",
        "Weights, tokenizer and code: Apache-2.0. The training text and the excerpts in `prompts/acceptance.jsonl` "
        "come from the Python standard library (PSF License Agreement, Python Software Foundation).",
        "",
        "## Limits",
        "",
        *(f"- {limit}" for limit in card["limits"]),
        "",
        "## Files",
        "",
        *(f"- `{name}` sha256 `{digest}`" for name, digest in card["files"].items()),
        "",
    ]
    return "\n".join(lines)


def write(card: dict[str, Any], folder: Path) -> None:
    """Write card.json and MODEL_CARD.md beside the weights."""
    encoded = msgspec.json.format(msgspec.json.encode(card), indent=1)
    (folder / "card.json").write_bytes(encoded + b"\n")
    (folder / "MODEL_CARD.md").write_text(render(card), encoding="utf-8")
