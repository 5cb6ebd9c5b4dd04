"""Every detector finds its pitfall, clears what is clear, and says unknown where it had nothing to look at."""

from __future__ import annotations

import pytest

from mtplab.measure.figures import to_builtins
from mtplab.measure.pitfalls import found, inspect, summary_of
from mtplab.session.events import Evidence, Figure, RoundMeasured, VerdictReached

CLEAN = {
    "figures": {"tokens_per_s": 50.0, "ttft_ms": 120.0},
    "rounds": {"mtp-off": 5, "mtp-on": 5},
    "heat_per_round": [True] * 10,
    "verdicts": [{"graph": "head", "requested": "gpu", "verdict": "full_delegate", "line": "x"}],
    "doubts": [],
    "numerics": [{"graph": "head", "requested": "gpu", "relative": 0.001, "text": None}],
    "head_bytes": 4,
    "backbone_bytes": 100,
    "alpha_change": (-0.015, -0.005, 0.004),
    "calibration": (0.04, "Wasserstein distance 2.6 tokens"),
    "tpot_by_position": [(8, 10.0), (16, 10.2), (24, 9.9), (32, 10.1), (40, 10.3)],
    "tokens_by": "tokenizer",
    "ttft_off_ms": 10.0,
    "ttft_on_ms": 10.6,
}


def test_times_like_the_cpus_and_outputs_that_were_not_read_take_the_all_clear_away():
    doubt = {"graph": "head", "requested": "gpu", "text": "GPU time and CPU time differ by less than repeats do"}
    unread = {"graph": "head", "requested": "gpu", "relative": None, "text": None}
    findings = {f.pitfall: f for f in inspect({**CLEAN, "doubts": [doubt], "numerics": [unread]})}
    assert findings["silent-fallback"].status == "unknown" and "less than" in findings["silent-fallback"].evidence
    assert findings["accelerator-computes-otherwise"].status == "unknown"


def test_a_clean_session_is_cleared_by_every_detector():
    assert {f.pitfall: f.status for f in inspect(CLEAN)} == dict.fromkeys(
        [
            "throughput-without-ttft", "too-few-rounds", "throttling-unrecorded", "silent-fallback",
            "unsteady-machine", "head-too-large", "acceptance-cliff", "tpot-grows-with-length",
            "calibration-lengths-differ",
            "characters-as-tokens", "accelerator-computes-otherwise",
        ],
        "clear",
    )  # fmt: skip
    assert found(CLEAN) == []


@pytest.mark.parametrize(
    ("change", "pitfall", "evidence"),
    [
        ({"figures": {"tokens_per_s": 50.0, "ttft_ms": None}}, "throughput-without-ttft", "ttft_ms none"),
        ({"rounds": {"mtp-off": 5, "mtp-on": 3}}, "too-few-rounds", "mtp-on 3"),
        ({"calibration": (0.4, "distance 40.0 tokens")}, "calibration-lengths-differ", "40.0 tokens"),
        ({"heat_per_round": [True, False]}, "throttling-unrecorded", "1 of 2 rounds"),
        (
            {"verdicts": [{"graph": "head", "requested": "gpu", "verdict": "fallback_cpu", "line": "the line"}]},
            "silent-fallback",
            "the line",
        ),
        (
            {"numerics": [{"graph": "head", "requested": "gpu", "relative": None, "text": "3 of 9 values are NaN"}]},
            "accelerator-computes-otherwise",
            "3 of 9",
        ),
        ({"head_bytes": 6}, "head-too-large", "6.0 %"),
        ({"alpha_change": (-0.03, -0.01, 0.01)}, "acceptance-cliff", "[-0.030, +0.010]"),
        (
            {"tpot_by_position": [(8, 10.0), (16, 12.0), (24, 13.0), (32, 15.0)]},
            "tpot-grows-with-length",
            "15 ms near 32",
        ),
        ({"ttft_off_ms": 29.9, "ttft_on_ms": 14.2}, "unsteady-machine", "29.9 ms with MTP off"),
        (
            {
                "verdicts": [
                    {"graph": name, "requested": "gpu", "verdict": "partial", "line": "30 operations"}
                    for name in ("head", "decode")
                ]
            },
            "silent-fallback",
            "30 operations",
        ),
        ({"tokens_by": "characters"}, "characters-as-tokens", "characters"),
    ],
)
def test_each_pitfall_is_found_alone_and_names_its_evidence(change, pitfall, evidence):
    [finding] = found({**CLEAN, **change})
    assert finding.pitfall == pitfall and evidence in finding.evidence and finding.text


def test_nothing_to_look_at_is_unknown_and_never_clear():
    assert {f.status for f in inspect({})} == {"unknown"}
    unproven = {**CLEAN, "verdicts": [{"graph": "head", "requested": "gpu", "verdict": "unknown"}]}
    assert {f.pitfall: f.status for f in inspect(unproven)}["silent-fallback"] == "unknown"
    cpu_only = {**CLEAN, "verdicts": [{"graph": "head", "requested": "cpu", "verdict": "cpu_baseline"}]}
    assert {f.pitfall: f.status for f in inspect(cpu_only)}["silent-fallback"] == "unknown"


def test_one_slow_window_is_no_growth():
    jumpy = {**CLEAN, "tpot_by_position": [(8, 10.0), (16, 30.0), (24, 10.0), (32, 10.0), (40, 10.0), (48, 10.0)]}
    assert found(jumpy) == []


def test_a_summary_is_made_of_a_sessions_own_events(rounds_at):
    rounds = [
        RoundMeasured(
            t=0.0, configuration="mtp-off", index=i, order=i, marks=["throttled"] if i == 4 else [],
            skin_before_c=None if i == 0 else 31.0, prompts=to_builtins(r.prompts),
        )
        for i, r in enumerate(rounds_at(10, tokens=48))
    ]  # fmt: skip
    verdict = VerdictReached(
        t=0.0, log="l", graph="head", requested="gpu", verdict="partial", provisional=False,
        evidence=[Evidence(line=3, text="Replacing 5 out of 9", rule="r")],
    )  # fmt: skip
    summary = summary_of(rounds, {"tokens_per_s": Figure(value=9.0), "ttft_ms": Figure(value=1.0)}, [verdict])
    assert summary["rounds"] == {"mtp-off": 4}
    assert summary["heat_per_round"] == [False, True, True, True, True]
    assert len(summary["tpot_by_position"]) >= 4
    findings = {f.pitfall: f for f in found(summary)}
    assert findings.keys() == {"too-few-rounds", "throttling-unrecorded", "silent-fallback"}
    assert findings["silent-fallback"].evidence == "Replacing 5 out of 9"
