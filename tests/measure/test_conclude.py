"""The conclusion says what the rounds carry, class by class, and refuses to say more."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from mtplab.measure.conclude import MeasuredRound, conclude, judge_speedup, paired_speedup, rounds_of
from mtplab.measure.exactness import Exactness, compare_outputs
from mtplab.measure.figures import prompt_figures, to_builtins
from mtplab.measure.predict import predict
from mtplab.session.events import Concluded, RoundMeasured
from mtplab.speculation.command import calc_command
from mtplab.speculation.intervals import Estimate

FINE = Exactness(5, 5, (), (), "Same tokens.")


def together(*groups):
    return [
        MeasuredRound(parts[0].marks, tuple(p for part in parts for p in part.prompts))
        for parts in zip(*groups, strict=True)
    ]


def conclusion(off, on, **more):
    return conclude(off, on, **{"simulated": False, "exactness": FINE, **more})


def test_each_class_gets_its_own_verdict(rounds_at):
    steps = {"templated": (10, 7), "code": (10, 10.05), "chat": (10, 13)}
    off = together(*(rounds_at(a, klass=k, tokens=101) for k, (a, _) in steps.items()))
    on = together(*(rounds_at(b, klass=k, tokens=101, accepts=(1, 2)) for k, (_, b) in steps.items()))
    result = conclusion(off, on)
    assert {s.klass: s.says for s in result.scenarios} == {
        "templated": "pays", "code": "breaks even", "chat": "costs",
    }  # fmt: skip
    assert result.text.startswith("MTP pays for templated (1.4")
    assert "breaks even for code" in result.text and "costs for chat" in result.text
    assert result.missing == () and result.remarks == ()


def test_end_to_end_is_less_than_decoding_alone(rounds_at):
    result = conclusion(rounds_at(10, ttft_ms=100), rounds_at(5, ttft_ms=100, accepts=(1, 2)))
    [scenario] = result.scenarios
    assert scenario.decode_speedup.value == pytest.approx(2, rel=1e-3)
    assert scenario.speedup.value < 1.6, "prefill does not speed up"


def test_the_speedup_is_paired_by_prompt(run, rounds_at):
    off, on = rounds_at(10)[0].prompts, rounds_at(5, accepts=(1,))[0].prompts
    both = paired_speedup(off, on, "tpot_ms", "k")
    assert both.value == pytest.approx(2) and both.n == 5
    assert both.low == pytest.approx(2) and both.high == pytest.approx(2), "every prompt gains the same, however long"
    assert paired_speedup(off[:1], on, "tpot_ms", "k").low is None
    assert paired_speedup(off, [], "tpot_ms", "k").value is None
    assert 1 / paired_speedup(on, off, "tpot_ms", "k").value == pytest.approx(both.value)


@pytest.mark.parametrize(
    ("low", "high", "rounds", "says"),
    [
        (1.05, 1.2, 5, "pays"),
        (0.8, 0.95, 5, "costs"),
        (0.99, 1.01, 5, "breaks even"),
        (0.9, 1.2, 5, "unknown"),
        (1.05, 1.2, 4, "unknown"),
    ],
)
def test_the_verdict_follows_the_interval_and_the_evidence(low, high, rounds, says):
    assert judge_speedup(Estimate((low + high) / 2, low, high, 9, "k"), rounds)[0] == says


def test_too_few_rounds_or_prompts_are_unknown_not_break_even(rounds_at):
    few = conclusion(rounds_at(10, rounds=4), rounds_at(5, rounds=4, accepts=(1,)))
    assert few.scenarios[0].says == "unknown" and "4 rounds are too few" in few.text
    lone = conclusion(rounds_at(10, prompts=2), rounds_at(5, prompts=2, accepts=(1,)))
    assert lone.scenarios[0].says == "unknown" and "2 prompts are too few" in lone.text
    assert "pays" not in few.text + lone.text


def test_a_missing_figure_stands_in_place_of_the_conclusion(rounds_at):
    no_rounds = conclusion(rounds_at(10), rounds_at(5))
    assert no_rounds.text.startswith("No conclusion") and "acceptance α with MTP on" in no_rounds.text
    one_token = conclusion(rounds_at(10, tokens=1), rounds_at(5, tokens=1, accepts=(1,)))
    assert "TPOT with MTP off (fewer than two output tokens" in one_token.text
    assert conclusion([], []).text.startswith("No conclusion")


def test_changed_output_stands_in_place_of_the_conclusion(rounds_at, run):
    broken = compare_outputs([run("a", [1, 2], margins=[1.0, 1.0])], [run("a", [1, 3])])
    result = conclusion(rounds_at(10), rounds_at(5, accepts=(1,)), exactness=broken)
    assert result.text.startswith("No conclusion, because drafting must not change the output")
    unchecked = conclusion(rounds_at(10), rounds_at(5, accepts=(1,)), exactness=None)
    assert "was not checked" in unchecked.text


def test_simulated_and_incomplete_records_say_so(rounds_at):
    result = conclusion(
        rounds_at(10), rounds_at(5, accepts=(1,)), simulated=True, metadata_missing=["aicore_version"]
    )
    assert result.text.startswith("SIMULATED: MTP pays")
    assert "aicore_version unknown) and cannot be compared" in result.text


def test_marked_rounds_stay_out_until_there_are_no_others(rounds_at):
    hot = rounds_at(50, rounds=2, marks=("throttled",))
    mixed = conclusion(rounds_at(10) + hot, rounds_at(5, accepts=(1,)))
    assert mixed.plain.figures["tpot_ms"].value < 11
    assert mixed.remarks == ("MTP off: 2 of 7 rounds were marked and kept apart.",)
    assert "cold phone" not in mixed.text
    only = conclusion(rounds_at(10, marks=("began-hot",)), rounds_at(5, accepts=(1,), marks=("began-hot",)))
    assert "says nothing of a cold phone" in only.text


def test_predicted_stands_beside_measured(rounds_at):
    # Rounds of 2 ms draft and 11 ms verify that accept 1 and 2 drafts; a plain step takes 10 ms.
    on = rounds_at(5.2, accepts=(1, 2), tokens=6, prompts=5)
    predicted = conclusion(rounds_at(10, tokens=6), on).predicted
    assert predicted.tau == pytest.approx(2.5)
    step = predicted.plain_step_ms
    assert step == pytest.approx(10, rel=0.05)
    assert predicted.draft_cost == pytest.approx(2 / 3 / step)
    assert predicted.draft_round_cost == pytest.approx(2 / step)
    assert predicted.verify_cost == pytest.approx(11 / step)
    assert predicted.round_cost == pytest.approx(13 / step)
    assert predicted.speedup == pytest.approx(2.5 * step / 13)
    assert predicted.error == pytest.approx(predicted.speedup / predicted.measured.value - 1)


def test_the_prediction_is_compared_with_time_over_steps_not_with_a_mean_of_ratios(run):
    """Two prompts of very different acceptance: sums of time agree with τ/K, a mean of ratios would not."""
    cost_ms, plain_ms = 13.0, 10.0  # what a round and a plain step take
    off, on = [], []
    for name, accepts in (("easy", (3,) * 8), ("hard", (0,) * 8)):
        tokens = 1 + sum(a + 1 for a in accepts)
        step_ms = cost_ms * len(accepts) / (tokens - 1)
        off.append(prompt_figures(run(name, list(range(tokens)), step_ms=plain_ms)))
        on.append(prompt_figures(run(name, list(range(tokens)), accepts=accepts, step_ms=step_ms)))
    predicted = predict(off, on)
    assert predicted.speedup == pytest.approx(2.5 * plain_ms / cost_ms)
    assert predicted.error == pytest.approx(0, abs=1e-3)
    assert predicted.overhead == pytest.approx(0, abs=1e-3)
    assert paired_speedup(off, on, "tpot_ms", "k").value < 0.9 * predicted.measured.value


def test_without_times_there_is_no_prediction_but_a_reason(rounds_at):
    assert "no draft round" in conclusion(rounds_at(10), rounds_at(5)).predicted.reason
    assert "no plain decode step" in conclusion(rounds_at(10, tokens=1), rounds_at(5, accepts=(1,))).predicted.reason


def test_a_conclusion_travels_as_an_event_and_answers_the_calculator(rounds_at, tmp_path):
    off, on = rounds_at(10), rounds_at(5, accepts=(1, 2, 0, 3))
    result = conclusion(off, on, exactness=FINE)
    event = Concluded(t=1.0, **result.event_fields(FINE))
    assert msgspec.json.decode(msgspec.json.encode(event))["scenarios"][0]["class"] == "templated"
    rounds = [
        RoundMeasured(t=0.0, configuration="mtp-on", index=i, order=i, prompts=to_builtins(r.prompts))
        for i, r in enumerate(on)
    ]
    assert rounds_of(rounds, "mtp-on") == on and rounds_of(rounds, "mtp-off") == []
    document = {
        "format": "mtplab-session",
        "schema": 1,
        "session": "s",
        "created_utc": "2026-01-01T00:00:00+00:00",
        "simulated": False,
        "configurations": [{"name": "mtp-on", "figures": {}, "rounds": [msgspec.to_builtins(r) for r in rounds]}],
        "predicted": event.predicted,
    }
    (tmp_path / "session.json").write_bytes(msgspec.json.encode(document))
    answer = json.loads(CliRunner().invoke(calc_command, ["--session", str(tmp_path), "--json"]).stdout)
    assert answer["expected_tokens"] == pytest.approx(2.5)
    assert answer["alpha"]["value"] == pytest.approx(result.mtp.figures["alpha"].value)
    assert answer["round_cost"] == pytest.approx(result.predicted.round_cost + result.predicted.overhead)


def test_rounds_that_disagree_widen_the_interval(run):
    def side(steps):
        return [
            prompt_figures(run(f"p{i}", list(range(20)), step_ms=step * (1 + i / 50)))
            for i in range(6)
            for step in steps
        ]

    steady = paired_speedup(side([10, 10, 10, 10, 10]), side([5, 5, 5, 5, 5]), "tpot_ms", "k")
    drifting = paired_speedup(side([6, 8, 10, 12, 14]), side([5, 5, 5, 5, 5]), "tpot_ms", "k")
    assert steady.value == pytest.approx(2.0) and drifting.value == pytest.approx(2.0)
    assert steady.high - steady.low < 0.01
    assert drifting.low < 1.8 and drifting.high > 2.1
    assert drifting.low <= drifting.value <= drifting.high


def test_the_conclusion_says_what_the_rounds_ran_on(rounds_at):
    on = rounds_at(5, accepts=(1, 2))
    told = conclude(rounds_at(10), on, simulated=True, exactness=FINE, ran_on="CPU (2 threads)")
    assert told.text.startswith("SIMULATED: MTP on CPU (2 threads) ")


def test_no_verdict_stands_on_a_machine_that_was_another_one_with_mtp_on(rounds_at):
    steady = conclusion(rounds_at(10), rounds_at(5, accepts=(2, 2)))
    assert steady.scenarios[0].says == "pays"
    slow_start = conclusion(rounds_at(10, ttft_ms=40.0), rounds_at(5, accepts=(2, 2)))
    assert slow_start.scenarios[0].says == "unknown"
    assert "came after 40 and 20 ms" in slow_start.scenarios[0].why
    # The rounds verify in 11 ms: of a plain step of 20 ms that is less than any machine needs.
    too_cheap = conclusion(rounds_at(20), rounds_at(5, accepts=(2, 2)))
    assert too_cheap.scenarios[0].says == "unknown" and "which no machine does" in too_cheap.scenarios[0].why


def test_the_interval_of_a_speedup_holds_it_as_often_as_it_says_with_five_prompts(run):
    """Prompts that differ at random around no gain: 95 % intervals miss 1.00 in about one case of twenty."""
    random, missed, cases = np.random.default_rng(11), 0, 300
    for _ in range(cases):
        gains = np.exp(random.normal(0.0, 0.1, 5))
        off = [prompt_figures(run(f"p{i}", list(range(11)), step_ms=10.0)) for i in range(5)]
        on = [prompt_figures(run(f"p{i}", list(range(11)), step_ms=10.0 / g)) for i, g in enumerate(gains)]
        told = paired_speedup(off, on, "tpot_ms", "k")
        missed += not told.low <= 1.0 <= told.high
    assert missed / cases < 0.1, "without widening it is one of six"


def test_a_first_token_that_arrives_with_a_round_says_nothing_of_the_machine(rounds_at):
    off, on = rounds_at(10, tokens=41), rounds_at(6, tokens=41, accepts=(2,) * 12, ttft_ms=44.0)
    [doubted] = conclusion(off, on).scenarios
    assert doubted.says == "unknown" and "the first token, which drafting" in doubted.why
    heard = [
        MeasuredRound(one.marks, tuple(msgspec.structs.replace(p, arrival=True) for p in one.prompts)) for one in on
    ]
    [told] = conclusion(off, heard).scenarios
    assert told.says == "pays"
