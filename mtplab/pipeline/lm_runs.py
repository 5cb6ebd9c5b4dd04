"""Run LiteRT-LM and our own token runner on this host over the same prompts, and set their records side by side."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from mtplab.measure.protocol import PromptRun, ProtocolReader, ProtocolRun
from mtplab.session.text import clean_text
from mtplab.speculation.runtime_logs import read_totals

_LAST_LINES = 3
_DIGITS = 6  # with which LiteRT-LM prints its success rate


class HostRun(msgspec.Struct, frozen=True):
    """One process of either program: its records, its log (standard error) and how it ended."""

    protocol: ProtocolRun
    log: tuple[str, ...]
    exit_code: int

    @property
    def failure(self) -> str | None:
        """Why its records cannot be used, as one sentence; None where they can."""
        if self.exit_code == 0 and self.protocol.complete:
            return None
        last = " / ".join(clean_text(line, 200) for line in self.log[-_LAST_LINES:])
        why = self.protocol.error or self.protocol.reason or "it gave no reason"
        return f"The process ended with exit code {self.exit_code}: {why}" + (
            f" (its log ends: {last})" if last else ""
        )


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What both programs are asked alike."""

    tokenizer: Path
    prompts: Path
    max_tokens: int
    threads: int
    warmup_prompts: int = 1
    stop_ids: tuple[int, ...] = ()

    def flags(self) -> list[str]:
        return [
            f"--tokenizer={self.tokenizer}",
            f"--prompts={self.prompts}",
            f"--max-tokens={self.max_tokens}",
            f"--threads={self.threads}",
            f"--warmup-prompts={self.warmup_prompts}",
        ]


def run_litert_lm(bundle: Path, asked: Asked, *, gamma: int | None, log: Path, api: str = "session") -> HostRun:
    """LiteRT-LM over a bundle; with `gamma`, its draft length, speculation is on. Its log is kept in `log`."""
    mtp = ["--mtp=off"] if gamma is None else ["--mtp=on", f"--gamma={gamma}"]
    argv = ["-m", "mtplab.tokenrunner.litert_lm", f"--bundle={bundle}", f"--api={api}", *asked.flags(), *mtp]
    return _run(argv, log)


def run_own(backbone: Path, head: Path | None, asked: Asked, *, log: Path) -> HostRun:
    """Our own decode loop over the deployed graphs; with a head speculation is on."""
    mtp = ["--mtp=off"] if head is None else ["--mtp=on", f"--head={head}"]
    stops = [f"--stop-id={token}" for token in asked.stop_ids]
    return _run(["-m", "mtplab.tokenrunner", f"--backbone={backbone}", *asked.flags(), *mtp, *stops], log)


