"""Build the set: duplicates out, tokens counted, lengths matched to production, everything left out counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mtplab.calibration.duplicates import NEAR, exact_duplicates, fingerprint, near_duplicates
from mtplab.calibration.errors import CalibrationError
from mtplab.calibration.lengths import Distribution, closest, edges_for, wasserstein
from mtplab.calibration.reader import Reader
from mtplab.calibration.record import (
    LEAST,
    MOST,
    VERSION,
    CalibrationPrompt,
    CalibrationSet,
    set_sha256,
)
from mtplab.calibration.sources import Log, Record
from mtplab.session.calibrated import Counts, Lengths, SystemPrompt

Progress = Callable[[int, int, str], None]

MOST_LOOKED_AT = 20_000
"""Rows of a log that are compared with each other; of more, these many are taken evenly by hash."""
FAR = 0.10
"""Distance to production, as a share of its mean length, above which the set is warned about."""
_MANY_TOO_LONG = 0.05


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to build. `longest` tokens still leave room for a round in the model's context."""

    longest: int
    size: int = 400
    system: str | None = None
    no_system: bool = False
    target: Distribution | None = None
    near: float = NEAR


class _Read(msgspec.Struct, frozen=True):
    """A prompt under way."""

    record: Record
    text: str
    mark: str


def build_set(log: Log, reader: Reader, plan: Plan, progress: Progress, least: int = LEAST) -> CalibrationSet:
    """The calibration set of one model; the same log and plan give the same set.

    Raises `CalibrationError` where the system prompt is missing, or fewer than `least` prompts are left.
    """
    if not least <= plan.size <= MOST:
        raise CalibrationError(f"A calibration set has {least} to {MOST} prompts and not {plan.size}.")
    looked_at = _evenly(log.records)
    again = exact_duplicates([one.said for one in looked_at])
    distinct = [one for index, one in enumerate(looked_at) if index not in again]
    system = _system(distinct, plan, reader, progress)
    rendered = [_Read(one, reader.render(one, one.system or plan.system), fingerprint(one.said)) for one in distinct]
    tokens = reader.encode([one.text for one in rendered], progress, "counting tokens")
    fitting = [index for index, ids in enumerate(tokens) if len(ids) <= plan.longest]
    said = reader.encode([rendered[index].record.said for index in fitting], progress, "comparing prompts")
    near = near_duplicates(said, plan.near, progress)
    usable = [index for place, index in enumerate(fitting) if place not in near]
    if len(usable) < least:
        raise CalibrationError(
            f"Only {len(usable)} usable prompts are left of {len(log.records)} ({len(again)} repeat another, "
            f"{len(near)} nearly, {len(tokens) - len(fitting)} are longer than {plan.longest} tokens), and a "
            f"calibration set needs at least {least}; give more of your logs."
        )
    lengths = [len(tokens[index]) for index in usable]
    # Lengths alike are taken by hash, so that no part of a log is preferred.
    ranked = sorted(range(len(usable)), key=lambda place: rendered[usable[place]].mark)
    pool = Distribution.of(lengths)
    size = min(plan.size, len(usable))
    picked = closest([lengths[place] for place in ranked], plan.target or pool, size)
    chosen = [usable[ranked[place]] for place in picked]
    prompts = [
        CalibrationPrompt(
            id=f"c{number:04d}",
            prompt_class=rendered[index].record.prompt_class,
            tokens=tokens[index],
            text_sha256=rendered[index].mark,
        )
        for number, index in enumerate(chosen, 1)
    ]
    counts = Counts(
        read=len(log.records) + log.empty,
        empty=log.empty,
        not_looked_at=len(log.records) - len(looked_at),
        exact_duplicates=len(again),
        too_long=len(tokens) - len(fitting),
        near_duplicates=len(near),
        not_chosen=len(usable) - size,
        chosen=size,
    )
    report = _lengths([len(one.tokens) for one in prompts], pool, plan.target)
    progress(1, 1, "built")
    return CalibrationSet(
        version=VERSION,
        model=reader.model,
        vocab=reader.vocab,
        tokenizer_sha256=reader.tokenizer_sha256,
        template_sha256=reader.template_sha256,
        system=system,
        sources=list(log.files),
        counts=counts,
        lengths=report,
        warnings=_warnings(counts, report, plan, system),
        prompts=prompts,
        sha256=set_sha256(reader.tokenizer_sha256, prompts),
    )


