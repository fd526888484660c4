from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records.pairs import PairSummary, Turn
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.pair_ratios import (
    CENTRE_VARIANCE,
    STORED_QUADS_MAX,
    Quad,
    centre_ratio,
    compare_pairs,
    pair_noise,
    standard_error_of_pairs,
    summarise_pair,
)
from pytest_attnperf.stats.quantiles import upper_quantile


def quad(ratio: float, place: int = 0, base_us: float = 100.0, mhz: float | None = None) -> Quad:
    """A quad of this ratio, both turns of a side alike."""
    base, new = Turn(base_us, mhz), Turn(base_us * ratio, mhz)
    return Quad((base, base), (new, new), place)


def pairs(*ratios: float, base_us: float = 100.0, timer: str = "graph") -> list[PairSummary]:
    """Pairs with these ratios."""
    return [PairSummary(ratio, base_us, base_us * ratio, 30, timer) for ratio in ratios]


def noise(relative_sd: float, degrees: int = 600) -> NoiseEstimate:
    """A spread between pairs."""
    return NoiseEstimate(relative_sd, degrees, "made up", "pair")


def test_an_even_drift_cancels_within_a_quad() -> None:
    """Turns that grow by the same step, A B B A, give the ratio of equal sides."""
    assert Quad((Turn(100.0), Turn(103.0)), (Turn(101.0), Turn(102.0))).ratio == 1.0


def test_a_pair_is_summarised_from_its_turns() -> None:
    """Ratio, medians, clocks, count and names of a pair come from all of its quads."""
    quads = [quad(1.02, mhz=1500.0), quad(1.03, mhz=1600.0), quad(1.07, mhz=1700.0)]
    pair = summarise_pair(
        quads, timer="graph", base_process="base0", new_process="gpu0", device_id="GPU-1", seconds=0.123456
    )
    assert (pair.ratio, pair.base_us, pair.new_us, pair.quads) == (1.03, 100.0, 103.0, 3)
    assert pair.quad_ratios == (1.02, 1.03, 1.07)
    assert (pair.base_clock_mhz, pair.new_clock_mhz, pair.seconds) == (1600.0, 1600.0, 0.12346)
    assert (pair.timer, pair.base_process, pair.new_process, pair.device_id) == ("graph", "base0", "gpu0", "GPU-1")


def test_a_clock_that_is_missing_once_is_missing() -> None:
    """The clock of a side is that of all of its turns, or None."""
    assert summarise_pair([quad(1.0, mhz=1500.0), quad(1.0)], timer="graph").base_clock_mhz is None


def test_places_count_alike() -> None:
    """One place whose quads are 4 % slower moves the ratio by its share of the places, not by a jump."""
    quads = [quad(1.0, place) for place in (0, 1, 2) for _ in range(5)] + [quad(1.04, 3) for _ in range(5)]
    assert summarise_pair(quads, timer="graph").ratio == pytest.approx(1.04**0.25, abs=1e-6)


def test_many_quads_are_thinned_but_count_in_full() -> None:
    """Of many quads 64 ratios are kept, first and last included, while the ratio is of all."""
    pair = summarise_pair([quad(1 + step / 1000) for step in range(200)], timer="graph")
    assert (len(pair.quad_ratios), pair.quads) == (STORED_QUADS_MAX, 200)
    assert (pair.quad_ratios[0], pair.quad_ratios[-1]) == (1.0, 1.199)
    assert pair.ratio == pytest.approx(1.0991, abs=2e-4)


@pytest.mark.parametrize("us", [0.0, -1.0, math.nan, math.inf])
def test_a_turn_that_is_no_time_is_refused(us: float) -> None:
    """A turn of zero, negative, NaN or infinite time is an error that names the quad, and so are no quads."""
    with pytest.raises(ValueError, match=rf"quad 1 of 2 from timer 'graph' holds {us} us per call; .* positive"):
        summarise_pair([quad(1.0), Quad((Turn(1.0), Turn(1.0)), (Turn(1.0), Turn(us)))], timer="graph")
    with pytest.raises(ValueError, match="at least one quad, got none from timer 'graph'"):
        summarise_pair([], timer="graph")


