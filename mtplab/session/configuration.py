"""What is measured beside other things in one run: MTP on or off, how drafts are made, on what it runs."""

from __future__ import annotations

import msgspec

ADAPTIVE = "adaptive:"
POLICIES = ("additive", "tiers")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a run; what it does not name is the run's policy.

    `draft_length` is `fixed:N` or `adaptive:NAME`, None with MTP off. The head runs on `head_threads` and
    `head_backend` where they are given, else where the backbone does.
    """

    name: str
    mtp: bool
    draft_length: str | None = None
    threads: int = 2
    head_threads: int | None = None
    backend: str = "cpu"
    head_backend: str | None = None
    core_mask: str | None = None

    @property
    def adaptive(self) -> bool:
        """Whether the draft length is chosen round by round."""
        return (self.draft_length or "").startswith(ADAPTIVE)

    @property
    def gamma(self) -> int | None:
        """The draft length where it is fixed, else None."""
        kind, _, value = (self.draft_length or "").partition(":")
        return int(value) if kind == "fixed" and value.isdecimal() else None

    @property
    def ground(self) -> tuple[int, str, str | None]:
        """What plain decoding depends on: configurations on the same ground share the one with MTP off."""
        return self.threads, self.backend, self.core_mask

    @property
    def head_place(self) -> tuple[int, str]:
        """Threads and backend of the head."""
        return self.head_threads or self.threads, self.head_backend or self.backend

    def text(self) -> str:
        """In words: `γ 3`, `adaptive:tiers, head on 1 thread`, `MTP off, 4 threads on CPU`."""
        how = "MTP off" if not self.mtp else f"γ {self.gamma}" if self.gamma else str(self.draft_length)
        ran = f"{self.backend.upper()}, {self.threads} thread{'s' if self.threads != 1 else ''}"
        mask = f", cores {self.core_mask}" if self.core_mask else ""
        head = ""
        if self.mtp and self.head_place != (self.threads, self.backend):
            threads, backend = self.head_place
            head = f"; head on {backend.upper()}, {threads} thread{'s' if threads != 1 else ''}"
        return f"{how} on {ran}{mask}{head}"
