"""Predicted against measured: the decode speedup that α_k, c and r foretell, beside the one that was timed.

    python benchmarks/predicted.py [--model tiny smollm2] [--recipes float dynamic_int8 mixed] [--minutes 8] [--again]

One table a model and recipe, each of one interleaved run: plain decoding and every exported γ in ABBA order, and
before every other prompt a probe that times calls by themselves: plain steps in a row, then rounds of draft and
verify in a row for each γ. Predicted is τ/(D + r) from the accepts of the warm-up round and the probe's times:
nothing of the timed rounds is in it. Where it lies
outside the measured 95 % interval, the term is named whose value out of the timed rounds, put in its place, mends
the prediction most: the step of plain decoding, α (rounds cut short by stop or limit), c, r, or what a round takes
besides (overhead).

Every finished table is kept in results/predicted.json, so that a run that was cut off goes on with what is missing;
the text stands beside it. Graphs are made once, in --folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from decoding import (
    ALL,
    HEADS,
    PLAIN,
    RESULTS,
    Interleaved,
    Request,
    Setup,
    Way,
    different_outputs,
    flat,
    interleaved,
    loaded_graphs,
    set_up,
)

from mtplab.litert.runtime import LiteRtBackbone, LiteRtHead
from mtplab.measure.figures import PromptFigures
from mtplab.measure.predict import decode_speedup, predict
from mtplab.session.paths import cache_dir
from mtplab.speculation.acceptance import conditional, merge
from mtplab.speculation.decode import margin
from mtplab.speculation.sampling import greedy
from mtplab.speculation.speedup import expected_tokens_conditional

RECIPES = ("float", "dynamic_int8", "mixed")
AIM_SHARE, AIM_ERROR = 0.9, 0.05


class Terms(msgspec.Struct, frozen=True):
    """What a prediction is made of; times in ms."""

    step_ms: float
    tau: float
    draft_ms: float
    verify_ms: float
    overhead_ms: float = 0.0

    @property
    def speedup(self) -> float:
        """τ/K."""
        return self.tau * self.step_ms / (self.draft_ms + self.verify_ms + self.overhead_ms)


class Row(msgspec.Struct, frozen=True):
    """One cell of the table: a draft length on one class."""

    gamma: int
    klass: str
    conditional: list[float | None]
    c: float
    r: float
    predicted: float
    measured: float
    low: float
    high: float
    inside: bool
    error: float
    term: str | None
    errors_with: dict[str, float]


class Table(Interleaved, frozen=True):
    """One interleaved run."""

    plain_tokens_per_s: float
    rows: list[Row]


class Probe:
    """Times calls apart from any decoding loop, at the positions and on the states of real text.

    Plain steps run in a row, and rounds of one γ; the first calls of a row do not count: a graph that has just taken
    over from another finds other weights in the caches than it will have when it runs on.
    """

    FIRST, STRIDE = 3, 4

    def __init__(
        self, backbone: LiteRtBackbone, head: LiteRtHead, setup: Setup, limit: int, gammas: Sequence[int]
    ) -> None:
        self.backbone, self.head, self.setup, self.limit, self.gammas = backbone, head, setup, limit, gammas
        self.times: dict[tuple[str, str, int], list[float]] = {}

    def run(self, index: int, place: int) -> None:
        """Probe every prompt in every other round; not in the warm-up round."""
        if index == 0 or (place + index) % 2:
            return
        request = self.setup.requests[place]
        tokens, states = self._plain(request)
        for gamma in self.gammas:
            places = range(len(request.tokens), len(tokens) - gamma, self.STRIDE)
            for nth, pos in enumerate(places):
                self._round(request.klass, gamma, states[pos - 1], tokens[pos : pos + gamma + 1], pos, nth)

    def _plain(self, request: Request) -> tuple[list[int], dict[int, Any]]:
        """Time plain steps; the text, and the state at each position from the prompt's last one on."""
        backbone, tokens, states = self.backbone, list(request.tokens), {}
        backbone.reset()
        logits, hidden = backbone.prefill(tokens)
        tokens.append(greedy(logits))
        states[len(tokens) - 2] = hidden.copy()
        last = min(self.limit, backbone.context_limit - len(tokens))
        for nth in range(last - 1):
            if tokens[-1] in self.setup.stop:
                break
            began = time.perf_counter()
            logits, hidden = backbone.decode(tokens[-1], len(tokens) - 1)
            chosen = greedy(logits)
            margin(logits)
            self._note(request.klass, "step", 0, began, nth)
            tokens.append(chosen)
            states[len(tokens) - 2] = hidden.copy()
        return tokens, states

    def _round(self, klass: str, gamma: int, hidden: Any, text: list[int], pos: int, nth: int) -> None:
        """Time a draft and a verification; what is verified is the text itself, so that the cache stays its own."""
        began = time.perf_counter()
        if self.head.choices(hidden, text[0], gamma, pos) is None:
            for row in self.head.draft(hidden, text[0], gamma, pos):
                greedy(row)
        self._note(klass, "draft", gamma, began, nth)
        began = time.perf_counter()
        logits, _ = self.backbone.verify(text, pos)
        for row in logits:
            greedy(row)
        self._note(klass, "verify", gamma, began, nth)

    def _note(self, klass: str, what: str, gamma: int, began: float, nth: int) -> None:
        if nth < self.FIRST:
            return
        taken = (time.perf_counter() - began) * 1000
        for name in (klass, ALL):
            self.times.setdefault((name, what, gamma), []).append(taken)

    def ms(self, klass: str, what: str, gamma: int = 0) -> float:
        """The median of what was timed, of all classes where texts of this one were too short for a row."""
        return statistics.median(self.times.get((klass, what, gamma)) or self.times[ALL, what, gamma])


