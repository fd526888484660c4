from __future__ import annotations

import inspect
import math
import random
import statistics
import typing
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats import comparison
from pytest_attnperf.stats.comparison import (
    card_variance,
    compare_processes,
    median_variance,
    slower_beyond,
    standard_error,
    with_degrees_between,
    z_for,
)
from pytest_attnperf.stats.noise import NoiseEstimate


def processes(*medians_us: float) -> list[ProcessSummary]:
    """Processes with these medians, microseconds per call."""
    return [ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians_us]


def test_the_ratio_is_of_medians_of_processes() -> None:
    """One process that landed badly moves neither side's centre."""
    compared = compare_processes(processes(100, 100, 500), processes(110, 110, 900), relative_sd=0.01, z=3.0)
    assert compared.ratio == 1.1


def test_threshold_and_interval_come_from_the_given_spread() -> None:
    """On the log scale: threshold = z and interval = +- 1.96 standard errors, whatever the blocks were."""
    compared = compare_processes(processes(100.0), processes(102.0), relative_sd=0.01, z=3.0)
    error = 0.01 * math.sqrt(2)
    assert compared.noise_threshold == pytest.approx(math.expm1(3 * error))
    assert compared.interval95 == pytest.approx(
        (1.02 * math.exp(-1.96 * error), 1.02 * math.exp(1.96 * error)), rel=1e-5
    )


def test_a_spread_from_few_degrees_widens_the_interval() -> None:
    """With five degrees of freedom the interval takes Student's 2.57 instead of 1.96."""
    exact = compare_processes(processes(100.0), processes(100.0), 0.01, 3.0)
    estimated = compare_processes(processes(100.0), processes(100.0), 0.01, 3.0, degrees_of_freedom=5)
    assert math.log(estimated.interval95[1]) / math.log(exact.interval95[1]) == pytest.approx(2.5706 / 1.9600, rel=1e-4)


def test_no_interval_reaches_below_nothing() -> None:
    """With noise larger than the time itself both ends are times, and equally far away as factors."""
    low, high = compare_processes(processes(*[100.0] * 7), processes(150.0), 2.0, 3.0).interval95
    assert 0 < low < 0.05
    assert low * high == pytest.approx(1.5**2)


@pytest.mark.parametrize("z", [2.0, 5.0])
def test_beyond_its_limit_a_ratios_whole_interval_is(z: float) -> None:
    """A ratio at the limit has its interval's lower end at what is allowed, or noise reaches just so far."""
    base, new, error = processes(*[100.0] * 7), processes(*[110.0] * 3), standard_error(0.02, 7, 3)
    compared = compare_processes(base, new, 0.02, z, 18)
    limit = compared.slower_beyond(1.02)
    assert limit == pytest.approx(slower_beyond(1.02, error, z, 18))
    low = limit * compared.interval95[0] / compared.ratio
    assert low == pytest.approx(1.02) if z < 3 else low > 1.02


def test_95_of_100_intervals_hold_the_true_ratio() -> None:
    """Over 4,000 simulated comparisons of seven against three the interval covers 95 +- 1.5 %."""
    generator = random.Random(3)
    covered = 0
    for _ in range(4000):
        base = processes(*(generator.gauss(100, 0.55) for _ in range(7)))
        new = processes(*(generator.gauss(104, 0.572) for _ in range(3)))
        low, high = compare_processes(base, new, 0.0055, 3.0).interval95
        covered += low <= 1.04 <= high
    assert 0.935 < covered / 4000 < 0.965


@pytest.mark.parametrize(("count", "exact"), [(1, 1.0), (3, 0.448671), (5, 0.286834), (7, 0.210447), (9, 0.166101)])
def test_median_variance_is_within_two_percent_for_odd_counts(count: int, exact: float) -> None:
    """The formula agrees with the exact variances of normal order statistics (Sarhan and Greenberg, 1956)."""
    assert median_variance(count) == pytest.approx(exact, rel=0.025)


@pytest.mark.parametrize("count", [2, 4, 6, 8])
def test_median_variance_is_safe_for_even_counts(count: int) -> None:
    """For even counts the formula is at least the variance a simulation shows."""
    generator = random.Random(count)
    medians = [statistics.median(generator.gauss(0, 1) for _ in range(count)) for _ in range(4000)]
    assert median_variance(count) > statistics.pvariance(medians)


