"""Take accept counts and costs out of a saved session, trusting nothing in them."""

from __future__ import annotations

from typing import Any

import msgspec

from mtplab.session import archive
from mtplab.session.configuration import ADAPTIVE
from mtplab.session.journal import SessionError
from mtplab.session.record import DEPLOYED, ConfigurationRecord, SessionRecord
from mtplab.session.text import clean_text
from mtplab.speculation.acceptance import AcceptCounts, merge
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.measured import CostPoint, cost_points, exported_lengths_of
from mtplab.speculation.replayed import RecordedPrompt


class Recorded(msgspec.Struct, frozen=True):
    """What a session recorded of one configuration: pooled counts, those of each prompt and class, measured costs.

    `points` are the measured costs by draft length and threads, `threads` what the session decoded with, `exported`
    the draft lengths that its graphs have.
    """

    configuration: str
    counts: AcceptCounts
    prompts: tuple[AcceptCounts, ...]
    draft_cost: float | None
    verify_cost: float | None
    overhead: float | None
    simulated: bool
    classes: dict[str, AcceptCounts] = {}
    prompt_classes: tuple[str, ...] = ()
    points: tuple[CostPoint, ...] = ()
    threads: int | None = None
    exported: tuple[int, ...] = ()


class SessionUnusable(ValueError):
    """The session cannot answer; the text is one sentence."""


def read_session(name: str, *, longest: bool = False) -> Recorded:
    """Counts of the deployed MTP configuration, or of the first that recorded any.

    Of several draft lengths the `longest` says most about the others, where that is asked for. `name` is whatever
    opens a session: a folder, a session.json, a name or its beginning, `last`.
    """
    try:
        record = archive.open_session(name).record
    except SessionError as error:
        raise SessionUnusable(str(error)) from None
    try:
        return _recorded(record, longest)
    except (ValueError, TypeError) as error:
        if isinstance(error, SessionUnusable):
            raise
        raise SessionUnusable(f"{record.session} holds accept counts that cannot be: {error}.") from None


def recorded_prompts(name: str) -> tuple[Recorded, list[RecordedPrompt]]:
    """What `read_session` gives of the longest draft length, and its rounds by prompt, each prompt once."""
    recorded = read_session(name, longest=True)
    configurations = archive.open_session(name).record.configurations
    own = next(c for c in configurations if c.name == recorded.configuration)
    found: dict[str, RecordedPrompt] = {}
    for measured in _dicts(own.rounds):
        for prompt in _dicts(measured.get("prompts")):
            gamma, accepts = prompt.get("gamma"), prompt.get("accepts")
            if isinstance(gamma, int) and isinstance(accepts, list) and accepts:
                # Greedy rounds repeat to the token: the first of equals says all.
                named, klass = str(prompt.get("prompt")), clean_text(str(prompt.get("class")), 80)
                found.setdefault(named, RecordedPrompt(named, klass, gamma, tuple(accepts)))
    if not found:
        named = clean_text(name, 200)
        raise SessionUnusable(f"{named} holds pooled counts only; replaying needs the rounds of each prompt.")
    return recorded, list(found.values())


def _recorded(record: SessionRecord, longest: bool) -> Recorded:
    found = []
    for configuration in record.configurations:
        prompts, classes = _prompts(configuration)
        counts = _pooled(configuration, prompts)
        if counts is not None and counts.rounds:
            found.append((configuration.name, counts, prompts, classes))
    if not found:
        raise SessionUnusable(f"{record.session} recorded no draft round; measure with MTP on first.")
    name, counts, prompts, classes = next((f for f in found if f[0] == DEPLOYED), found[0])
    if longest:
        name, counts, prompts, classes = max(found, key=lambda f: (f[1].gamma, f[0] == DEPLOYED))
    points, threads = recorded_costs(record, counts.gamma)
    export: dict[str, Any] = next((s.figures for s in record.stages if s.name == "export"), {})
    return Recorded(
        configuration=name,
        counts=counts,
        prompts=tuple(prompts),
        draft_cost=_number(record.predicted.get("draft_cost")),
        verify_cost=_number(record.predicted.get("verify_cost")),
        overhead=_number(record.predicted.get("overhead")),
        simulated=record.simulated,
        classes=_classes(next(c for c in record.configurations if c.name == name), counts),
        prompt_classes=tuple(classes),
        points=points,
        threads=threads,
        exported=exported_lengths_of(export, points),
    )