def _run(argv: list[str], log: Path) -> HostRun:
    """Records from standard output; standard error, where native code writes, goes onto the disk as it comes."""
    reader = ProtocolReader()
    with subprocess.Popen(
        [sys.executable, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        copier = threading.Thread(target=_copy, args=(process.stderr, log), daemon=True)
        copier.start()
        try:
            for line in process.stdout:
                reader.feed(line)
        except BaseException:
            process.kill()
            raise
        copier.join()
    lines = log.read_text("utf-8", "replace").splitlines()
    return HostRun(reader.result(), tuple(lines), process.returncode)


def _copy(stream: IO[bytes], log: Path) -> None:
    with log.open("wb") as file:
        for line in stream:
            file.write(line)


class Counts(msgspec.Struct, frozen=True):
    """Drafted and accepted tokens of all prompts of one process, warm-up included; `reason` where not known."""

    drafted: int | None
    accepted: int | None
    reason: str | None = None

    @property
    def ratio(self) -> float | None:
        """accepted ÷ drafted: a ratio, not α."""
        return self.accepted / self.drafted if self.drafted and self.accepted is not None else None


def lm_counts(run: HostRun, gamma: int) -> Counts:
    """LiteRT-LM's counts: rounds off the arrivals, accepted tokens by the success rate that its drafter printed.

    What the prompts themselves tell of accepted tokens must not contradict it; then the one confirms the other.
    """
    try:
        ratio = read_totals(run.log).share
    except ValueError:
        ratio = None
    if ratio is None:
        return Counts(None, None, "LiteRT-LM's log holds no success rate: no round was drafted, or it ended early")
    told = [_accepted(prompt, gamma) for prompt in run.protocol.prompts]
    known = [one for one in told if one is not None]
    if len(known) < len(told):
        missing = len(told) - len(known)
        return Counts(None, None, f"the rounds of {missing} of {len(told)} prompts cannot be told by their pieces")
    drafted = gamma * sum(one.rounds for one in known)
    accepted = round(ratio * drafted)
    low, high = sum(one.low for one in known), sum(one.high for one in known)
    if f"{accepted / drafted:.{_DIGITS}g}" != f"{ratio:.{_DIGITS}g}" or not low <= accepted <= high:
        return Counts(
            None, None, f"{low} to {high} accepted tokens by the pieces contradict the printed success rate {ratio:g}"
        )
    return Counts(drafted, accepted)


class _Accepted(msgspec.Struct, frozen=True):
    """Rounds of one prompt, and between what the drafts accepted in them lie."""

    rounds: int
    low: int
    high: int


def _accepted(prompt: PromptRun, gamma: int) -> _Accepted | None:
    """None where its rounds are not known. Up to the limit every token is the first, or a round's own, or a draft."""
    if prompt.runtime is None or prompt.runtime.mtp_rounds is None or prompt.runtime.decode_tokens is None:
        return None
    rounds = prompt.runtime.mtp_rounds
    if prompt.reason == "limit":
        exactly = prompt.runtime.decode_tokens - 1 - rounds
        return _Accepted(rounds, exactly, exactly)
    shown = sum(one.accepted for one in prompt.rounds)
    return _Accepted(rounds, shown, shown + gamma * (rounds - len(prompt.rounds)))


def own_counts(run: HostRun) -> Counts:
    """Our own counts, of all prompts with the warm-up, as LiteRT-LM's are."""
    rounds = [r for prompt in run.protocol.prompts for r in prompt.rounds]
    return Counts(sum(r.gamma for r in rounds), sum(r.accepted for r in rounds))


class Beside(msgspec.Struct, frozen=True):
    """One prompt of both programs: whether both read as many tokens, and the shorter output begins the longer.

    What was shown by one side only, or by neither, was not compared and is not the same.
    """

    prompt: str
    own_tokens: int
    lm_tokens: int
    same_input: bool
    same_text: bool
    own_accepted: tuple[int, ...]
    lm_accepted: tuple[int, ...]

    @property
    def same_rounds(self) -> bool:
        """Whether all rounds that both showed accepted the same."""
        shown = min(len(self.own_accepted), len(self.lm_accepted))
        return shown > 0 and self.own_accepted[:shown] == self.lm_accepted[:shown]


def beside(own: ProtocolRun, lm: ProtocolRun) -> list[Beside]:
    """Every measured prompt of both; LiteRT-LM goes up to γ tokens beyond the limit, which are not compared."""
    others = {prompt.prompt: prompt for prompt in lm.measured()}
    return [_beside(prompt, others[prompt.prompt]) for prompt in own.measured() if prompt.prompt in others]


def _beside(own: PromptRun, lm: PromptRun) -> Beside:
    mine, theirs = [token.id for token in own.tokens], [token.id for token in lm.tokens]
    return Beside(
        prompt=own.prompt,
        own_tokens=len(mine),
        lm_tokens=len(theirs),
        same_input=own.input_tokens is not None and own.input_tokens == lm.input_tokens,
        same_text=_begins(mine, theirs),
        own_accepted=tuple(r.accepted for r in own.rounds),
        lm_accepted=tuple(r.accepted for r in lm.rounds),
    )


def _begins(one: Sequence[int], other: Sequence[int]) -> bool:
    shown = min(len(one), len(other))
    return shown > 0 and list(one[:shown]) == list(other[:shown])
