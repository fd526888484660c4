from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.tuner.tuner_decision import DecisionRule, judge_winner
from pytest_attnperf.tuning_records import BETTER, NO_BETTER, SLOWER_ELSEWHERE

WIGGLE = (0.001, -0.001, 0.0005, -0.0005, 0.0, 0.001, -0.001, 0.0)


def pairs(ratio: float, base_us: float = 100.0, count: int = 8, wiggle: float = 1.0) -> list[PairSummary]:
    """Pairs around a ratio, 0.1 % apart."""
    ratios = [ratio * (1 + wiggle * WIGGLE[at % 8]) for at in range(count)]
    return [PairSummary(one, base_us, base_us * one, 30, "graph") for one in ratios]


def test_a_clear_gain_is_better_with_its_figures() -> None:
    """5 and 10 % faster on two tuned workloads, the same elsewhere."""
    decision = judge_winner({"a": pairs(0.95), "b": pairs(0.90), "other": pairs(1.0)}, ["a", "b"])
    assert decision.verdict == BETTER
    assert decision.summary == "-7.53% (-7.75% to -7.32%) over 2 tuned workload(s), slower on none"
    assert decision.overall is not None
    assert decision.overall[0] == pytest.approx((0.95 * 0.90) ** 0.5, rel=1e-3)
    assert [(c.workload, c.tuned, c.verdict) for c in decision.changes] == [
        ("a", True, "FASTER"),
        ("b", True, "FASTER"),
        ("other", False, "SAME"),
    ]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9895, BETTER), (0.9915, NO_BETTER), (1.0, NO_BETTER)])
def test_a_gain_below_one_percent_is_no_better(ratio: float, verdict: str) -> None:
    """Even if it is certain: a change of configuration is not worth it."""
    decision = judge_winner({"a": pairs(ratio)}, ["a"])
    assert decision.verdict == verdict
    assert ("no better than default" in decision.summary) == (verdict == NO_BETTER)


def test_a_gain_within_noise_is_no_better() -> None:
    """3 % faster, of pairs that lie 4 % apart."""
    assert judge_winner({"a": pairs(0.97, wiggle=40)}, ["a"]).verdict == NO_BETTER


@pytest.mark.parametrize(("tuned", "expected"), [(["a"], False), (["a", "b"], True)])
def test_slower_elsewhere_wins_over_any_gain(tuned: list[str], expected: bool) -> None:
    """A third of the time on one workload does not pay for 5 % on another that the rule serves, tuned or not."""
    decision = judge_winner({"a": pairs(0.33), "b": pairs(1.05)}, tuned)
    assert decision.verdict == SLOWER_ELSEWHERE
    assert decision.summary.startswith("slower on b by +5.00%; ")
    assert decision.changes[1].tuned == expected


def test_a_small_slowdown_in_time_is_tolerated() -> None:
    """5 % of 8 us is 0.4 us, below what is worth telling."""
    assert judge_winner({"a": pairs(0.9), "b": pairs(1.05, base_us=8.0)}, ["a"]).verdict == BETTER


def test_a_slowdown_that_noise_hides_is_no_licence() -> None:
    """4 % slower in pairs 4 % apart is not proven slower, and the winner is not called better."""
    decision = judge_winner({"a": pairs(0.9), "b": pairs(1.04, wiggle=40)}, ["a"])
    assert decision.verdict == NO_BETTER
    assert "b: +3.95% is within the noise of 6.66%" in decision.summary
    assert "measure more pairs" in decision.summary


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ("wrong: out differs", "wrong: out differs"),
        ("", "failed without a reason"),
        ([], "0 of 8 pairs were measured"),
        (pairs(0.9, count=7), "7 of 8 pairs were measured"),
    ],
)
def test_a_failed_or_missing_workload_is_never_better(other: list[PairSummary] | str, note: str) -> None:
    """However fast it is elsewhere, and whether the workload was tuned or is only served."""
    for tuned in (["a"], ["a", "b"]):
        decision = judge_winner({"a": pairs(0.5), "b": other}, tuned)
        assert decision.verdict == NO_BETTER
        assert note in decision.summary
        assert decision.changes[1].verdict == "FAILED"


def test_a_tuned_workload_that_was_not_measured_is_missing() -> None:
    """It is not enough to leave out what went badly."""
    decision = judge_winner({"a": pairs(0.5)}, ["a", "b"])
    assert (decision.verdict, decision.overall) == (NO_BETTER, None)
    assert "b: 0 of 8 pairs" in decision.summary


def test_two_pairs_are_too_few() -> None:
    """Equal pairs show nothing of their spread."""
    assert judge_winner({"a": pairs(0.5, count=2)}, ["a"]).verdict == NO_BETTER
    assert judge_winner({"a": pairs(0.5, count=3)}, ["a"]).verdict == BETTER


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"risk": 0.0}, "risk of a decision is 0.0"),
        ({"min_gain": -1.0}, "must not be negative"),
        ({"pairs_min": 1}, "pairs_min is 1"),
    ],
)
def test_a_rule_that_decides_nothing_is_refused(rule: dict[str, float], text: str) -> None:
    """Each names what it saw."""
    with pytest.raises(UsageError, match=text):
        DecisionRule(**rule)  # type: ignore[arg-type]


def test_nothing_tuned_is_refused() -> None:
    """There is nothing to be better at."""
    with pytest.raises(UsageError, match="nothing was tuned"):
        judge_winner({"a": pairs(0.5)}, [])