def disturbed(generator: random.Random) -> float:
    """A log ratio of which one in ten is ten times as wide."""
    return generator.gauss(0, 0.005 * (10 if generator.random() < 0.1 else 1))


def spread_of(count: int, centre: Callable[[list[float]], float]) -> float:
    """Standard deviation of a centre of so many disturbed quads."""
    generator = random.Random(count)
    return statistics.pstdev(centre([disturbed(generator) for _ in range(count)]) for _ in range(3000))


def of_pair(logs: list[float]) -> float:
    """What `pair_summary` makes of quads with these log ratios."""
    return math.log(summarise_pair([quad(math.exp(value)) for value in logs], timer="graph").ratio)


def test_the_centre_of_heavy_tailed_quads_beats_mean_and_median() -> None:
    """With one quad in ten disturbed, the interquartile mean scatters less than median and far less than mean."""
    assert spread_of(30, of_pair) < 0.96 * spread_of(30, statistics.median)
    assert spread_of(30, of_pair) < 0.5 * spread_of(30, statistics.fmean)


def test_few_quads_take_their_median() -> None:
    """Of six quads the two middle ones count, so that two bad ones of six do no harm."""
    assert summarise_pair([quad(r) for r in (0.5, 1.0, 1.01, 1.02, 1.03, 9.0)], timer="graph").ratio == pytest.approx(
        math.sqrt(1.01 * 1.02), abs=1e-6
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 12, 20])
def test_the_centres_variance_is_that_of_a_simulation(count: int) -> None:
    """For few and many pairs the stated standard error agrees with simulated pairs to within 4 %."""
    generator = random.Random(count)
    centres = [
        math.log(centre_ratio(pairs(*(math.exp(generator.gauss(0, 0.003)) for _ in range(count)))))
        for _ in range(4000 if count < 20 else 2000)
    ]
    assert standard_error_of_pairs(0.003, count) == pytest.approx(statistics.pstdev(centres), rel=0.04)


def test_the_variance_goes_on_beyond_its_table() -> None:
    """Where the table ends the formula takes over without a step."""
    inside, outside = (standard_error_of_pairs(1.0, n) * math.sqrt(n) for n in (12, 13))
    assert len(CENTRE_VARIANCE) == 12
    assert outside == pytest.approx(inside, rel=0.003)


def test_two_bad_pairs_of_eight_do_not_carry_the_centre_away() -> None:
    """Two pairs at +50 % move a centre of eight by no more than the others' own spread; three do move it."""
    good = (0.999, 0.9995, 1.0, 1.0, 1.0005, 1.001)
    assert centre_ratio(pairs(*good, 1.5, 1.5)) <= 1.001
    assert centre_ratio(pairs(*good[:5], 1.5, 1.5, 1.5)) > 1.01


def test_a_slowdown_and_its_inverse_mirror_each_other() -> None:
    """Swapping the sides of every pair inverts the ratio: nothing is averaged on the scale of ratios."""
    ratios = (1.01, 1.03, 0.99, 1.2)
    assert centre_ratio(pairs(*(1 / r for r in ratios))) == pytest.approx(1 / centre_ratio(pairs(*ratios)))


def test_limits_come_from_the_noise_given() -> None:
    """Interval and threshold are the standard error times its quantiles, whatever the pairs' own spread is."""
    compared = compare_pairs(pairs(1.01, 1.01, 1.01), noise(0.002), z=3.0)
    error = 0.002 * math.sqrt(CENTRE_VARIANCE[2] / 3)
    assert compared.ratio == pytest.approx(1.01)
    assert compared.standard_error == error
    assert compared.noise_threshold == pytest.approx(3 * error, rel=0.01)
    assert compared.interval95 == pytest.approx((1.01 * math.exp(-1.96 * error), 1.01 * math.exp(1.96 * error)))


