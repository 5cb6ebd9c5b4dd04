"""Read what other runtimes print of speculation, and hand it on as what it is: totals, a ratio, or a mean length."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from mtplab.speculation.acceptance import GAMMA_LIMIT, AcceptCounts, merge
from mtplab.speculation.given import Given, from_counts, from_length, from_ratio, from_totals
from mtplab.speculation.intervals import wilson

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LINE_LIMIT = 8192  # no runtime's line of figures is longer; a longer one is text that a model wrote
_RULES = Path(__file__).with_name("runtime_logs.toml")


class Rule(msgspec.Struct, frozen=True):
    """One form of line. `cumulative` lines repeat totals since the start: the last of each `name` counts."""

    runtime: str
    pattern: str
    source: str
    cumulative: bool = False


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What a log told, each quantity None where it did not.

    `some` counts rounds that accepted at least one draft. `counts` is there only where the printed shares of every
    window lead back to whole numbers of rounds that add up to the printed totals.
    """

    runtime: str
    windows: int
    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None
    some: int | None = None
    gamma: int | None = None
    length: float | None = None
    share: float | None = None
    counts: AcceptCounts | None = None
    notes: tuple[str, ...] = ()


@cache
def _rules() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    rules = msgspec.convert(tomllib.loads(_RULES.read_text("utf-8"))["line"], list[Rule])
    return tuple((rule, re.compile(rule.pattern)) for rule in rules)


class _Seen:
    """All matches of one runtime, windows in their order and the last of every cumulative line."""

    def __init__(self) -> None:
        self.windows: list[dict[str, str]] = []
        self.latest: dict[str, dict[str, str]] = {}


def read_totals(lines: Iterable[str]) -> Totals:
    """Totals of the one runtime that the lines speak of.

    Raises ValueError with a sentence where no line is known, or where two runtimes speak.
    """
    found: dict[str, _Seen] = {}
    for line in lines:
        text = line[:_LINE_LIMIT].rstrip("\r\n")
        for rule, pattern in _rules():
            match = pattern.search(text)
            if match is None:
                continue
            seen = found.setdefault(rule.runtime, _Seen())
            groups = {key: value for key, value in match.groupdict().items() if value is not None}
            if rule.cumulative:
                seen.latest[groups.get("name", "")] = groups
            else:
                seen.windows.append(groups)
            break
    if not found:
        raise ValueError(
            "no line in it says what speculation did; "
            "LiteRT-LM (verbose), vLLM, llama.cpp and SGLang logs are understood"
        )
    if len(found) > 1:
        raise ValueError(f"lines of {' and '.join(sorted(found))} stand in one log; give a log of one run")
    ((runtime, seen),) = found.items()
    return _totals(runtime, seen)


def _totals(runtime: str, seen: _Seen) -> Totals:
    notes: list[str] = []
    if len(seen.latest) > 1:
        names = ", ".join(sorted(seen.latest))
        raise ValueError(f"{len(seen.latest)} drafters took turns ({names}), and their tokens make no one α")
    # Totals since the start say all that the lines of single requests say, and more.
    windows = list(seen.latest.values()) or seen.windows
    sums: dict[str, int] = {}
    for name in ("drafted", "accepted", "rounds", "some"):
        numbers = [int(float(window[name])) for window in windows if name in window]
        if numbers:
            sums[name] = sum(numbers)
    lengths = [float(window["length"]) for window in windows if "length" in window]
    shares = [_share(window) for window in windows if "share" in window or "percent" in window]
    gammas = {int(window["gamma"]) for window in windows if "gamma" in window}
    gammas |= {len(_positions(window)) for window in windows if "positions" in window}
    if len(gammas) > 1:
        raise ValueError(f"draft lengths {sorted(gammas)} stand in one log; their rounds cannot be merged")
    counts = _counts(windows)
    if counts is None and any("positions" in window for window in windows):
        notes.append("The printed per-position shares do not lead back to whole rounds, so only totals are used.")
    if "drafted" not in sums and len(windows) > 1 and (lengths or shares):
        notes.append(f"{len(windows)} lines were averaged unweighted: how many rounds each stands for is not said.")
    return Totals(
        runtime=runtime,
        windows=len(windows),
        drafted=sums.get("drafted"),
        accepted=sums.get("accepted"),
        rounds=sums.get("rounds"),
        some=sums.get("some"),
        gamma=gammas.pop() if gammas else None,
        length=sum(lengths) / len(lengths) if lengths else None,
        share=sum(shares) / len(shares) if shares else None,
        counts=counts,
        notes=tuple(notes),
    )


