from __future__ import annotations

import dataclasses
import math
import re

import pytest

from pytest_attnperf.session.bisect.bisect_result import (
    BisectOutcome,
    BisectResult,
    BisectSettings,
    MeasuredRevision,
    RevisionSide,
    SkippedRevision,
    format_step,
    render_result,
)

BAD = MeasuredRevision("d", 8, 1.0212, (1.018, 1.0241), RevisionSide.SLOW)
CULPRIT = MeasuredRevision("b", 4, 1.0208, (1.0176, 1.0243), RevisionSide.SLOW)
FOUND = BisectResult(
    BisectOutcome.CULPRIT,
    "a",
    "d",
    ("b",),
    BisectSettings(),
    measured=(BAD, CULPRIT),
    end=BAD,
    detectable=0.005,
    seconds=209.6,
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "confidence is 1, must be at least 0.5 and below 1, e.g. 0.99"),
        ({"confidence": 0.4}, "confidence is 0.4, must be at least 0.5 and below 1, e.g. 0.99"),
        ({"confidence": math.nan}, "confidence is nan, must be"),
        ({"threshold_percent": -1.0}, "threshold is -1 %, must be 0 or more, e.g. 0.5"),
        ({"threshold_percent": math.inf}, "threshold is inf %, must be 0 or more"),
        ({"pairs_max": 3}, "pairs-max is 3, must be at least 4: fewer show too little of their scatter"),
    ],
)
def test_settings_outside_their_range(settings: dict[str, float], message: str) -> None:
    """A value outside its range is named with what is allowed."""
    with pytest.raises(ValueError, match=re.escape(message)):
        BisectSettings(**settings)  # type: ignore[arg-type]


def test_culprit() -> None:
    """The first slow commit is one line: its ratio with the interval, how sure, and what it took."""
    assert render_result(FOUND, lambda revision: f"<{revision}>") == [
        "first slow commit: <b>: +2.1 % (+1.8..+2.4) against GOOD, 99 % sure; 2 revisions, 12 pairs, 210 s"
    ]


def test_range() -> None:
    """A range names its commits, which of them were skipped and why, and what stopped the search."""
    unclear = MeasuredRevision("b", 32, 1.009, (1.004, 1.014), RevisionSide.UNCLEAR)
    skipped = SkippedRevision("c", "does not build\nline 2")
    found = dataclasses.replace(
        FOUND, outcome=BisectOutcome.RANGE, suspects=("b", "c", "d"), measured=(BAD, unclear), skipped=(skipped,)
    )
    assert found.culprit is None
    assert render_result(found) == [
        "first slow commit: one of these 3; 99 % sure; 2 revisions, 40 pairs, 210 s",
        "  b",
        "  c (skipped)",
        "  d",
        "not narrowed further: with 32 pairs b is neither clearly above nor below half the slowdown: "
        "+0.9 % (+0.4..+1.4); raise --pairs-max",
        "at least two changes: +0.9 % (+0.4..+1.4) at b, the rest of +2.1 % later: bisect from there to BAD",
        "skipped c: does not build",
    ]


def test_range_because_bad_is_hardly_slower() -> None:
    """A BAD that is too little slower is what stopped the search; a search that was stopped gives no advice."""
    end = MeasuredRevision("d", 32, 1.006, (1.002, 1.01), RevisionSide.UNCLEAR)
    found = dataclasses.replace(FOUND, outcome=BisectOutcome.RANGE, suspects=("b", "c", "d"), measured=(end,), end=end)
    line = "not narrowed further: with 32 pairs d is too little slower to tell its commits apart: +0.6 % (+0.2..+1.0)"
    assert render_result(found)[-1] == f"{line}; raise --pairs-max"
    end = dataclasses.replace(end, pairs=8)
    stopped = dataclasses.replace(found, measured=(end,), end=end)
    assert render_result(stopped)[-1] == line.replace("32", "8")


def test_long_range_is_cut() -> None:
    """Of a long range twenty commits are named, and the last."""
    names = tuple(f"c{index}" for index in range(50))
    found = dataclasses.replace(FOUND, outcome=BisectOutcome.RANGE, suspects=names)
    lines = render_result(found)
    assert lines[20:22] == ["  c19", "  and 30 more, up to c49"]
    assert len(lines) == 22


