"""Our decode loop beside LiteRT-LM on the same weights, plain and with speculation, in one interleaved run.

    python benchmarks/litert_lm.py [--model tiny] [--head token_conditioned] [--recipe mixed] [--threads 1]
                                   [--rounds 5] [--max-tokens 48] [--prompts demo]
    python benchmarks/litert_lm.py --files FOLDER …   (all that `prepare` names, made before)

Both programs print the token protocol; every round runs all four configurations, odd rounds in reverse. A prompt's
figure is its time a token after the first; a round's ratio is taken within the round, prompt by prompt, and the
spread is that of the rounds. Then the counts of drafted and accepted tokens stand side by side, LiteRT-LM's confirmed
by its printed success rate, and last where our loop's time goes: measured in this process, so its shares matter.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtplab.litert import runtime as own
from mtplab.measure.figures import prompt_figures
from mtplab.measure.rounds import schedule
from mtplab.pipeline import lm_runs
from mtplab.speculation import decode

FILES = ("backbone.tflite", "head.tflite", "tokenizer.json", "prompts.jsonl", "model.litertlm")
SAME = ("same_input", "same_text", "same_rounds")


def prepare(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Path], int]:
    """The four files and γ: given, or made by the pipeline's stages (out of its cache where they are there)."""
    if options.files:
        return {name: options.files / name for name in FILES}, options.gamma
    from mtplab.pipeline.bundle_command import stages_of
    from mtplab.pipeline.cache import Store
    from mtplab.pipeline.headless import run_stages
    from mtplab.pipeline.stage import RunParameters
    from mtplab.session.identity import Policy
    from mtplab.session.paths import cache_dir

    wanted = RunParameters(
        model=options.model,
        head=options.head,
        recipe=options.recipe,
        gamma=options.gamma,
        policy=Policy(prompt_set=options.prompts, draft_length=f"fixed:{options.gamma}"),
    )
    store = Store(cache_dir() / "stages")
    results = {result.stage: result for result in run_stages(stages_of(wanted), wanted, store)}
    for name, result in results.items():
        print(f"{name}: {result.status} {result.seconds:.1f} s", file=sys.stderr)
        if result.status not in ("done", "cached"):
            raise SystemExit(f"{name}: {result.reason}")
    made = {
        "backbone.tflite": ("quantise", "backbone.tflite"), "head.tflite": ("quantise", "head.tflite"),
        "tokenizer.json": ("freeze", "tokenizer.json"), "prompts.jsonl": ("freeze", "prompts.jsonl"),
        "model.litertlm": ("bundle", "model.litertlm"),
    }  # fmt: skip
    paths = {}
    for name, (stage, artefact) in made.items():
        paths[name] = folder / name
        paths[name].symlink_to(store.path(results[stage].artefacts[artefact].sha256))
    return paths, options.gamma


def ask(options: argparse.Namespace, files: dict[str, Path], folder: Path) -> lm_runs.Asked:
    """The prompts, with the model's chat template around them, for both programs."""
    lines = files["prompts.jsonl"].read_text("utf-8").split("\n")
    path = folder / "chosen.jsonl"
    path.write_text("\n".join([line for line in lines if line.strip()][:: options.every]), encoding="utf-8")
    return lm_runs.Asked(
        tokenizer=files["tokenizer.json"],
        prompts=path,
        max_tokens=options.max_tokens,
        threads=options.threads,
        stop_ids=tuple(options.stop_id),
    )


def tpots(run: lm_runs.HostRun) -> dict[str, float]:
    """Milliseconds a token after the first, by prompt."""
    if run.failure:
        raise SystemExit(run.failure)
    figures = [prompt_figures(prompt) for prompt in run.protocol.measured()]
    return {figure.prompt: figure.tpot_ms for figure in figures if figure.tpot_ms is not None}


def measure(
    options: argparse.Namespace, files: dict[str, Path], gamma: int, asked: lm_runs.Asked, folder: Path
) -> dict[str, list[lm_runs.HostRun]]:
    """All rounds of all configurations."""
    bundle, backbone, head = files["model.litertlm"], files["backbone.tflite"], files["head.tflite"]
    programs: dict[str, Callable[[Path], lm_runs.HostRun]] = {
        "own plain": lambda log: lm_runs.run_own(backbone, None, asked, log=log),
        "litert-lm plain": lambda log: lm_runs.run_litert_lm(bundle, asked, gamma=None, log=log),
        "own speculative": lambda log: lm_runs.run_own(backbone, head, asked, log=log),
        "litert-lm speculative": lambda log: lm_runs.run_litert_lm(bundle, asked, gamma=gamma, log=log),
    }
    runs: dict[str, list[lm_runs.HostRun]] = {name: [] for name in programs}
    for slot in schedule(list(programs), options.rounds):
        runs[slot.configuration].append(programs[slot.configuration](folder / f"{slot.order}.log"))
        print(f"round {slot.index + 1}: {slot.configuration}", file=sys.stderr)
    return runs


def ratios(above: list[lm_runs.HostRun], below: list[lm_runs.HostRun]) -> list[float]:
    """Per round the median over prompts of the time a token of `above` ÷ that of `below`."""
    found = []
    for one, other in zip(above, below, strict=True):
        a, b = tpots(one), tpots(other)
        found.append(statistics.median(a[name] / b[name] for name in a if name in b))
    return found


