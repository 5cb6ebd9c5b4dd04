"""What each push on α, c and r brings to speculative decoding: switched on in turn, measured side by side.

    python benchmarks/waterfall.py [--model smollm2] [--recipe dynamic_int8] [--threads 1] [--gamma 3] [--minutes 8]

One interleaved run (ABBA) of plain decoding and of the same head at the same γ, each way with one push more:

    calls      every draft a call of its own (the single-step drafter that LiteRT-LM runs), full vocabulary
    graph      the γ drafts chained by argmax inside one graph
    vocabulary only the tokens the head was made for are projected; logits are still spread over the whole vocabulary
    ids        the graph gives the ids it chose, its logits stay inside
    half       half as many draft tokens, those that the tokenizer merged first
    length N   the last way at the other exported draft lengths

Printed for each class: decode speedup over plain with its 95 % interval, and what the step brought over the one
before it (a ratio with its interval, both timed). All ways must give the tokens of plain decoding; those that do not
are counted and told.
The result is kept in results/waterfall.json and .txt.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from decoding import (
    ALL,
    HEADS,
    LADDERS,
    PLAIN,
    RESULTS,
    Interleaved,
    Setup,
    Way,
    different_outputs,
    flat,
    interleaved,
    made_once,
    quantised,
    set_up,
)

from mtplab.litert.graph import Signature, open_graph
from mtplab.litert.recipes import head_recipe_for, recipe_named
from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.measure.figures import PromptFigures
from mtplab.measure.predict import decode_speedup
from mtplab.session.paths import cache_dir
from mtplab.speculation.sampling import greedy

STEPS = ("calls", "graph", "vocabulary", "ids", "half")


class Step(msgspec.Struct, frozen=True):
    """One push on one class: over plain decoding, and over the push before it."""

    name: str
    klass: str
    gamma: int
    accepted: float
    speedup: tuple[float, float, float]
    brought: tuple[float, float, float] | None


class Waterfall(Interleaved, frozen=True):
    """The whole run."""

    steps: list[Step]


class Called:
    """A head of which every draft is a call: embedding and state in, logits and the next state out."""

    def __init__(self, path: Path, threads: int, backbone: LiteRtBackbone, table: np.ndarray, gamma: int) -> None:
        model, _ = open_graph(path, threads, "cpu")
        self.signature = Signature(model, "mtp_drafter", on_host=True)
        self.backbone, self.table, self.gamma = backbone, table, gamma
        self.caches = [name for name in self.signature.input_shapes if name.startswith("kv_cache_")]

    def choices(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> list[int]:
        """The chain, driven from outside the graph."""
        state, ids = hidden, []
        for _ in range(gamma):
            activations = np.concatenate([self.table[token], state]).reshape(1, 1, -1)
            inputs = {"activations": activations, "input_pos": np.array([pos - 1], np.int32)}
            self.signature.run(inputs, self.backbone.cache_buffers(self.caches), {})
            token = greedy(self.signature.read("logits")[0])
            state = self.signature.read("projected_activations")[0]
            ids.append(token)
        return ids

    def draft(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> np.ndarray:
        """Never asked, because the choices are always known."""
        raise NotImplementedError("the drafts are driven one by one and known by their ids")


class Chosen:
    """A head drafting by its logits, as a runtime must that does not know `choices`."""

    def __init__(self, head: LiteRtHead) -> None:
        self.head, self.gamma = head, head.gamma

    def choices(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> list[int]:
        """Argmax on the host; no ranks are made of the logits, so that only the drafting differs."""
        return [greedy(row) for row in self.head.draft(hidden, token, gamma, pos)]

    def draft(self, hidden: np.ndarray, token: int, gamma: int, pos: int) -> np.ndarray:
        """Never asked, because the choices are always known."""
        return self.head.draft(hidden, token, gamma, pos)


def make_graphs(model: str, kind: str, folder: Path, gammas: Sequence[int]) -> None:
    """The head's variants as float graphs, each made once, and the table that a runtime feeds a single step from."""
    wanted = {name: folder / f"head_{kind}_{name}.tflite" for name in ("calls", "full", "half")}
    if all(path.exists() for path in wanted.values()):
        return
    import torch

    from mtplab.litert.drafter import export_drafter
    from mtplab.litert.export import export_head
    from mtplab.model.heads import Head, build_head
    from mtplab.model.sources import load_model

    loaded = load_model(model)
    head = loaded.heads[kind]

    def over(ids: Sequence[int] | None) -> Head:
        """The same head drafting other tokens."""
        other = build_head(kind, loaded.backbone, head.gamma, ff=head.config.ff, draft_ids=ids)
        with torch.no_grad():
            own = dict(head.own_parameters())
            for name, value in other.own_parameters():
                value.copy_(own[name])
        return other.requires_grad_(False).eval()

    known = range(head.config.vocab) if head.draft_ids is None else head.draft_ids.tolist()
    full, half = over(None), over(list(known)[: len(known) // 2])
    made_once(wanted["full"], lambda path: export_head(full, path, gammas=gammas))
    made_once(wanted["half"], lambda path: export_head(half, path, gammas=gammas))
    np.save(folder / "embedding.npy", loaded.backbone.embed(torch.arange(head.config.vocab)).detach().numpy())
    made_once(wanted["calls"], lambda path: export_drafter(full, loaded.backbone, path))


def heads_of(
    setup: Setup, folder: Path, kind: str, recipe: str, threads: int, backbone: LiteRtBackbone, gamma: int
) -> dict[str, Any]:
    """The drafter of every step."""
    for_head = head_recipe_for(recipe_named(recipe)).name

    def graph(name: str) -> Path:
        return quantised(folder / f"head_{kind}_{name}.tflite", for_head)

    own, table = quantised(setup.head, for_head), np.load(folder / "embedding.npy")
    chosen = LiteRtHead(own, threads, backbone=backbone)
    if not chosen.chooses:
        raise SystemExit(f"{setup.head} was exported without `choices`; remove it, and it is made anew.")
    return {
        "calls": Called(graph("calls"), threads, backbone, table, gamma),
        "graph": Chosen(LiteRtHead(graph("full"), threads, backbone=backbone, ranked=True)),
        "vocabulary": Chosen(LiteRtHead(own, threads, backbone=backbone, ranked=True)),
        "ids": chosen,
        "half": LiteRtHead(graph("half"), threads, backbone=backbone),
    }


def _estimate(off: Sequence[PromptFigures], on: Sequence[PromptFigures]) -> tuple[float, float, float]:
    found = decode_speedup(off, on)
    assert found.value is not None and found.low is not None and found.high is not None
    return found.value, found.low, found.high


def steps_of(found: dict[str, list[list[PromptFigures]]], gammas: dict[str, int]) -> list[Step]:
    """Every way on every class, in the order in which they were switched on."""
    rows = []
    for klass in (*sorted({p.klass for p in found[PLAIN][0]}), ALL):
        only, before = None if klass == ALL else klass, None
        plain = flat(found[PLAIN][1:], only)
        for name in (n for n in found if n != PLAIN):
            own = flat(found[name][1:], only)
            rounds = sum(len(p.accepts) for p in own)
            rows.append(
                Step(
                    name=name,
                    klass=klass,
                    gamma=gammas[name],
                    accepted=sum(sum(p.accepts) for p in own) / rounds if rounds else 0.0,
                    speedup=_estimate(plain, own),
                    brought=None if before is None else _estimate(before, own),
                )
            )
            before = own
    return rows


def text_of(w: Waterfall) -> str:
    """The waterfall for people."""
    lines = [
        f"{w.model} {w.recipe}, {w.head}, {w.threads} threads: {w.prompts} prompts of at most {w.limit} tokens, "
        f"{w.rounds} rounds, host load {w.load}, {w.different_outputs} outputs differ"
    ]
    for klass in dict.fromkeys(step.klass for step in w.steps):
        lines.append(f"  {klass}")
        for step in (s for s in w.steps if s.klass == klass):
            value, low, high = step.speedup
            brought = "" if step.brought is None else "  brought ×{:.2f} [{:.2f}–{:.2f}]".format(*step.brought)
            lines.append(
                f"    {step.name:<11} γ {step.gamma}  {step.accepted:.2f} accepted a round  "
                f"{value:.2f}× [{low:.2f}–{high:.2f}]{brought}"
            )
    return "\n".join(lines)


def measure(args: argparse.Namespace) -> Waterfall:
    """Make what is missing, then one interleaved run."""
    kind, folder = HEADS[args.model], args.folder / args.model
    setup = set_up(args.model, folder, args.each, args.longest_prompt)
    make_graphs(args.model, kind, folder, LADDERS[args.model])
    backbone = LiteRtBackbone(quantised(setup.backbone, args.recipe), args.threads)
    drafters = heads_of(setup, folder, kind, args.recipe, args.threads, backbone, args.gamma)
    ways = [Way(PLAIN), *(Way(name, drafters[name], args.gamma) for name in STEPS)]
    others = [gamma for gamma in backbone.gammas if gamma != args.gamma and gamma <= drafters["half"].gamma]
    ways += [Way(f"length {gamma}", drafters["half"], gamma) for gamma in others]
    found = interleaved(backbone, ways, setup, args.limit, args.rounds, args.minutes)
    return Waterfall(
        model=args.model,
        recipe=args.recipe,
        head=kind,
        threads=args.threads,
        rounds=len(found[PLAIN]) - 1,
        prompts=len(setup.requests),
        limit=args.limit,
        load=round(os.getloadavg()[0], 1),
        different_outputs=different_outputs(found),
        steps=steps_of(found, {way.name: way.gamma for way in ways}),
    )


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(HEADS), default="smollm2")
    parser.add_argument("--recipe", default="dynamic_int8")
    parser.add_argument("--gamma", type=int, default=3, help="the draft length at which the pushes are compared")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=cache_dir() / "benchmarks", help="where graphs are kept")
    parser.add_argument("--each", type=int, default=4, help="prompts of each class")
    parser.add_argument("--limit", type=int, default=48, help="output tokens a prompt")
    parser.add_argument("--longest-prompt", type=int, default=200, help="tokens; longer prompts are left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=8.0, help="five rounds are measured anyway")
    parser.add_argument("--results", type=Path, default=RESULTS / "waterfall.json")
    args = parser.parse_args()
    if args.rounds < 5 or args.each < 2:
        parser.error("fewer than 5 rounds, or one prompt of a class, give no interval")
    found = measure(args)
    kept = msgspec.json.decode(args.results.read_bytes(), type=list[Waterfall]) if args.results.exists() else []
    key = (found.model, found.recipe, found.threads)
    kept = [w for w in kept if (w.model, w.recipe, w.threads) != key] + [found]
    args.results.parent.mkdir(parents=True, exist_ok=True)
    args.results.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
    args.results.with_suffix(".txt").write_text("\n\n".join(map(text_of, kept)) + "\n")
    print(text_of(found))


if __name__ == "__main__":
    sys.exit(main())