def rows_of(found: dict[str, list[list[PromptFigures]]], probe: Probe, gammas: Sequence[int]) -> list[Row]:
    """Every γ on every class and on all of them."""
    classes = sorted({p.klass for p in found[PLAIN][0]})
    return [_row(found, probe, gamma, klass) for gamma in gammas for klass in (*classes, ALL)]


def _row(found: dict[str, list[list[PromptFigures]]], probe: Probe, gamma: int, klass: str) -> Row:
    only = None if klass == ALL else klass
    warm_up = [c for p in flat(found[f"γ{gamma}"][:1], only) if (c := p.counts)]
    alphas = conditional(merge(warm_up)) or ()
    foretold = Terms(
        probe.ms(klass, "step"),
        expected_tokens_conditional([a or 0.0 for a in alphas]),
        probe.ms(klass, "draft", gamma),
        probe.ms(klass, "verify", gamma),
    )
    off, on = flat(found[PLAIN][1:], only), flat(found[f"γ{gamma}"][1:], only)
    measured = decode_speedup(off, on)
    assert measured.value is not None and measured.low is not None and measured.high is not None
    errors = {
        name: msgspec.structs.replace(foretold, **changed).speedup / measured.value - 1
        for name, changed in _substitutes(off, on).items()
    }
    inside = measured.low <= foretold.speedup <= measured.high
    return Row(
        gamma=gamma,
        klass=klass,
        conditional=list(alphas),
        c=foretold.draft_ms / gamma / foretold.step_ms,
        r=foretold.verify_ms / foretold.step_ms,
        predicted=foretold.speedup,
        measured=measured.value,
        low=measured.low,
        high=measured.high,
        inside=inside,
        error=foretold.speedup / measured.value - 1,
        term=None if inside else min(errors, key=lambda name: abs(errors[name])),
        errors_with=errors,
    )


def _substitutes(off: Sequence[PromptFigures], on: Sequence[PromptFigures]) -> dict[str, dict[str, float]]:
    """Each term as the timed rounds themselves had it."""
    told = predict(off, on)
    step, draft, verify = told.plain_step_ms or 0.0, told.draft_round_cost or 0.0, told.verify_cost or 0.0
    rounds = sum(len(p.accepts) for p in on)
    emitted = sum(p.output_tokens - 1 - p.plain_steps for p in on)
    return {
        "step": {"step_ms": step},
        "α": {"tau": emitted / rounds},
        "c": {"draft_ms": draft * step},
        "r": {"verify_ms": verify * step},
        "overhead": {"overhead_ms": (told.overhead or 0.0) * step},
    }


