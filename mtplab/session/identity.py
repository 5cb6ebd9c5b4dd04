"""Who was measured and under which policy: the five metadata, the policy and their hashes."""

from __future__ import annotations

import hashlib

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The device and build behind every figure (R21). None means *unknown*; AICore may be the value "absent"."""

    device_model: str | None = None
    os_version: str | None = None
    aicore_version: str | None = None
    quantisation: str | None = None
    gamma: int | None = None
    temperature: float | None = None
    simulated: bool = False
    scenario: str | None = None
    build_fingerprint: str | None = None
    soc: str | None = None
    serial_hash: str | None = None
    model: str | None = None
    head: str | None = None
    draft_length: str | None = None

    def missing(self) -> list[str]:
        """Names of the metadata that every figure needs and this record lacks (R21).

        Where the draft length is adaptive, its policy stands for γ.
        """
        needed = ("device_model", "os_version", "aicore_version", "quantisation", "gamma", "temperature")
        lacking = [name for name in needed if getattr(self, name) is None]
        if (self.draft_length or "").startswith("adaptive:") and "gamma" in lacking:
            lacking.remove("gamma")
        return lacking


TOKEN_RUNNER, LITERT_LM = RUNTIMES = ("token-runner", "litert-lm")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What stays fixed for a whole measurement round (R4); a change starts a new round."""

    temperature: float = 0.0
    top_k: int | None = 1
    """Tokens that sampling chooses among; None is all of them, and greedy decoding takes one."""
    draft_length: str = "fixed:3"
    seed: int = 0
    output_limit: int = 48
    prompt_set: str = "demo"
    prompt_set_sha256: str | None = None
    threads: int = 2
    backend: str = "cpu"
    core_mask: str | None = None
    runtime: str = TOKEN_RUNNER
    """Which program decodes on the phone: the token runner, or LiteRT-LM's own on a bundle."""

    @property
    def gamma(self) -> int | None:
        """Draft length where the policy fixes one, else None."""
        kind, _, value = self.draft_length.partition(":")
        return int(value) if kind == "fixed" and value.isdigit() else None

    def sha256(self) -> str:
        """Hash by which two measurement rounds are known to share a policy."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
