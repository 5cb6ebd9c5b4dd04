"""Several configurations of one run stand beside plain decoding, and adaptive lengths beside the best fixed one."""

from __future__ import annotations

import numpy as np
import pytest

from mtplab.measure.compared import MIXED, compare_configurations, cost_points, sentence
from mtplab.measure.conclude import ALL
from mtplab.measure.exactness import Exactness
from mtplab.measure.figures import configuration_figures, prompt_figures
from mtplab.measure.plan import fixed_of, plain_of, plan
from mtplab.measure.protocol import RoundSeen
from mtplab.session.identity import Policy
from mtplab.speculation.intervals import bootstrap_statistic, drift, resample_weights

FINE = Exactness(5, 5, (), (), "Same tokens.")


def names(planned):
    return [c.name for c in planned]


def test_a_plan_is_plain_deployed_the_ladder_other_heads_and_policies_last():
    planned = plan(Policy(), 3, gammas=(1, 3, 2), policies=("tiers",), head_threads=(1, 2), head_backends=("npu",))
    assert names(planned) == [
        "mtp-off", "mtp-on", "gamma-1", "gamma-2", "head-threads-1", "head-on-npu", "adaptive-tiers",
    ]  # fmt: skip
    assert [c.gamma for c in planned] == [None, 3, 1, 2, 3, 3, None]
    assert planned[4].text() == "γ 3 on CPU, 2 threads; head on CPU, 1 thread"
    assert plain_of(planned[-1], planned) is planned[0]


def test_an_adaptive_length_is_judged_by_fixed_ones_with_the_head_in_the_same_place():
    planned = plan(Policy(), 3, gammas=(1, 2), policies=("additive",), head_threads=(1,))
    assert names(fixed_of(planned[-1], planned)) == ["mtp-on", "gamma-1", "gamma-2"]


@pytest.fixture
def measured(rounds_at):
    """Plain at 10 ms, γ 3 at 8, γ 1 at 6, the policy at 5 a token, in two classes."""

    def make(adaptive_ms=5.0):
        planned = plan(Policy(), 3, gammas=(1,), policies=("additive",))
        steps = {"mtp-off": 10.0, "mtp-on": 8.0, "gamma-1": 6.0, "adaptive-additive": adaptive_ms}
        rounds = {}
        for configuration in planned:
            accepts = (1, 2) if configuration.mtp else ()
            parts = [rounds_at(steps[configuration.name], klass=k, accepts=accepts) for k in ("chat", "code")]
            rounds[configuration.name] = [
                type(a)(a.marks, a.prompts + b.prompts) for a, b in zip(*parts, strict=True)
            ]
        return planned, rounds

    return make


def test_every_configuration_has_a_row_for_each_class_and_one_for_all(measured):
    planned, rounds = measured()
    comparisons, _ = compare_configurations(planned, rounds, {})
    assert [c.configuration for c in comparisons] == ["mtp-on", "gamma-1", "adaptive-additive"]
    for comparison, speedup in zip(comparisons, (10 / 8, 10 / 6, 2.0), strict=True):
        assert [row.klass for row in comparison.rows] == ["chat", "code", ALL]
        assert all(row.decode_speedup.value == pytest.approx(speedup, rel=1e-4) for row in comparison.rows)


def test_the_gain_of_a_policy_is_over_the_best_fixed_length_as_it_ran(measured):
    planned, rounds = measured()
    _, gains = compare_configurations(planned, rounds, {})
    assert [g.klass for g in gains] == ["chat", "code", MIXED]
    mixed = gains[-1]
    assert (mixed.fixed, mixed.fixed_gamma, mixed.prompts, mixed.says) == ("gamma-1", 1, 10, "pays")
    assert mixed.gain.value == pytest.approx(6 / 5, rel=1e-4) and mixed.gain.low > 1.1


def test_where_no_fixed_length_pays_the_policy_is_judged_by_plain_decoding(measured):
    planned, rounds = measured(adaptive_ms=20.0)
    for name in ("mtp-on", "gamma-1"):
        rounds[name] = rounds["adaptive-additive"]
    _, gains = compare_configurations(planned, rounds, {})
    assert {(g.fixed, g.fixed_gamma, g.says) for g in gains} == {("mtp-off", 0, "costs")}


def test_where_no_fixed_length_was_timed_plain_decoding_is_not_called_the_best(measured):
    planned, rounds = measured()
    for name in ("mtp-on", "gamma-1"):
        rounds[name] = [type(r)(r.marks, tuple(p for p in r.prompts if p.klass == "chat")) for r in rounds[name]]
    _, gains = compare_configurations(planned, rounds, {})
    code = next(g for g in gains if g.klass == "code")
    assert code.fixed_gamma != 0 and (code.gain.value, code.says) == (None, "unknown")


def test_the_calculator_is_given_the_cost_of_each_fixed_length_where_the_head_stays(measured):
    planned, rounds = measured()
    planned = [*planned, *plan(Policy(), 3, head_threads=(1,))[2:]]
    rounds["head-threads-1"] = rounds["mtp-on"]
    comparisons, _ = compare_configurations(planned, rounds, {})
    points = cost_points(comparisons, planned)
    assert [(p["gamma"], p["threads"]) for p in points] == [(3, 2), (1, 2)]
    assert all(p["draft_round_cost"] > 0 and p["verify_cost"] > 0 for p in points)
    assert [p["plain_step_ms"] for p in points] == pytest.approx([10.24, 10.24], rel=0.01)


