"""`mtplab calc` keeps its JSON contract, asks which number was meant, and refuses nonsense in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from mtplab.speculation.acceptance import AcceptCounts
from mtplab.speculation.calculator import calculate, curve, verdict_of
from mtplab.speculation.command import calc_command
from mtplab.speculation.given import from_alpha, from_counts
from mtplab.speculation.intervals import Estimate
from mtplab.speculation.speedup import Cost

CONTRACT = {
    "expected_tokens", "accepted_per_round", "speedup", "best_gamma", "best_speedup", "break_even_alpha",
    "alpha", "warnings",
}  # fmt: skip


def calc(*args: str):
    return CliRunner().invoke(calc_command, [str(a) for a in args])


def calc_json(*args: str) -> dict:
    result = calc(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


HEAD = {"format": "mtplab-session", "schema": 1, "session": "s", "created_utc": "2026-01-01T00:00:00+00:00"}


def session(tmp_path, configurations, **more):
    folder = tmp_path / "s"
    folder.mkdir(exist_ok=True)
    whole = [{"figures": {}, **configuration} for configuration in configurations]
    document = {**HEAD, "simulated": False, "configurations": whole, **more}
    (folder / "session.json").write_text(json.dumps(document))
    return folder


def sealed(*configurations):
    return json.dumps({**HEAD, "configurations": [{"name": "mtp-on", "figures": {}, **c} for c in configurations]})


def rounds(*prompts):
    return [{"prompts": [{"prompt": name, "gamma": 3, "accepts": accepts} for name, accepts in prompts]}]


@pytest.mark.parametrize(
    "source",
    [("--alpha", "0.7"), ("--counts", "21,22,15,162"), ("--drafted", "213", "--accepted", "56")],
)
def test_the_json_contract(source):
    answer = calc_json("--gamma", "3", *source)
    assert answer.keys() >= CONTRACT
    assert answer["alpha"].keys() >= {"value", "low", "high", "kind"}
    assert answer["expected_tokens"] == pytest.approx(1 + answer["accepted_per_round"])


def test_the_tutorials_number():
    answer = calc_json("--gamma", "3", "--alpha", "0.7")
    assert answer["expected_tokens"] == pytest.approx(2.533)
    assert answer["accepted_per_round"] == pytest.approx(1.533)
    assert answer["alpha"] == {**answer["alpha"], "value": 0.7, "low": None, "high": None, "kind": "given"}


def test_the_published_mistake_is_asked_about():
    answer = calc_json("--gamma", "3", "--alpha", "0.263", "--verify-cost", "1.45")
    assert answer["speedup"] == pytest.approx(0.93, abs=0.005)
    assert answer["readings"]["as_ratio"]["speedup"] == pytest.approx(1.23, abs=0.005)
    assert any("1.23×, not 0.93×" in w and "pays" in w for w in answer["warnings"])
    people = calc("--gamma", "3", "--alpha", "0.263", "--verify-cost", "1.45").output
    assert "read as α" in people and "read as accepted ÷ drafted" in people and "1.23×, not 0.93×" in people


def test_the_published_totals_give_the_right_reading():
    answer = calc_json("--gamma", "3", "--drafted", "213", "--accepted", "56", "--verify-cost", "1.45")
    assert answer["speedup"] == pytest.approx(1.23, abs=0.005)
    assert answer["alpha"]["value"] == pytest.approx(0.468, abs=0.0005)
    assert (answer["alpha"]["low"], answer["alpha"]["high"]) == pytest.approx((0.441, 0.514), abs=0.0005)
    assert answer["verdict"] == "pays"


def test_both_readings_always_stand_and_agree_where_they_must():
    one_draft = calc_json("--gamma", "1", "--alpha", "0.4")
    assert one_draft["readings"]["as_ratio"]["speedup"] == one_draft["readings"]["as_alpha"]["speedup"]
    assert not any("taken as α" in w for w in one_draft["warnings"])
    assert any("taken as α" in w for w in calc_json("--gamma", "3", "--alpha", "0.4")["warnings"])


def test_counts_carry_their_interval_into_the_speedup():
    answer = calc_json("--gamma", "3", "--counts", "21,22,15,162", "--verify-cost", "1.2", "--draft-cost", "0.1")
    assert answer["alpha"]["value"] == pytest.approx(0.903, abs=0.0005)
    assert (answer["alpha"]["low"], answer["alpha"]["high"]) == pytest.approx((0.876, 0.924), abs=0.0006)
    interval = answer["speedup_interval"]
    assert interval["low"] < answer["speedup"] < interval["high"]
    assert answer["speedup"] == pytest.approx(answer["expected_tokens"] / 1.5)
    assert answer["acceptance"]["ratio"] == pytest.approx(538 / 660)
    assert any("extrapolated" in w for w in answer["warnings"])


def test_a_parallel_head_is_cheaper_than_a_recursive_one():
    recursive = calc_json("--gamma", "3", "--alpha", "0.6", "--draft-cost", "0.2")
    parallel = calc_json("--gamma", "3", "--alpha", "0.6", "--draft-cost", "0.2", "--head", "parallel")
    assert (recursive["round_cost"], parallel["round_cost"]) == pytest.approx((1.6, 1.2))
    assert parallel["speedup"] > recursive["speedup"]
    assert parallel["break_even_alpha"] < recursive["break_even_alpha"]


def test_a_cost_above_every_gain_says_so():
    answer = calc_json("--gamma", "3", "--alpha", "0.9", "--verify-cost", "30")
    assert answer["break_even_alpha"] is None and answer["break_even_ratio"] is None
    assert (answer["best_gamma"], answer["best_speedup"]) == (0, 1.0)
    assert any("even a perfect draft loses" in w for w in answer["warnings"])
    assert any("do not draft" in w for w in answer["warnings"])


def test_a_session_is_read_by_prompt_with_its_own_costs(tmp_path):
    configurations = [
        {"name": "mtp-off", "counts": []},
        {"name": "mtp-on", "rounds": rounds(("a", [3, 3, 2]), ("b", [0, 1, 0, 0])) * 5},
    ]
    folder = session(tmp_path, configurations, predicted={"draft_cost": 0.1, "verify_cost": 1.3})
    answer = calc_json("--session", folder)
    assert (answer["gamma"], answer["source"]) == (3, "session")
    assert answer["round_cost"] == pytest.approx(1.6)
    assert answer["expected_tokens"] == pytest.approx(1 + 9 / 7)
    assert answer["alpha"]["kind"] == "alpha_mle_bootstrap_by_prompt"
    assert answer["alpha"]["n"] == 2, "five repeats of two prompts are two prompts"
    cut = calc_json("--session", folder, "--gamma", "2", "--verify-cost", "1")
    assert cut["expected_tokens"] == pytest.approx(1 + 7 / 7)
    assert any("approximate" in n for n in cut["notes"])


def test_a_session_of_counts_alone_and_a_simulated_one(tmp_path):
    folder = session(tmp_path, [{"name": "mtp-on", "counts": [2, 1, 1, 4]}], simulated=True)
    answer = calc_json("--session", folder / "session.json")
    assert answer["simulated"] is True and answer["alpha"]["kind"] == "mle_wilson"
    assert any("best case" in n for n in answer["notes"])
    assert "SIMULATED" in calc("--session", folder).output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--gamma", "0", "--alpha", "0.5"), "must lie in 1"),
        (("--gamma", "-2", "--alpha", "0.5"), "must lie in 1"),
        (("--gamma", "three", "--alpha", "0.5"), "not a valid integer"),
        (("--alpha", "0.5"), "give --gamma"),
        (("--gamma", "3", "--alpha", "1.2"), "0..1"),
        (("--gamma", "3", "--alpha", "nan"), "0..1"),
        (("--gamma", "3"), "exactly one"),
        (("--gamma", "3", "--alpha", "0.5", "--counts", "1,2,3,4"), "exactly one"),
        (("--gamma", "3", "--counts", "1,2,3"), "needs 4 numbers"),
        (("--gamma", "3", "--counts", "1,2,x,4"), "whole numbers"),
        (("--gamma", "3", "--counts", "1,2,-3,4"), "negative"),
        (("--gamma", "3", "--counts", "0,0,0,0"), "no round"),
        (("--gamma", "3", "--drafted", "12", "--accepted", "13"), "more than was drafted"),
        (("--gamma", "3", "--drafted", "13", "--accepted", "3"), "whole number of rounds"),
        (("--gamma", "3", "--drafted", "0", "--accepted", "0"), "at least one"),
        (("--gamma", "3", "--drafted", "12"), "belong together"),
        (("--gamma", "3", "--alpha", "0.5", "--verify-cost", "0"), "positive"),
        (("--gamma", "3", "--alpha", "0.5", "--draft-cost", "-1"), "0 or more"),
        (("--gamma", "3", "--alpha", "0.5", "--draft-cost", "inf"), "finite"),
        (("--gamma", "3", "--alpha", "0.5", "--verify-cost", "2:1,2:3"), "each but once"),
        (("--gamma", "3", "--alpha", "0.5", "--verify-cost", "0:1,4:2"), "1 position or more"),
        (("--gamma", "3", "--alpha", "0.5", "--head", "sideways"), "sideways"),
        (("--gamma", "3", "--alpha", "0.5", "--nonsense"), "--nonsense"),
        (("--session", "/nowhere/at/all"), "no session"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_1(args, says):
    result = calc(*args)
    assert result.exit_code == 1
    assert says.lower() in result.output.lower()
    assert len(result.output.strip().splitlines()) == 1 and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"format": "mtplab-ses', "torn"),
        (b"\xff\xfe\x00", "torn"),
        (b"[" * 100_000, "torn"),
        (b'{"format": "other"}', "not an mtplab session"),
        (b"[1, 2]", "not an mtplab session"),
        (b'{"format": "mtplab-session"}', "no session schema"),
        (sealed().encode(), "no draft round"),
        (sealed({"counts": [1, "x"]}).encode(), "damaged"),
        (sealed({"counts": [1, -1]}).encode(), "cannot be"),
        (sealed({"rounds": [{"prompts": [{"gamma": 3, "accepts": [9]}]}]}).encode(), "cannot be"),
        (sealed({"rounds": [{"prompts": [{"gamma": 3, "accepts": ["3"]}]}]}).encode(), "cannot be"),
    ],
)
def test_a_torn_foreign_or_impossible_session_is_refused(tmp_path, content, says):
    file = tmp_path / "session.json"
    file.write_bytes(content)
    result = calc("--session", file)
    assert result.exit_code == 1 and says in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_session_says_nothing_of_longer_drafts(tmp_path):
    folder = session(tmp_path, [{"name": "mtp-on", "counts": [2, 1, 1, 4]}])
    result = calc("--session", folder, "--gamma", "5")
    assert result.exit_code == 1 and "says nothing of γ = 5" in result.output


def test_the_verdict_follows_the_interval():
    def around(low, high):
        return verdict_of(Estimate((low + high) / 2, low, high, 9, "k"))

    assert [around(1.1, 1.2), around(0.8, 0.9), around(0.9, 1.1)] == ["pays", "costs", "undecided"]
    assert verdict_of(Estimate(1.001, None, None, 0, "k")) == "breaks even"


def test_the_calculator_chooses_among_exported_lengths_only():
    answer = calculate(from_alpha(3, 0.7), Cost(draft=0.05), gammas=[1, 3])
    assert answer.best_gamma == 3
    points = curve(from_alpha(3, 0.7), Cost(), [1, 3])
    assert [(p.gamma, p.speedup) for p in points] == [(1, 1.7), (3, pytest.approx(2.533))]


def test_measured_points_bound_the_search_and_exported_lengths_end_it():
    answer = calc_json("--gamma", 3, "--alpha", 0.9, "--verify-cost", "2:1.5,4:1.5,8:2.1", "--draft-cost", 0.05)
    assert answer["best_gamma"] == 7  # eight positions are the most that were measured
    assert any("not searched: 1 to 7 were" in note for note in answer["notes"])
    exported = calc_json("--gamma", 3, "--alpha", 0.9, "--verify-cost", "2:1.5,4:1.5,8:2.1", "--gammas", "1,3")
    assert exported["best_gamma"] == 3
    assert any("longest that was exported" in note for note in exported["notes"])


def test_arithmetic_grows_where_reading_shrinks_and_prefill_dilutes_the_gain():
    answer = calc_json("--gamma", 3, "--alpha", 0.7, "--head-share", 0.1, "--prefill-share", 0.5)
    tau = answer["expected_tokens"]
    assert answer["operations_factor"] == pytest.approx(4.3 / tau)  # theorem 3.11 with ĉ = 0.1
    assert answer["memory_factor"] == pytest.approx(1.3 / tau)
    assert answer["end_to_end_speedup"] == pytest.approx(1 / (0.5 + 0.5 / tau))


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--verify-cost", "2:a", "such as 2:1.5"), ("--gammas", "1,x", "whole numbers"),
        ("--gammas", "0,3", "must lie in"), ("--head-share", 2, "lies in 0..1"), ("--prefill-share", -1, "lies in"),
    ],
)  # fmt: skip
def test_costs_and_lengths_that_cannot_be_are_refused_in_a_sentence(option, value, says):
    result = calc("--gamma", 3, "--alpha", 0.5, option, value)
    assert result.exit_code == 1 and says in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_counts_of_unequal_positions_are_read_from_their_marginals():
    given = from_counts(AcceptCounts((50, 0, 0, 50)))  # all or nothing: no single α describes it
    assert [given.length(g) for g in (1, 2, 3)] == pytest.approx([1.5, 2.0, 2.5])


def test_calc_loads_nothing_heavy():
    code = (
        "import sys; from mtplab.speculation.command import calc_command;"
        "calc_command(['--gamma','3','--alpha','.5'], standalone_mode=False);"
        "heavy={'torch','textual','adbutils','plotext','ai_edge_litert','litert_torch'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


MIXED = {"templated": [2, 2, 2, 24], "chat": [40, 6, 3, 1]}


def mixed_session(tmp_path, **more):
    pooled = [sum(column) for column in zip(*MIXED.values(), strict=True)]
    return session(tmp_path, [{"name": "mtp-on", "counts": pooled, "counts_per_class": MIXED}], **more)


def test_a_mixed_load_is_answered_class_by_class_and_never_from_a_pooled_alpha(tmp_path):
    answer = calc_json("--session", mixed_session(tmp_path), "--gamma", "1", "--verify-cost", "1.4")
    tokens = {name: sum((j + 1) * n for j, n in enumerate(row)) for name, row in MIXED.items()}
    first = {"templated": 28 / 30, "chat": 10 / 50}
    rounds = sum(tokens[name] / (1 + first[name]) for name in MIXED)
    assert answer["expected_tokens"] == pytest.approx(sum(tokens.values()) / rounds)
    assert [(c["name"], c["best_gamma"]) for c in answer["classes"]] == [("templated", 3), ("chat", 0)]
    people = calc("--session", mixed_session(tmp_path), "--verify-cost", "1.4").output
    assert "class templated" in people and "best: none pays" in people


POINTS = [
    {"gamma": 1, "threads": 2, "draft_round_cost": 0.1, "verify_cost": 1.2, "plain_step_ms": 6.0},
    {"gamma": 3, "threads": 2, "draft_round_cost": 0.3, "verify_cost": 1.5, "plain_step_ms": 6.0},
    {"gamma": 3, "threads": 1, "draft_round_cost": 0.2, "verify_cost": 1.3, "plain_step_ms": 12.0},
]  # fmt: skip


def test_costs_are_those_of_the_length_and_the_threads_that_are_asked_about(tmp_path):
    policy = {"threads": 2}
    folder = mixed_session(tmp_path, predicted={"points": POINTS}, policy=policy)
    assert calc_json("--session", folder)["round_cost"] == pytest.approx(1.8)
    assert calc_json("--session", folder, "--gamma", "2")["round_cost"] == pytest.approx(0.2 + 1.35)
    assert calc_json("--session", folder, "--threads", "1")["round_cost"] == pytest.approx(1.5)
    refused = calc("--session", folder, "--threads", "4")
    assert refused.exit_code == 1 and "only on 1, 2" in refused.output
    assert calc_json("--gamma", "3", "--alpha", ".5", "--costs-of", folder)["round_cost"] == pytest.approx(1.8)


def test_a_typed_cost_replaces_only_the_measured_one_of_its_kind(tmp_path):
    folder = mixed_session(tmp_path, predicted={"points": POINTS}, policy={"threads": 2})
    of_verify = calc_json("--session", folder, "--draft-cost", "0.2")
    assert of_verify["round_cost"] == pytest.approx(0.6 + 1.5)
    assert "Verify cost was measured on 2 threads." in of_verify["notes"]
    of_draft = calc_json("--gamma", "3", "--alpha", ".5", "--costs-of", folder, "--verify-cost", "1")
    assert of_draft["round_cost"] == pytest.approx(0.3 + 1)
    assert "Draft cost was measured on 2 threads." in of_draft["notes"]
    assert calc_json("--session", folder, "--overhead", "0.4")["round_cost"] == pytest.approx(1.8 + 0.4)


def test_only_exported_lengths_are_proposed(tmp_path):
    stages = [{"name": "export", "status": "done", "figures": {"gammas": [1, 3]}}]
    folder = mixed_session(tmp_path, stages=stages, predicted={"points": POINTS}, policy={"threads": 2})
    answer = calc_json("--session", folder)
    assert [p["gamma"] for p in answer["curve"]] == [1, 3]
    assert all(p["low"] < p["speedup"] < p["high"] for p in answer["curve"])


def test_where_only_the_benchmark_timed_the_graphs_its_costs_are_taken_and_named(tmp_path):
    def timed(graph, median):
        return {"graph": graph, "requested": "cpu", "verdict": "cpu_baseline", "provisional": False,
                "complete": True, "figures": {"inference_median_us": median}}  # fmt: skip

    verdicts = [timed("backbone/decode", 1000), timed("backbone/verify", 1600), timed("head/draft", 200)]
    answer = calc_json("--session", mixed_session(tmp_path, verdicts=verdicts, policy={"threads": 2}))
    assert answer["round_cost"] == pytest.approx(1.8)
    assert any("the benchmark's" in note for note in answer["notes"])


@pytest.mark.parametrize("points", [7, [7], [{"gamma": 0}], [{"gamma": 3, "verify_cost": float(10**9)}], [{}]])
def test_points_that_cannot_be_are_no_points(tmp_path, points):
    answer = calc_json("--session", mixed_session(tmp_path, predicted={"points": points}))
    assert any("best case" in note for note in answer["notes"])