def _share(window: dict[str, str]) -> float:
    return float(window["share"]) if "share" in window else float(window["percent"]) / 100


def _positions(window: dict[str, str]) -> list[float]:
    return [float(part) for part in window["positions"].replace(",", " ").split()]


def _counts(windows: list[dict[str, str]]) -> AcceptCounts | None:
    """Accept counts of all windows, where the rounded marginals P_k of each have only one reading."""
    found = []
    for window in windows:
        if "positions" not in window:
            return None
        shares, drafted, accepted = _positions(window), int(window["drafted"]), int(window["accepted"])
        gamma = len(shares)
        if not 1 <= gamma <= GAMMA_LIMIT or drafted % gamma:
            return None
        rounds = drafted // gamma
        reached = [rounds, *(round(share * rounds) for share in shares), 0]
        # Three printed decimals tell whole rounds apart only up to a thousand of them.
        if sum(reached[1:]) != accepted or reached != sorted(reached, reverse=True) or rounds > 999:
            return None
        found.append(AcceptCounts(tuple(a - b for a, b in pairwise(reached))))
    return merge(found) if found else None


def given_of(totals: Totals, gamma: int | None) -> tuple[Given, list[str]]:
    """What the calculator may take from a log, and what has to be said about it.

    `gamma` is the draft length that was configured, where the log does not tell. Raises ValueError with a sentence
    where the log and γ contradict each other or no quantity is there.
    """
    notes = list(totals.notes)
    known = totals.gamma or _whole_gamma(totals)
    if gamma is not None and known is not None and gamma != known:
        raise ValueError(f"the log speaks of drafts of {known} tokens, not of γ = {gamma}")
    gamma = gamma or known
    if gamma is None:
        raise ValueError("the log does not tell the draft length; give --gamma as the runtime was configured")
    if totals.counts is not None:
        return from_counts(totals.counts), [*notes, f"Accept counts of {totals.windows} lines of {totals.runtime}."]
    if totals.drafted is not None and totals.accepted is not None:
        if totals.drafted % gamma == 0 and totals.rounds in (None, totals.drafted // gamma):
            given = from_totals(gamma, totals.drafted, totals.accepted)
            return _with_first(given, totals), [*notes, f"Totals of {totals.runtime}."]
        if totals.rounds:
            notes.append(
                f"{totals.rounds} rounds drafted {totals.drafted} tokens, not γ = {gamma} each: the drafter "
                "stops early, so tokens a round are known and α is not."
            )
            return from_length(gamma, 1 + totals.accepted / totals.rounds), notes
        raise ValueError(
            f"{totals.drafted} drafted tokens are no whole number of rounds of γ = {gamma}: the drafter stops early, "
            "and without the number of rounds nothing follows; give the log with the runtime's draft statistics"
        )
    if totals.length is not None:
        return from_length(gamma, totals.length), [*notes, f"Only {totals.runtime}'s mean length is known."]
    if totals.share is not None:
        notes.append(f"{totals.runtime} printed a ratio, accepted ÷ drafted; it was not taken for α.")
        return from_ratio(gamma, totals.share), notes
    raise ValueError("the log names one of drafted and accepted tokens and not the other; give the whole log")


def _whole_gamma(totals: Totals) -> int | None:
    """γ where rounds and drafted tokens are both known and one divides the other."""
    if totals.rounds and totals.drafted and totals.drafted % totals.rounds == 0:
        return totals.drafted // totals.rounds
    return None


def _with_first(given: Given, totals: Totals) -> Given:
    """Add α_1 where the log counts the rounds that accepted anything."""
    if totals.some is None or not totals.rounds or totals.some > totals.rounds:
        return given
    low, high = wilson(totals.some, totals.rounds)
    first: dict[str, Any] = {"value": totals.some / totals.rounds, "low": low, "high": high, "n": totals.rounds}
    return msgspec.structs.replace(given, acceptance={**(given.acceptance or {}), "conditional_1": first})
