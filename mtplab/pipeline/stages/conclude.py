"""Conclude: what the rounds say per scenario, and every pitfall that this session fell into."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mtplab.measure import pitfalls
from mtplab.measure.conclude import Conclusion, conclude, rounds_of
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageFailed
from mtplab.session import events as ev
from mtplab.session.state import LabState


def run(context: DeviceContext, state: LabState) -> Outcome:
    """Conclude from the rounds in `state`; posts the conclusion and what the detectors found."""
    rounds = [r for c in state.configurations.values() for r in c.rounds]
    exactness = context.measured.get("exactness")
    if not rounds or exactness is None:
        raise StageFailed("There is nothing to conclude from: run the measure stage first.")
    conclusion = conclude(
        rounds_of(rounds, "mtp-off"),
        rounds_of(rounds, "mtp-on"),
        simulated=context.simulated,
        exactness=exactness,
        metadata_missing=state.identity.missing(),
        ran_on=f"{state.policy.backend.upper()} ({state.policy.threads} threads)" if state.policy else None,
    )
    fields = conclusion.event_fields(exactness)
    fields["scenarios"] = [{**s, "text": scenario_text(s)} for s in fields["scenarios"]]
    context.post(ev.Concluded(t=time.monotonic(), **fields))
    for finding in pitfalls.found(_summary(context, state, rounds)):
        context.post(
            ev.PitfallFound(
                t=time.monotonic(), pitfall=finding.pitfall, text=finding.text, evidence=finding.evidence
            )
        )
    return Outcome({"missing": list(conclusion.missing), "remarks": list(conclusion.remarks)}, _short(conclusion))


def scenario_text(scenario: dict[str, Any]) -> str:
    """One line: class, what it says, measured and predicted speedup."""
    predicted = (scenario.get("predicted") or {}).get("speedup")
    tail = f" · decode predicted {predicted:.2f}×" if predicted else ""
    decode = (scenario.get("decode_speedup") or {}).get("value")
    measured = f" · decode measured {decode:.2f}×" if decode else ""
    return f"{scenario['class']}: {scenario['says']} — {scenario['why']}{measured}{tail}"


def _summary(context: DeviceContext, state: LabState, rounds: Sequence[ev.RoundMeasured]) -> pitfalls.Summary:
    deployed = state.configurations.get("mtp-on")
    summary = pitfalls.summary_of(rounds, deployed.figures if deployed else {}, state.verdicts)
    # Whatever was measured here was counted by the tokenizer's own ids in the token protocol.
    summary["tokens_by"] = "tokenizer"
    for name, key in (("mtp-off", "ttft_off_ms"), ("mtp-on", "ttft_on_ms")):
        ttft = state.configurations[name].figures.get("ttft_ms") if name in state.configurations else None
        if ttft is not None and ttft.value is not None:
            summary[key] = ttft.value  # type: ignore[literal-required]
    benched = context.figures.get("bench", {})
    summary["doubts"] = [c for c in benched.get("comparisons", []) if c["text"]]
    summary["numerics"] = benched.get("numerics", [])
    frozen = context.figures.get("freeze", {})
    if frozen.get("head_own_parameters") and frozen.get("backbone_parameters"):
        # As float32: what the head has of its own, not the copies of shared weights that its file holds.
        summary["head_bytes"] = 4 * frozen["head_own_parameters"]
        summary["backbone_bytes"] = 4 * frozen["backbone_parameters"]
    change = context.figures.get("acceptance", {}).get("delta_alpha")
    if isinstance(change, dict) and None not in (change.get("low"), change.get("value"), change.get("high")):
        summary["alpha_change"] = (change["low"], change["value"], change["high"])
    return summary


def _short(conclusion: Conclusion) -> str:
    by_verdict: dict[str, list[str]] = {}
    for scenario in conclusion.scenarios:
        by_verdict.setdefault(scenario.says, []).append(scenario.klass)
    return " · ".join(f"{says}: {', '.join(classes)}" for says, classes in by_verdict.items()) or conclusion.text
