from __future__ import annotations

import re
from array import array

from pytest_attnperf.records import CaseKey
from pytest_attnperf.tools.history.bulk_reading import StoredRun
from pytest_attnperf.tools.history.site.case_summary import CaseSummary, CommitTimes
from pytest_attnperf.tools.history.site.commits import group_commits
from pytest_attnperf.tools.history.site.index_page import count_fleet, draw_fleet
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange

COMMITS = 6


def summary(number: int, *levels: tuple[int, int], measured: tuple[int, ...] = tuple(range(COMMITS))) -> CaseSummary:
    """A case with these levels from these commits on."""
    changes = tuple(
        LastingChange(number, 0, at, at, at - 1, 1.1 if sign >= 0 else 0.9, 1.0, 1.2, 1.0, 1.1, "", "")
        for at, sign in levels[1:]
    )
    times = CommitTimes(array("i", measured), array("d"), array("d"), array("i"), ())
    return CaseSummary(
        number, CaseKey("a", "b", "c"), "d", "", "x.html", 1, 0, 1.0, "SAME", 0, changes, (levels,), "", None, times
    )


def test_cases_are_counted_from_the_commit_of_their_change_on() -> None:
    """Until they are as fast as first measured again; a case that ends slower twice counts once."""
    cases = [
        summary(0, (0, 0), (2, 1), (4, 0)),
        summary(1, (0, 0), (3, -1)),
        summary(2, (1, 0), (2, 1), (5, 1), measured=(1,)),
    ]
    counts = count_fleet(cases, COMMITS)
    assert counts.slower == (0, 0, 2, 2, 1, 1)
    assert counts.faster == (0, 0, 0, 1, 1, 1)
    assert counts.became_slower == (0, 0, 2, 0, 1, 1)
    assert counts.became_faster == (0, 0, 0, 1, 0, 0)
    assert counts.measured == (2, 3, 2, 2, 2, 2)


def test_the_picture_has_slower_ones_above_zero() -> None:
    """Both areas start and end at zero, and their ticks are whole numbers without a sign."""
    runs = [
        StoredRun(n, f"{n}", float(n), f"2026-01-0{n + 1}T00:00:00Z", f"{n}" * 40, "", "", "", "", True, {})
        for n in range(COMMITS)
    ]
    cases = [summary(0, (0, 0), (2, 1)), summary(1, (0, 0), (3, -1))]
    chart = draw_fleet(count_fleet(cases, COMMITS), group_commits(runs))
    paths = dict(chart.paths)
    zero = int(re.fullmatch(r"M0 (\d+)H60", paths["zero"]).group(1))  # type: ignore[union-attr]
    slower, faster = ([int(down) for down in re.findall(r"V(\d+)", paths[f"area {kind}"])] for kind in ("bad", "good"))
    assert slower[-1] == faster[-1] == zero
    assert slower[0] < zero < faster[0]
    assert all(tick.text.isdecimal() for tick in chart.ticks)
