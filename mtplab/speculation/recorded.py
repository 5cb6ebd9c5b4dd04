"""Take accept counts and costs out of a saved session.json, trusting nothing in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from mtplab.speculation.acceptance import AcceptCounts, merge

DEPLOYED = "mtp-on"
SIZE_LIMIT_BYTES = 256 * 1024 * 1024


class Recorded(msgspec.Struct, frozen=True):
    """What a session recorded of one configuration: pooled counts, counts of each prompt, measured costs."""

    configuration: str
    counts: AcceptCounts
    prompts: tuple[AcceptCounts, ...]
    draft_cost: float | None
    verify_cost: float | None
    overhead: float | None
    simulated: bool


class SessionUnusable(ValueError):
    """The session cannot answer; the text is one sentence."""


def find_session(name: str) -> Path:
    """The session.json of a path, a session folder, or a name under $MTPLAB_SESSIONS."""
    roots = [Path(name)]
    if os.environ.get("MTPLAB_SESSIONS"):
        roots.append(Path(os.environ["MTPLAB_SESSIONS"]) / name)
    for root in roots:
        for file in (root / "session.json", root):
            if file.is_file():
                return file
    raise SessionUnusable(f"There is no session at {name}; give its folder or its session.json.")


def read_session(name: str) -> Recorded:
    """Counts of the deployed MTP configuration, or of the first that recorded any."""
    file = find_session(name)
    try:
        if file.stat().st_size > SIZE_LIMIT_BYTES:
            raise SessionUnusable(f"{file} is too large to be a session.json.")
        data = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise SessionUnusable(f"{file} cannot be read ({error.strerror}).") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise SessionUnusable(f"{file} is torn or no JSON; give the session.json of a sealed session.") from None
    if not isinstance(data, dict) or data.get("format") != "mtplab-session":
        raise SessionUnusable(f"{file} is not an mtplab session: it lacks the format mark.")
    try:
        return _recorded(data, file)
    except (ValueError, TypeError) as error:
        if isinstance(error, SessionUnusable):
            raise
        raise SessionUnusable(f"{file} holds accept counts that cannot be: {error}.") from None


def _recorded(data: dict[str, Any], file: Path) -> Recorded:
    found = []
    for configuration in _dicts(data.get("configurations")):
        prompts = _prompts(configuration)
        counts = _pooled(configuration, prompts)
        if counts is not None and counts.rounds:
            found.append((str(configuration.get("name", "")), counts, prompts))
    if not found:
        raise SessionUnusable(f"{file} recorded no draft round; measure with MTP on first.")
    name, counts, prompts = next((f for f in found if f[0] == DEPLOYED), found[0])
    predicted = data.get("predicted")
    costs = predicted if isinstance(predicted, dict) else {}
    return Recorded(
        configuration=name,
        counts=counts,
        prompts=tuple(prompts),
        draft_cost=_number(costs.get("draft_cost")),
        verify_cost=_number(costs.get("verify_cost")),
        overhead=_number(costs.get("overhead")),
        simulated=data.get("simulated") is not False,
    )


def _prompts(configuration: dict[str, Any]) -> list[AcceptCounts]:
    """Counts of each prompt over all rounds: repeats of one prompt are one prompt, not more evidence."""
    by_prompt: dict[str, list[AcceptCounts]] = {}
    for measured in _dicts(configuration.get("rounds")):
        for prompt in _dicts(measured.get("prompts")):
            gamma, accepts = prompt.get("gamma"), prompt.get("accepts")
            if isinstance(gamma, int) and isinstance(accepts, list) and accepts:
                by_prompt.setdefault(str(prompt.get("prompt")), []).append(AcceptCounts.from_accepts(gamma, accepts))
    return [merge(counts) for counts in by_prompt.values()]


def _pooled(configuration: dict[str, Any], prompts: list[AcceptCounts]) -> AcceptCounts | None:
    if prompts:
        return merge(prompts)
    counts = configuration.get("counts")
    if not isinstance(counts, list) or len(counts) < 2:
        return None
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in counts):
        raise ValueError("an accept count is not a whole number")
    return AcceptCounts(tuple(counts))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
