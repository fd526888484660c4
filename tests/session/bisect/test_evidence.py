from __future__ import annotations

import math
import random
import re
import statistics

import pytest

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.evidence import (
    CannotMeasureError,
    Estimate,
    RevisionSample,
    Scatter,
    estimate_ratio,
    log_ratios,
    plan_looks,
    share_of_slowdown,
)
from pytest_attnperf.stats.noise import RELATIVE_SD_MIN


def _pair(ratio: float) -> PairSummary:
    return PairSummary(ratio, 100.0, 100.0 * ratio, 30, "fake")


def test_interval_is_students_t() -> None:
    """Four values at 2.5 % a side are known to 3.182 standard deviations / sqrt(4)."""
    found = estimate_ratio([-1.0, 1.0, -1.0, 1.0], Scatter(), 0.025)
    sd = math.sqrt(4 / 3)
    assert found.log_ratio == 0
    assert found.standard_error == pytest.approx(sd / 2)
    assert found.half_width == pytest.approx(3.1824 * sd / 2, rel=1e-4)


def test_pool_adds_its_degrees() -> None:
    """The pool's squares and degrees of freedom join those about the sample's own mean, not about a common one."""
    pool = Scatter().with_sample([10.0, 12.0]).with_sample([-5.0, -3.0])
    assert pool == Scatter(4.0, 2)
    found = estimate_ratio([1.0, 3.0], pool, 0.025)
    assert found.standard_error == pytest.approx(math.sqrt(6 / 3 / 2))
    assert found.half_width == pytest.approx(3.1824 * found.standard_error, rel=1e-4)


def test_equal_ratios_are_not_certain() -> None:
    """Ratios without any scatter still have the resolution of stored figures as their standard deviation."""
    assert estimate_ratio([0.01] * 4, Scatter(), 0.025).standard_error == pytest.approx(RELATIVE_SD_MIN / 2)


def test_one_pair_alone_says_nothing() -> None:
    """One pair without a pool has an infinite interval; with one, a finite one."""
    alone = estimate_ratio([0.01], Scatter(), 0.025)
    assert (alone.low, alone.high) == (-math.inf, math.inf)
    assert alone.interval[0] == 0
    assert math.isfinite(estimate_ratio([0.01], Scatter(1e-6, 3), 0.025).half_width)


def test_interval_in_ratios() -> None:
    """Ends of the interval are exponentials of the log ratio less and more half the width."""
    low, high = Estimate(math.log(1.1), 0.01, math.log(1.1)).interval
    assert (low, high) == pytest.approx((1.0, 1.21))


def test_intervals_miss_as_often_as_stated() -> None:
    """Over 20,000 simulated revisions behind three others, the truth lies beyond either side in 4.5 to 5.5 %."""
    random_numbers = random.Random(1)
    above = below = 0
    trials = 20_000
    for _ in range(trials):
        pool = Scatter()
        for _ in range(3):
            pool = pool.with_sample([random_numbers.gauss(0, 0.002) for _ in range(4)])
        found = estimate_ratio([random_numbers.gauss(0.01, 0.002) for _ in range(6)], pool, 0.05)
        above += found.low > 0.01
        below += found.high < 0.01
    assert above / trials == pytest.approx(0.05, abs=0.005)
    assert below / trials == pytest.approx(0.05, abs=0.005)


def test_what_is_detectable_is_detected() -> None:
    """A ratio as large as eight pairs without a slowdown call detectable lies above 1 in about 99 % of other eights."""
    random_numbers = random.Random(1)

    def eight(centre: float) -> Estimate:
        return estimate_ratio([random_numbers.gauss(centre, 0.002) for _ in range(8)], Scatter(), 0.001)

    detectable = statistics.fmean(eight(0.0).detectable_log_ratio(0.01) for _ in range(1000))
    assert sum(eight(detectable).low > 0 for _ in range(5000)) / 5000 == pytest.approx(0.99, abs=0.007)


def test_nothing_is_detectable_without_scatter() -> None:
    """An infinite interval detects nothing."""
    assert estimate_ratio([0.01], Scatter(), 0.025).detectable_log_ratio(0.01) == math.inf


@pytest.mark.parametrize(
    ("first", "most", "expected"),
    [(4, 32, (4, 6, 9, 14, 21, 32)), (8, 32, (8, 12, 18, 27, 32)), (8, 4, (4,)), (4, 4, (4,)), (4, 5, (4, 5))],
)
def test_looks(first: int, most: int, expected: tuple[int, ...]) -> None:
    """Looks grow by half, begin with the first batch and end with the most pairs allowed."""
    assert plan_looks(first, most) == expected


def test_half_of_a_slowdown_is_half_of_the_ratio() -> None:
    """Halfway to twice as slow is 1.5, not the root of 2; halfway to equally fast is 1."""
    assert math.exp(share_of_slowdown(math.log(2), 0.5)) == pytest.approx(1.5)
    assert share_of_slowdown(0.0, 0.5) == 0


def test_a_sample_takes_its_looks() -> None:
    """A sample asks for what is missing at each look, counts surplus pairs, and is exhausted behind its last look."""
    sample = RevisionSample((4, 6, 9), 0.01, Scatter())
    assert (sample.missing_pairs, sample.is_exhausted) == (4, False)
    sample.add_pairs([_pair(1.0), _pair(1.1), _pair(1.0)])
    assert (sample.pair_count, sample.missing_pairs) == (3, 3)
    first = sample.found
    sample.add_pairs([_pair(1.05)] * 7)
    assert (sample.pair_count, sample.missing_pairs) == (10, 0)
    assert sample.found.half_width < first.half_width
    sample.add_pairs(())
    assert (sample.pair_count, sample.is_exhausted) == (10, True)


def test_logarithms_of_ratios() -> None:
    """A pair's ratio becomes its natural logarithm."""
    assert log_ratios([_pair(1.0), _pair(math.e)]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([], CannotMeasureError, "no pair was measured"),
        ([_pair(math.nan)], CannotMeasureError, "a pair has the ratio nan; a ratio must be finite and positive"),
        ([_pair(0.0)], CannotMeasureError, "a pair has the ratio 0.0; a ratio must be finite and positive"),
        ([1.02], TypeError, "takes PairSummary objects, got a float: intervals are computed over pairs, never over"),
    ],
)
def test_what_is_no_ratio(pairs: list[PairSummary], error: type[Exception], message: str) -> None:
    """Nothing measured and impossible ratios say so; a plain number is no unit of an interval."""
    with pytest.raises(error, match=re.escape(message)):
        log_ratios(pairs)
