"""What a run measures: its own configurations, or those that an experiment plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mtplab.engine.errors import EngineError
from mtplab.engine.options import BOUNDS, RunOptions
from mtplab.measure.plan import plan
from mtplab.pipeline.stages.measure import Measured
from mtplab.session.configuration import Configuration
from mtplab.session.identity import Policy


def exported_lengths(options: RunOptions) -> tuple[int, ...]:
    """The draft lengths that a run exports, ascending; EngineError with exit code 1 where one is out of bounds."""
    lengths = tuple(sorted({*options.gammas, options.gamma}))
    low, high = next((low, high) for name, low, high in BOUNDS if name == "gamma")
    if not low <= lengths[0] <= lengths[-1] <= high:
        raise EngineError(f"Draft lengths to export lie in {low}…{high}, not {', '.join(map(str, lengths))}.", 1)
    return lengths


def planned(options: RunOptions, policy: Policy) -> list[Configuration]:
    """What the measure stage measures: all exported lengths where an adaptive policy is to choose among them."""
    gammas = options.measure_gammas or (exported_lengths(options) if options.policies else ())
    return plan(
        policy,
        options.gamma,
        gammas=gammas,
        policies=options.policies,
        head_threads=options.head_threads,
        head_backends=options.head_backends,
    )


@dataclass(frozen=True)
class MeasurePlan:
    """What an experiment wants measured in place of a run's own configurations.

    `earlier` gives rounds that were measured already, for the hashes of the deployed files by artefact name.
    """

    configurations: Sequence[Configuration]
    classes: Sequence[str]
    earlier: Callable[[Mapping[str, str]], Sequence[Measured]]
    experiment: str
