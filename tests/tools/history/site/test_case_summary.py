from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.tools.history.bulk_reading import CaseMeasurement
from pytest_attnperf.tools.history.site.case_summary import SiteSeries, collect_times, list_levels
from pytest_attnperf.tools.history.site.lasting_changes import estimate_interval, list_changes


def change(index: int, before_us: float, after_us: float, sigmas: float = 10.0) -> ChangePoint:
    """A change of a series."""
    return ChangePoint(index, before_us, after_us, f"c{index - 1}", f"c{index}", (), sigmas)


def test_times_are_compared_with_the_run_before_on_the_same_machine() -> None:
    """Not with that of another machine, and not with a wrong run."""
    rows = [(1, 1, "SAME", 100.0), (2, 2, "SAME", 50.0), (3, 1, "INCORRECT", None), (4, 1, "SLOWER", 110.0)]
    measured = [CaseMeasurement(run, machine, 0, verdict, us) for run, machine, verdict, us in rows]
    times = collect_times(measured, {1: 0, 2: 1, 3: 2, 4: 2})
    assert list(times.commits) == [0, 1, 2, 2]
    assert [None if ratio != ratio else round(ratio, 6) for ratio in times.ratios] == [None, None, None, 1.1]
    assert math.isnan(times.us[2])
    assert [times.verdicts[code] for code in times.verdict_codes] == ["SAME", "SAME", "INCORRECT", "SLOWER"]


def test_levels_are_against_the_first_one() -> None:
    """A case that became slower and then as fast as before counts as neither."""
    points = tuple(HistoryPoint("2026-01-01", "c", "SAME", 100.0) for _ in range(30))
    changes = (change(5, 100.0, 110.0), change(10, 110.0, 100.5), change(20, 100.5, 90.0))
    history = CaseHistory("a/b/c", "sm_90", "sample", points, changes)
    assert list_levels(SiteSeries(history, tuple(range(30)), (), ())) == ((0, 0), (5, 1), (10, 0), (20, -1))


def test_changes_have_their_commits_and_an_interval(tmp_path: Path) -> None:
    """The interval holds the ratio, and is narrower with more runs on both sides and less noise."""
    points = tuple(HistoryPoint(f"2026-01-{1 + day:02}", f"c{day}", "SAME", 100.0) for day in range(20))
    history = CaseHistory("a/b/c", "sm_90", "sample", points, (change(10, 100.0, 110.0),))
    (found,) = list_changes(history, 3, 0, tuple(range(100, 120)))
    assert (found.case, found.commit, found.before, found.started) == (3, 110, 109, "2026-01-11")
    assert found.low < found.ratio < found.high
    widths = [
        math.log(high / low)
        for low, high in (
            estimate_interval(change(3, 100.0, 110.0, sigmas), runs, runs)
            for sigmas, runs in ((5, 3), (5, 12), (10, 12))
        )
    ]
    assert widths[0] / widths[1] == pytest.approx(2)
    assert widths[1] / widths[2] == pytest.approx(2)


def test_the_interval_covers_the_true_change() -> None:
    """Of 400 drawn series of normal noise whose true change is 5 %, about 95 % have it within their interval."""
    import random
    import statistics

    draw, covered, sd = random.Random(0), 0, 0.005
    for _ in range(400):
        sides = [[draw.gauss(math.log(level), sd) for _ in range(15)] for level in (100.0, 105.0)]
        before, after = (math.exp(statistics.median(side)) for side in sides)
        made = ChangePoint(15, before, after, "a", "b", (), abs(math.log(after / before)) / sd)
        low, high = estimate_interval(made, 15, 15)
        covered += low <= 1.05 <= high
    assert 0.92 <= covered / 400 <= 0.98
