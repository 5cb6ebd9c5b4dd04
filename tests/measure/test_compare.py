"""Two records are compared only if all that was not named as varying is known and equal."""

from __future__ import annotations

import msgspec
import pytest

from mtplab.measure.compare import Subject, comparable
from mtplab.session.identity import Identity, Policy

IDENTITY = Identity(
    device_model="Pixel 9", os_version="16", aicore_version="absent", quantisation="int8", gamma=3, temperature=0.0,
    serial_hash="s1", model="tiny", head="token",
)  # fmt: skip
POLICY = Policy(prompt_set_sha256="abc")


def subject(name="A", policy: Policy | None = POLICY, **changes) -> Subject:
    return Subject(name, msgspec.structs.replace(IDENTITY, **changes), policy)


def with_policy(**changes) -> Subject:
    return subject("B", msgspec.structs.replace(POLICY, **changes))


def test_equal_records_are_comparable():
    assert comparable(subject("A"), subject("B")) == []


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (subject("B", aicore_version="1.2"), "AICore version differs: absent against 1.2"),
        (subject("B", device_model="Pixel 10"), "device model differs"),
        (subject("B", serial_hash="s2"), "phone (serial) differs"),
        (subject("B", quantisation="int4"), "quantisation differs"),
        (subject("B", gamma=4), "draft length γ differs"),
        (subject("B", head=None), "draft head differs: token against none recorded"),
        (with_policy(prompt_set_sha256="xyz"), "content of the prompt set differs"),
        (with_policy(prompt_set="other"), "prompt set differs"),
        (with_policy(output_limit=64), "output limit differs: 48 against 64"),
        (with_policy(threads=4), "threads differs"),
        (with_policy(core_mask="f0"), "core mask differs: none recorded against f0"),
        (with_policy(draft_length="adaptive:tiers"), "draft length policy differs"),
        (with_policy(runtime="litert-lm"), "program that decodes differs: token-runner against litert-lm"),
    ],
)
def test_every_difference_is_refused_with_its_sentence(other, says):
    [reason] = comparable(subject("A"), other)
    assert says in reason and reason.endswith("not named as varying.")


def test_what_is_named_may_differ():
    assert comparable(subject("A"), subject("B", quantisation="int4"), {"recipe"}) == []
    assert comparable(subject("A"), subject("B", head=None, gamma=None), {"mtp"}) == []
    assert comparable(subject("A"), subject("B", device_model="Pixel 10", serial_hash="s2"), {"device"}) == []
    assert comparable(subject("A"), with_policy(threads=4), {"threads"}) == []
    assert len(comparable(subject("A"), subject("B", gamma=4, quantisation="int4"), {"recipe"})) == 1


def test_simulated_is_never_set_beside_real():
    everything = {"device", "os_version", "aicore_version", "scenario"}
    for a, b in ((subject("A", simulated=True), subject("B")), (subject("B"), subject("A", simulated=True))):
        [reason] = comparable(a, b, everything)
        assert reason.startswith("A is SIMULATED and B was measured on a phone")
    assert comparable(subject("A", simulated=True), subject("B", simulated=True)) == []


def test_unknown_metadata_cannot_be_known_to_be_equal():
    reasons = comparable(subject("A", aicore_version=None), subject("B", aicore_version=None))
    assert reasons == [
        "The record of A is incomplete: AICore version unknown.",
        "The record of B is incomplete: AICore version unknown.",
    ]
    assert len(comparable(subject("A", aicore_version=None), subject("B"))) == 1


def test_an_unknown_policy_or_unhashed_prompts_are_refused():
    assert "policy of B is unknown" in comparable(subject("A"), subject("B", None))[0]
    bare = subject("A", Policy())
    assert "equal names prove nothing" in comparable(bare, bare)[0]
    assert comparable(bare, bare, {"prompts"}) == []


def test_a_name_that_cannot_vary_is_an_error():
    with pytest.raises(ValueError, match="nothing named weather can vary"):
        comparable(subject(), subject(), {"weather"})
