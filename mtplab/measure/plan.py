"""Which configurations a run measures: plain, the deployed draft length, others of the ladder, adaptive policies."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mtplab.session.configuration import ADAPTIVE, Configuration
from mtplab.session.identity import Policy

PLAIN, DEPLOYED = "mtp-off", "mtp-on"


def plan(
    policy: Policy,
    gamma: int,
    *,
    gammas: Sequence[int] = (),
    policies: Sequence[str] = (),
    head_threads: Sequence[int] = (),
    head_backends: Sequence[str] = (),
) -> list[Configuration]:
    """The configurations in the order in which a round measures them.

    Plain decoding and γ = `gamma` always; then every other length of `gammas`, the deployed length with the head on
    other threads or another backend, and last the adaptive `policies`: what they cost is taken from the first round.
    """
    plain = Configuration(
        name=PLAIN, mtp=False, threads=policy.threads, backend=policy.backend, core_mask=policy.core_mask
    )
    deployed = msgspec.structs.replace(plain, name=DEPLOYED, mtp=True, draft_length=f"fixed:{gamma}")
    planned = [plain, deployed]
    planned += [
        msgspec.structs.replace(deployed, name=f"gamma-{other}", draft_length=f"fixed:{other}")
        for other in sorted(set(gammas) - {gamma})
    ]
    planned += [
        msgspec.structs.replace(deployed, name=f"head-threads-{threads}", head_threads=threads)
        for threads in sorted(set(head_threads) - {policy.threads})
    ]
    planned += [
        msgspec.structs.replace(deployed, name=f"head-on-{backend}", head_backend=backend)
        for backend in dict.fromkeys(head_backends)
        if backend != policy.backend
    ]
    planned += [
        msgspec.structs.replace(deployed, name=f"adaptive-{name}", draft_length=ADAPTIVE + name)
        for name in dict.fromkeys(policies)
    ]
    return planned


def plain_of(configuration: Configuration, among: Sequence[Configuration]) -> Configuration | None:
    """Plain decoding on the same ground, which it is compared with."""
    return next((c for c in among if not c.mtp and c.ground == configuration.ground), None)


def fixed_of(configuration: Configuration, among: Sequence[Configuration]) -> list[Configuration]:
    """The fixed draft lengths beside an adaptive one: same ground, same place of the head."""
    return [
        c
        for c in among
        if c.gamma is not None and (c.ground, c.head_place) == (configuration.ground, configuration.head_place)
    ]
