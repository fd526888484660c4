"""Two sides as text."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.run.compared import (
    ComparedRow,
    GroupRow,
    card_table,
    case_table,
    group_table,
    list_case_lines,
    list_reason_lines,
)
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
        "95 %: confidence interval of the change",
        "limit: change from which a case looks slower",
    ]
    assert "\x1b[1;31mslower" in case_table([row], width=100, ink=Ink.ansi())


def test_groups() -> None:
    """A line per backend: cases, mean change, and how many look how."""
    text = group_table([GroupRow("triton.flash", 0.97, 12, 1, 5)], "backend", width=80)
    assert text.splitlines()[-1].split() == ["triton.flash", "12", "-3.0", "%", "1", "5"]


def test_lists() -> None:
    """Names of one side, the first few; reasons with how many cases each has, the most frequent first."""
    keys = [CaseKey("s", "b", f"w{n}") for n in range(7)]
    assert list_case_lines("only in the first", keys, 80)[0] == "only in the first: 7 cases"
    assert list_case_lines("only in the first", keys, 80)[-1] == "  and 2 more"
    assert list_case_lines("only in the first", [], 80) == []
    told = list_reason_lines(
        [(keys[0], "timer: graph and event"), *((key, "product: a and b\x1b[2J") for key in keys[1:])], 200
    )
    assert told == [
        "cannot be compared: 6 cases, product: a and b [2J (s/b/w1, ...)",
        "cannot be compared: 1 case, timer: graph and event (s/b/w0)",
    ]


@dataclass(frozen=True)
class Offset:
    """As `session.card_spread` makes one."""

    offset: float = 0.031
    interval95: tuple[float, float] = (0.028, 0.034)
    cases: int = 40


@dataclass(frozen=True)
class Card:
    """As `session.card_spread` makes one."""

    device_id: str
    cases: int = 40
    clock_mhz: float | None = None
    power_cap_w: str = ""
    temperature_c: str = ""
    partition: str = ""
    offset: Offset | None = None
    slow: bool = False


def test_a_slow_card_stands_out() -> None:
    """A word in front of it, its offset with an interval, and its clock; what nobody knows has no column."""
    cards = [Card("GPU-a", clock_mhz=1800.4, offset=Offset(), slow=True), Card("GPU-b", clock_mhz=1905.0)]
    assert card_table([("sm_90/h200", cards)], width=80).splitlines() == [
        "      card   cases  offset              95 %  over   MHz",
        "----  -----  -----  ------  ----------------  ----  ----",
        "sm_90/h200",
        "SLOW  GPU-a     40  +3.1 %  +2.8 % .. +3.4 %    40  1800",
        "      GPU-b     40       -                 -     -  1905",
        "over: cases that other cards ran, too",
    ]


def test_narrow_hostile_and_empty() -> None:
    """Escape sequences are taken out of what files say; a long name has a line of its own, and is
    whole; no cards are no table."""
    cards = [Card("GPU-" + "x" * 80 + "\x1b[2J", power_cap_w="700\x1b[31m", offset=Offset())]
    text = card_table([("", cards)], width=50)
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if len(line) > 50] == [f"  GPU-{'x' * 80} [2J"]
    assert card_table([("sm_90/h200", [])], width=80) == ""
