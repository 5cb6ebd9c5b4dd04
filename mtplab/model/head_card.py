"""The card of a trained head: judged on the held-out prompts' own text, every figure from the saved file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mtplab.model.card import acceptance_row, head_cost_lines
from mtplab.model.distil_data import Sample
from mtplab.model.distil_fit import sample_rounds
from mtplab.model.evaluate import Round, acceptance, share
from mtplab.model.heads import Head, head_cost, load_head
from mtplab.model.loops import LOOP_TOKENS, ends_in_loop
from mtplab.model.sources import LoadedModel

_STATES = {
    "int8": "torch with the rounding of dynamic int8 (weights per channel, activations per row)",
    "int8_weights": "torch with the weights rounded as in dynamic int8 (per channel), activations float",
    "float": "torch in float32",
}


def judge_head(head: Head, held_out: Sequence[Sample]) -> dict[str, Any]:
    """True greedy rounds on stored texts: all, by class, and apart from texts that end in a loop."""
    by_class: dict[str, list[Round]] = {}
    fresh: list[Round] = []
    loops = 0
    for sample in held_out:
        rounds = sample_rounds(head, sample)
        by_class.setdefault(sample.prompt_class, []).extend(rounds)
        if ends_in_loop(sample.row.tokens[sample.row.prompt_length :].tolist()):
            loops += 1
        else:
            fresh.extend(rounds)
    every = [one for rounds in by_class.values() for one in rounds]
    return {
        "texts": len(held_out),
        "looping_texts": share(loops, len(held_out)),
        "overall": acceptance(every, head.gamma),
        "without_looping_texts": acceptance(fresh, head.gamma),
        "by_class": {name: acceptance(rounds, head.gamma) for name, rounds in by_class.items()},
    }


def write_head_card(
    model: LoadedModel, path: Path, held_out: Sequence[Sample], facts: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Judge the head as it was saved; write card_KIND.json and MODEL_CARD_KIND.md into `folder`."""
    head = load_head(path, model.backbone)
    card: dict[str, Any] = msgspec.to_builtins(
        {
            "model": model.name,
            "model_files": {name: sha for name, sha in model.files.items() if not name.startswith("head_")},
            "file": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "file_bytes": path.stat().st_size,
            "config": head.config,
            "cost": head_cost(head, model.backbone, bytes_per_parameter=2.0),
            "held_out": judge_head(head, held_out),
            **facts,
        }
    )
    kind = head.config.kind
    (folder / f"card_{kind}.json").write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")
    (folder / f"MODEL_CARD_{kind}.md").write_text(render_head_card(card), encoding="utf-8")
    return card


def render_head_card(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    config, plan, recipe, held_out = card["config"], card["plan"], card["recipe"], card["held_out"]
    gamma = config["gamma"]
    positions = [f"α_{k}" for k in range(1, gamma + 1)]
    loops = held_out["looping_texts"]
    lines = [
        f"# {config['kind']} head for {card['model']} (γ = {gamma})",
        "",
        f"`{card['file']}`, {card['file_bytes']:,} bytes (float16), sha256 `{card['sha256']}`. Token embedding and "
        "output projection are the backbone's own. Every figure below was measured on this file by "
        f"`mtplab train-head` and stands in `card_{config['kind']}.json`.",
        "",
        *head_cost_lines(card["cost"]),
        *_vocabulary_lines(card),
        "",
        "## Acceptance on held-out prompts",
        "",
        f"True greedy draft–verify rounds on the own text of {held_out['texts']} held-out prompts (set `assistant`), "
        f"text and states by {_STATES[plan['states']]}. α_k is conditional on the drafts before k; brackets are "
        "Wilson 95 % intervals, which treat rounds as independent.",
        "",
        "| text | rounds | mean accepted | " + " | ".join(positions) + " |",
        "|---|---|---|" + "---|" * gamma,
        acceptance_row("all", held_out["overall"]),
        *(acceptance_row(name, value) for name, value in held_out["by_class"].items()),
        acceptance_row("all but looping texts", held_out["without_looping_texts"]),
        "",
        f"{loops['hits']} of {loops['trials']} texts end in three or more turns of a cycle that cover at "
        f"least {LOOP_TOKENS} tokens.",
        "",
        "## Training",
        "",
        f"Self-distillation on {card['generated_tokens']:,} tokens of own greedy text ({card['texts']} texts of up "
        f"to {plan['new_tokens']} tokens): {card['result']['steps']} of {recipe['steps']} steps of about "
        f"{recipe['positions_per_step']} positions, {card['result']['seconds'] / 60:.0f} minutes on a shared machine "
        f"(ended: {card['result']['ended']}), seed {recipe['seed']}. Prompts to learn from and held-out prompts "
        "share their families, but no filled-in word list entry and no library module.",
        "",
        "## Limits",
        "",
        "- Greedy decoding (temperature 0) only; other prompts than these families give other figures.",
        "- Trained for the arithmetic named above: another quantisation of the backbone lowers α.",
        "- Weights of the head: Apache-2.0.",
        "",
    ]
    return "\n".join(lines)


def _vocabulary_lines(card: dict[str, Any]) -> list[str]:
    vocabulary = card.get("draft_vocabulary")
    if vocabulary is None:
        return ["It drafts over the whole vocabulary."]
    return [
        f"It drafts the {vocabulary['size']:,} tokens most frequent in the training text "
        f"({vocabulary['coverage_of_training_text']:.1%} of it; {vocabulary['coverage_of_held_out_text']:.1%} of the "
        "held-out text)."
    ]
