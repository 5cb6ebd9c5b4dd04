"""Conclude: what the rounds say per scenario, and every pitfall that this session fell into."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mtplab.measure import pitfalls
from mtplab.measure.compared import Comparison, compare_configurations, cost_points, sentence
from mtplab.measure.conclude import Conclusion, MeasuredRound, conclude
from mtplab.measure.exactness import Exactness
from mtplab.measure.plan import DEPLOYED, PLAIN, plain_of
from mtplab.pipeline.device_stage import DeviceContext, Outcome, StageFailed
from mtplab.session import events as ev
from mtplab.session.calibrated import calibrated, distance_line
from mtplab.session.configuration import Configuration
from mtplab.session.identity import LITERT_LM, TOKEN_RUNNER, Policy
from mtplab.session.state import LabState


def run(context: DeviceContext, state: LabState) -> Outcome:
    """Conclude from the rounds in `state`; posts the conclusion and what the detectors found."""
    rounds = [r for c in state.configurations.values() for r in c.rounds]
    if not rounds or "rounds" not in context.measured:
        raise StageFailed("There is nothing to conclude from: run the measure stage first.")
    exactness = context.measured["exactness"]
    main, plain = deployed_of(context.configurations, context.measured["rounds"])
    conclusion, event = concluded(
        context.configurations,
        context.measured["rounds"],
        context.measured["exact"],
        exactness,
        policy=context.policy,
        simulated=context.simulated,
        metadata_missing=state.identity.missing(),
    )
    context.post(event)
    for finding in pitfalls.found(summarise(context.figures, state, plain, main)):
        context.post(
            ev.PitfallFound(
                t=time.monotonic(), pitfall=finding.pitfall, text=finding.text, evidence=finding.evidence
            )
        )
    return Outcome({"missing": list(conclusion.missing), "remarks": list(conclusion.remarks)}, _short(conclusion))


def concluded(
    configurations: Sequence[Configuration],
    rounds: Mapping[str, Sequence[MeasuredRound]],
    exact: Mapping[str, Exactness | None],
    exactness: Exactness | None,
    *,
    policy: Policy,
    simulated: bool,
    metadata_missing: Sequence[str] = (),
) -> tuple[Conclusion, ev.Concluded]:
    """The conclusion on the deployed configuration, with every other one set beside plain decoding.

    Where the deployed one was not measured (an experiment without it), the first configuration that drafts is taken.
    """
    deployed, plain = deployed_of(configurations, rounds)
    main = next((c for c in configurations if c.name == deployed), None)
    conclusion = conclude(
        rounds.get(plain, []),
        rounds.get(deployed, []),
        simulated=simulated,
        exactness=exactness,
        metadata_missing=metadata_missing,
        ran_on=_ran_on(main, policy.runtime) if main is not None else None,
        sampled=policy.temperature > 0,
    )
    comparisons, gains = compare_configurations(configurations, rounds, exact)
    more = sentence(comparisons, gains)
    fields = conclusion.event_fields(exactness)
    fields["predicted"]["points"] = cost_points(comparisons, configurations)
    fields["scenarios"] = [{**s, "text": scenario_text(s)} for s in fields["scenarios"]]
    fields["text"] = f"{conclusion.text} {more}" if more else conclusion.text
    event = ev.Concluded(
        t=time.monotonic(),
        **fields,
        comparisons=[_comparison(c) for c in comparisons],
        adaptive=msgspec.to_builtins(gains),
    )
    return conclusion, event


def deployed_of(
    configurations: Sequence[Configuration], rounds: Mapping[str, Sequence[MeasuredRound]]
) -> tuple[str, str]:
    """Names of the configuration that a conclusion is about, and of plain decoding on its ground."""
    drafting = [c for c in configurations if c.mtp and rounds.get(c.name)]
    main = next((c for c in drafting if c.name == DEPLOYED), drafting[0] if drafting else None)
    plain = plain_of(main, configurations) if main is not None else None
    return main.name if main is not None else DEPLOYED, plain.name if plain is not None else PLAIN


def _ran_on(configuration: Configuration, runtime: str) -> str:
    threads = f"{configuration.threads} thread{'' if configuration.threads == 1 else 's'}"
    by = "" if runtime == TOKEN_RUNNER else f", by {runtime}"
    return f"{configuration.backend.upper()} ({threads}{by})"


def _comparison(comparison: Comparison) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(comparison)
    return {**told, "rows": [{**row, "text": scenario_text(row)} for row in told["rows"]]}


def scenario_text(scenario: dict[str, Any]) -> str:
    """One line: class, what it says, measured and predicted speedup."""
    predicted = (scenario.get("predicted") or {}).get("speedup")
    tail = f" · decode predicted {predicted:.2f}×" if predicted else ""
    decode = (scenario.get("decode_speedup") or {}).get("value")
    measured = f" · decode measured {decode:.2f}×" if decode else ""
    return f"{scenario['class']}: {scenario['says']} — {scenario['why']}{measured}{tail}"


def summarise(figures: Mapping[str, dict[str, Any]], state: LabState, plain: str, main: str) -> pitfalls.Summary:
    """What the detectors look at: stage figures, and the rounds of the configuration that the conclusion is about."""
    rounds = [r for c in state.configurations.values() for r in c.rounds]
    deployed = state.configurations.get(main)
    summary = pitfalls.summary_of(
        rounds, deployed.figures if deployed else {}, state.verdicts, plain_configuration=plain
    )
    # Counted by the tokenizer's ids: those the runner tells, or those of the text that was heard.
    summary["tokens_by"] = "tokenizer"
    # LiteRT-LM hands its first token out together with what the first round accepted.
    told_apart = figures.get("measure", {}).get("runtime") != LITERT_LM
    for name, key in ((plain, "ttft_off_ms"), (main, "ttft_on_ms")) if told_apart else ():
        ttft = state.configurations[name].figures.get("ttft_ms") if name in state.configurations else None
        if ttft is not None and ttft.value is not None:
            summary[key] = ttft.value  # type: ignore[literal-required]
    benched = figures.get("bench", {})
    summary["doubts"] = [c for c in benched.get("comparisons", []) if c["text"]]
    summary["numerics"] = benched.get("numerics", [])
    frozen = figures.get("freeze", {})
    if frozen.get("head_own_parameters") and frozen.get("backbone_parameters"):
        # As float32: what the head has of its own, not the copies of shared weights that its file holds.
        summary["head_bytes"] = 4 * frozen["head_own_parameters"]
        summary["backbone_bytes"] = 4 * frozen["backbone_parameters"]
    ranged = calibrated(figures.get("calibrate", {}))
    if ranged is not None:
        lengths = ranged.set.lengths
        summary["calibration"] = (lengths.distance_relative, distance_line(lengths))
    change = figures.get("acceptance", {}).get("delta_alpha")
    if isinstance(change, dict) and None not in (change.get("low"), change.get("value"), change.get("high")):
        summary["alpha_change"] = (change["low"], change["value"], change["high"])
    return summary


def _short(conclusion: Conclusion) -> str:
    by_verdict: dict[str, list[str]] = {}
    for scenario in conclusion.scenarios:
        by_verdict.setdefault(scenario.says, []).append(scenario.klass)
    return " · ".join(f"{says}: {', '.join(classes)}" for says, classes in by_verdict.items()) or conclusion.text