def _evenly(records: Sequence[Record]) -> Sequence[Record]:
    if len(records) <= MOST_LOOKED_AT:
        return records
    by_hash = sorted(range(len(records)), key=lambda index: fingerprint(records[index].said))
    return [records[index] for index in sorted(by_hash[:MOST_LOOKED_AT])]


def _system(records: Sequence[Record], plan: Plan, reader: Reader, progress: Progress) -> SystemPrompt:
    """Which system prompt the set carries; refuses a set that would silently lack it."""
    asking = [one for one in records if not one.raw]
    own = [one for one in asking if one.system]
    if plan.system is None and len(own) < len(asking) and not plan.no_system:
        raise CalibrationError(
            f"{len(asking) - len(own)} of {len(asking)} prompts carry no system prompt, and calibrated without "
            "it the ranges would be those of another input; give --system FILE with the full text that production "
            "sends, or --no-system where it sends none."
        )
    if plan.system is not None:
        if not asking:
            raise CalibrationError(
                "All prompts are raw text, which takes no system prompt; leave --system away, or give the prompts as "
                "chat messages."
            )
        length = len(reader.encode([plan.system], progress, "counting tokens")[0])
        return SystemPrompt(kind="given", sha256=fingerprint(plan.system), tokens=length)
    return SystemPrompt(kind="in the rows" if own else "declared absent")


def _lengths(chosen: Sequence[int], pool: Distribution, target: Distribution | None) -> Lengths:
    own = Distribution.of(chosen)
    edges = edges_for(*[one for one in (own, target) if one is not None])
    known = {
        "edges": edges,
        "chosen": own.bars(edges),
        "shortest": min(chosen),
        "longest": max(chosen),
        "mean": own.mean,
    }
    if target is None:
        return msgspec.convert({**known, "reason": "no production lengths were given"}, Lengths)
    return msgspec.convert(
        {
            **known,
            "production": target.bars(edges),
            "production_name": target.name,
            "production_mean": target.mean,
            "distance_tokens": wasserstein(own, target),
            "distance_before": wasserstein(pool, target),
        },
        Lengths,
    )


def _warnings(counts: Counts, lengths: Lengths, plan: Plan, system: SystemPrompt) -> list[str]:
    found = []
    if counts.chosen < plan.size:
        found.append(f"{plan.size} prompts were asked for and {counts.chosen} are usable.")
    if counts.too_long > _MANY_TOO_LONG * counts.read:
        found.append(
            f"{counts.too_long} of {counts.read} prompts are longer than the {plan.longest} tokens that the exported "
            "context leaves, and are left out: the longest inputs of production are not calibrated."
        )
    far = lengths.distance_relative
    if far is not None and far > FAR:
        found.append(
            f"The lengths lie {lengths.distance_tokens:.1f} tokens from production's on average ({far:.0%} of its "
            f"mean length); {_lacking(lengths)}."
        )
    if system.kind == "declared absent" and plan.target is None:
        found.append("Neither a system prompt nor production's lengths are known; the set is as good as its log.")
    return found


def _lacking(lengths: Lengths) -> str:
    """Where production has most that the set has not."""
    assert lengths.production is not None
    gaps = [wanted - have for wanted, have in zip(lengths.production, lengths.chosen, strict=True)]
    worst = gaps.index(max(gaps))
    return f"most lacking are prompts of {lengths.edges[worst]:.0f} to {lengths.edges[worst + 1]:.0f} tokens"
