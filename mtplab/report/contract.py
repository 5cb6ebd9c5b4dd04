"""The JSON that scripts rely on, made from a session's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mtplab.report.recipes import recipe_contract
from mtplab.session.record import DEPLOYED, ConfigurationRecord, SessionRecord, VerdictRecord
from mtplab.session.state import standing

FIGURES = ("ttft_ms", "tpot_ms", "tokens_per_s", "alpha", "gamma")
SEVERITY = (
    "crash",
    "failed",
    "fallback_cpu",
    "backend_downgrade",
    "partial",
    "unknown",
    "full_delegate",
    "cpu_baseline",
)


def counted(verdict: VerdictRecord) -> str:
    """The word a verdict counts as: `unknown` where it does not stand yet, or where nobody knows its word."""
    word = standing(verdict)
    return word if word in SEVERITY else "unknown"


def worst_verdict(record: SessionRecord) -> str | None:
    """The worst verdict among the requested accelerators; CPU baselines only where nothing else was asked for."""
    asked = [v for v in record.verdicts if v.requested != "cpu"] or record.verdicts
    words = [counted(v) for v in asked]
    if words and any(s.name == "bench" and s.status not in ("done", "cached") for s in record.stages):
        words.append("unknown")  # the graphs that were not reached are not known to be well
    return min(words, key=SEVERITY.index, default=None)


def exit_code(record: SessionRecord) -> int | None:
    """What the run ended with; 5 where it ended well but its worst verdict is not known."""
    return 5 if record.exit_code == 0 and worst_verdict(record) == "unknown" else record.exit_code


def deployed(record: SessionRecord) -> ConfigurationRecord | None:
    """The configuration with MTP on, if it was measured."""
    return next((c for c in record.configurations if c.name == DEPLOYED), None)


def cold_rounds(configuration: ConfigurationRecord) -> int:
    """Rounds without a mark; figures come from them where there are any."""
    return sum(not r.get("marks") for r in configuration.rounds)


def figures_of(configuration: ConfigurationRecord | None, record: SessionRecord) -> dict[str, Any]:
    """The contract's figures of one configuration: {value, low, high, n, …}; a missing one carries its reason."""
    figures: dict[str, Any] = {
        name: {"value": None, "low": None, "high": None, "reason": "not measured"} for name in FIGURES
    }
    if configuration is not None:
        figures.update({name: msgspec.to_builtins(f) for name, f in configuration.figures.items()})
    figures["gamma"] = _gamma(configuration, record)
    ttft = figures["ttft_ms"]
    figures["n"] = ttft.get("n") if isinstance(ttft, dict) else None
    return figures


def _gamma(configuration: ConfigurationRecord | None, record: SessionRecord) -> int | None:
    """The draft length a configuration ran at; None where it drafted nothing or chose it round by round."""
    if configuration is None or configuration.setting is None or configuration.name == DEPLOYED:
        return record.identity.gamma
    return configuration.setting.gamma


def run_contract(record: SessionRecord, path: Path) -> dict[str, Any]:
    """What `mtplab run --json` and `mtplab show --json` print."""
    return {
        "session": str(path),
        "simulated": record.simulated,
        "recovered": record.recovered,
        "outcome": record.outcome,
        "exit_code": exit_code(record),
        "reason": record.outcome_reason,
        "identity": {**msgspec.to_builtins(record.identity), "missing": record.identity_missing},
        "policy": msgspec.to_builtins(record.policy),
        "stages": [msgspec.to_builtins(s) for s in record.stages],
        "configurations": [
            {
                "name": c.name,
                "figures": figures_of(c, record),
                "setting": msgspec.to_builtins(c.setting),
                "advice": c.advice,
                "reason": c.reason,
                "rounds": len(c.rounds),
                "cold_rounds": cold_rounds(c),
                "marks": sorted({str(mark) for r in c.rounds for mark in r.get("marks") or []}),
            }
            for c in record.configurations
        ],
        "earlier_runs": [msgspec.to_builtins(r) for r in record.earlier_runs],
        "figures": figures_of(deployed(record), record),
        "recipes": recipe_contract(record.recipes),
        "verdicts": [msgspec.to_builtins(v) for v in record.verdicts],
        "verdict": worst_verdict(record),
        "conclusion": record.conclusion,
        "scenarios": record.scenarios,
        "exactness": record.exactness,
        "predicted": record.predicted,
        "comparisons": record.comparisons,
        "adaptive": record.adaptive,
        "pitfalls": record.pitfalls,
        "artefacts": record.artefacts,
    }
