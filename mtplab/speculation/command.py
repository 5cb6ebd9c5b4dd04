"""`mtplab calc`: the speedup calculator on the command line, for people as a table and for scripts as JSON."""

from __future__ import annotations

from typing import TextIO

import click
import msgspec

from mtplab.session.text import clean_text
from mtplab.speculation.acceptance import GAMMA_LIMIT, AcceptCounts
from mtplab.speculation.calculator import (
    Answer,
    Reading,
    calculate,
)
from mtplab.speculation.given import Given, from_alpha, from_counts, from_totals
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.measured import CostPoint, measured_cost, thread_counts
from mtplab.speculation.recorded import Recorded, SessionUnusable, costs_of_session, read_session
from mtplab.speculation.runtime_logs import given_of, read_totals
from mtplab.speculation.speedup import Cost, Head


class OneSentenceCommand(click.Command):
    """A command whose every wrong use ends with one sentence and exit code 1, the house's code for usage."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise click.ClickException(error.format_message()) from None


@click.command(
    "calc",
    cls=OneSentenceCommand,
    short_help="What a draft head brings: tokens a round, speedup, best γ, break-even.",
    epilog="Costs are in plain decode steps. Exit codes: 0 fine, 1 wrong use.",
)
@click.option("--gamma", type=int, help="Draft length γ (with --session or --log: the recorded one if left out).")
@click.option("--alpha", type=float, help="Acceptance α of one draft; NOT accepted ÷ drafted (both are shown).")
@click.option("--counts", metavar="N0,…,Nγ", help="Rounds that accepted 0, 1, … γ drafts.")
@click.option("--drafted", type=int, help="All drafted tokens (with --accepted).")
@click.option("--accepted", type=int, help="All accepted drafts, bonus tokens not among them (with --drafted).")
@click.option("--session", metavar="S", help="A saved session: its folder or session.json.")
@click.option(
    "--log", "log_file", metavar="FILE", type=click.File("r", errors="replace"),
    help="A log of LiteRT-LM (verbose), vLLM, llama.cpp or SGLang, or - for a pipe.",
)
@click.option("--draft-cost", type=float, help="Cost c of a draft step [0, or the session's].")
@click.option(
    "--verify-cost", metavar="R", help="Cost r of verifying γ+1 positions, or measured points 2:1.5,4:1.5,8:2.7 "
    "(positions:cost) [1, or the session's].",
)
@click.option("--costs-of", metavar="S", help="Take the costs of this session instead: other threads, another phone.")
@click.option("--threads", type=int, help="Of the measured costs, those on so many threads [as the session decoded].")
@click.option("--overhead", type=float, help="What else a round costs: cache rollback, hand-over [0].")
@click.option("--gammas", metavar="G,…", help="Draft lengths that were exported: the best is sought among them.")
@click.option(
    "--head-share", type=float, default=0.0, show_default=True,
    help="What a draft step computes and reads, as a share of a decode step's.",
)
@click.option("--prefill-share", type=float, help="Share of a plain request's time that prefill takes, 0 to 1.")
@click.option(
    "--head",
    type=click.Choice(["recursive", "parallel"]),
    default="recursive",
    show_default=True,
    help="recursive: γ draft steps a round; parallel: one for all γ.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def calc_command(
    gamma: int | None,
    alpha: float | None,
    counts: str | None,
    drafted: int | None,
    accepted: int | None,
    session: str | None,
    log_file: TextIO | None,
    draft_cost: float | None,
    verify_cost: str | None,
    costs_of: str | None,
    threads: int | None,
    overhead: float | None,
    gammas: str | None,
    head_share: float,
    prefill_share: float | None,
    head: Head,
    as_json: bool,
) -> None:
    """Say what a draft head brings, from α, accept counts, totals, a runtime's log or a saved session."""
    try:
        totals = _totals(drafted, accepted)
        _one_source(alpha, counts, totals, session, log_file)
        recorded = read_session(session) if session is not None else None
        if log_file is not None:
            given, notes = given_of(read_totals(log_file), _checked(gamma))
        else:
            given, notes = _given(_checked(gamma), alpha, counts, totals, recorded)
        measured = _measured(recorded, costs_of, threads)
        typed = (draft_cost, verify_points(verify_cost), overhead)
        cost, cost_notes = _cost(typed, head, measured, gamma or given.gamma, recorded is not None)
        exported = exported_lengths(gammas) or (_had(recorded) if recorded is not None else None)
        answer = calculate(
            given, cost, exported, at=gamma, head_share=_share(head_share), prefill_share=prefill_share
        )
    except SessionUnusable as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.ClickException(_sentence(str(error))) from None
    answer = msgspec.structs.replace(
        answer,
        notes=[*notes, *cost_notes, *answer.notes],
        source="session" if recorded else answer.source,
        simulated=recorded.simulated if recorded else None,
    )
    click.echo(msgspec.json.encode(answer).decode() if as_json else table(answer))