def test_more_processes_narrow_the_ratio() -> None:
    """The standard error falls with processes on either side, and one side alone keeps its own share."""
    assert standard_error(0.01, 7, 3) < standard_error(0.01, 7, 1) < standard_error(0.01, 1, 1)
    assert standard_error(0.01, 7, 10**6) == pytest.approx(0.01 * math.sqrt(median_variance(7)), rel=1e-4)


def test_z_shares_the_rate_among_the_cases() -> None:
    """1 % a suite over 10 cases is 0.1 % a case, one-sided: 3.09 standard deviations."""
    assert z_for(0.01, 10) == pytest.approx(3.0902, abs=1e-4)
    assert z_for(0.01, 1) == pytest.approx(2.3263, abs=1e-4)
    assert z_for(0.01, 1, degrees_of_freedom=6) == pytest.approx(3.1427, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "cases", "text"),
    [(0.0, 3, "suite_rate is 0.0"), (0.5, 3, "suite_rate is 0.5"), (0.01, 0, "at least one case, got 0")],
)
def test_z_refuses_what_has_no_meaning(rate: float, cases: int, text: str) -> None:
    """A rate outside (0, 0.5) and a suite without cases are errors that show the value."""
    with pytest.raises(ValueError, match=text):
        z_for(rate, cases)


@pytest.mark.parametrize("side", ["base", "new"])
def test_plain_numbers_are_refused(side: str) -> None:
    """Blocks given as floats are a TypeError naming the side: intervals are over processes only."""
    sides: dict[str, typing.Any] = {"base": processes(1.0), "new": processes(1.0), side: [1.0, 2.0]}
    with pytest.raises(TypeError, match=f"the {side} side of a comparison holds a float, not a ProcessSummary"):
        compare_processes(sides["base"], sides["new"], 0.01, 3.0)


def test_an_empty_side_and_a_negative_spread_are_refused() -> None:
    """A comparison needs processes on both sides and a spread that can be one."""
    with pytest.raises(ValueError, match="the new side of a comparison has no processes"):
        compare_processes(processes(1.0), [], 0.01, 3.0)
    with pytest.raises(ValueError, match=r"relative_sd is -0\.1, must be finite and not negative"):
        compare_processes(processes(1.0), processes(1.0), -0.1, 3.0)
    with pytest.raises(ValueError, match="at least one process, got 0"):
        median_variance(0)


def test_no_function_takes_a_flat_list_of_numbers() -> None:
    """Every sequence any public function of the module accepts is one of `ProcessSummary`."""
    functions = [
        part for _, part in inspect.getmembers(comparison, inspect.isfunction) if part.__module__ == comparison.__name__
    ]
    assert compare_processes in functions
    for function in functions:
        for annotation in typing.get_type_hints(function).values():
            if typing.get_origin(annotation) is not None:
                assert annotation in (Sequence[ProcessSummary], int | None), f"{function.__name__}: {annotation}"


TWO = median_variance(2)


def on_cards(cards: str, us: float = 100.0) -> list[ProcessSummary]:
    """A process on each of these cards."""
    return [replace(processes(us)[0], device_id=card) for card in cards]


@pytest.mark.parametrize(
    ("base", "new", "variance"),
    [("xxx", "x", 0), ("xxx", "y", 2), ("xxyy", "z", 1 + TWO), ("xxyy", "x", TWO), ("xxyy", "xy", 2 * TWO - 1)],
)
def test_what_unlike_cards_add(base: str, new: str, variance: float) -> None:
    """Nothing on one same card, two units between two cards, less the more cards a side is spread over; of two sides
    that are spread alike what the medians, and not the means, make of it."""
    sides = (on_cards(base), on_cards(new))
    assert card_variance(*sides) == pytest.approx(variance, abs=1e-9)
    compared = compare_processes(*sides, 0.003, 3.0, card_sd=0.004)
    within = standard_error(0.003, len(base), len(new))
    assert compared.card_error == pytest.approx(0.004 * math.sqrt(card_variance(*sides)))
    assert compared.standard_error == pytest.approx(math.hypot(within, compared.card_error))


def test_degrees_of_freedom_are_of_what_adds_most() -> None:
    """On a stored card those of processes, on another one nearly those of the cards; unknown cards change nothing."""
    noise = NoiseEstimate(0.001, 200, "given", card_sd=0.01, card_degrees=13)
    base = on_cards("xxxx")
    assert with_degrees_between(noise, base, on_cards("x")).degrees_of_freedom == 200
    assert with_degrees_between(noise, base, on_cards("y")).degrees_of_freedom == 13
    alone = NoiseEstimate(0.001, 200, "given")
    assert with_degrees_between(alone, base, on_cards("y")) is alone