def test_what_was_not_measured_has_no_row(measured):
    planned, rounds = measured()
    without_fixed = {name: rounds[name] for name in ("mtp-off", "adaptive-additive")}
    comparisons, gains = compare_configurations(planned, without_fixed, {})
    assert [c.configuration for c in comparisons] == ["adaptive-additive"] and gains == []
    assert compare_configurations(planned, {"mtp-on": rounds["mtp-on"]}, {}) == ([], [])


def test_the_sentence_names_the_fastest_that_changed_no_output(measured):
    planned, rounds = measured()
    wrong = Exactness(5, 4, (), ("Prompt p gave other tokens.",), "One differs.")
    exact = {"mtp-on": FINE, "gamma-1": FINE, "adaptive-additive": wrong}
    text = sentence(*compare_configurations(planned, rounds, exact))
    assert text is not None and text.startswith("Of 2 configurations that draft gamma-1 decodes fastest, 1.67×")
    assert "which favours it" in text
    assert sentence(*compare_configurations(planned[:2], rounds, exact)) is None


def test_rounds_of_several_lengths_have_one_alpha_and_no_gamma(run):
    seen = run("p", list(range(12)), accepts=(3, 0))
    rounds = (*seen.rounds, RoundSeen(2, 1, 1, 2, (0,), 1, 1, 5), RoundSeen(3, 1, 0, 1, (4,), 1, 1, 5))
    figures = prompt_figures(type(seen)(**{f: getattr(seen, f) for f in seen.__struct_fields__} | {"rounds": rounds}))
    assert (figures.gamma, figures.gammas, figures.accepts) == (None, [3, 3, 1, 1], [3, 0, 1, 0])
    told = configuration_figures([[figures]], mtp=True)
    # Four tokens were accepted, two rounds met a rejection: 4 of 6 trials, of 8 drafted.
    assert told.figures["alpha"].value == pytest.approx(4 / 6)
    assert told.figures["accepted_ratio"].value == pytest.approx(4 / 8)
    assert told.figures["mean_acceptance_length"].value == pytest.approx(2.0)
    assert told.figures["gamma"].value is None and "1 to 3 tokens, 2.00 on average" in told.figures["gamma"].reason
    assert told.counts == []
    steady = prompt_figures(run("q", list(range(12)), accepts=(2, 1)))
    assert configuration_figures([[figures, steady]], mtp=True).counts == [], "a part is not the whole"


def test_what_pools_classes_is_resampled_within_each_of_them():
    classes = ["a"] * 4 + ["b"] * 2 + ["c", "d"]
    drawn = resample_weights(8, 500, strata=classes)
    assert set(drawn[:, :4].sum(axis=1)) == {4} and set(drawn[:, 4:6].sum(axis=1)) == {2}
    assert set(drawn[:, 6:].sum(axis=1)) == {2} and len(set(drawn[:, 6])) > 1, "single prompts are drawn together"
    # Classes that differ greatly but not within: their mix is no source of doubt.
    rows = [[1.0, 1.0]] * 5 + [[9.0, 1.0]] * 5
    apart = bootstrap_statistic(rows, lambda s: s[..., 0] / s[..., 1], "k", strata=["a"] * 5 + ["b"] * 5)
    pooled = bootstrap_statistic(rows, lambda s: s[..., 0] / s[..., 1], "k")
    assert apart.low == apart.high == apart.value == pooled.value == 5.0
    assert pooled.high - pooled.low > 2
    with pytest.raises(ValueError, match="2 strata were named for 3"):
        resample_weights(3, strata=["a", "b"])


def test_a_machine_that_drifts_between_rounds_is_seen_in_the_drift():
    assert drift([[0.1], [0.2]]) == 0.0
    assert np.ptp(drift([[0.0, 0.0, 0.0]] * 3)) == 0.0
    assert np.std(drift([[-0.5, 0.0, 0.5]] * 3)) > 0.1


def test_hot_rounds_beside_cold_ones_are_no_verdict(measured):
    planned, rounds = measured()
    hot = {name: [type(r)(("throttled",), r.prompts) for r in own] for name, own in rounds.items()}
    one_side, gains = compare_configurations(planned, {**rounds, "gamma-1": hot["gamma-1"]}, {})
    told = {c.configuration: c.rows[-1] for c in one_side}
    assert told["mtp-on"].says == "pays" and told["gamma-1"].says == "unknown"
    assert "all marked" in told["gamma-1"].why
    assert (gains[-1].fixed, gains[-1].says) == ("gamma-1", "unknown")
    both, _ = compare_configurations(planned, hot, {})
    assert {row.says for c in both for row in c.rows} == {"pays"}
    assert all("marked rounds only" in row.why for c in both for row in c.rows)


def test_on_several_grounds_no_configuration_is_called_fastest(measured):
    planned, rounds = measured()
    slow = [type(c)(**{**c_fields(c), "name": c.name + "-t1", "threads": 1}) for c in planned[:2]]
    more = {**rounds, **{c.name: rounds[c.name.removesuffix("-t1")] for c in slow}}
    text = sentence(*compare_configurations([*planned, *slow], more, {}))
    assert text is not None and "decodes fastest" not in text and "gains most on its own ground" in text


def c_fields(configuration):
    return {name: getattr(configuration, name) for name in configuration.__struct_fields__}
