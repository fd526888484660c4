"""Times as people write and read them."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.session.durations import duration, seconds_of


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_seconds_of(text: str, seconds: float) -> None:
    """Seconds, minutes and hours."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "10 days", "m"])
def test_what_is_no_time(text: str) -> None:
    """A text that is no time above 0 is refused under the name of its option, with examples."""
    with pytest.raises(UsageError, match=r"^--attnperf-budget '.*' must be a time above 0, e.g. 90s, 10m or 1h$"):
        seconds_of(text, "--attnperf-budget")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (85, "85 s"), (119, "119 s"), (121, "2 min"), (3 * 60, "3 min"), (7199, "120 min"), (9000, "2.5 h")],
)
def test_durations_have_units_that_fit(seconds: float, text: str) -> None:
    """Seconds under two minutes, minutes under two hours, then hours."""
    assert duration(seconds) == text
