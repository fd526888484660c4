from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.tools.history.site.trend_chart import (
    HEIGHT,
    MOST_DRAWN,
    TrendChart,
    choose_ticks,
    draw_history,
    format_ticks,
    place_days,
)


def history_of(times_us: list[float], *changes: ChangePoint, verdict: str = "SAME") -> CaseHistory:
    """A series with a run a day, each of two processes 1 % apart."""
    points = tuple(
        HistoryPoint(
            f"2026-{1 + day // 28:02}-{1 + day % 28:02}T00:00:00Z", f"c{day}", verdict, us, (us * 0.995, us * 1.005)
        )
        for day, us in enumerate(times_us)
    )
    return CaseHistory("a/b/c", "sm_90", "sample", points, tuple(changes))


def draw(history: CaseHistory) -> TrendChart:
    """The chart with the spans of its processes."""
    return draw_history(history, [(min(one.process_us), max(one.process_us)) for one in history.points])


@pytest.mark.parametrize("us", [1e-9, 0.003, 1.0, 99.996, 12345.678, 1e12])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01, 0.5])
def test_ticks_are_numbers_that_a_person_would_choose(us: float, noise: float) -> None:
    """Two to six multiples of 1, 2 or 5, each with a different text that is its value."""
    low, high = us * (1 - noise) * 0.99, us * (1 + noise) * 1.01
    ticks = choose_ticks(low, high)
    assert 2 <= len(ticks) <= 6
    assert all(low * 0.999999 <= tick <= high * 1.000001 for tick in ticks)
    texts = format_ticks(ticks)
    assert len(set(texts)) == len(texts)
    assert [float(text) for text in texts] == pytest.approx(ticks)
    digits = f"{ticks[1] - ticks[0]:.6e}".partition("e")[0]
    assert digits in ("1.000000", "2.000000", "5.000000")


def test_marks_lie_where_their_times_are() -> None:
    """The fastest run is lowest; all marks are within the chart, in the order of the runs."""
    chart = draw(history_of([100.0, 104.0, 96.0]))
    (path,) = [path for kind, path in chart.paths if kind == "dot plain"]
    places = [tuple(map(int, found)) for found in re.findall(r"M(\d+) (\d+)h0", path)]
    assert [across for across, _ in places] == [5, 15, 25]
    downs = [down for _, down in places]
    assert downs[1] < downs[0] < downs[2]
    assert all(0 < down < HEIGHT for down in downs)


def test_one_slow_process_does_not_flatten_the_others() -> None:
    """A process of a hundred times its median is cut at the chart's border."""
    history = history_of([100.0, 101.0, 102.0])
    slow = replace(history.points[1], process_us=(101.0, 10_000.0))
    chart = draw(replace(history, points=(history.points[0], slow, history.points[2])))
    assert chart.high < 110
    (span,) = [path for kind, path in chart.paths if kind == "span"]
    assert "M15 0V" in span


@pytest.mark.parametrize("times", [[5.0], [5.0, 5.0], [1e-300, 1e300]])
def test_few_and_equal_and_extreme_times_are_drawn(times: list[float]) -> None:
    """One run, equal ones, and times at the ends of what a number holds."""
    chart = draw(history_of(times))
    assert chart.low < chart.high
    assert chart.ticks
    assert all(0 <= tick.at <= 100 for tick in chart.ticks)


def test_changes_have_a_line_a_level_and_a_label() -> None:
    """Slower and faster by their own class; the label lies at the change."""
    changes = (ChangePoint(4, 100.0, 110.0, "a", "b"), ChangePoint(8, 110.0, 99.0, "c", "d"))
    chart = draw(history_of([100.0] * 4 + [110.0] * 4 + [99.0] * 4, *changes))
    paths = dict(chart.paths)
    assert paths["change bad"] == f"M40 0V{HEIGHT}"
    assert paths["change good"] == f"M80 0V{HEIGHT}"
    assert len(re.findall("H", paths["level"])) == 3
    assert [(label.text, round(label.at)) for label in chart.labels] == [("+10.0 %", 33), ("-10.0 %", 67)]


def test_labels_do_not_overlap() -> None:
    """Of many changes close together, the newest keep their labels; a phone shows fewer."""
    changes = [ChangePoint(at, 100.0, 110.0, "a", "b") for at in range(3, 300, 3)]
    chart = draw(history_of([100.0] * 300, *changes))
    for narrow, share in ((False, 6.5), (True, 24.0)):
        for row in {label.row for label in chart.labels}:
            places = [label.at for label in chart.labels if label.row == row and (label.narrow or not narrow)]
            assert all(after - before >= share - 1e-9 for before, after in itertools.pairwise(places))
    assert chart.labels[-1].at == 99.0
    assert 0 < sum(label.narrow for label in chart.labels) < len(chart.labels)


def test_days_are_spread_and_not_repeated() -> None:
    """At most seven, three on a phone; runs of one day have one."""
    started = [point.started for point in history_of([1.0] * 100).points]
    days = place_days(started)
    assert len(days) == 7
    assert sum(day.narrow for day in days) == 3
    assert [day.text for day in place_days(["2026-01-01T00:00:00Z"] * 50)] == ["2026-01-01"]
    assert [day.text for day in place_days(["no date"])] == ["no date"]


def test_very_long_series_show_their_newest_runs() -> None:
    """The chart says from which run on; changes before it are not drawn, and the level starts at its border."""
    changes = (ChangePoint(10, 90.0, 100.0, "a", "b"),)
    chart = draw(history_of([100.0] * (MOST_DRAWN + 500), *changes))
    assert (chart.first, chart.width) == (500, 10 * MOST_DRAWN)
    assert chart.labels == ()
    assert dict(chart.paths)["level"].startswith("M0 ")


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [("SAME", "plain"), ("FASTER", "good"), ("SLOWER", "bad"), ("UNDECIDED", "open"), ("<b>", "plain")],
)
def test_verdicts_have_their_marks(verdict: str, kind: str) -> None:
    """A verdict of a later version, or of nobody, is a plain mark."""
    assert [name for name, path in draw(history_of([1.0], verdict=verdict)).paths if name.startswith("dot")] == [
        f"dot {kind}"
    ]
