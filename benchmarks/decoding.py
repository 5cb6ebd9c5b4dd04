"""What the decoding benchmarks share: graphs by recipe, prompts as tokens, timed runs as the lab's figures.

Used by predicted.py and waterfall.py; nothing here is a measurement of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mtplab.litert.quantise import quantise
from mtplab.litert.recipes import head_recipe_for, recipe_named
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.measure.figures import PromptFigures, prompt_figures
from mtplab.measure.protocol import PromptRun, RoundSeen, TokenSeen
from mtplab.speculation.adaptive import Fixed
from mtplab.speculation.decode import (
    EndRecord,
    Record,
    RoundRecord,
    TokenRecord,
    decode_plain,
    decode_speculative,
)

RESULTS = Path(__file__).resolve().parent / "results"
PLAIN = "plain"
ALL = "all"
# What is measured by default: the shipped models with their better head, and a ladder of draft lengths.
HEADS = {"tiny": "token_conditioned", "smollm2": "zero_copy"}
PROMPTS = {"tiny": "demo", "smollm2": "assistant"}
LADDERS = {"tiny": (1, 2, 3), "smollm2": (1, 3, 7)}


class Request(msgspec.Struct, frozen=True):
    """A prompt as tokens, chat template and all."""

    name: str
    klass: str
    tokens: list[int]


class Setup(msgspec.Struct, frozen=True):
    """A model's float graphs and what is asked of them."""

    backbone: Path
    head: Path
    requests: list[Request]
    stop: frozenset[int]


class Interleaved(msgspec.Struct, frozen=True):
    """One interleaved run: on what, how long, and whether every way of drafting wrote what plain decoding wrote."""

    model: str
    recipe: str
    head: str
    threads: int
    rounds: int
    prompts: int
    limit: int
    load: float
    different_outputs: int


def set_up(model: str, folder: Path, each: int, longest: int, prompts: str | None = None) -> Setup:
    """Export the float graphs into `folder` unless they are there, and encode `each` prompts of every class.

    `prompts` is a set or a file, the model's own unless given. Prompts of more than `longest` tokens are left out.
    """
    from tokenizers import Tokenizer

    from mtplab.litert.export import export_backbone, export_head
    from mtplab.model.prompts import load_prompts
    from mtplab.model.sources import load_model

    kind, gammas = HEADS[model], LADDERS[model]
    loaded = load_model(model)
    loaded.backbone.requires_grad_(False).eval()
    head = loaded.heads[kind].requires_grad_(False).eval()
    folder.mkdir(parents=True, exist_ok=True)
    files = {"backbone": folder / "backbone.tflite", "head": folder / f"head_{kind}.tflite"}
    makers: dict[str, Callable[[Path], Any]] = {
        "backbone": lambda path: export_backbone(loaded.backbone, path, gammas),
        "head": lambda path: export_head(head, path, gammas=gammas),
    }
    for name, path in files.items():
        made_once(path, makers[name])
    encoder = Tokenizer.from_file(str(loaded.tokenizer_path))
    chosen = load_prompts(prompts or PROMPTS[model])
    asked = [p for klass in chosen.classes() for p in chosen.of_class(klass)[:each]]
    requests = [
        Request(p.id, p.prompt_class, encoder.encode(p.text if p.raw else loaded.chat(p.text, p.system)).ids)
        for p in asked
    ]
    fitting = [r for r in requests if len(r.tokens) <= longest]
    return Setup(files["backbone"], files["head"], fitting, frozenset({loaded.end_token}))


def made_once(path: Path, make: Callable[[Path], Any]) -> Path:
    """`path`, made under another name first, so that what was cut off is no graph."""
    if not path.exists():
        half = path.with_suffix(".half")
        make(half)
        half.rename(path)
    return path


def quantised(path: Path, recipe: str) -> Path:
    """The graph under a recipe, made once."""
    if recipe == "float":
        return path
    target = path.with_name(f"{path.stem}.{recipe}.tflite")
    return made_once(target, lambda half: quantise(path, half, recipe_named(recipe)))