def test_no_slowdown() -> None:
    """Nothing to search for is said with the interval and the smallest slowdown that would have been seen."""
    end = MeasuredRevision("d", 12, 1.001, (0.998, 1.004), RevisionSide.FAST)
    found = dataclasses.replace(FOUND, outcome=BisectOutcome.NO_SLOWDOWN, suspects=(), measured=(end,), end=end)
    assert render_result(found) == [
        "no slowdown between a and d: +0.1 % (-0.2..+0.4), smallest detectable slowdown 0.5 %; 99 % sure; "
        "1 revision, 12 pairs, 210 s"
    ]
    unknown = dataclasses.replace(found, detectable=None)
    assert "+0.4); 99 % sure" in render_result(unknown)[0]


def test_slower_by_less_than_asked_for() -> None:
    """A BAD that is certainly slower, and certainly by less than the threshold, is not called equal."""
    end = MeasuredRevision("d", 12, 1.003, (1.002, 1.004), RevisionSide.FAST)
    found = dataclasses.replace(FOUND, outcome=BisectOutcome.NO_SLOWDOWN, suspects=(), measured=(end,), end=end)
    assert render_result(found)[1:] == ["it is slower, but by less than 0.5 % (--threshold)"]
    assert found.part_way == ()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            MeasuredRevision("c", 4, 1.01, (1.007, 1.013), RevisionSide.BETWEEN),
            "+1.0 % (+0.7..+1.3) at c, the rest of +2.1 %",
        ),
        (
            MeasuredRevision("c", 4, 1.06, (1.05, 1.07), RevisionSide.SLOW),
            "+6.0 % (+5.0..+7.0) at c, of which +2.1 % is left",
        ),
        (
            MeasuredRevision("c", 4, 0.97, (0.96, 0.98), RevisionSide.FAST),
            "-3.0 % (-4.0..-2.0) at c, faster than GOOD, before",
        ),
    ],
)
def test_more_than_one_change(record: MeasuredRevision, expected: str) -> None:
    """A revision certainly at neither end's ratio is named, in whichever direction it lies."""
    found = dataclasses.replace(FOUND, measured=(BAD, CULPRIT, record))
    assert found.part_way == (record,)
    assert render_result(found)[1].startswith(f"at least two changes: {expected}")


@pytest.mark.parametrize("interval", [(0.999, 1.002), (1.0, 1.01), (1.01, 1.018), (1.0241, 1.03)])
def test_one_change_is_not_called_two(interval: tuple[float, float]) -> None:
    """A revision whose interval touches GOOD's ratio or BAD's interval shows nothing."""
    record = MeasuredRevision("c", 4, 1.01, interval, RevisionSide.FAST)
    assert dataclasses.replace(FOUND, measured=(BAD, CULPRIT, record)).part_way == ()


def test_culprit_that_is_part_of_the_way_speaks_for_the_others() -> None:
    """When the culprit itself carries a part only, no other revision repeats it."""
    culprit = MeasuredRevision("b", 4, 1.01, (1.007, 1.013), RevisionSide.BETWEEN)
    later = dataclasses.replace(culprit, revision="c")
    found = dataclasses.replace(FOUND, measured=(BAD, later, culprit))
    assert [line for line in render_result(found) if "two changes" in line] == [
        "at least two changes: +1.0 % (+0.7..+1.3) at b, the rest of +2.1 % later: bisect from there to BAD"
    ]


def test_steps() -> None:
    """Progress says where a revision lies or why it was skipped, and how many commits are left."""
    equal = MeasuredRevision("c", 4, 0.99999, (0.996, 1.0), RevisionSide.FAST)
    assert format_step(equal, 7, str.upper) == "C: 0.0 % (-0.4..0.0), 4 pairs: fast; 7 commits left"
    assert format_step(SkippedRevision("c", "ERROR: no\nmore"), 1) == "c: skipped: ERROR: no; 1 commit left"
