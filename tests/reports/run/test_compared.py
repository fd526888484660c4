"""Two sides as text."""

from __future__ import annotations

from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.run.compared import ComparedRow, GroupRow, case_table, group_table, listed, reasons
from pytest_attnperf.reports.text.colour import Ink


def test_cases() -> None:
    """Both times, the change with its interval and limit; the word has a colour where that is wanted."""
    row = ComparedRow("s/b/w", "slower", 100.0, 104.2, 1.042, (1.03, 1.054), 1.02)
    bare = ComparedRow("s/b/v", "same", 10.0, 10.0, 1.0, None, None)
    assert case_table([row, bare], width=100).splitlines() == [
        "looks   case   first us  second us  change              95 %   limit",
        "------  -----  --------  ---------  ------  ----------------  ------",
        "slower  s/b/w     100.0      104.2  +4.2 %  +3.0 % .. +5.4 %  +2.0 %",
        "same    s/b/v     10.00      10.00   0.0 %                 -       -",
    ]
    assert "\x1b[1;31mslower" in case_table([row], width=100, ink=Ink.ansi())


def test_groups() -> None:
    """A line per backend: cases, mean change, and how many look how."""
    text = group_table([GroupRow("triton.flash", 0.97, 12, 1, 5)], "backend", width=80)
    assert text.splitlines()[-1].split() == ["triton.flash", "12", "-3.0", "%", "1", "5"]


def test_lists() -> None:
    """Names of one side, the first few; reasons with how many cases each has, the most frequent first."""
    keys = [CaseKey("s", "b", f"w{n}") for n in range(7)]
    assert listed("only in the first", keys, 80)[0] == "only in the first: 7 cases"
    assert listed("only in the first", keys, 80)[-1] == "  and 2 more"
    assert listed("only in the first", [], 80) == []
    told = reasons([(keys[0], "timer: graph and event"), *((key, "product: a and b\x1b[2J") for key in keys[1:])], 200)
    assert told == [
        "cannot be compared: 6 cases, product: a and b [2J (s/b/w1, ...)",
        "cannot be compared: 1 case, timer: graph and event (s/b/w0)",
    ]
