from __future__ import annotations

import math

import pytest

from pytest_attnperf.tools.profilers.claims.claimed_figures import (
    Amount,
    ByteRate,
    Capacity,
    ChipSize,
    Factor,
    FlopRate,
    Intensity,
    Interval,
    Percent,
    PrintedFigure,
    Rate,
    Time,
    exact_interval,
    format_kib,
    format_percent,
    format_seconds,
    format_si,
)


@pytest.mark.parametrize(
    ("kind", "text", "low", "high"),
    [
        (Time, "31.3 us", 31.25e-6, 31.35e-6),
        (Time, "31.30 \u03bcs", 31.295e-6, 31.305e-6),
        (Time, "2 microseconds", 1.5e-6, 2.5e-6),
        (FlopRate, "36,900 GFLOPs/s", 36899.5e9, 36900.5e9),
        (FlopRate, "36.9 TFLOPS", 36.85e12, 36.95e12),
        (ByteRate, "0.92 GB/s", 0.915e9, 0.925e9),
        (Rate, "5.3 TB/s", 5.25e12, 5.35e12),
        (Intensity, "26.6 FLOPs/byte", 26.55, 26.65),
        (Factor, "51.9\u00d7", 51.85, 51.95),
        (Percent, "+2-4%", 0.02, 0.04),
        (Percent, "0.5\u20131%", 0.005, 0.01),
        (Percent, "-3%", -0.035, -0.025),
        (Percent, "-3-4%", -0.04, -0.03),
        (Percent, "90%+", 0.90, math.inf),
        (Percent, ">=90%", 0.90, math.inf),
        (Percent, "<5%", 0.0, 0.05),
        (ChipSize, "128 KB", 127.5 * 1024, 128.5 * 1024),
        (ChipSize, "~49KB", 48 * 1024, 50 * 1024),
        (ChipSize, "1.5e3 bytes", 1450, 1550),
        (Capacity, "32 waves", 31.5, 32.5),
        (Amount, "4,000 nps", 3999.5, 4000.5),
    ],
)
def test_figure_stands_for_what_its_decimals_allow(
    kind: type[PrintedFigure], text: str, low: float, high: float
) -> None:
    """A printed figure is an interval in SI units: half a unit of its last digit, a range, or an open end."""
    found = kind.parse(text)
    assert found.interval == pytest.approx(Interval(low, high))
    assert found.text == text


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Time, 31.3, r"31\.3 is no time: expected a text such as '31.3 us', so that its unit and decimals are known"),
        (Time, "31.3", r"'31\.3' has no unit: expected a text such as '31.3 us'"),
        (Time, "31.3 GB/s", r"'GB/s' is no unit of a time; known: s, ms, us, ns"),
        (ByteRate, "fast", r"'fast' is no bandwidth: expected a text such as '212 GB/s'"),
        (Percent, "4-2%", r"'4-2%' is a range from more to less"),
        (Time, "-1 us", r"'-1 us': a time is not negative"),
        (Amount, "1.2.3 x", r"is no amount"),
        (Factor, "1" * 500 + "x", r"is no factor"),
    ],
)
def test_text_without_a_figure_is_refused(kind: type[PrintedFigure], value: object, message: str) -> None:
    """The message has the value seen, and an example of what is expected or the units that are known."""
    with pytest.raises(ValueError, match=message):
        kind.parse(value)


def test_intervals_meet_where_rounding_allows() -> None:
    """0.897 ms / 0.232 ms is 3.866 and was printed as 3.86: both figures may be rounded, so they do not differ."""
    ratio = Time.parse("0.897 ms").interval.divide_by(Time.parse("0.232 ms").interval)
    assert ratio.can_equal(Factor.parse("3.86x").interval)
    assert not ratio.can_equal(Factor.parse("3.84x").interval)


def test_interval_of_nothing_is_no_division_by_zero() -> None:
    """A quotient by a time that may be 0 has no upper end, and its finite end speaks for it."""
    found = exact_interval(3.0).divide_by(Time.parse("0 us").interval)
    assert math.isinf(found.high)
    assert Interval(-math.inf, 2.0).middle == 2.0
    assert Interval(1.0, math.inf).middle == 1.0


def test_amounts_of_one_dimension_are_comparable() -> None:
    """TB/s and GB/s are, GB/s and TFLOPS are not, and a unit of its own only with itself."""
    assert Amount.parse("5.3 TB/s").is_comparable(Amount.parse("212 GB/s"))
    assert not Amount.parse("5.3 TB/s").is_comparable(Amount.parse("36.9 TFLOPS"))
    assert Amount.parse("1 nps").is_comparable(Amount.parse("2 nps"))


def test_figures_are_printed_with_prefixes() -> None:
    """Three digits unless asked for more, and the prefix that keeps them short."""
    assert format_si(25_165_824, "B") == "25.2 MB"
    assert format_si(28_800, "B") == "28.8 KB"
    assert format_si(805_306_368, "FLOP", 4) == "805.3 MFLOP"
    assert format_si(999.9e9, "B/s") == "1 TB/s"
    assert format_si(12, "FLOP") == "12 FLOP"
    assert [format_seconds(value) for value in (1.5, 0.00235, 31.3e-6, 4e-9)] == ["1.5 s", "2.35 ms", "31.3 us", "4 ns"]
    assert [format_percent(value) for value in (0.0152, 3.137, math.inf)] == ["1.52%", "314%", "any percentage"]
    assert (format_kib(65536), format_kib(1536)) == ("64 KiB", "1,536 bytes")
