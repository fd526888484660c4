"""The table of cards."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.reports.run.by_gpu import card_table


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
    ]


def test_narrow_hostile_and_empty() -> None:
    """Escape sequences are taken out of what files say; no line is wider than asked; no cards are no table."""
    cards = [Card("GPU-" + "x" * 80 + "\x1b[2J", power_cap_w="700\x1b[31m", offset=Offset())]
    text = card_table([("", cards)], width=50)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 50
    assert card_table([("sm_90/h200", [])], width=80) == ""
