"""The JSON that scripts rely on, made from a session's record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mtplab.session.record import DEPLOYED, ConfigurationRecord, SessionRecord

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


def worst_verdict(record: SessionRecord) -> str | None:
    """The worst verdict among the requested accelerators; CPU baselines only where nothing else was asked for."""
    wanted = [v.verdict for v in record.verdicts if v.requested != "cpu"] or [v.verdict for v in record.verdicts]
    return min(wanted, key=SEVERITY.index) if wanted else None


def deployed(record: SessionRecord) -> ConfigurationRecord | None:
    """The configuration with MTP on, if it was measured."""
    return next((c for c in record.configurations if c.name == DEPLOYED), None)


def figures_of(configuration: ConfigurationRecord | None, record: SessionRecord) -> dict[str, Any]:
    """The contract's figures of one configuration: {value, low, high, n, …}; a missing one carries its reason."""
    figures: dict[str, Any] = {
        name: {"value": None, "low": None, "high": None, "reason": "not measured"} for name in FIGURES
    }
    if configuration is not None:
        figures.update({name: msgspec.to_builtins(f) for name, f in configuration.figures.items()})
    figures["gamma"] = record.identity.gamma
    ttft = figures["ttft_ms"]
    figures["n"] = ttft.get("n") if isinstance(ttft, dict) else None
    return figures


def run_contract(record: SessionRecord, path: Path) -> dict[str, Any]:
    """What `mtplab run --json` and `mtplab show --json` print."""
    return {
        "session": str(path),
        "simulated": record.simulated,
        "recovered": record.recovered,
        "outcome": record.outcome,
        "exit_code": record.exit_code,
        "reason": record.outcome_reason,
        "identity": {**msgspec.to_builtins(record.identity), "missing": record.identity_missing},
        "policy": msgspec.to_builtins(record.policy),
        "stages": [msgspec.to_builtins(s) for s in record.stages],
        "configurations": [{"name": c.name, "figures": figures_of(c, record)} for c in record.configurations],
        "figures": figures_of(deployed(record), record),
        "verdicts": [msgspec.to_builtins(v) for v in record.verdicts],
        "verdict": worst_verdict(record),
        "conclusion": record.conclusion,
        "scenarios": record.scenarios,
        "exactness": record.exactness,
        "predicted": record.predicted,
        "pitfalls": record.pitfalls,
        "artefacts": record.artefacts,
    }
