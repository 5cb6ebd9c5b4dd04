"""A session as plain text, for people at a terminal: figures, verdicts, metadata and the conclusion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mtplab.report.calibration import calibration_lines
from mtplab.report.comparisons import comparison_lines
from mtplab.report.contract import cold_rounds, counted, worst_verdict
from mtplab.report.recipes import recipe_lines
from mtplab.session.calibrated import calibrated
from mtplab.session.events import Figure
from mtplab.session.identity import TOKEN_RUNNER
from mtplab.session.record import ConfigurationRecord, SessionRecord, StageRecord, VerdictRecord
from mtplab.session.text import clean_text

STATUS_GLYPHS = {
    "pending": "·",
    "running": "▶",
    "done": "✓",
    "cached": "✓",
    "failed": "✗",
    "cancelled": "■",
    "skipped": "–",
}
VERDICT_GLYPHS = {
    "full_delegate": "✓",
    "cpu_baseline": "✓",
    "partial": "◐",
    "backend_downgrade": "▽",
    "fallback_cpu": "✗",
    "failed": "✗",
    "crash": "✗",
    "unknown": "?",
}
_LABELS = (
    ("ttft_ms", "TTFT", "ms"),
    ("tpot_ms", "TPOT", "ms"),
    ("tokens_per_s", "throughput", "tok/s"),
    ("alpha", "α", ""),
)


def number(value: float | None) -> str:
    """Three significant digits, or `unknown`."""
    if value is None:
        return "unknown"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figure_text(figure: Figure | None, unit: str = "") -> str:
    """`value unit [low–high] n`, or why there is none."""
    if figure is None:
        return "not measured"
    if figure.value is None:
        return f"unknown ({figure.reason or 'no reason recorded'})"
    text = number(figure.value) + (f" {unit}" if unit else "")
    if figure.low is not None and figure.high is not None:
        text += f" [{number(figure.low)}–{number(figure.high)}]"
    return text + (f" n={figure.n}" if figure.n is not None else "")


def stage_line(stage: StageRecord) -> str:
    """One line of the stage list."""
    seconds = "" if stage.seconds is None else f"{stage.seconds:.1f} s"
    tail = stage.reason if stage.status in ("failed", "cancelled", "skipped") and stage.reason else stage.summary
    glyph = STATUS_GLYPHS.get(stage.status, "?")
    return f" {glyph} {stage.name:<11} {stage.status:<9} {seconds:>8}  {clean_text(tail)}".rstrip()


def verdict_line(verdict: VerdictRecord) -> str:
    """One line of the verdict list, with the line that proves it."""
    nodes = ""
    if verdict.delegated_nodes is not None and verdict.total_nodes is not None:
        nodes = f" {verdict.delegated_nodes}/{verdict.total_nodes} nodes"
    word = verdict.verdict.upper()
    if verdict.provisional:
        word += " (provisional)"
    elif counted(verdict) != verdict.verdict:
        word += " (cut before any inference)" if verdict.verdict in VERDICT_GLYPHS else " (no verdict of mtplab's)"
    proof = ""
    if verdict.evidence:
        proof = f" · line {verdict.evidence[0].line}: {clean_text(verdict.evidence[0].text, 100)}"
    elif verdict.reason:
        proof = f" · {clean_text(verdict.reason, 100)}"
    glyph = VERDICT_GLYPHS[counted(verdict)]
    return f" {glyph} {verdict.graph:<24} asked {verdict.requested:<5} → {word}{nodes}{proof}"


def finding_lines(verdict: VerdictRecord) -> list[str]:
    """What is worth knowing beside the verdict, a line each."""
    return [f"     note: {clean_text(finding, 400)}" for finding in verdict.findings]


def identity_lines(record: SessionRecord) -> list[str]:
    """The five metadata (R21); what is unknown is said to be."""
    identity = record.identity

    def known(value: object) -> str:
        return "UNKNOWN" if value is None else clean_text(str(value))

    lines = [
        f" device       {known(identity.device_model)}",
        f" OS           {known(identity.os_version)}",
        f" AICore       {known(identity.aicore_version)}",
        f" quantisation {known(identity.quantisation)}",
        f" γ, T         {known(identity.gamma or identity.draft_length)}, {known(identity.temperature)}",
    ]
    if record.identity_missing:
        lines.append(f" INCOMPLETE: {', '.join(record.identity_missing)} unknown; these figures cannot be compared")
    return lines


def configuration_lines(configurations: Iterable[ConfigurationRecord]) -> list[str]:
    """A block of figures for each configuration."""
    lines = []
    for configuration in configurations:
        rounds, cold = len(configuration.rounds), cold_rounds(configuration)
        if configuration.reason:
            lines.append(f" {configuration.name}  NOT MEASURED: {clean_text(configuration.reason, 300)}")
            continue
        of = f"{rounds} rounds" if cold == rounds else f"{cold} cold of {rounds} rounds"
        hot = "  HOT OR MARKED: no cold round exists" if rounds and not cold else ""
        setting = f"  {configuration.setting.text()}" if configuration.setting else ""
        lines.append(f" {configuration.name}  ({of}){setting}{hot}")
        for key, label, unit in _LABELS:
            if key in configuration.figures:
                lines.append(f"   {label:<11} {figure_text(configuration.figures[key], unit)}")
        if configuration.advice:
            lines.append(f"   {'rounds':<11} {configuration.advice}")
    return lines


def heading(record: SessionRecord) -> str:
    """The session's name with everything one must not overlook."""
    marks = []
    if record.simulated:
        marks.append("SIMULATED")
    if record.recovered:
        marks.append("RECOVERED")
    if record.outcome and record.outcome != "done":
        marks.append(record.outcome.upper())
    return record.session + (f"  [{' · '.join(marks)}]" if marks else "")


