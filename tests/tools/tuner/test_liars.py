"""Winners that are none; each must be refused. More of the same in benchmarks/tuner_power.py."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.quantiles import rate_bound95
from pytest_attnperf.testing.fake.bench import FakeBench
from pytest_attnperf.tools.tuner.tuner_decision import judge_winner
from pytest_attnperf.tools.tuner.tuner_settings import SearchResult
from pytest_attnperf.tuning_records import BETTER, NO_BETTER, SLOWER_ELSEWHERE

PAIR_SD = 0.003
TUNED = ("a", "b", "c", "d")


def pair(ratio: float) -> PairSummary:
    """A pair at 100 us."""
    return PairSummary(ratio, 100.0, 100.0 * ratio, 30, "graph")


def drawn(random_: random.Random, true: float = 1.0, *, tails: float = 0.1) -> list[PairSummary]:
    """Eight pairs; one in ten is disturbed, five times as wide."""
    return [pair(true * math.exp(random_.gauss(0, PAIR_SD * (5 if random_.random() < tails else 1)))) for _ in range(8)]


def test_identical_configurations_are_never_better() -> None:
    """0 of 1,000 decisions between equals, with heavy tails, are BETTER: below 0.3 % at 95 %."""
    random_ = random.Random(4)
    better = sum(judge_winner({"a": drawn(random_)}, ["a"]).verdict == BETTER for _ in range(1000))
    assert better == 0
    assert rate_bound95(0, 1000) < 0.003


@pytest.mark.parametrize("sd", [0.002, 0.01, 0.03])
def test_the_limit_holds_whatever_the_spread(sd: float) -> None:
    """Pairs ten times as noisy as any seen do not make equals better either."""
    random_ = random.Random(7)
    found = [judge_winner({"a": [pair(math.exp(random_.gauss(0, sd))) for _ in range(5)]}, ["a"]) for _ in range(400)]
    assert sum(decision.verdict == BETTER for decision in found) <= 2


def test_a_true_gain_is_found() -> None:
    """The judge is not merely deaf: 2 % faster is BETTER nearly always."""
    random_ = random.Random(5)
    found = [judge_winner({name: drawn(random_, 0.98) for name in TUNED}, TUNED).verdict for _ in range(100)]
    assert found.count(BETTER) >= 95


def test_three_faster_and_one_slower_is_refused() -> None:
    """8 % faster on three workloads, 5 % slower on the fourth: better on average, and never called so."""
    random_ = random.Random(6)
    for _ in range(50):
        ratios = dict(zip(TUNED, (0.92, 0.92, 0.92, 1.05), strict=True))
        decision = judge_winner({name: drawn(random_, true, tails=0.0) for name, true in ratios.items()}, TUNED)
        assert decision.verdict == SLOWER_ELSEWHERE


@pytest.mark.parametrize("outlier", [0.9, 0.5, 0.01])
def test_one_outlying_pair_is_no_gain(outlier: float) -> None:
    """However far out it lies, it widens the limit instead of carrying the centre."""
    random_ = random.Random(8)
    group = [*drawn(random_, tails=0.0)[:7], pair(outlier)]
    assert judge_winner({"a": group}, ["a"]).verdict == NO_BETTER


def test_the_luckiest_of_a_hundred_equals_is_not_better(run_search: Callable[..., SearchResult]) -> None:
    """Selected for being fast in its process; in fresh pairs nothing of it is left."""
    random_ = random.Random(9)
    chosen = run_search(FakeBench(lambda c, w: 100.0, process_sd=0.0085), 100, strategy="exhaustive", processes=1)
    assert chosen.ranking[0][1] < 0.993, "it looks better than the default"
    found = [judge_winner({name: drawn(random_) for name in TUNED}, TUNED).verdict for _ in range(50)]
    assert set(found) == {NO_BETTER}


def test_a_race_seldom_drops_the_best(run_search: Callable[..., SearchResult]) -> None:
    """2 % better than 15 others at the loudest spread: it comes first in nearly all of 40 races."""
    true = {f"BLOCK={at}": 100.0 for at in range(16)} | {"BLOCK=3": 98.0}
    first, dropped = 0, 0
    for seed in range(40):
        result = run_search(FakeBench(true, process_sd=0.0085, seed=seed), 16, strategy="race", processes=3)
        first += result.ranking[0][0].id == "BLOCK=3"
        dropped += any(item.candidate.id == "BLOCK=3" for item in result.excluded)
    assert dropped == 0
    assert first >= 38
