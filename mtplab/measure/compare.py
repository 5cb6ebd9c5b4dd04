"""Refuse to compare what is not comparable, and say why (R19, R21)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mtplab.session.identity import Identity, Policy
from mtplab.session.text import clean_text

# What a person may name as varying, and the fields that then may differ.
ALIASES = {
    "mtp": {"head", "gamma", "draft_length"},
    "recipe": {"quantisation"},
    "device": {"device_model", "serial_hash", "soc", "build_fingerprint"},
    "prompts": {"prompt_set", "prompt_set_sha256"},
}
LABELS = {
    "device_model": "device model",
    "os_version": "OS version",
    "aicore_version": "AICore version",
    "quantisation": "quantisation",
    "gamma": "draft length γ",
    "temperature": "temperature",
    "scenario": "stand-in scenario",
    "build_fingerprint": "build",
    "soc": "chip",
    "serial_hash": "phone (serial)",
    "model": "model",
    "head": "draft head",
    "top_k": "top-k",
    "draft_length": "draft length policy",
    "seed": "seed",
    "output_limit": "output limit",
    "prompt_set": "prompt set",
    "prompt_set_sha256": "content of the prompt set",
    "threads": "threads",
    "backend": "backend of the end-to-end runs",
    "core_mask": "core mask",
    "runtime": "program that decodes",
}
METADATA = ("device_model", "os_version", "aicore_version", "quantisation", "gamma", "temperature")
FURTHER = ("scenario", "build_fingerprint", "soc", "serial_hash", "model", "head")
# None is a value of its own here (no mask was set), not something unknown.
POLICY = (
    "temperature",
    "top_k",
    "draft_length",
    "seed",
    "output_limit",
    "prompt_set",
    "prompt_set_sha256",
    "threads",
    "backend",
    "runtime",
)
POLICY_MAY_BE_ABSENT = ("core_mask",)


class Subject(msgspec.Struct, frozen=True):
    """What is compared: a name for the sentences, the identity and policy it was measured under, and if at all."""

    name: str
    identity: Identity
    policy: Policy | None
    measured: bool = True


def comparable(a: Subject, b: Subject, varying: Collection[str] = ()) -> list[str]:
    """Why `a` and `b` must not be compared, one sentence a reason; empty if they may.

    `varying` names what is allowed to differ: fields of identity and policy, or mtp, recipe, device, prompts. Whether
    a phone was real is never allowed to differ, and metadata that are unknown cannot be known to be equal.
    """
    allowed = _allowed(varying)
    reasons = []
    if a.identity.simulated != b.identity.simulated:
        real, simulated = (b.name, a.name) if a.identity.simulated else (a.name, b.name)
        reasons.append(
            f"{simulated} is SIMULATED and {real} was measured on a phone: a stand-in says nothing about a phone."
        )
    for subject in (a, b):
        if not subject.measured:
            reasons.append(f"{subject.name} holds no measured configuration, so there is nothing to compare.")
        missing = [LABELS[name] for name in subject.identity.missing() if name not in allowed]
        if missing:
            reasons.append(f"The record of {subject.name} is incomplete: {', '.join(missing)} unknown.")
    for name in (*METADATA, *FURTHER):
        reasons += _difference(name, getattr(a.identity, name), getattr(b.identity, name), allowed)
    reasons += _policies(a, b, allowed)
    return list(dict.fromkeys(reasons))


def _allowed(varying: Collection[str]) -> set[str]:
    unknown = sorted(set(varying) - set(ALIASES) - set(LABELS))
    if unknown:
        known = ", ".join([*ALIASES, *LABELS])
        named = clean_text(", ".join(unknown), 80)
        raise ValueError(f"nothing named {named} can vary; choose from {known}")
    return {field for name in varying for field in ALIASES.get(name, {name})}


def _policies(a: Subject, b: Subject, allowed: set[str]) -> list[str]:
    without = [s.name for s in (a, b) if s.policy is None]
    if without:
        return [
            f"The policy of {' and '.join(without)} is unknown, so nothing says that both measured the same thing."
        ]
    reasons = []
    for name in (*POLICY, *POLICY_MAY_BE_ABSENT):
        one, other = getattr(a.policy, name), getattr(b.policy, name)
        if name == "prompt_set_sha256" and one is None and other is None and name not in allowed:
            reasons.append("Neither record holds the hash of its prompt set, so equal names prove nothing.")
        reasons += _difference(name, one, other, allowed)
    return reasons


def _difference(name: str, one: object, other: object, allowed: set[str]) -> list[str]:
    if name in allowed or one == other:
        return []
    if (one is None or other is None) and name in METADATA:
        return []  # said already, as an incomplete record
    return [f"The {LABELS[name]} differs: {_shown(one)} against {_shown(other)}, and it was not named as varying."]


def _shown(value: object) -> str:
    return "none recorded" if value is None else clean_text(str(value), 200)