@pytest.mark.parametrize("count", [3, 5, 8])
def test_false_alarms_of_own_pairs_are_as_stated(count: int) -> None:
    """With a spread from the same few pairs, a one-sided 1 % limit is exceeded in 0.6 to 1.25 % of 8,000 looks."""
    generator, z = random.Random(40 + count), upper_quantile(0.01, count - 1)
    alarms = 0
    for _ in range(8000):
        taken = pairs(*(math.exp(generator.gauss(0, 0.003)) for _ in range(count)))
        own = pair_noise({"a": taken}).estimate_noise("a", 100.0, "graph")
        assert own is not None
        compared = compare_pairs(taken, own, z)
        alarms += compared.ratio > 1 + compared.noise_threshold
    assert 0.006 < alarms / 8000 < 0.0125


def test_the_noise_of_pairs_is_pooled_like_that_of_processes() -> None:
    """Cases of one timer, duration and bound share their spread, in degrees of freedom of pairs."""
    cases = {"a": pairs(0.99, 1.01), "b": pairs(*(1 + 0.001 * step for step in range(13)))}
    estimate = pair_noise(cases, bounds={"a": "memory", "b": "compute"}).estimate_noise(
        "new", 100.0, "graph", "compute"
    )
    assert estimate is not None
    assert estimate.relative_sd == pytest.approx(0.0039, rel=0.02)
    assert (estimate.degrees_of_freedom, estimate.unit) == (12, "pair")
    assert estimate.how == "pooled over 1 compute-bound case of 100 to 1000 us, timer graph"


def test_a_stored_spread_helps_a_single_suspect() -> None:
    """One suspect alone has n - 1 degrees of freedom; with a stored spread it has as many as one more case gives."""
    taken = {"a": pairs(0.998, 1.0, 1.002, 1.0)}
    alone = pair_noise(taken).estimate_noise("a", 100.0, "graph")
    helped = pair_noise(taken, prior=noise(0.0016)).estimate_noise("a", 100.0, "graph")
    assert alone is not None
    assert helped is not None
    assert (alone.degrees_of_freedom, alone.how) == (3, "its own 4 pairs alone, timer graph")
    assert helped.degrees_of_freedom > 10
    assert helped.how == "its own 4 pairs alone, timer graph, and made up"
    assert pair_noise({"a": pairs(1.0)}).estimate_noise("a", 100.0, "graph") is None


def test_an_outlier_widens_the_limit_more_than_it_moves_the_centre() -> None:
    """One pair at +5 % of eight quiet ones is no alarm: the limit from the same pairs goes beyond the ratio."""
    taken = pairs(0.999, 1.0, 1.001, 1.0, 0.9995, 1.0005, 1.0, 1.05)
    own = pair_noise({"a": taken}).estimate_noise("a", 100.0, "graph")
    assert own is not None
    compared = compare_pairs(taken, own, upper_quantile(0.01, 7))
    assert compared.noise_threshold > 10 * (compared.ratio - 1) > 0


def test_anything_but_pairs_is_refused() -> None:
    """Quads, plain ratios and processes' noise are errors that say what is needed."""
    wrong: Any = [1.0, 1.1]
    with pytest.raises(TypeError, match="holds a float, not a PairSummary: intervals are computed over pairs"):
        compare_pairs(wrong, noise(0.01), 3.0)
    with pytest.raises(TypeError, match="holds a Quad, not a PairSummary"):
        pair_noise({"a": [quad(1.0), quad(1.0)]})  # type: ignore[list-item]
    with pytest.raises(ValueError, match="the noise of pairs is needed, got a spread per process: of processes"):
        compare_pairs(pairs(1.0), NoiseEstimate(0.01, 5, "of processes"), 3.0)


def test_what_cannot_be_compared_is_refused() -> None:
    """No pairs, a spread below zero and a case of two timers are errors that show the value."""
    with pytest.raises(ValueError, match="a comparison of pairs has no pairs"):
        centre_ratio([])
    with pytest.raises(ValueError, match="at least one pair, got 0"):
        standard_error_of_pairs(0.01, 0)
    with pytest.raises(ValueError, match=r"relative_sd is -0\.1, must be finite and not negative"):
        standard_error_of_pairs(-0.1, 3)
    with pytest.raises(ValueError, match="case 'a' mixes pairs of the timers event, graph"):
        pair_noise({"a": [*pairs(1.0), *pairs(1.0, timer="event")]})
