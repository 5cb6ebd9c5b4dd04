"""Prove that drafting did not change the output: the same tokens with MTP on and off, prompt by prompt."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mtplab.measure.protocol import ARRIVAL, PromptRun

NEAR_TIE = 1e-3
_CUT_OTHERWISE = 2  # tokens by which equal text may differ in length, cut at different places


class NearTie(msgspec.Struct, frozen=True):
    """A first difference where the backbone itself was undecided: its top-2 logits were closer than NEAR_TIE."""

    prompt: str
    position: int
    margin: float


class Exactness(msgspec.Struct, frozen=True):
    """The outcome over all prompts. `failures` are sentences; without any, drafting changed nothing it may not."""

    compared: int
    equal: int
    near_ties: tuple[NearTie, ...]
    failures: tuple[str, ...]
    text: str

    @property
    def ok(self) -> bool:
        return self.compared > 0 and not self.failures


def compare_outputs(
    plain: Iterable[PromptRun], mtp: Iterable[PromptRun], limit: int | None = None
) -> Exactness:
    """Compare the outputs of the same prompts, plain (with margins) against draft–verify, up to `limit` tokens.

    Of a runtime that is only heard (`ARRIVAL`) the text is compared. It may end its last round behind the limit, and
    the tokenizer may cut the end of such a text otherwise: so the last token heard on both sides does not count.
    Several runs of one prompt are all compared; a prompt that one side lacks is a failure, because an output that
    was not seen was not seen to be equal.
    """
    left, right = _by_prompt(plain), _by_prompt(mtp)
    heard = any(run.stamps == ARRIVAL for runs in right.values() for run in runs)
    equal, ties, failures = 0, [], []
    compared = 0
    for prompt in sorted(left.keys() | right.keys()):
        if prompt not in left or prompt not in right:
            failures.append(f"Prompt {prompt} was decoded only with MTP {'on' if prompt in right else 'off'}.")
            continue
        compared += 1
        outcome = _first_problem(prompt, left[prompt], right[prompt], limit)
        if outcome is None:
            equal += 1
        elif isinstance(outcome, NearTie):
            ties.append(outcome)
        else:
            failures.append(outcome)
    return Exactness(compared, equal, tuple(ties), tuple(failures), _text(compared, equal, ties, failures, heard))


def _by_prompt(runs: Iterable[PromptRun]) -> dict[str, list[PromptRun]]:
    groups: dict[str, list[PromptRun]] = {}
    for run in runs:
        groups.setdefault(run.prompt, []).append(run)
    return groups


def _first_problem(
    prompt: str, plain: list[PromptRun], mtp: list[PromptRun], limit: int | None
) -> NearTie | str | None:
    """Against the first plain run: every other run of the prompt, the repeats of plain decoding among them."""
    tie = None
    for run in [*plain[1:], *mtp]:
        outcome = _difference(prompt, plain[0], run, limit)
        if isinstance(outcome, str):
            return outcome
        tie = tie or outcome
    return tie


def _difference(prompt: str, plain: PromptRun, other: PromptRun, limit: int | None) -> NearTie | str | None:
    for run in (plain, other):
        if run.problem is not None:
            return f"The output of prompt {prompt} cannot be trusted: {run.problem}."
    ours, theirs = [t.id for t in plain.tokens][:limit], [t.id for t in other.tokens][:limit]
    heard = ARRIVAL in (plain.stamps, other.stamps)
    if heard and plain.reason == other.reason == "limit":
        shorter, longer = sorted((len(ours), len(theirs)))
        if shorter < 2 or longer - shorter > _CUT_OTHERWISE + _beyond(plain, other):
            return f"Prompt {prompt} was heard with {len(ours)} tokens plainly and {len(theirs)} with MTP."
        ours, theirs = ours[: shorter - 1], theirs[: shorter - 1]
    if ours == theirs:
        return None
    position = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    margin = plain.tokens[position].margin if position < len(plain.tokens) else None
    if margin is not None and margin < NEAR_TIE and position < len(theirs):
        return NearTie(prompt, position, margin)
    if heard:
        return (
            f"Prompt {prompt} gave other text from output position {position} on; this runtime tells no margins, so "
            "whether the backbone was undecided there cannot be told."
        )
    why = "no margin was recorded there" if margin is None else f"plain decoding was sure by a margin of {margin:.3g}"
    return (
        f"Prompt {prompt} gave other tokens from output position {position} on, where {why}: "
        "the verification does not reproduce the backbone."
    )


def _beyond(plain: PromptRun, other: PromptRun) -> int:
    """How many tokens more the other side decoded, by the runtime's own count: its last round may pass the limit."""
    counts = [run.runtime.decode_tokens if run.runtime is not None else None for run in (plain, other)]
    return 0 if counts[0] is None or counts[1] is None else max(0, counts[1] - counts[0])


def _text(compared: int, equal: int, ties: list[NearTie], failures: list[str], heard: bool) -> str:
    if failures:
        return (
            f"{len(failures)} of {compared} prompts fail the comparison with plain decoding; the first: {failures[0]}"
        )
    if not compared:
        return "No prompt was decoded both with and without MTP, so nothing is known of equality."
    same = "Same text as it was heard" if heard else "Same tokens"
    text = f"{same} with MTP on and off for {equal} of {compared} prompts"
    if ties:
        text += f"; {len(ties)} differ first where the backbone's top two logits lay within {NEAR_TIE:g}"
    return text + "."
