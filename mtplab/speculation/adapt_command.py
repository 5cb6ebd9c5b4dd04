"""`mtplab adapt`: what an adaptive draft length would have brought on a session's recorded rounds (R23)."""

from __future__ import annotations

from collections.abc import Mapping

import click
import msgspec

from mtplab.session.configuration import POLICIES
from mtplab.session.text import clean_text
from mtplab.speculation.adaptive import make_policy
from mtplab.speculation.command import OneSentenceCommand, exported_lengths, verify_points
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.measured import measured_cost
from mtplab.speculation.recorded import Recorded, SessionUnusable, measured_gains, recorded_prompts
from mtplab.speculation.replayed import CAVEAT, Gain, compare, round_costs
from mtplab.speculation.speedup import Cost


@click.command(
    "adapt",
    cls=OneSentenceCommand,
    short_help="What an adaptive draft length would have brought on recorded rounds.",
    epilog="Costs are in plain decode steps. Exit codes: 0 fine, 1 wrong use.",
)
@click.argument("session")
@click.option("--policy", type=click.Choice(POLICIES), default="tiers", show_default=True)
@click.option("--gammas", metavar="G,…", help="Draft lengths to choose among [the exported ones].")
@click.option("--draft-cost", type=float, help="Cost c of a draft step [the session's].")
@click.option("--verify-cost", metavar="R", help="Cost r, or measured points 2:1.5,4:1.6 [the session's, for all].")
@click.option("--carry", is_flag=True, help="Let the policy go on from prompt to prompt; a run begins it anew.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def adapt_command(
    session: str, policy: str, gammas: str | None, draft_cost: float | None, verify_cost: str | None, carry: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Replay the rounds of SESSION under an adaptive policy, beside the best fixed length, per class and mixed.

    Where the session ran that policy, what it really gained stands beside.
    """
    try:
        recorded, prompts = recorded_prompts(session)
        lengths = exported_lengths(gammas) or _lengths(recorded)
        cost, notes = _cost(recorded, lengths, draft_cost, verify_cost)
        costs = round_costs(cost, lengths)
        rows = compare(
            prompts, lambda: make_policy(f"adaptive:{policy}", lengths, costs), cost, lengths, carried=carry
        )
        measured = measured_gains(session, policy)
    except SessionUnusable as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        text = clean_text(str(error), 400)
        raise click.ClickException(text[:1].upper() + text[1:].rstrip(".") + ".") from None
    if as_json:
        told = [{**msgspec.to_builtins(row), "measured": measured.get(row.klass)} for row in rows]
        answer = {"simulated": recorded.simulated, "policy": policy, "gammas": lengths, "rows": told, "notes": notes}
        click.echo(msgspec.json.encode(answer).decode())
        return
    click.echo(table(policy, lengths, rows, measured, recorded.simulated))
    for note in notes:
        click.echo(f"note: {note}")


def _lengths(recorded: Recorded) -> list[int]:
    """The exported lengths that the recorded rounds say something of; of a single one all up to it, as a question."""
    exported = [g for g in recorded.exported if g <= recorded.counts.gamma]
    return exported if len(exported) > 1 else list(range(1, recorded.counts.gamma + 1))


def _cost(
    recorded: Recorded, lengths: list[int], draft_cost: float | None, verify_cost: str | None
) -> tuple[Cost, list[str]]:
    """What a round costs: as given, else as the session measured it at every length, else at its only one."""
    given, notes = verify_points(verify_cost), [CAVEAT]
    known = measured_cost(recorded.points, recorded.threads, max(lengths))
    several = known is not None and not isinstance(known[0].verify, float) and known[0].covers(min(lengths))
    if given is None and draft_cost is None and known is not None and several:
        return known[0], [*notes, *known[1]]
    points = given
    if points is None:
        points = recorded.verify_cost
        notes.append("One verify cost was taken for every length: the session measured only its own.")
    draft = recorded.draft_cost if draft_cost is None else draft_cost
    if points is None or draft is None:
        raise SessionUnusable("The session holds no draft and verify cost; give --draft-cost and --verify-cost.")
    return Cost(draft, points, overhead=recorded.overhead or 0.0 if verify_cost is None else 0.0), notes


def table(
    policy: str, lengths: list[int], rows: list[Gain], measured: Mapping[str, Estimate], simulated: bool
) -> str:
    """The rows for people: speedups computed from recorded accepts, and the gain that was timed, where it was."""
    head = f"adaptive:{policy} over γ = {', '.join(map(str, lengths))}, computed"
    width = max(len(row.klass) for row in rows)
    head += "   SIMULATED" if simulated else ""
    timed = "  gain as it ran" if measured else ""
    lines = [head, f"  {'class':<{width}}  prompts  best fixed   adaptive  {'gain':<19}{timed}".rstrip()]
    for row in rows:
        fixed = "none 1.00×" if row.best_fixed_gamma == 0 else f"γ {row.best_fixed_gamma} {row.fixed_speedup:.2f}×"
        ran = f"  {_times(measured[row.klass])}" if row.klass in measured else ""
        lines.append(
            f"  {row.klass:<{width}}  {row.prompts:>7}  {fixed:>10}  {row.adaptive_speedup:>8.2f}×  "
            f"{_times(row.gain):<19}{ran}".rstrip()
        )
    return "\n".join(lines)


def _times(gain: Estimate) -> str:
    if gain.value is None:
        return "–"
    interval = "" if gain.low is None or gain.high is None else f" [{gain.low:.2f}, {gain.high:.2f}]"
    return f"{gain.value:.2f}×{interval}"
