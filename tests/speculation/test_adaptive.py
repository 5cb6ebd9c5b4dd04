"""Drafting policies choose exported lengths only, stop where nothing pays, and are judged on recorded rounds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mtplab.speculation.adapt_command import adapt_command
from mtplab.speculation.adaptive import OFF, Additive, Fixed, Tiers, TierSettings, make_policy
from mtplab.speculation.replayed import RecordedPrompt, compare, match_stream, replay, round_costs
from mtplab.speculation.speedup import Cost, best_gamma, expected_tokens

LADDER = (1, 2, 4, 7)
COST = Cost(draft=0.05, verify=((2, 1.3), (8, 1.9)))


def rounds(alpha: float, gamma: int, n: int, seed: int = 0) -> tuple[int, ...]:
    """Accept counts of n rounds whose drafts each match with probability α."""
    random = np.random.default_rng(seed)
    hits = random.random((n, gamma)) < alpha
    return tuple(int(gamma if row.all() else row.argmin()) for row in hits)


def test_the_additive_rule_gains_two_and_loses_one_and_drafts_what_was_exported() -> None:
    policy = Additive(LADDER, start=1)
    drafted = []
    for accept_all in (True, True, True, False, False, False):
        drafted.append(policy.next_gamma())
        policy.observe(drafted[-1], drafted[-1] if accept_all else 0)
    assert drafted == [1, 2, 4, 7, 4, 4]  # wanted 1, 3, 5, 7, 6, 5


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 0.95])
def test_tiers_find_the_best_exported_length_of_a_steady_text(alpha: float) -> None:
    costs = round_costs(COST, LADDER)
    policy = Tiers(costs, settings=TierSettings(memory_rounds=400))
    random = np.random.default_rng(1)
    chosen = []
    for _ in range(1500):
        gamma = policy.next_gamma()
        chosen.append(gamma)
        accepted = next((k for k in range(gamma) if random.random() >= alpha), gamma)
        policy.observe(gamma, accepted)
    best = best_gamma(alpha, COST, LADDER).gamma
    late = chosen[500:]
    if best == OFF:
        assert late.count(OFF) / len(late) > 0.9
        return
    gain = {g: expected_tokens(alpha, g) / costs[g] for g in LADDER}
    mean = sum(gain.get(g, 1.0) for g in late) / len(late)
    assert mean > gain[best] * 0.95  # the hysteresis, and what its doubts cost it


def test_tiers_switch_off_probe_rarely_and_come_back_when_the_text_turns() -> None:
    policy = Tiers({1: 1.4, 3: 1.6}, settings=TierSettings(rest_steps=8, longest_rest_steps=32))
    seen = []
    for step in range(600):
        gamma = policy.next_gamma()
        seen.append(gamma)
        policy.observe(gamma, gamma if step >= 300 else 0)
    off, back = seen[:300], seen[400:]
    assert off.count(OFF) > 260
    assert 5 <= 300 - off.count(OFF) <= 30  # the warm-up and the probes
    assert back.count(3) > 150


@given(
    st.sets(st.integers(1, 9), min_size=1),
    st.floats(0.3, 6),
    st.lists(st.floats(0, 1), max_size=120),
    st.sampled_from(["additive", "tiers"]),
)
@settings(max_examples=150, deadline=None)
def test_no_policy_ever_asks_for_a_length_that_was_not_exported(
    exported: set[int], cost: float, luck: list[float], name: str
) -> None:
    policy = make_policy(f"adaptive:{name}", sorted(exported), dict.fromkeys(exported, cost))
    for share in luck:
        gamma = policy.next_gamma()
        assert gamma == OFF or gamma in exported
        policy.observe(gamma, round(share * gamma))


@pytest.mark.parametrize(
    ("name", "costs", "says"),
    [
        ("fixed:3", None, "γ = 3 was not exported"),
        ("adaptive:tiers", None, "needs the measured cost"),
        ("adaptive:tiers", {1: 1.0}, "needs the measured cost"),
        ("adaptive:magic", None, "no drafting policy 'adaptive:magic'"),
        ("fixed:x", None, "no drafting policy"),
    ],
)
def test_policies_that_cannot_be_are_refused_in_a_sentence(
    name: str, costs: dict[int, float] | None, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        make_policy(name, LADDER, costs)


def test_the_match_stream_tells_what_rounds_told_and_no_more() -> None:
    assert match_stream(RecordedPrompt("p", "c", 2, (2, 0, 1))) == [True, True, None, False, True, False]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_a_replay_at_the_recorded_length_repeats_the_recorded_rounds(accepts: list[int]) -> None:
    stream = match_stream(RecordedPrompt("p", "c", 4, tuple(accepts)))
    spent = replay(stream, Fixed(4), COST, 0.5, np.random.default_rng(0))
    # A bonus position lies behind γ matches, where no replayed round of that length looks.
    assert spent.rounds == len(accepts)
    assert spent.tokens == sum(accepts) + len(accepts)
    assert spent.steps == pytest.approx(len(accepts) * COST.round_cost(4))


def test_plain_steps_cost_one_each() -> None:
    stream = match_stream(RecordedPrompt("p", "c", 4, (4, 0)))
    assert replay(stream, Fixed(OFF), COST, 0.5, np.random.default_rng(0)).speedup == 1.0


def test_on_a_mixed_load_adapting_beats_the_best_fixed_length_and_on_a_steady_one_it_cannot() -> None:
    prompts = [
        RecordedPrompt(f"{klass}{i}", klass, 7, rounds(alpha, 7, 120, seed=i))
        for klass, alpha in (("list", 0.97), ("chat", 0.1))
        for i in range(24)
    ]
    costs = round_costs(COST, LADDER)
    rows = {row.klass: row for row in compare(prompts, lambda: Tiers(costs), COST, LADDER)}
    assert set(rows) == {"list", "chat", "mixed load"}
    assert rows["list"].best_fixed_gamma == 7
    assert rows["chat"].best_fixed_gamma == OFF
    mixed = rows["mixed load"]
    assert mixed.gain.low is not None and mixed.gain.low > 1
    assert rows["list"].gain.value is not None and 0.9 < rows["list"].gain.value <= 1.0


def test_rounds_say_nothing_of_longer_drafts() -> None:
    with pytest.raises(ValueError, match="say nothing of lengths"):
        compare([RecordedPrompt("p", "c", 3, (1, 2))], lambda: Fixed(3), COST, (3, 4))


DEMO = Path(__file__).parents[2] / "sessions" / "demo"


def test_the_demo_sessions_rounds_are_replayed_per_class_and_mixed_and_marked() -> None:
    result = CliRunner().invoke(adapt_command, [str(DEMO), "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert answer["simulated"] is True
    assert answer["gammas"] == [1, 2, 3]
    assert answer["rows"][-1]["klass"] == "mixed load"
    assert sum(row["prompts"] for row in answer["rows"][:-1]) == answer["rows"][-1]["prompts"]
    told = CliRunner().invoke(adapt_command, [str(DEMO), "--policy", "additive"]).output
    assert "SIMULATED" in told and "Approximate" in told


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--gammas", "1,9"], "say nothing of lengths"), (["--verify-cost", "4:1.5"], "was not measured"),
     (["--gammas", "x"], "whole numbers")],
)  # fmt: skip
def test_what_a_session_cannot_say_is_one_sentence(options: list[str], says: str) -> None:
    result = CliRunner().invoke(adapt_command, [str(DEMO), *options])
    assert result.exit_code == 1 and says in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_policy_may_begin_anew_with_every_prompt_as_it_does_in_a_run():
    # The first prompt accepts nothing, the second everything: what is carried over costs the second one its start.
    prompts = [RecordedPrompt("a", "k", 3, (0,) * 30), RecordedPrompt("b", "k", 3, (3,) * 4)]
    cost = Cost(0.05, 1.4)

    def make():
        return make_policy("adaptive:tiers", (1, 2, 3), round_costs(cost, (1, 2, 3)))

    [carried, *_] = compare(prompts, make, cost, (1, 2, 3), carried=True)
    [anew, *_] = compare(prompts, make, cost, (1, 2, 3), carried=False)
    assert anew.adaptive_speedup > carried.adaptive_speedup


def test_what_a_policy_really_gained_stands_beside_what_its_rounds_predict(tmp_path: Path) -> None:
    def rounds(gamma: int, accepts: list[int]) -> list[dict[str, object]]:
        prompts = [{"prompt": f"p{i}", "class": "code", "gamma": gamma, "accepts": accepts} for i in range(3)]
        return [{"prompts": prompts}]

    configurations = [
        {"name": "mtp-on", "figures": {}, "rounds": rounds(1, [1, 0, 1])},
        {"name": "gamma-3", "figures": {}, "rounds": rounds(3, [3, 1, 0, 2])},
    ]
    gain = {"policy": "adaptive:tiers", "class": "code", "gain": {"value": 1.04, "low": 0.98, "high": 1.1, "n": 3}}
    points = [
        {"gamma": g, "threads": 2, "draft_round_cost": 0.05 * g, "verify_cost": 1.2 + 0.1 * g, "overhead": 0.0}
        for g in (1, 3)
    ]
    head = {"format": "mtplab-session", "schema": 1, "session": "s", "created_utc": "2026-01-01T00:00:00+00:00"}
    document = {
        **head, "configurations": configurations, "adaptive": [gain], "policy": {"threads": 2},
        "predicted": {"points": points},
    }  # fmt: skip
    (tmp_path / "session.json").write_text(json.dumps(document))
    told = json.loads(CliRunner().invoke(adapt_command, [str(tmp_path), "--json"]).output)
    assert told["gammas"] == [1, 3] and told["rows"][0]["measured"]["value"] == 1.04
    assert not any("One verify cost" in note for note in told["notes"])
    text = CliRunner().invoke(adapt_command, [str(tmp_path)]).output
    assert "gain as it ran" in text and "1.04× [0.98, 1.10]" in text
    other = CliRunner().invoke(adapt_command, [str(tmp_path), "--policy", "additive"]).output
    assert "gain as it ran" not in other
