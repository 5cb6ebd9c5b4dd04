"""Make figures of token records: per prompt, then per configuration, each with its interval and level of evidence."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from mtplab.measure.protocol import ARRIVAL, PromptRun, ProtocolRun, output_sha256
from mtplab.session.events import Figure
from mtplab.speculation.acceptance import (
    AcceptCounts,
    alpha_from_totals,
    merge,
    rounds_from_totals,
)
from mtplab.speculation.intervals import Estimate, bootstrap_median, bootstrap_statistic

Evidence = Literal["totals", "arrivals", "stamps", "rounds"]
FOUR = ("ttft_ms", "tpot_ms", "tokens_per_s", "alpha")
UNITS = {"ttft_ms": "ms", "tpot_ms": "ms", "tokens_per_s": "tokens/s"}
MTP_OFF = "MTP was off in this configuration"
NO_ROUND = "no draft round was recorded"
DERIVED = "derived by the runtime, not observed"


class PromptFigures(msgspec.Struct, frozen=True, kw_only=True, rename={"klass": "class"}):
    """What one prompt gave in one round; a figure that could not be had is None and `reasons` says why.

    `ttft_ms` counts from the request to the first token, `tpot_ms` is the mean time a token after the first,
    `tokens_per_s` is output tokens ÷ (end − request). `decode_us` runs from the first token to the last.
    `first_tokens` were not made in that time: the first one; of text that was heard, all that came in its piece, and
    the token that LiteRT-LM holds back in each round and hands out alone at the limit (see `tokenrunner.arrivals`).
    `stamps_us` are the tokens' times after the request. `plain_steps` are tokens behind the first that no draft
    round made. Where rounds drafted different lengths (an adaptive policy), `gamma` is None and `gammas` holds the
    length of each. `handover_us` is the part of draft and verify times that passed data between backbone and head.
    `evidence` is the best level this prompt has; `arrival` says that its times are those at which streamed text
    arrived, so that tokens of one piece share theirs. `ttft_derived_ms` is the runtime's own reckoning.
    """

    prompt: str
    klass: str
    input_tokens: int | None
    output_tokens: int
    output_sha256: str
    ttft_ms: float | None
    tpot_ms: float | None
    tokens_per_s: float | None
    decode_us: int | None
    gamma: int | None
    accepts: list[int]
    ranks: list[list[int | None]]
    plain_steps: int
    draft_us: int | None
    verify_us: int | None
    stamps_us: list[int]
    evidence: Evidence
    reasons: dict[str, str]
    gammas: list[int] = []
    handover_us: int | None = None
    arrival: bool = False
    ttft_derived_ms: float | None = None
    first_tokens: int = 1

    @property
    def drafts(self) -> list[tuple[int, int]]:
        """(drafted, accepted) of each of its rounds."""
        gammas = self.gammas or [self.gamma or 0] * len(self.accepts)
        return list(zip(gammas, self.accepts, strict=True))

    @property
    def counts(self) -> AcceptCounts | None:
        """Accept counts of its rounds, None without any."""
        return AcceptCounts.from_accepts(self.gamma, self.accepts) if self.gamma and self.accepts else None


class ConfigurationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one configuration; `spread` is (first quartile, third quartile) over prompts and rounds."""

    figures: dict[str, Figure]
    per_class: dict[str, dict[str, Figure]]
    counts: list[int]
    counts_per_class: dict[str, list[int]]
    spread: dict[str, tuple[float, float]]


AT_ONCE = "the request and the first text arrived at once"