def _sentence(text: str) -> str:
    text = clean_text(text, 400)  # what was typed stands in it
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _totals(drafted: int | None, accepted: int | None) -> tuple[int, int] | None:
    if drafted is None and accepted is None:
        return None
    if drafted is None or accepted is None:
        raise ValueError("--drafted and --accepted belong together; give both")
    return drafted, accepted


def _one_source(*sources: object) -> None:
    if sum(source is not None for source in sources) != 1:
        raise ValueError("give exactly one of --alpha, --counts, --drafted with --accepted, --log, or --session")


def _checked(gamma: int | None) -> int | None:
    if gamma is not None and not 1 <= gamma <= GAMMA_LIMIT:
        raise ValueError(f"--gamma must lie in 1..{GAMMA_LIMIT}, not {gamma}")
    return gamma


def _given(
    gamma: int | None,
    alpha: float | None,
    counts: str | None,
    totals: tuple[int, int] | None,
    recorded: Recorded | None,
) -> tuple[Given, list[str]]:
    if gamma is None and recorded is None:
        raise ValueError("give --gamma, the draft length")
    if recorded is not None:
        return _from_recorded(recorded, gamma)
    assert gamma is not None
    if alpha is not None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"--alpha is a probability in 0..1, not {alpha:g}")
        return from_alpha(gamma, alpha), []
    if counts is not None:
        return from_counts(_parse_counts(counts, gamma)), []
    assert totals is not None
    return from_totals(gamma, *totals), []


def _parse_counts(text: str, gamma: int) -> AcceptCounts:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--counts takes whole numbers with commas between, not {text!r}") from None
    if len(numbers) != gamma + 1:
        raise ValueError(
            f"--counts needs {gamma + 1} numbers for γ = {gamma}, "
            f"the rounds that accepted 0 to {gamma}; it got {len(numbers)}"
        )
    return AcceptCounts(numbers)


def _from_recorded(recorded: Recorded, gamma: int | None) -> tuple[Given, list[str]]:
    if gamma is not None and gamma > recorded.counts.gamma:
        raise ValueError(
            f"the session drafted {recorded.counts.gamma} tokens a round and says nothing of γ = {gamma}; "
            "ask for fewer"
        )
    given = from_counts(recorded.counts, recorded.prompts, recorded.classes, recorded.prompt_classes)
    return given, [f"Acceptance of configuration {recorded.configuration!r}, {len(recorded.prompts)} prompts."]