def printable(lines: Iterable[str]) -> str:
    """Lines for a terminal: names of folders, and records that never were on a disk, are cleaned here at last."""
    return "\n".join(map(clean_text, lines))


def session_text(record: SessionRecord, path: Path | None = None, notes: Sequence[str] = ()) -> str:
    """The whole report; `notes` are sentences about the session's files."""
    lines = [heading(record), *identity_lines(record), ""]
    if record.recovery:
        lines += [f"Recovered: {record.recovery}.", ""]
    calibration = next((calibrated(s.figures) for s in record.stages if s.name == "calibrate" and s.figures), None)
    if record.stages:
        lines += ["Stages", *[stage_line(s) for s in record.stages], ""]
    if record.recipes:
        lines += [*recipe_lines(record.recipes), ""]
    if calibration is not None:
        lines += ["Calibration", *[f" {line}" for line in calibration_lines(calibration)], ""]
    if record.verdicts:
        lines += [f"Delegates: {(worst_verdict(record) or 'unknown').upper()}"]
        for verdict in record.verdicts:
            lines += [verdict_line(verdict), *finding_lines(verdict)]
        lines.append("")
    if record.configurations:
        gamma = record.identity.gamma if record.identity.gamma is not None else record.identity.draft_length
        policy = record.policy
        threads = f"{policy.threads} thread{'' if policy.threads == 1 else 's'}" if policy else ""
        ran_on = f"on {policy.backend.upper()} with {threads}" if policy else "backend unknown"
        if policy is not None and policy.runtime != TOKEN_RUNNER:
            ran_on += f" by {clean_text(policy.runtime, 16)}"
        shown = gamma if gamma is not None else "unknown"
        lines += [f"Figures {ran_on} (γ {shown}; medians, 95 % intervals over prompts)"]
        lines += [*configuration_lines(record.configurations), ""]
    elif record.run:
        lines += ["Figures: none were measured", ""]
    if record.scenarios:
        lines += ["Scenarios", *[_scenario_line(s) for s in record.scenarios], ""]
    lines += comparison_lines(record)
    if record.pitfalls:
        lines += ["Pitfalls", *[f" ! {p['text']} ({p['evidence']})" for p in record.pitfalls], ""]
    if record.outcome_reason:
        lines.append(f"Ended: {clean_text(record.outcome_reason)}")
    for run in record.earlier_runs:
        lines.append(f"Earlier run {run.run} ({run.outcome or 'not ended'}): {run.conclusion or 'no conclusion'}")
    lines.append(f"Conclusion: {record.conclusion or 'none: the measurement did not get that far'}")
    if path is not None:
        lines.append(f"Session: {path}")
    lines += [f"! {note}" for note in notes]
    return printable(lines)


def _scenario_line(scenario: dict[str, object]) -> str:
    # The sentence is written where the figures are known, in measure.conclude.
    return f" {scenario.get('text') or scenario}"


def has_figures(record: SessionRecord) -> bool:
    """Whether any configuration gave at least one figure."""
    return any(figure.value is not None for c in record.configurations for figure in c.figures.values())