def prompt_figures(run: PromptRun) -> PromptFigures:
    """Figures of one prompt. A prompt with a problem keeps its name and gives no figure."""
    reasons: dict[str, str] = {}
    stamps = [t.t_ns - run.begin_ns for t in run.tokens]
    first = _untimed_tokens(run, stamps)
    trusted = run.problem is None
    rounds = run.rounds if trusted else ()
    gammas = {r.gamma for r in rounds}
    if not trusted:
        reasons = dict.fromkeys(FOUR, f"the records of this prompt cannot be trusted: {run.problem}")
    elif not gammas:
        reasons["alpha"] = NO_ROUND
    return PromptFigures(
        prompt=run.prompt,
        klass=run.klass,
        input_tokens=run.input_tokens,
        output_tokens=len(run.tokens),
        output_sha256=output_sha256(t.id for t in run.tokens),
        ttft_ms=_ttft_ms(stamps, reasons, heard=run.stamps == ARRIVAL) if trusted else None,
        tpot_ms=_tpot_ms(stamps, first, reasons) if trusted else None,
        tokens_per_s=_tokens_per_s(run, reasons) if trusted else None,
        decode_us=(stamps[-1] - stamps[0]) // 1000 if trusted and len(stamps) > first else None,
        gamma=gammas.copy().pop() if len(gammas) == 1 else None,
        accepts=[r.accepted for r in rounds],
        ranks=[list(r.ranks) for r in rounds],
        plain_steps=sum(t.round is None for t in run.tokens[1:]),
        draft_us=_total_us(r.draft_ns for r in run.rounds),
        verify_us=_total_us(r.verify_ns for r in run.rounds),
        stamps_us=[s // 1000 for s in stamps],
        evidence="rounds" if run.rounds else "arrivals" if run.stamps == ARRIVAL else "stamps",
        reasons=reasons,
        gammas=[r.gamma for r in rounds] if len(gammas) > 1 else [],
        handover_us=_total_us(r.handover_ns for r in run.rounds),
        arrival=run.stamps == ARRIVAL,
        ttft_derived_ms=run.runtime.ttft_derived_ms if run.runtime else None,
        first_tokens=first,
    )


def run_figures(run: ProtocolRun) -> list[PromptFigures]:
    """Figures of every prompt of one process, the warm-up left out, prompts with a problem named among them."""
    return [prompt_figures(prompt) for prompt in run.prompts if not prompt.warmup]


def _untimed_tokens(run: PromptRun, stamps: list[int]) -> int:
    if run.stamps != ARRIVAL or not stamps:
        return 1
    held_back = bool(run.rounds) and run.reason == "limit"
    return sum(stamp == stamps[0] for stamp in stamps) + held_back


def _ttft_ms(stamps: list[int], reasons: dict[str, str], *, heard: bool) -> float | None:
    if not stamps:
        reasons["ttft_ms"] = "there was no output token"
        return None
    if heard and stamps[0] <= 0:
        reasons["ttft_ms"] = AT_ONCE
        return None
    return stamps[0] / 1e6


def _tpot_ms(stamps: list[int], first: int, reasons: dict[str, str]) -> float | None:
    if len(stamps) <= first:
        reasons["tpot_ms"] = (
            "fewer than two output tokens have no time between them" if len(stamps) < 2
            else "all text arrived at once, so no time lies between its tokens"
        )  # fmt: skip
        return None
    return (stamps[-1] - stamps[0]) / (len(stamps) - first) / 1e6


def _tokens_per_s(run: PromptRun, reasons: dict[str, str]) -> float | None:
    if run.end_ns is None or run.end_ns <= run.begin_ns or not run.tokens:
        reasons["tokens_per_s"] = (
            "no time passed between request and end" if run.tokens else "there was no output token"
        )
        return None
    if run.stamps == ARRIVAL and run.tokens[0].t_ns <= run.begin_ns:
        reasons["tokens_per_s"] = AT_ONCE
        return None
    return len(run.tokens) / (run.end_ns - run.begin_ns) * 1e9


def _total_us(times_ns: Iterable[int | None]) -> int | None:
    """Sum in µs; None where there is nothing to sum or a part of it is unknown."""
    known = list(times_ns)
    return sum(t for t in known if t is not None) // 1000 if known and None not in known else None


def configuration_figures(rounds: Sequence[Sequence[PromptFigures]], *, mtp: bool) -> ConfigurationFigures:
    """Figures of one configuration from the prompts of each of its rounds (cold ones, as the caller chose).

    A value is the median over prompts of each prompt's median over rounds; its interval is bootstrapped over
    prompts, `n` of them: repeats of a prompt make its own value steadier but are no further evidence. What pools
    classes is resampled within each class.
    """
    everything = [p for prompts in rounds for p in prompts]
    classes = sorted({p.klass for p in everything})
    counts = _pooled(everything)
    return ConfigurationFigures(
        figures=_figures(everything, mtp=mtp),
        per_class={k: _figures([p for p in everything if p.klass == k], mtp=mtp) for k in classes},
        counts=list(counts.counts) if counts else [],
        counts_per_class={
            k: list(c.counts) for k in classes if (c := _pooled([p for p in everything if p.klass == k]))
        },
        spread={name: s for name in UNITS if (s := _spread(everything, name))},
    )


def _pooled(prompts: Sequence[PromptFigures]) -> AcceptCounts | None:
    """All accept counts together, None without any or of mixed draft lengths."""
    drafting = [p for p in prompts if p.accepts]
    counts = [c for p in drafting if (c := p.counts)]
    whole = len(counts) == len(drafting)  # else some prompts' rounds were of different lengths
    return merge(counts) if whole and len({c.gamma for c in counts}) == 1 else None


def round_rates(rounds: Iterable[Sequence[PromptFigures]]) -> list[float]:
    """The median throughput over the prompts of each round: how much rounds differ, not how much prompts do."""
    rates = ([p.tokens_per_s for p in prompts if p.tokens_per_s is not None] for prompts in rounds)
    return [statistics.median(one) for one in rates if one]


def by_prompt(prompts: Iterable[PromptFigures]) -> dict[str, list[PromptFigures]]:
    """Group by prompt, repeats of all rounds together."""
    groups: dict[str, list[PromptFigures]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.prompt, []).append(prompt)
    return groups


def prompt_median(repeats: Sequence[PromptFigures], name: str) -> float | None:
    """Median over rounds of one figure of one prompt."""
    values = [v for p in repeats if (v := getattr(p, name)) is not None]
    return statistics.median(values) if values else None


def _figures(prompts: Sequence[PromptFigures], *, mtp: bool) -> dict[str, Figure]:
    groups = by_prompt(prompts)
    figures: dict[str, Figure] = {}
    times: Evidence = "arrivals" if any(p.arrival for p in prompts) else "stamps"
    for name, unit in UNITS.items():
        known = [(v, r[0].klass) for r in groups.values() if (v := prompt_median(r, name)) is not None]
        values, classes = [v for v, _ in known], [klass for _, klass in known]
        reason = _why(prompts, name)
        figures[name] = _figure(bootstrap_median(values, "median", strata=classes), unit, times, reason)
    derived = [v for repeats in groups.values() if (v := prompt_median(repeats, "ttft_derived_ms")) is not None]
    if derived:
        figures["ttft_derived_ms"] = Figure(
            value=statistics.median(derived), n=len(derived), unit="ms", evidence="totals", reason=DERIVED
        )
    figures |= acceptance_figures(prompts, mtp=mtp)
    figures["n"] = Figure(value=float(len(groups)), unit="prompts")
    return figures


def acceptance_figures(prompts: Sequence[PromptFigures], *, mtp: bool) -> dict[str, Figure]:
    """α, γ, accepted ÷ drafted and mean acceptance length, each under its own name.

    α is the maximum likelihood A/(A+R), which holds for rounds of different lengths, too.
    """
    names = ("alpha", "accepted_ratio", "mean_acceptance_length", "gamma")
    if not mtp:
        return {name: Figure(value=None, reason=MTP_OFF) for name in names}
    drafting = [repeats for repeats in by_prompt(prompts).values() if any(p.accepts for p in repeats)]
    if not drafting:
        return {name: Figure(value=None, reason=NO_ROUND) for name in names}
    rows = [_accept_sums(repeats) for repeats in drafting]
    classes = [repeats[0].klass for repeats in drafting]
    figures = {
        name: _figure(bootstrap_statistic(rows, of, f"{name}_by_prompt", strata=classes), "", "rounds", None)
        for name, of in _ACCEPTANCE.items()
    }
    return figures | {"gamma": _gamma_figure({g for r in drafting for p in r for g, _ in p.drafts}, rows)}


def _accept_sums(repeats: Sequence[PromptFigures]) -> tuple[int, int, int, int]:
    """Accepted, rounds with a rejection, rounds, drafted: of all repeats of one prompt."""
    drafts = [one for p in repeats for one in p.drafts]
    accepted, drafted = sum(a for _, a in drafts), sum(g for g, _ in drafts)
    return accepted, sum(a < g for g, a in drafts), len(drafts), drafted


_ACCEPTANCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "alpha": lambda sums: sums[..., 0] / (sums[..., 0] + sums[..., 1]),
    "accepted_ratio": lambda sums: sums[..., 0] / sums[..., 3],
    "mean_acceptance_length": lambda sums: 1 + sums[..., 0] / sums[..., 2],
}