def records_of(
    backbone: LiteRtBackbone, head: Any, request: Request, gamma: int, limit: int, stop: frozenset[int]
) -> Iterator[Record]:
    """Decode one request: plainly where `gamma` is 0."""
    if gamma == 0:
        return decode_plain(backbone, request.tokens, limit=limit, stop=stop)
    return decode_speculative(backbone, head, request.tokens, limit=limit, stop=stop, policy=Fixed(gamma))


def figures_of(request: Request, began_ns: int, records: Sequence[Record]) -> PromptFigures:
    """The records of one request as the figures that the lab makes of a token protocol."""
    tokens = [TokenSeen(r.id, r.round, r.t_ns, r.margin) for r in records if isinstance(r, TokenRecord)]
    rounds = [
        RoundSeen(r.round, r.gamma, r.accepted, r.emitted, r.ranks, r.draft_ns, r.verify_ns)
        for r in records
        if isinstance(r, RoundRecord)
    ]
    end = next(r for r in records if isinstance(r, EndRecord))
    run = PromptRun(
        prompt=request.name,
        klass=request.klass,
        input_tokens=len(request.tokens),
        warmup=False,
        begin_ns=began_ns,
        tokens=tuple(tokens),
        rounds=tuple(rounds),
        end_ns=end.t_ns,
        reason=end.reason,
        output_sha256=None,
        problem=None,
    )
    return prompt_figures(run)


class Way(msgspec.Struct, frozen=True):
    """One way to decode that is measured beside others: a head (None: plain) at a draft length."""

    name: str
    head: Any = None
    gamma: int = 0


def interleaved(
    backbone: LiteRtBackbone,
    ways: Sequence[Way],
    setup: Setup,
    limit: int,
    rounds: int,
    minutes: float,
    before: Callable[[int, int], None] | None = None,
) -> dict[str, list[list[PromptFigures]]]:
    """Figures of every prompt, by way and round. The first round only warms up.

    All ways take turns on each prompt, ABBA from prompt to prompt and from round to round: a host whose speed changes
    within seconds then changes it for all of them. Ends after `rounds` rounds, or after five of them once `minutes`
    are over; `before` is called before each prompt with the round's and the prompt's number.
    """
    found: dict[str, list[list[PromptFigures]]] = {way.name: [] for way in ways}
    began = time.monotonic()
    for index in range(rounds + 1):
        if index > 5 and time.monotonic() - began > 60 * minutes:
            break
        for measured in found.values():
            measured.append([])
        for place, request in enumerate(setup.requests):
            if before is not None:
                before(index, place)
            for way in ways if (index + place) % 2 == 0 else reversed(ways):
                backbone.reset()
                start = time.monotonic_ns()
                records = list(records_of(backbone, way.head, request, way.gamma, limit, setup.stop))
                found[way.name][index].append(figures_of(request, start, records))
        print(f"  round {index} of {rounds}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def different_outputs(found: dict[str, list[list[PromptFigures]]]) -> int:
    """How many outputs were not plain decoding's."""
    plain = {p.prompt: p.output_sha256 for p in found[PLAIN][0]}
    return sum(
        p.output_sha256 != plain[p.prompt] for rounds in found.values() for measured in rounds[:1] for p in measured
    )


def flat(rounds: Sequence[Sequence[PromptFigures]], klass: str | None = None) -> list[PromptFigures]:
    """All prompts of all rounds, of one class if asked."""
    return [p for measured in rounds for p in measured if klass in (None, p.klass)]


def loaded_graphs(setup: Setup, recipe: str, threads: int) -> tuple[LiteRtBackbone, LiteRtHead]:
    """Backbone and head under a recipe, the head reading the backbone's cache where it is of that kind."""
    for_head = head_recipe_for(recipe_named(recipe)).name
    backbone = LiteRtBackbone(quantised(setup.backbone, recipe), threads)
    head = LiteRtHead(quantised(setup.head, for_head), threads, backbone=backbone)
    return backbone, head