def recorded_costs(record: SessionRecord, gamma: int | None = None) -> tuple[tuple[CostPoint, ...], int | None]:
    """The measured costs of a session and the threads it decoded with; `gamma` is that of its one verify graph."""
    threads = record.policy.threads if record.policy is not None else None
    export: dict[str, Any] = next((s.figures for s in record.stages if s.name == "export"), {})
    only = export.get("gamma")
    own = only if isinstance(only, int) and not isinstance(only, bool) else gamma
    return cost_points(record.predicted, record.verdicts, own, threads), threads


def costs_of_session(name: str) -> tuple[tuple[CostPoint, ...], int | None]:
    """The measured costs of another session, with its thread count; refuses one that holds none."""
    try:
        record = archive.open_session(name).record
    except SessionError as error:
        raise SessionUnusable(str(error)) from None
    points, threads = recorded_costs(record)
    if not points:
        raise SessionUnusable(f"{record.session} holds no measured round cost; run the stage measure or bench first.")
    return points, threads


def _prompts(configuration: ConfigurationRecord) -> tuple[list[AcceptCounts], list[str]]:
    """Counts and class of each prompt over all rounds, a repeat that accepted just the same left out.

    Greedy rounds repeat to the token: five identical repeats are one observation, not five.
    """
    seen: set[tuple[str, tuple[int, ...]]] = set()
    by_prompt: dict[str, list[AcceptCounts]] = {}
    classes: dict[str, str] = {}
    for measured in _dicts(configuration.rounds):
        for prompt in _dicts(measured.get("prompts")):
            gamma, accepts = prompt.get("gamma"), prompt.get("accepts")
            if isinstance(gamma, int) and isinstance(accepts, list) and accepts:
                if not all(isinstance(accepted, int) for accepted in accepts):
                    raise ValueError("an accept count is a whole number")
                if (key := (str(prompt.get("prompt")), tuple(accepts))) in seen:
                    continue
                seen.add(key)
                by_prompt.setdefault(key[0], []).append(AcceptCounts.from_accepts(gamma, accepts))
                classes.setdefault(key[0], clean_text(str(prompt.get("class")), 80))
    return [merge(counts) for counts in by_prompt.values()], list(classes.values())


def _pooled(configuration: ConfigurationRecord, prompts: list[AcceptCounts]) -> AcceptCounts | None:
    if prompts:
        return merge(prompts)
    return AcceptCounts(tuple(configuration.counts)) if len(configuration.counts) > 1 else None


def _classes(configuration: ConfigurationRecord, pooled: AcceptCounts) -> dict[str, AcceptCounts]:
    """The counts of each class, where there are several and they are of the pooled draft length."""
    classes = {
        clean_text(name, 80): AcceptCounts(tuple(row))
        for name, row in configuration.counts_per_class.items()
        if len(row) == len(pooled.counts)
    }
    return classes if len(classes) == len(configuration.counts_per_class) > 1 else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def measured_gains(name: str, policy: str) -> dict[str, Estimate]:
    """What an adaptive policy really gained on the best fixed length when the session ran it, by class."""
    record = archive.open_session(name).record
    found = {}
    for gain in _dicts(record.adaptive):
        told = gain.get("gain")
        if gain.get("policy") == f"{ADAPTIVE}{policy}" and isinstance(told, dict):
            value, low, high = (_number(told.get(key)) for key in ("value", "low", "high"))
            count = told.get("n")
            n = count if isinstance(count, int) else 0
            found[clean_text(str(gain.get("class")), 80)] = Estimate(value, low, high, n, "measured")
    return found