def _gamma_figure(gammas: set[int], rows: Sequence[tuple[int, int, int, int]]) -> Figure:
    """The draft length; one that changes from round to round is no number, but has a mean."""
    if len(gammas) == 1:
        return Figure(value=float(gammas.pop()), n=len(rows), evidence="rounds")
    mean = sum(row[3] for row in rows) / sum(row[2] for row in rows)
    reason = f"rounds drafted {min(gammas)} to {max(gammas)} tokens, {mean:.2f} on average"
    return Figure(value=None, evidence="rounds", reason=reason)


def _figure(estimate: Estimate, unit: str, evidence: Evidence, reason: str | None) -> Figure:
    return Figure(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        unit=unit,
        evidence=evidence,
        reason=estimate.reason if estimate.value is not None else reason or estimate.reason,
    )


def _why(prompts: Sequence[PromptFigures], name: str) -> str | None:
    """The commonest reason why prompts lack a figure."""
    reasons = [r for p in prompts if (r := p.reasons.get(name))]
    return max(set(reasons), key=lambda r: (reasons.count(r), r)) if reasons else None


def _spread(prompts: Sequence[PromptFigures], name: str) -> tuple[float, float] | None:
    values = [v for p in prompts if (v := getattr(p, name)) is not None]
    if not values:
        return None
    low, high = np.quantile(values, [0.25, 0.75])
    return float(low), float(high)


