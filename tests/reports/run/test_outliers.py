"""One process far from the others."""

from __future__ import annotations

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.reports.run.outliers import find_outlier


@pytest.mark.parametrize(
    ("medians", "far"),
    [
        ((10.0, 10.1, 14.0, 10.05), 14.0),
        ((10.0, 10.1, 6.0, 10.05), 6.0),
        ((10.0, 10.1, 10.4, 10.05), None),  # within 5 %
        ((10.0, 11.0, 12.0, 14.0), None),  # all of them scatter
        ((10.0, 10.1, 14.0), None),  # two cannot outvote one
        ((10.0, 10.1, 14.0, 14.1), None),  # two levels
    ],
)
def test_an_outlier_is_one_process_far_from_all_others(medians: tuple[float, ...], far: float | None) -> None:
    """By 5 % of their times, and three times as far as the others lie apart."""
    found = find_outlier([ProcessSummary(us, us, us, (us,), 10, "graph") for us in medians])
    assert (found.median_us if found else None) == far
