"""Look for the known ways to fool oneself in a session's summary, and name the evidence for each (R22)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypedDict

import msgspec

from mtplab.measure.figures import from_builtins, step_times_by_position
from mtplab.measure.rounds import HEAT_UNKNOWN, MIN_ROUNDS
from mtplab.session.events import Figure, RoundMeasured, VerdictReached

Status = Literal["found", "clear", "unknown"]
HEAD_SHARE_LIMIT = 0.05
ALPHA_LOSS_LIMIT = -0.02
TPOT_GROWTH_LIMIT = 1.25
TTFT_RATIO_LIMIT = 1.25
CALIBRATION_DISTANCE_LIMIT = 0.10
SILENT = ("fallback_cpu", "partial", "backend_downgrade")


class Summary(TypedDict, total=False):
    """What the detectors look at; every key may be missing, and then its detector answers `unknown`.

    figures: name -> value or None, of the deployed configuration. rounds: configuration -> number of unmarked
    rounds. heat_per_round: for each round whether a temperature stands beside it. verdicts: dicts with graph,
    requested, verdict and line (the proving text). doubts: graph, requested and text where an accelerator's times
    cannot be told from the CPU's. numerics: graph, requested, relative (None: not compared) and text (what is wrong
    with the accelerator's outputs, or None). head_bytes, backbone_bytes: own parameters as stored.
    alpha_change: (low, value, high) of α after − before quantisation. tpot_by_position: (position, ms a token) of
    plain decoding. calibration: (Wasserstein distance to production's lengths as a share of their mean, how that is
    said), the distance None with the reason where production's lengths were not given; missing where no recipe needed
    ranges. tokens_by: what counted the output tokens ("tokenizer", "characters", …).
    """

    figures: Mapping[str, float | None]
    rounds: Mapping[str, int]
    heat_per_round: Sequence[bool]
    verdicts: Sequence[Mapping[str, Any]]
    doubts: Sequence[Mapping[str, Any]]
    numerics: Sequence[Mapping[str, Any]]
    head_bytes: int
    backbone_bytes: int
    alpha_change: tuple[float, float, float]
    tpot_by_position: Sequence[tuple[float, float]]
    calibration: tuple[float | None, str]
    tokens_by: str
    ttft_off_ms: float
    ttft_on_ms: float


class Finding(msgspec.Struct, frozen=True):
    """What one detector says. `unknown` means it had nothing to look at: that is not an all-clear."""

    pitfall: str
    status: Status
    text: str
    evidence: str


def summary_of(
    rounds: Iterable[RoundMeasured],
    figures: Mapping[str, Figure],
    verdicts: Iterable[VerdictReached],
    *,
    plain_configuration: str = "mtp-off",
) -> Summary:
    """The part of a summary that a session's own events give; sizes, Δα and `tokens_by` are the caller's to add."""
    rounds = list(rounds)
    unmarked: dict[str, int] = {}
    for one in rounds:
        unmarked[one.configuration] = unmarked.get(one.configuration, 0) + (not one.marks)
    plain = [p for one in rounds if one.configuration == plain_configuration for p in from_builtins(one.prompts)]
    return {
        "figures": {name: figure.value for name, figure in figures.items()},
        "rounds": unmarked,
        "heat_per_round": [one.skin_before_c is not None and HEAT_UNKNOWN not in one.marks for one in rounds],
        "verdicts": [
            {
                "graph": v.graph,
                "requested": v.requested,
                "verdict": v.verdict,
                "line": v.evidence[0].text if v.evidence else None,
            }
            for v in verdicts
        ],
        "tpot_by_position": step_times_by_position(plain),
    }


def inspect(summary: Summary) -> list[Finding]:
    """Run every detector."""
    return [detector(summary) for detector in DETECTORS]


def found(summary: Summary) -> list[Finding]:
    """Only what was found."""
    return [finding for finding in inspect(summary) if finding.status == "found"]


def throughput_without_ttft(summary: Summary) -> Finding:
    """Tokens a second alone hide how long a user waits for the first."""
    name = "throughput-without-ttft"
    figures = summary.get("figures")
    if figures is None:
        return _unknown(name, "no figures were given")
    rate, first = figures.get("tokens_per_s"), figures.get("ttft_ms")
    evidence = f"tokens_per_s {_shown(rate)}, ttft_ms {_shown(first)}"
    if rate is not None and first is None:
        return Finding(
            name, "found", "Throughput is reported without TTFT: a user waits for the first token.", evidence
        )
    return Finding(name, "clear", "TTFT stands beside throughput, or neither was claimed.", evidence)


def too_few_rounds(summary: Summary) -> Finding:
    """Fewer rounds than the medians need."""
    name = "too-few-rounds"
    rounds = summary.get("rounds")
    if not rounds:
        return _unknown(name, "no rounds were given")
    evidence = ", ".join(f"{configuration} {n}" for configuration, n in rounds.items())
    if min(rounds.values()) < MIN_ROUNDS:
        return Finding(
            name, "found", f"Fewer than {MIN_ROUNDS} unmarked rounds: their median may be chance.", evidence
        )
    return Finding(name, "clear", f"At least {MIN_ROUNDS} unmarked rounds of every configuration.", evidence)


def throttling_unrecorded(summary: Summary) -> Finding:
    """Rounds without a temperature beside them."""
    name = "throttling-unrecorded"
    heat = summary.get("heat_per_round")
    if not heat:
        return _unknown(name, "no rounds were given")
    without = sum(not known for known in heat)
    evidence = f"{without} of {len(heat)} rounds without skin temperature and status"
    if without:
        return Finding(name, "found", "Nobody knows whether the phone throttled in these rounds.", evidence)
    return Finding(name, "clear", "Heat was recorded beside every round.", evidence)


def silent_fallback(summary: Summary) -> Finding:
    """An accelerator was asked for and something else ran."""
    name = "silent-fallback"
    verdicts = summary.get("verdicts")
    asked = [v for v in verdicts or () if v.get("requested") != "cpu"]
    if not asked:
        return _unknown(name, "no log of a requested accelerator was given")
    hit = [v for v in asked if v.get("verdict") in SILENT]
    if hit:
        told = ", ".join(f"{v.get('graph')} on {v.get('requested')}: {v.get('verdict')}" for v in hit)
        line = next((v.get("line") for v in hit if v.get("line")), None)
        text = f"{len(hit)} of {len(asked)} graphs did not run where they were asked to: {told}."
        return Finding(name, "found", text, str(line or "no line was recorded"))
    evidence = ", ".join(f"{v.get('graph')} on {v.get('requested')}: {v.get('verdict')}" for v in asked)
    proven = all(v.get("verdict") == "full_delegate" for v in asked)
    if not proven:
        return Finding(name, "unknown", "Not every log proves where its graph ran.", evidence)
    doubts = summary.get("doubts")
    if doubts:
        told = ", ".join(f"{d.get('graph')} on {d.get('requested')}" for d in doubts)
        text = f"The logs prove the delegates, but times cannot be told from the CPU's for {told}."
        return Finding(name, "unknown", text, str(doubts[0].get("text")))
    return Finding(name, "clear", "Every requested accelerator is proven by its log.", evidence)


def wrong_numbers(summary: Summary) -> Finding:
    """A delegate that took the whole graph and computes something else: half precision overflows in silence."""
    name = "accelerator-computes-otherwise"
    numerics = summary.get("numerics")
    if not numerics:
        return _unknown(name, "outputs were not compared (--check-numerics)")
    hit = [n for n in numerics if n.get("text")]
    if hit:
        told = ", ".join(f"{n.get('graph')} on {n.get('requested')}" for n in hit)
        text = f"The accelerator's outputs differ from the CPU's for {told}: its speed is worth nothing."
        return Finding(name, "found", text, str(hit[0]["text"]))
    compared = [n for n in numerics if n.get("relative") is not None]
    if len(compared) < len(numerics):
        return _unknown(name, f"outputs of {len(numerics) - len(compared)} graphs could not be read")
    worst = max(float(n["relative"]) for n in compared)
    evidence = f"{len(compared)} graphs, largest difference {100 * worst:.2g} % of the range"
    return Finding(name, "clear", "The accelerators compute what the CPU computes.", evidence)


def prefill_differs(summary: Summary) -> Finding:
    """MTP cannot change the prefill: where the first token comes at another time, the machine has changed."""
    name = "unsteady-machine"
    off, on = summary.get("ttft_off_ms"), summary.get("ttft_on_ms")
    if not off or not on:
        return _unknown(name, "TTFT with MTP on and off was not given")
    evidence = f"TTFT {off:.3g} ms with MTP off, {on:.3g} ms with MTP on"
    if max(off, on) / min(off, on) > TTFT_RATIO_LIMIT:
        text = (
            "The time to the first token differs with MTP on and off, although MTP does not touch it: "
            "the machine was not steady, and a speedup of this size may be its doing."
        )
        return Finding(name, "found", text, evidence)
    return Finding(name, "clear", "The first token comes at the same time with MTP on and off.", evidence)


def head_too_large(summary: Summary) -> Finding:
    """A head whose bytes eat what it gains: decoding is bound by memory bandwidth."""
    name = "head-too-large"
    head, backbone = summary.get("head_bytes"), summary.get("backbone_bytes")
    if head is None or not backbone:
        return _unknown(name, "the sizes of head and backbone were not given")
    share = head / backbone
    evidence = f"{head} bytes beside {backbone}: {100 * share:.1f} %"
    if share > HEAD_SHARE_LIMIT:
        text = f"The head's own parameters exceed {100 * HEAD_SHARE_LIMIT:g} % of the backbone's bytes."
        return Finding(name, "found", text, evidence)
    return Finding(name, "clear", "The head is small beside the backbone.", evidence)


def acceptance_cliff(summary: Summary) -> Finding:
    """Quantisation took acceptance away."""
    name = "acceptance-cliff"
    change = summary.get("alpha_change")
    if change is None:
        return _unknown(name, "acceptance before and after quantisation was not given")
    low, value, high = change
    evidence = f"change in α {value:+.3f} [{low:+.3f}, {high:+.3f}]"
    if low < ALPHA_LOSS_LIMIT:
        text = (
            f"Quantisation may cost more than {-ALPHA_LOSS_LIMIT:g} of α; lift the sensitive layers to int8 or fp16."
        )
        return Finding(name, "found", text, evidence)
    return Finding(name, "clear", "Quantisation left acceptance as it was.", evidence)


def calibrated_on_other_lengths(summary: Summary) -> Finding:
    """Ranges found on prompts of other lengths than production sends."""
    name = "calibration-lengths-differ"
    if "calibration" not in summary:
        return _unknown(name, "this run calibrated nothing")
    distance, evidence = summary["calibration"]
    if distance is None:
        return _unknown(name, f"the distance to production is not known ({evidence})")
    if distance > CALIBRATION_DISTANCE_LIMIT:
        text = "The prompts that fixed the ranges are not as long as production's: give logs that are."
        return Finding(name, "found", text, evidence)
    return Finding(name, "clear", "Calibration and production have the same lengths.", evidence)


def tpot_grows(summary: Summary) -> Finding:
    """Time a token that grows along the output: the KV cache is hidden, copied or rebuilt."""
    name = "tpot-grows-with-length"
    points = sorted(summary.get("tpot_by_position") or ())
    if len(points) < 4:
        return _unknown(name, "fewer than four positions of plain decoding were timed")
    third = max(1, len(points) // 3)
    early, late = (statistics.median(ms for _, ms in part) for part in (points[:third], points[-third:]))
    evidence = f"{early:.3g} ms near position {points[0][0]:g}, {late:.3g} ms near {points[-1][0]:g}"
    # A single slow window is noise; growth shows as most later windows being slower than the one before.
    rising = sum(b > a for (_, a), (_, b) in pairwise(points)) / (len(points) - 1)
    if early > 0 and late / early > TPOT_GROWTH_LIMIT and rising > 0.5:
        return Finding(
            name, "found", "A token costs more the longer the text: the KV cache is not used in place.", evidence
        )
    return Finding(name, "clear", "A token costs the same along the text.", evidence)


def characters_as_tokens(summary: Summary) -> Finding:
    """Output counted in characters or pieces and called tokens."""
    name = "characters-as-tokens"
    counted_by = summary.get("tokens_by")
    if counted_by is None:
        return _unknown(name, "it is not recorded what counted the tokens")
    evidence = f"tokens counted by: {counted_by}"
    if counted_by != "tokenizer":
        return Finding(name, "found", "Only the tokenizer counts tokens; other counts are no throughput.", evidence)
    return Finding(name, "clear", "The tokenizer counted the tokens.", evidence)


DETECTORS: tuple[Callable[[Summary], Finding], ...] = (
    throughput_without_ttft,
    too_few_rounds,
    throttling_unrecorded,
    silent_fallback,
    wrong_numbers,
    prefill_differs,
    head_too_large,
    acceptance_cliff,
    calibrated_on_other_lengths,
    tpot_grows,
    characters_as_tokens,
)


def _unknown(name: str, why: str) -> Finding:
    return Finding(name, "unknown", f"Not looked at: {why}.", "")


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