def totals_figures(
    *,
    output_tokens: int | None,
    wall_s: float | None,
    gamma: int | None = None,
    drafted: int | None = None,
    accepted: int | None = None,
    output_characters: int | None = None,
    ttft_derived_ms: float | None = None,
) -> dict[str, Figure]:
    """The figures that a runtime's own totals allow; characters are never taken for tokens.

    A derived TTFT (prefill + decode ÷ n, as LiteRT-LM prints it) falls with MTP although the first token comes no
    earlier, so it stands apart as `ttft_derived_ms` and `ttft_ms` stays unknown.
    """
    why_tokens = "totals hold no count of output tokens and time"
    if output_tokens is None and output_characters is not None:
        why_tokens = "only characters were counted, and characters are not tokens"
    rate = output_tokens / wall_s if output_tokens is not None and wall_s else None
    figures = {
        "ttft_ms": Figure(value=None, unit="ms", reason="totals hold no time of the first token"),
        "tpot_ms": Figure(value=None, unit="ms", reason="totals hold no time per token"),
        "tokens_per_s": Figure(
            value=rate, unit="tokens/s", evidence="totals", reason=None if rate is not None else why_tokens
        ),
        "alpha": Figure(value=None, reason="totals hold no drafted and accepted tokens with their γ"),
        "gamma": Figure(
            value=None if gamma is None else float(gamma),
            evidence="totals",
            reason="the draft length was not given" if gamma is None else None,
        ),
    }
    if ttft_derived_ms is not None:
        figures["ttft_derived_ms"] = Figure(value=ttft_derived_ms, unit="ms", evidence="totals", reason=DERIVED)
    if gamma is not None and drafted is not None and accepted is not None:
        rounds = rounds_from_totals(gamma, drafted, accepted)
        figures["alpha"] = _figure(alpha_from_totals(gamma, drafted, accepted), "", "totals", None)
        figures["mean_acceptance_length"] = Figure(value=1 + accepted / rounds, n=rounds, evidence="totals")
    return figures


def step_times_by_position(prompts: Iterable[PromptFigures], width: int = 8) -> list[tuple[int, float]]:
    """(position in the context, median ms a token) in windows of `width` steps: grows if the cache does not work."""
    windows: dict[int, list[float]] = {}
    for prompt in prompts:
        start = prompt.input_tokens or 0
        for i in range(1, len(prompt.stamps_us)):
            window = (start + i) // width * width
            windows.setdefault(window, []).append((prompt.stamps_us[i] - prompt.stamps_us[i - 1]) / 1000)
    return [(position, statistics.median(times)) for position, times in sorted(windows.items())]


def to_builtins(prompts: Iterable[PromptFigures]) -> list[dict[str, Any]]:
    """As JSON values, the way `RoundMeasured.prompts` carries them."""
    return [msgspec.to_builtins(p) for p in prompts]


def from_builtins(prompts: Sequence[dict[str, Any]]) -> list[PromptFigures]:
    """Back from a journal; raises msgspec.ValidationError where a journal holds something else."""
    return msgspec.convert(list(prompts), list[PromptFigures])


def figure_text(name: str, figure: Figure, digits: Callable[[float], str] = "{:.3g}".format) -> str:
    """One figure for people: value, interval, n, or why there is none."""
    if figure.value is None:
        return f"{name} unknown ({figure.reason or 'no reason recorded'})"
    text = f"{name} {digits(figure.value)}{' ' + figure.unit if figure.unit else ''}"
    if figure.low is not None and figure.high is not None:
        text += f" [{digits(figure.low)}–{digits(figure.high)}]"
    return text + (f", n {figure.n}" if figure.n else "")
