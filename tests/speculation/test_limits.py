"""Numbers that nobody can have measured are refused in one sentence, before anything is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mtplab.speculation.acceptance import COUNT_LIMIT, GAMMA_LIMIT, AcceptCounts, rounds_from_totals
from mtplab.speculation.command import calc_command
from mtplab.speculation.speedup import Cost


def calc(*arguments: str) -> Result:
    return CliRunner().invoke(calc_command, arguments)


def session(folder: Path, **more: Any) -> str:
    head = {"format": "mtplab-session", "schema": 1, "session": "x", "created_utc": "2026"}
    path = folder / "mailed.json"
    path.write_text(json.dumps({**head, **more}))
    return str(path)


def rounds(gamma: Any, accepts: list[Any]) -> list[dict[str, Any]]:
    return [{"name": "mtp-on", "figures": {}, "rounds": [{"prompts": [{"gamma": gamma, "accepts": accepts}]}]}]


class _NeverAsked(list[int]):
    def __iter__(self) -> Any:
        raise AssertionError("the accepts were looked at before γ was")


def test_a_draft_length_is_bounded_before_its_counts_are_made() -> None:
    for gamma in (GAMMA_LIMIT + 1, 10**8):
        with pytest.raises(ValueError, match="draft length γ lies in"):
            AcceptCounts.from_accepts(gamma, _NeverAsked())
    assert AcceptCounts.from_accepts(GAMMA_LIMIT, [0]).rounds == 1
    with pytest.raises(ValueError, match="draft length γ lies in"):
        AcceptCounts((1,) * (GAMMA_LIMIT + 2))


def test_counts_are_bounded() -> None:
    with pytest.raises(ValueError, match="more rounds than anyone"):
        AcceptCounts((COUNT_LIMIT + 1, 1))
    with pytest.raises(ValueError, match="more than anyone"):
        rounds_from_totals(1, COUNT_LIMIT + 1, 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"configurations": rounds(10**8, [0])}, "draft length γ lies in 1..64"),
        ({"configurations": rounds(3, ["a", None])}, "an accept count is a whole number"),
        ({"configurations": [{"name": "m", "figures": {}, "counts": [10**17, 1]}]}, "more rounds than anyone"),
        ({"configurations": [{"name": "m", "figures": {}, "counts": [10**26, 1]}]}, "number that nothing"),
        (
            {"configurations": [{"name": "m", "figures": {}, "counts": [1, 2]}],
             "predicted": {"draft_cost": int("9" * 400), "verify_cost": 1}},
            "number that nothing",
        ),
    ],
)  # fmt: skip
def test_a_mailed_session_is_refused_in_one_sentence(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    result = calc("--session", session(tmp_path, **more))
    assert result.exit_code == 1 and words in result.output
    assert len(result.output.splitlines()) == 1 and "Traceback" not in result.output


def test_a_path_in_a_sentence_is_the_path_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.json").write_text("[]")
    assert "h.json is not" in calc("--session", "h.json").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--counts", f"{'9' * 26},1,1,1"),
        ("--counts", f"{'9' * 5000},1,1,1"),
        ("--counts", "\x1b[31m,1,1,1"),
        ("--drafted", f"{3 * 10**30}", "--accepted", "3"),
        ("--alpha", ".4", "--verify-cost", "1e-320"),
        ("--alpha", ".4", "--draft-cost", "1e308"),
    ],
)
def test_a_slip_of_the_hand_is_one_short_clean_sentence(arguments: tuple[str, ...]) -> None:
    result = calc("--gamma", "3", *arguments)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1 and len(result.output) < 500 and "\x1b" not in result.output


def test_costs_too_small_or_large_to_mean_anything_are_refused() -> None:
    assert Cost(0.0, 0.001).round_cost(3) == 0.001
    with pytest.raises(ValueError, match="too small"):
        Cost(0.0, 1e-320)
    for cost in ({"draft": 1e308}, {"overhead": 1e308}, {"verify": 1e308}, {"verify": ((1, 1.0), (4, 1e9))}):
        with pytest.raises(ValueError, match="too large"):
            Cost(**cost)  # type: ignore[arg-type]