def verify_points(text: str | None) -> float | tuple[tuple[int, float], ...] | None:
    """r as one number, or as measured points positions:cost."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return float(text)
        points = [part.split(":") for part in text.split(",")]
        return tuple((int(positions), float(cost)) for positions, cost in points)
    except ValueError:
        raise ValueError(f"--verify-cost takes a number, or points such as 2:1.5,4:1.6, not {text!r}") from None


def exported_lengths(text: str | None) -> list[int] | None:
    """The draft lengths of `--gammas`, ascending; None where it was not given."""
    if text is None:
        return None
    try:
        lengths = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"--gammas takes whole numbers with commas between, not {text!r}") from None
    if not 1 <= lengths[0] <= lengths[-1] <= GAMMA_LIMIT:
        raise ValueError(f"--gammas must lie in 1..{GAMMA_LIMIT}, not {text}")
    return lengths


def _share(share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"--head-share lies in 0..1, not {share:g}")
    return share


def _had(recorded: Recorded) -> list[int]:
    """The exported lengths, or those that were recorded where a session does not tell."""
    return list(recorded.exported or range(1, recorded.counts.gamma + 1))


Typed = tuple[float | None, float | tuple[tuple[int, float], ...] | None, float | None]


def _measured(
    recorded: Recorded | None, costs_of: str | None, threads: int | None
) -> tuple[tuple[CostPoint, ...], int | None]:
    """Measured costs and the threads to take them of: the session's own, or another's."""
    points, own = costs_of_session(costs_of) if costs_of is not None else ((), None)
    if costs_of is None and recorded is not None:
        points, own = recorded.points, recorded.threads
    if threads is not None and not any(p.threads == threads for p in points):
        had = ", ".join(map(str, thread_counts(points))) or "none"
        raise ValueError(f"no round cost was measured on {threads} threads, only on {had}")
    return points, own if threads is None else threads


def _cost(
    typed: Typed, head: Head, measured: tuple[tuple[CostPoint, ...], int | None], gamma: int, of_session: bool
) -> tuple[Cost, list[str]]:
    """What a round costs: what was typed, else what was measured, else the best case, and which of them it was."""
    draft, verify, extra = typed
    points, threads = measured
    asked = draft is None or verify is None  # what both were typed for needs nothing measured
    found = measured_cost(points, threads, gamma, head) if asked else None
    if found is None:
        assumed = of_session and typed == (None, None, None)
        notes = ["The session holds no draft and verify cost; 0 and 1 were taken, the best case."] if assumed else []
        return Cost(draft or 0.0, 1.0 if verify is None else verify, head, extra or 0.0), notes
    cost, notes = found
    which = "Draft and verify cost were" if draft is verify is None else "Verify cost was" if verify is None else (
        "Draft cost was"
    )  # fmt: skip
    cost = Cost(
        draft=cost.draft if draft is None else draft,
        verify=cost.verify if verify is None else verify,
        head=head,
        overhead=cost.overhead if extra is None else extra,
        drafts=cost.drafts if draft is None else (),
    )
    return cost, [f"{which} measured{f' on {threads} threads' if threads else ''}.", *notes]


def table(answer: Answer) -> str:
    """The answer as a table for people."""
    head = f"Speedup at γ = {answer.gamma}" + ("   SIMULATED" if answer.simulated else "")
    rows = _one_reading(answer) if answer.readings is None else _both_readings(answer, answer.readings)
    lines = [head, *_aligned([*rows, ("break-even", _break_even(answer))])]
    lines += [f"warning: {text}" for text in answer.warnings]
    lines += [f"note: {text}" for text in answer.notes]
    return "\n".join(lines)


def _one_reading(answer: Answer) -> list[tuple[str, ...]]:
    return [
        ("α", _shown(answer.alpha, ".3f"), answer.alpha.kind.replace("_", " ")),
        ("accepted ÷ drafted", f"{answer.accepted_per_round / answer.gamma:.3f}", "not α"),
        ("tokens a round", f"{answer.expected_tokens:.3f}"),
        ("accepted a round", f"{answer.accepted_per_round:.3f}"),
        ("round cost", f"{answer.round_cost:.3f}", "plain decode steps"),
        ("speedup", _shown(answer.speedup_interval, ".2f", "×"), answer.verdict),
        ("best draft length", _best(answer.best_gamma, answer.best_speedup)),
        *_by_length(answer),
        *_by_class(answer),
        *_traffic(answer),
    ]


def _by_length(answer: Answer) -> list[tuple[str, ...]]:
    """The curve: every length that was looked at, the first eight of a long search."""
    if len(answer.curve) < 2:
        return []
    return [
        (f"  at γ = {p.gamma}", _spanned(p.speedup, p.low, p.high), "" if p.seen else "never recorded")
        for p in answer.curve[:8]
    ]


def _by_class(answer: Answer) -> list[tuple[str, ...]]:
    return [
        (
            f"  class {c.name}",
            f"{c.speedup:.2f}×",
            f"{c.expected_tokens:.2f} tokens a round, best: {_best(c.best_gamma, c.best_speedup)}",
        )
        for c in answer.classes
    ]


def _spanned(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.2f}×" + (f"  [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def _traffic(answer: Answer) -> list[tuple[str, ...]]:
    counted = "of plain decoding, a token" + ("" if answer.head_share else ", the draft not counted")
    rows: list[tuple[str, ...]] = [
        ("arithmetic", f"{answer.operations_factor:.2f}×", counted),
        ("weights read", f"{answer.memory_factor:.2f}×", counted),
    ]
    if answer.end_to_end_speedup is not None:
        rows.append(("speedup of a request", f"{answer.end_to_end_speedup:.2f}×", "prefill included"))
    return rows


def _both_readings(answer: Answer, readings: dict[str, Reading]) -> list[tuple[str, ...]]:
    both = (readings["as_alpha"], readings["as_ratio"])
    return [
        ("", "read as α", "read as accepted ÷ drafted"),
        ("α", *(f"{r.alpha:.3f}" for r in both)),
        ("accepted ÷ drafted", *(f"{r.ratio:.3f}" for r in both)),
        ("tokens a round", *(f"{r.expected_tokens:.3f}" for r in both)),
        ("accepted a round", *(f"{r.expected_tokens - 1:.3f}" for r in both)),
        ("round cost", *2 * (f"{answer.round_cost:.3f}",)),
        ("speedup", *(f"{r.speedup:.2f}×  {r.verdict}" for r in both)),
        ("best draft length", *(_best(r.best_gamma, r.best_speedup) for r in both)),
    ]


def _best(gamma: int, gained: float) -> str:
    return "none pays" if gamma == 0 else f"γ = {gamma}, {gained:.2f}×"


def _shown(estimate: Estimate, spec: str, unit: str = "") -> str:
    if estimate.value is None:
        return f"unknown ({estimate.reason})"
    text = format(estimate.value, spec) + unit
    if estimate.low is not None and estimate.high is not None:
        text += f"  [{format(estimate.low, spec)}, {format(estimate.high, spec)}]"
    return text


def _break_even(answer: Answer) -> str:
    if answer.break_even_alpha is None:
        return "not even at α = 1"
    return (
        f"α {answer.break_even_alpha:.3f}, accepted ÷ drafted {answer.break_even_ratio:.3f}, "
        f"{answer.break_even_accepted:.3f} accepted a round"
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    label = max(len(row[0]) for row in rows)
    second = max(len(row[1]) for row in rows if len(row) > 2)
    return [
        "  " + "  ".join([row[0].ljust(label), row[1].ljust(second if len(row) > 2 else 0), *row[2:]]).rstrip()
        for row in rows
    ]