def fastest(runs: list[lm_runs.HostRun]) -> dict[str, float]:
    """Every prompt's fastest round: other work on the machine only ever makes a round slower."""
    found: dict[str, float] = {}
    for run in runs:
        for prompt, value in tpots(run).items():
            found[prompt] = min(value, found.get(prompt, value))
    return found


def show_speed(runs: dict[str, list[lm_runs.HostRun]]) -> None:
    print(
        f"\n{'configuration':<24}{'ms a token':>12}{'TTFT ms':>10}{'derived':>10}   (medians over prompts and rounds)"
    )
    for name, some in runs.items():
        figures = [prompt_figures(prompt) for run in some for prompt in run.protocol.measured()]
        derived = [f.ttft_derived_ms for f in figures if f.ttft_derived_ms is not None]
        columns = [[f.tpot_ms for f in figures if f.tpot_ms], [f.ttft_ms for f in figures if f.ttft_ms], derived]
        cells = [f"{statistics.median(values):.3f}" if values else "-" for values in columns]
        print(f"{name:<24}{cells[0]:>12}{cells[1]:>10}{cells[2]:>10}")
    print()
    for title, above, below in (
        ("plain: our speed in LiteRT-LM's", "litert-lm plain", "own plain"),
        ("speculative: our speed in LiteRT-LM's", "litert-lm speculative", "own speculative"),
        ("our speculation in our plain", "own plain", "own speculative"),
        ("LiteRT-LM's speculation in its plain", "litert-lm plain", "litert-lm speculative"),
    ):
        found = ratios(runs[above], runs[below])
        best_above, best_below = fastest(runs[above]), fastest(runs[below])
        best = statistics.median(best_above[name] / best_below[name] for name in best_above if name in best_below)
        spread = f"rounds {min(found):.3f}…{max(found):.3f}, of each prompt's fastest {best:.3f}"
        print(f"{title:<40}{statistics.median(found):.3f}  ({spread})")


def show_counts(runs: dict[str, list[lm_runs.HostRun]], gamma: int) -> None:
    mine, theirs = runs["own speculative"][0], runs["litert-lm speculative"][0]
    own_counts, lm_counts = lm_runs.own_counts(mine), lm_runs.lm_counts(theirs, gamma)
    print(
        f"\n{'drafted and accepted':<24}{'drafted':>9}{'accepted':>10}{'ratio':>9}   (all prompts, warm-up included)"
    )
    for name, counts in (("own loop", own_counts), ("litert-lm", lm_counts)):
        if counts.reason:
            print(f"{name:<24}unknown: {counts.reason}")
        else:
            print(f"{name:<24}{counts.drafted:>9}{counts.accepted:>10}{counts.ratio or 0:>9.4f}")
    rows = lm_runs.beside(mine.protocol, theirs.protocol)
    inputs, texts, rounds = (sum(getattr(row, name) for row in rows) for name in SAME)
    print(f"of {len(rows)} prompts: as many input tokens {inputs}, same text {texts}, same drafts accepted {rounds}")
    for row in rows:
        if odd := [name for name in SAME if not getattr(row, name)]:
            print(
                f"  {row.prompt}: not {', '.join(odd)}; accepted own {row.own_accepted} litert-lm {row.lm_accepted}"
            )


class Clock:
    """Seconds by part, of wrapped functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, place: Any, name: str, part: str) -> Iterator[None]:
        real = getattr(place, name)

        def timed(*args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return real(*args, **more)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began

        setattr(place, name, timed)
        try:
            yield
        finally:
            setattr(place, name, real)


def show_parts(backbone: Path, threads: int, steps: int) -> None:
    """Where the time of a plain step goes."""
    graph = own.LiteRtBackbone(backbone, threads)
    prompt = [1 + i % 50 for i in range(12)]
    list(decode.decode_plain(graph, prompt, limit=steps))
    clock = Clock()
    with (
        clock.timing(graph._model, "run_by_name", "graph"),
        clock.timing(own.Signature, "read", "reading logits and state"),
        clock.timing(decode, "margin", "margin (top 1 − top 2)"),
        clock.timing(decode.Greedy, "choose", "choosing the token"),
    ):
        graph.reset()
        began = time.perf_counter()
        list(decode.decode_plain(graph, prompt, limit=steps))
        total = time.perf_counter() - began
    rest = total - sum(clock.seconds.values())
    print(
        f"\nwhere a plain step of our loop goes ({total / steps * 1e3:.3f} ms each, {steps} steps, with the prefill)"
    )
    for part, seconds in [*clock.seconds.items(), ("the rest: writing inputs, Python", rest)]:
        print(f"  {part:<36}{seconds / total:>6.1%}{seconds / steps * 1e3:>9.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--head", default="token_conditioned")
    parser.add_argument("--recipe", default="mixed")
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--prompts", default="demo")
    parser.add_argument("--every", type=int, default=1, help="take every N-th prompt")
    parser.add_argument(
        "--stop-id", type=int, action="append", default=[], help="for our loop; the bundle has its own"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=48)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files, gamma = prepare(options, folder)
        asked = ask(options, files, folder)
        runs = measure(options, files, gamma, asked, folder)
        show_speed(runs)
        show_counts(runs, gamma)
        show_parts(files["backbone.tflite"], options.threads, options.max_tokens)


if __name__ == "__main__":
    main()