def measure(model: str, recipe: str, args: argparse.Namespace) -> Table:
    """One table: load, warm up, measure."""
    setup = set_up(model, args.folder / model, args.each, args.longest_prompt, args.prompts)
    backbone, head = loaded_graphs(setup, recipe, args.threads)
    both = [g for g in backbone.gammas if g in head.gammas and g in (args.gammas or backbone.gammas)]
    probe = Probe(backbone, head, setup, args.limit, both)
    ways = [Way(PLAIN), *(Way(f"γ{gamma}", head, gamma) for gamma in both)]
    found = interleaved(backbone, ways, setup, args.limit, args.rounds, args.minutes, probe.run)
    timed = flat(found[PLAIN][1:])
    return Table(
        model=model,
        recipe=recipe,
        head=HEADS[model],
        threads=args.threads,
        rounds=len(found[PLAIN]) - 1,
        prompts=len(setup.requests),
        limit=args.limit,
        load=round(os.getloadavg()[0], 1),
        different_outputs=different_outputs(found),
        plain_tokens_per_s=1000 / statistics.median(p.tpot_ms for p in timed if p.tpot_ms),
        rows=rows_of(found, probe, both),
    )


def text_of(tables: Sequence[Table]) -> str:
    """The tables and, over all their cells, the median error and the share inside."""
    parts = []
    for t in tables:
        parts.append(
            f"{t.model} {t.recipe}, {t.head}, {t.threads} threads: {t.prompts} prompts of at most {t.limit} tokens, "
            f"{t.rounds} rounds, plain {t.plain_tokens_per_s:.0f} tok/s, host load {t.load}, "
            f"{t.different_outputs} outputs differ"
        )
        parts.append(f"  {'γ':>2} {'class':<10} {'α_k':<24} {'c':>5} {'r':>5}  predicted  measured             error")
        for row in t.rows:
            alphas = " ".join("–" if a is None else f"{a:.2f}" for a in row.conditional)
            where = "inside" if row.inside else f"outside: {row.term}"
            parts.append(
                f"  {row.gamma:>2} {row.klass:<10} {alphas:<24} {row.c:>5.3f} {row.r:>5.2f}  {row.predicted:>8.2f}×  "
                f"{row.measured:.2f}× [{row.low:.2f}–{row.high:.2f}]  {row.error:>+6.1%}  {where}"
            )
    rows = [row for t in tables for row in t.rows]
    if rows:
        share = sum(row.inside for row in rows) / len(rows)
        error = statistics.median(abs(row.error) for row in rows)
        parts.append(
            f"{len(rows)} cells: {share:.0%} inside the measured interval (aim {AIM_SHARE:.0%}), "
            f"median error {error:.1%} (aim {AIM_ERROR:.0%})"
        )
    return "\n".join(parts)


def main() -> None:
    """Measure what is missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=sorted(HEADS), default=["tiny"])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--folder", type=Path, default=cache_dir() / "benchmarks", help="where graphs are kept")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", help="a prompt set or a file, of one model; default: the model's own")
    parser.add_argument("--gammas", type=int, nargs="+", help="of the exported draft lengths; default: all")
    parser.add_argument("--each", type=int, default=5, help="prompts of each class")
    parser.add_argument("--limit", type=int, default=48, help="output tokens a prompt")
    parser.add_argument("--longest-prompt", type=int, default=200, help="tokens; longer prompts are left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=8.0, help="of one table; five rounds are measured anyway")
    parser.add_argument("--again", action="store_true", help="measure also what is there already")
    parser.add_argument("--results", type=Path, default=RESULTS / "predicted.json")
    args = parser.parse_args()
    if args.rounds < 5 or args.each < 2:
        parser.error("fewer than 5 rounds, or one prompt of a class, give no interval")
    kept = args.results.exists() and msgspec.json.decode(args.results.read_bytes(), type=list[Table])
    tables: dict[tuple[str, str, int], Table] = {(t.model, t.recipe, t.threads): t for t in kept or ()}
    for model in args.model:
        for recipe in args.recipes:
            if args.again or (model, recipe, args.threads) not in tables:
                print(f"{model} {recipe}:", file=sys.stderr)
                tables[model, recipe, args.threads] = measure(model, recipe, args)
                args.results.parent.mkdir(parents=True, exist_ok=True)
                args.results.write_bytes(msgspec.json.format(msgspec.json.encode(list(tables.values())), indent=1))
                args.results.with_suffix(".txt").write_text(text_of(list(tables.values())) + "\n")
    print(text_of(list(tables.values())))


if __name__ == "__main__":
    main()
