from __future__ import annotations

import json
from dataclasses import replace

from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.tools.history.history_text import (
    ListedCase,
    describe_change,
    describe_suspect,
    encode_histories,
    format_day,
    render_cases,
    render_histories,
)

HOSTILE = "\x1b[31m<b>|\n" + "x" * 100_000
POINTS = tuple(
    HistoryPoint(f"2026-01-{day:02}T12:30:00+00:00", f"{day:040x}+dirty", "SAME", 100.0 + day, (100.0, 103.0))
    for day in range(1, 21)
)
CHANGE = ChangePoint(10, 105.0, 115.5, "a" * 40, "b" * 40, ("torch: 1 -> 2",), 12.34)
HISTORY = CaseHistory("prefill/ck/w", "sm_90", "h200", POINTS, (CHANGE,), ("a note",))


def test_a_series_says_where_it_changed_and_what_is_newest() -> None:
    """Changes first, then so many runs, and how many are not shown."""
    text = render_histories([HISTORY], 100, shown=3)
    assert text.startswith("prefill/ck/w on sm_90/h200\n20 runs, 2026-01-01 to 2026-01-20\nnewest 120.0 us\na note\n")
    assert "2026-01-11  +10.0 %      105.0     115.5  aaaaaaaaaaaa  bbbbbbbbbbbb" in text
    assert "2026-01-11: 12.3 sigmas; what changed with it: torch: 1 -> 2" in text
    assert text.count("2026-01-") == 2 + 2 + 3
    assert "2026-01-20 12:30    120.0          2  +3.0 %  000000000000+dirty" in text
    assert text.endswith("17 earlier runs are not shown")


def test_without_changes_or_points_it_is_said() -> None:
    """Nothing is left for the reader to guess."""
    assert "no change found" in render_histories([replace(HISTORY, changes=())], 100)
    empty = replace(HISTORY, points=(), changes=(), notes=("wrong in 1 run",))
    assert render_histories([empty], 100) == "prefill/ck/w on sm_90/h200\nno run with a time\nwrong in 1 run"


def test_a_change_is_named_by_who_may_have_caused_it() -> None:
    """The code, something beside it, or certainly not the code."""
    assert (
        describe_change(CHANGE, POINTS)
        == "+10.0 % (105.0 us -> 115.5 us) between aaaaaaaaaaaa and bbbbbbbbbbbb, 2026-01-11"
    )
    assert describe_suspect(CHANGE) == "torch: 1 -> 2"
    assert describe_suspect(replace(CHANGE, environment=())) == "the code, as far as is known"
    same = replace(CHANGE, first_after=CHANGE.last_before)
    assert describe_suspect(same) == "not the code: both sides are the same commit; torch: 1 -> 2"
    unknown = replace(CHANGE, last_before="unknown", first_after="unknown", environment=())
    assert describe_suspect(unknown) == "the code, as far as is known"


def test_the_list_has_a_row_per_case() -> None:
    """With what was wrong, and the newest change."""
    listed = ListedCase("prefill/ck/w", "sm_90/h200", 20, 3, "2026-01-20T00:00:00+00:00", CHANGE, "2026-01-11")
    text = render_cases([listed, ListedCase("b", "cpu/x", 1, 0, "2026-01-01")], ["2 cases"], 120)
    head, _, first, second = text.splitlines()[:4]
    assert head.split() == ["case", "device", "runs", "newest", "wrong", "last", "change"]
    change = ["+10.0", "%", "2026-01-11", "bbbbbbbbbbbb"]
    assert first.split() == ["prefill/ck/w", "sm_90/h200", "20", "2026-01-20", "3", *change]
    assert second.split() == ["b", "cpu/x", "1", "2026-01-01"]
    assert text.endswith("\n\n2 cases")


def test_what_all_cases_share_is_said_once() -> None:
    """Names of 60 characters and their runs fit 80 columns; one that does not fit has a line of its own, whole."""
    name = "prefill/native.sdpa_flash/prefill-b1-s128-h4-d64-f16-causal"
    listed = [ListedCase(one, "sm_90/h200", 20, 0, "2026-01-20") for one in (name, "x" * 190)]
    lines = render_cases(listed, ["2 cases"], 80).splitlines()
    assert lines[0].split() == ["case", "runs", "newest"]
    assert lines[2].split() == [name, "20", "2026-01-20"]
    assert lines[-2:] == ["on sm_90/h200", "2 cases"]
    assert [line for line in lines if len(line) > 80] == ["x" * 190]
    changed = replace(listed[0], change=CHANGE, change_at="2026-01-11")
    narrow = render_cases([changed, listed[1]], [], 80)
    assert narrow.splitlines()[2] == name
    assert narrow.splitlines()[3].split() == ["20", "2026-01-20", "+10.0", "%", "2026-01-11", "bbbbbbbbbbbb"]


def test_a_series_fits_80_columns() -> None:
    """With commits of dirty trees; a branch has a column where runs are of several."""
    dirty = replace(CHANGE, last_before="a" * 40 + "+dirty", first_after="b" * 40 + "+dirty")
    points = tuple(replace(point, branch="main") for point in POINTS)
    text = render_histories([replace(HISTORY, points=points, changes=(dirty,))], 80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("started UTC") == 1
    assert "all of branch main" in text
    several = render_histories([replace(HISTORY, points=(*points, replace(points[0], branch="topic")))], 120)
    assert "topic" in several
    assert "all of branch" not in several


def test_days_are_those_of_utc() -> None:
    """Points of several zones are in the order of their time, so their times are shown on one clock."""
    zoned = ("2026-01-02T23:30:00-02:00", "2026-01-03T12:00:00+09:00", "2026-01-03T04:00:00Z", "2026-01-03T05:00:00")
    points = tuple(replace(POINTS[0], started=started) for started in zoned)
    text = render_histories([CaseHistory("a/b/c", "sm_90", "h200", points)], 100)
    assert "4 runs, 2026-01-03 to 2026-01-03" in text
    shown = [line[:16] for line in text.splitlines() if line.startswith("2026-01-03 ")]
    assert shown == ["2026-01-03 01:30", "2026-01-03 03:00", "2026-01-03 04:00", "2026-01-03 05:00"]
    assert format_day("0001-01-01T00:00:00+12:00") == "0001-01-01"


def test_a_thinned_series_says_so() -> None:
    """How many runs there are, how many are read, and how to see all."""
    text = render_histories([replace(HISTORY, runs=146_000)], 100)
    assert f"146000 runs, of which {len(HISTORY.points)} are read, 20" in text
    assert "--since shows a shorter time whole" in " ".join(text.split())
    assert f"{146_000 - min(12, len(HISTORY.points))} earlier runs are not shown" in text


def test_foreign_text_repaints_nothing() -> None:
    """No control character reaches the terminal, and no line is longer than a name may be."""
    point = HistoryPoint(HOSTILE, HOSTILE, HOSTILE, 1.0, (1.0, 2.0), 1.0, HOSTILE)
    change = ChangePoint(0, 1.0, 2.0, HOSTILE, HOSTILE, (HOSTILE,))
    history = CaseHistory(HOSTILE, HOSTILE, HOSTILE, (point,), (change,), (HOSTILE,))
    listed = ListedCase(HOSTILE, HOSTILE, 1, 0, HOSTILE, change, HOSTILE)
    for text in (render_histories([history], 100), render_cases([listed], [HOSTILE], 100)):
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) < 450
    assert json.loads(json.dumps(encode_histories([history])))[0]["case"] == HOSTILE
